"""How long does it take to watch every access of a kernel?

`python benchmarks/shadow_speed.py [-o FILE]` takes the median of some runs of: a prange of 10^6 accesses, in Python and
compiled; a launch of 16,384 threads of Numba-CUDA; an addition of 10^6 elements in Triton (where it is installed);
`noyau check` of a file with three kernels, and of a script with three, from the start of the process to its end. What
was promised stands beside it. The machine must do nothing else; it takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # read as Triton is imported

import numpy as np
from numba import cuda, njit, prange
from record import write as write_record

from noyau.sanitizer.numba.compiled import run_compiled
from noyau.sanitizer.numba.kernel import Watching, watch_call
from noyau.sanitizer.recording_array import Recorder
from noyau.sanitizer.routes import call
from noyau.timing.machine import this_machine

RESULTS = Path(__file__).parent / "results" / "shadow_speed.json"
RUNS, ACCESSES, THREADS = 5, 1_000_000, 16_384
MOST_S = {
    "prange, 10^6 accesses, in Python": 3.0,
    "prange, 10^6 accesses, compiled": 0.3,
    "Numba-CUDA, 16,384 threads": 0.2,
    "Triton, an addition of 10^6 elements": 2.0,
    "a file of three kernels": 10.0,
    "a script of three kernels": 10.0,
}

FILE = """
import numpy as np
import noyau
from numba import cuda, njit, prange

@noyau.op("f32[n], f32[n] -> f32[n]")
def add(x, y):
    return x + y

@add.kernel
@njit(parallel=True)
def by_loop(x, y, out):
    for i in prange(x.size):
        out[i] = x[i] + y[i]

@add.kernel(launch=lambda n: ((n + 127) // 128, 128))
@cuda.jit
def by_threads(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]

TEXT = "void by_c(const float *x, const float *y, float *out, long n)"
add.kernel(TEXT + "{ for (long i = 0; i < n; i++) out[i] = x[i] + y[i]; }", language="c", entry="by_c")
"""
SCRIPT = """
import numpy as np
from numba import cuda, njit, prange

@njit(parallel=True)
def add(x, y, out):
    for i in prange(x.size):
        out[i] = x[i] + y[i]

@njit(parallel=True)
def total(x):
    s = 0.0
    for i in prange(x.size):
        s += x[i]
    return s

@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2

x = np.ones(10_000)
add(x, x, np.empty_like(x))
total(x)
double[79, 128](x)
"""


@njit(parallel=True)
def scale(x, out):  # type: ignore[no-untyped-def]
    for i in prange(x.size):
        out[i] = 2 * x[i]


@cuda.jit
def add(x, y, out):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


def by_triton() -> Callable[[], Any] | None:
    """A watched addition in Triton, where it is installed."""
    if find_spec("triton") is None or find_spec("torch") is None:
        return None
    sys.path.insert(0, str(Path(__file__).parent))
    import torch
    from shadow_speed_kernels import add_blocks

    x, y, out = torch.rand(ACCESSES), torch.rand(ACCESSES), torch.zeros(ACCESSES)
    grid = (-(-ACCESSES // 1024),)
    return lambda: call(add_blocks, (x, y, out, ACCESSES, 1024), grid, "", "")


def by_command(text: str, name: str, folder: Path) -> Callable[[], Any]:
    """`noyau check` of a text, in a process."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "noyau", "check", str(file)]

    def run() -> Any:
        done = subprocess.run(command, capture_output=True, check=False, cwd=folder, env=_environment())
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def _environment() -> dict[str, str]:
    root = Path(__file__).parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}


def median_s(run: Callable[[], Any], runs: int = RUNS) -> list[float]:
    """The times of some runs, after one that is not counted."""
    run()
    taken = []
    for _ in range(runs):
        began_s = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began_s)
    return taken


def measured(folder: Path) -> dict[str, list[float]]:
    """Seconds of each run, by what was run."""
    half = np.ones(ACCESSES // 2)
    whole = np.ones(THREADS, np.float32)
    names = list(MOST_S)
    found = {
        names[0]: median_s(
            lambda: watch_call(scale, (half, half.copy()), watching=Watching(scale, Recorder(1 << 40))), 3
        ),
        names[1]: median_s(lambda: run_compiled(scale, (half, half.copy()), frozenset())),
        names[2]: median_s(lambda: call(add, (whole, whole, whole.copy()), (THREADS // 256, 256), "", "")),
    }
    triton = by_triton()
    if triton is not None:
        found[names[3]] = median_s(triton, 3)
    found[names[4]] = median_s(by_command(FILE, "three.py", folder), 2)
    found[names[5]] = median_s(by_command(SCRIPT, "script.py", folder), 2)
    return found


def main() -> int:
    """0 where each is as fast as was promised."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", type=Path, default=RESULTS, metavar="FILE")
    place = parser.parse_args().o
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder))
    rows = {
        name: {"median_s": statistics.median(taken), "promised_s": MOST_S[name], "taken_s": taken}
        for name, taken in found.items()
    }
    for name, row in rows.items():
        print(f"{name:<40} {row['median_s']:7.3f} s, promised {row['promised_s']:g} s")
    record = {"machine": asdict(this_machine()), "rows": rows}
    write_record(record, place)
    return int(any(row["median_s"] > row["promised_s"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
