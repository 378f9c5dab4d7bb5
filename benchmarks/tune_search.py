"""The search of noyau.tune beside trying every choice: how near to the best a quarter of the trials comes.

`python benchmarks/tune_search.py -o FILE.json` searches 400 landscapes that are made up: bowls with a valley across the
axes, cliffs as of occupancy, and noise of 2 %. With `--gpu` also the times of a kernel in CUDA C++ on this GPU: every
choice of two lists, threads of a block and cells of a thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import noyau
from noyau.jobs.bench.autotune import Choice, search
from noyau.kernels.user_kernel import choose_constants

SHAPES = ((8, 6), (5, 5, 3), (10, 8), (4, 4, 4), (7, 6, 4))
THREADS, CELLS = [32, 64, 128, 256, 512, 1024], [1, 2, 4, 8, 16, 32]


@noyau.op("f32[rows, n] -> f32[rows]")
def row_sums(x):
    return x.sum(axis=1)


row_sums.kernel(
    """
__global__ void row_sums(const float *x, float *out, int rows, int n) {
    __shared__ float lanes[THREADS];
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        float own[CELLS] = {0}, sum = 0;
        for (int i = threadIdx.x; i < n; i += THREADS * CELLS)
#pragma unroll
            for (int k = 0; k < CELLS; ++k) own[k] += i + k * THREADS < n ? x[row * (long long)n + i + k * THREADS] : 0;
#pragma unroll
        for (int k = 0; k < CELLS; ++k) sum += own[k];
        lanes[threadIdx.x] = sum;
        for (int half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
        }
        if (threadIdx.x == 0) out[row] = lanes[0];
        __syncthreads();
    }
}
""",
    language="cuda",
    launch=lambda device, THREADS: (device.sm_count * max(1, 2048 // THREADS), THREADS),
    constants={"THREADS": THREADS, "CELLS": CELLS},
    trust=True,
)


def made_up(number: int, noise: np.random.Generator) -> dict[Choice, float]:
    """The times of every choice of some lists."""
    extents = SHAPES[number % len(SHAPES)]
    best = [noise.uniform(-0.2, 1.2) * (extent - 1) for extent in extents]
    weights, across = noise.uniform(0.02, 0.4, len(extents)), noise.uniform(-0.1, 0.1)
    times = {}
    for choice in itertools.product(*map(range, extents)):
        off = np.subtract(choice, best)
        time = 1 + weights @ off**2 + across * off[0] * off[1]
        cliff = (1.15 if (7 * choice[0] + 3 * choice[1]) % 5 == 0 else 1) * (2 if off[0] > 3.5 else 1)
        times[choice] = max(time, 0.2) * cliff * math.exp(noise.normal(0, 0.02))
    return times


def of_the_best(times: Mapping[Choice, float]) -> float:
    """The speed of what a search of a quarter of the choices finds, over that of the best."""
    extents = [1 + max(axis) for axis in zip(*times, strict=True)]
    found = search(extents, times.__getitem__, len(times) // 4)
    return min(times.values()) / times[found]


def on_gpu() -> dict[str, object]:
    import torch
    from triton.testing import do_bench

    landscapes: dict[str, object] = {}
    for rows, n in ((4096, 4096), (256, 65536), (65536, 256)):
        x, times = torch.randn(rows, n, device="cuda"), {}
        for choice in itertools.product(range(len(THREADS)), range(len(CELLS))):
            chosen = (("THREADS", THREADS[choice[0]]), ("CELLS", CELLS[choice[1]]))
            kernel = choose_constants(row_sums.kernels["row_sums"], chosen)
            op = noyau.Op(replace(row_sums.description, kernels=(kernel,)))
            times[choice] = do_bench(lambda op=op, x=x: op(x), warmup=5, rep=20, return_mode="median")
        worst = max(times.values()) / min(times.values())
        name = f"row sums of {rows} x {n}"
        landscapes[name] = {
            "choices": len(times),
            "of_the_best": of_the_best(times),
            "worst_over_best": worst,
            "times_ms": times,
        }
    return landscapes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path)
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    noise = np.random.default_rng(0)
    shares = np.array([of_the_best(made_up(number, noise)) for number in range(400)])
    made = {"landscapes": len(shares), "mean": shares.mean(), "least": shares.min(), "at_95": (shares >= 0.95).mean()}
    results: dict[str, object] = {"made up": made, **(on_gpu() if arguments.gpu else {})}
    for name, facts in results.items():
        assert isinstance(facts, dict)
        times = facts.pop("times_ms", {})
        results[name] = {key: round(float(value), 3) for key, value in facts.items()}
        print(name, results[name], flush=True)
        if times:
            facts["times_ms"] = [float(f"{time:.4g}") for time in times.values()]
            results[name] = {**results[name], "times_ms": facts["times_ms"]}
    if arguments.o is not None:
        arguments.o.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
