"""Distinct counts: noyau's against those of Apache DataSketches from Python, where that is installed.

`python benchmarks/distinct.py --values 100000000` prints nanoseconds of the processor for a value, the error and the
bytes of the state of each; DataSketches, which takes numbers one by one, counts the first two million.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator

import numpy as np

import noyau

PART, FEW = 1 << 20, 2_000_000


def parts(values: int, seed: int) -> Iterator[np.ndarray]:
    """So many distinct values: odd multiples are a permutation of 64 bits."""
    for start in range(0, values, PART):
        yield np.arange(start, min(start + PART, values)) * (2 * seed + 0x1E3779B97F4A7C15)


def by_noyau(name: str, values: int, seed: int) -> tuple[float, float, int]:
    counter = getattr(noyau.reductions, name)(seed=seed)
    counter.over(np.arange(PART))
    state, time_s = counter.zero(), 0.0
    for part in parts(values, seed):
        begin_s = time.process_time()
        state = counter.step(state, part)
        time_s += time.process_time() - begin_s
    return time_s / values, counter.finish(state) / values - 1, len(counter.pack(state))


def by_datasketches(values: int, seed: int) -> tuple[float, float, int]:
    import datasketches

    sketch, time_s = datasketches.hll_sketch(14), 0.0
    for part in parts(values, seed):
        numbers = part.tolist()
        begin_s = time.process_time()
        for number in numbers:
            sketch.update(number)
        time_s += time.process_time() - begin_s
    return time_s / values, sketch.get_estimate() / values - 1, len(sketch.serialize_updatable())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=10**8)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    for seed in range(arguments.seeds):
        runs = {name: by_noyau(name, arguments.values, seed) for name in ("HyperLogLog", "DistinctSample")}
        if importlib.util.find_spec("datasketches") is not None:
            runs["datasketches"] = by_datasketches(min(arguments.values, FEW), seed)
        for name, (value_s, error, size) in runs.items():
            print(f"{name:15} {value_s * 1e9:7.1f} ns a value, off by {error:+.2%}, {size} bytes")


if __name__ == "__main__":
    main()
