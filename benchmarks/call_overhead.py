"""What does a call cost besides its kernel: of 10 cells, and for the memory of a large result?

`python benchmarks/call_overhead.py [-o FILE]` times, interleaved, calls with one to three inputs of 10 cells: the op,
the same without a signature and with `out=`, its fast call alone (from a tuple of arguments to the result), NumPy, and
the same loops in plain C through ctypes with np.empty, as one would write it (`x.ctypes.data`), and with the addresses
of the inputs known beforehand, which is the least that ctypes can do. Then maps of some sizes, by the op and by NumPy,
that make their result or write it to `out`.

The machine must do nothing else; it takes half a minute.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from record import write as write_record

import noyau
from noyau.hosts.numpy.fast_calls import threads
from noyau.timing.machine import this_machine
from noyau.toolchain.c import compiler as c_compiler

RESULTS = Path(__file__).parent / "results" / "call_overhead.json"
CELLS = 10
ROUNDS, CALLS = 60, 2000  # of CALLS calls each
LARGE = (1 << 16, 1 << 18, 1 << 20, 1 << 22, 12_000_000)  # cells of float32
MOST_US, MOST_RATIO = 8.0, 3.0  # what an op promises, against ctypes in the same run


@noyau.op("f32[n] -> f32[n]")
def square(x: np.ndarray) -> np.ndarray:
    return x * x


@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x + y


@noyau.op("f32[n], f32[n], f32[n] -> f32[n]")
def multiply_add(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return x * y + z


OPS = {"1 input": square, "2 inputs": add, "3 inputs": multiply_add}
C = """
#include <stdint.h>
NOYAU_EXPORT void square(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * x[i];
}
NOYAU_EXPORT void add(const float *x, const float *y, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}
NOYAU_EXPORT void multiply_add(const float *x, const float *y, const float *z, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * y[i] + z[i];
}
"""


def in_ctypes(name: str, inputs: tuple[np.ndarray, ...]) -> dict[str, Callable[[], np.ndarray]]:
    """The bare calls of a function in C, for these inputs."""
    function = getattr(ctypes.CDLL(str(c_compiler.compile_library([C]))), name)
    function.argtypes, function.restype = [ctypes.c_void_p] * (len(inputs) + 1) + [ctypes.c_int64], None
    known = [array.ctypes.data for array in inputs]

    def as_written() -> np.ndarray:
        out = np.empty(CELLS, np.float32)
        function(*[array.ctypes.data for array in inputs], out.ctypes.data, CELLS)
        return out

    def least() -> np.ndarray:
        out = np.empty(CELLS, np.float32)
        function(*known, out.ctypes.data, CELLS)
        return out

    return {"ctypes": as_written, "ctypes, addresses known": least}


def small(op: Any) -> dict[str, Callable[[], np.ndarray]]:
    """Each way to call it on CELLS cells."""
    inputs = tuple(np.random.default_rng(seed).random(CELLS, np.float32) for seed in range(len(op.signature.inputs)))
    want = op(*inputs)
    (fast_call,) = op.calls.plain
    ways = {
        "op": partial(op, *inputs),
        "op, no signature": partial(noyau.op(op.reference), *inputs),
        "op, out=": partial(op, *inputs, out=np.empty_like(want)),
        "fast_call": partial(fast_call, inputs, None),
        **in_ctypes(op.name, inputs),
        "numpy": partial(op.reference, *inputs),
    }
    for name, way in ways.items():
        np.testing.assert_allclose(way(), want, rtol=1e-6, err_msg=name)
    return ways


def interleave(ways: Mapping[str, Callable[[], Any]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds a call of each way, in each round; the ways take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start_s = time.perf_counter()
            for _ in range(calls):
                way()
            found[name].append((time.perf_counter() - start_s) / calls)
    return found


def overheads() -> list[dict[str, Any]]:
    """A row for each number of inputs: the median of each way in microseconds, and the op over ctypes."""
    rows = []
    for told, op in OPS.items():
        times = interleave(small(op), ROUNDS, CALLS)
        median_us = {name: round(statistics.median(each) * 1e6, 3) for name, each in times.items()}
        ratios = {
            name: round(statistics.median(a / b for a, b in zip(times["op"], times[name], strict=True)), 3)
            for name in ("ctypes", "ctypes, addresses known")
        }
        kept = median_us["op"] < MOST_US and ratios["ctypes"] < MOST_RATIO
        rows.append({"inputs": told, "median_us": median_us, "op_over": ratios, "kept": kept})
        print(f"{told:<10}", ", ".join(f"{name} {us:.2f} us" for name, us in median_us.items()), ratios, flush=True)
    return rows


def large() -> list[dict[str, Any]]:
    """A row for each size: the median of each way in microseconds."""
    rows = []
    for cells in LARGE:
        x, y = (np.random.default_rng(seed).random(cells, np.float32) for seed in (1, 2))
        out = np.empty_like(x)
        ways: dict[str, Callable[[], Any]] = {
            "op": partial(add, x, y),
            "op, out=": partial(add, x, y, out=out),
            "numpy": partial(np.add, x, y),
            "numpy, out=": partial(np.add, x, y, out=out),
        }
        times = interleave(ways, 15, max(1, (1 << 22) // cells))
        median_us = {name: round(statistics.median(each) * 1e6, 2) for name, each in times.items()}
        rows.append({"cells": cells, "median_us": median_us})
        print(f"{cells:>9} cells", ", ".join(f"{name} {us:.0f} us" for name, us in median_us.items()), flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    found = {"machine": this_machine().to_json(), "threads": threads(), "overhead": overheads(), "large": large()}
    write_record(found, arguments.output)
    return 0 if all(row["kept"] for row in found["overhead"]) else 1


if __name__ == "__main__":
    sys.exit(main())
