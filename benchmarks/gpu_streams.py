"""Copies beside kernels on one GPU, and an op over all GPUs of a machine.

`python benchmarks/gpu_streams.py -o FILE.json` runs two ops over chunks of 64 MB in pinned memory by noyau.overlap, and
sets that beside the larger of the kernels alone and the copies alone, both ways at once: the bound of any overlap. On a
machine of several GPUs it runs a map and a sum of data that lies on all of them already by noyau.split, beside one GPU
with all the data and with its own part: the bound of any split.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import noyau
from noyau.engines.cuda_engine import STREAMS

CELLS, CHUNKS, ROUNDS, STEPS = 16 << 20, 24, 3, 320
SPREAD = (64 << 20, 512 << 20)


@noyau.op("f32[n] -> f32[n]")
def squares(x):
    """Next to no work: bound by the copies."""
    return x * x


@noyau.op("f32[n] -> f32[n]")
def iterated(x):
    """Some work a cell: about as long as its copies."""
    y = x
    for _ in range(STEPS):
        y = np.sin(y) + np.cos(x)
    return y


iterated.kernel(
    f"""
__global__ void iterated(const float *x, float *out, int n) {{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
        float y = x[i];
        for (int step = 0; step < {STEPS}; ++step) y = __sinf(y) + __cosf(x[i]);
        out[i] = y;
    }}
}}
""",
    language="cuda",
    launch=lambda device: (8 * device.sm_count, 256),
    trust=True,
)


@noyau.op("f32[n] -> f32[n]")
def hypotenuse(x):
    return np.sqrt(x * x + 1)


@noyau.op("f32[n] -> f32")
def total(x):
    return x.sum()


def seconds(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median wall time of a call that is waited for."""
    times = []
    for _ in range(rounds + 2):
        for at in range(torch.cuda.device_count()):
            torch.cuda.synchronize(at)
        begin_s = time.perf_counter()
        run()
        for at in range(torch.cuda.device_count()):
            torch.cuda.synchronize(at)
        times.append(time.perf_counter() - begin_s)
    return statistics.median(times[2:])


def overlapped(op: noyau.Op, streams: int) -> dict[str, float]:
    chunks = [torch.randn(CELLS).pin_memory() for _ in range(4)] * (CHUNKS // 4)
    out = torch.empty(CELLS * CHUNKS, pin_memory=True)
    there, back = torch.empty(CELLS, device="cuda"), torch.empty(CELLS, pin_memory=True)
    to_gpu_s = seconds(lambda: [there.copy_(each, non_blocking=True) for each in chunks])
    from_gpu_s = seconds(lambda: [back.copy_(there, non_blocking=True) for _ in chunks])
    both_ways_s = seconds(lambda: both_ways(chunks, back))
    kernels_s = seconds(lambda: [op(there) for _ in chunks])
    one_s = seconds(lambda: noyau.overlap(op, chunks, out=out, streams=1))
    all_s = seconds(lambda: noyau.overlap(op, chunks, out=out, streams=streams))
    copies = {"to_gpu_s": to_gpu_s, "from_gpu_s": from_gpu_s, "both_ways_s": both_ways_s}
    facts = {**copies, "kernels_s": kernels_s, "one_stream_s": one_s, "overlap_s": all_s}
    return {**facts, "of_the_bound": max(both_ways_s, kernels_s) / all_s}


def both_ways(chunks: Sequence[torch.Tensor], back: torch.Tensor) -> None:
    """Copy chunks to the GPU and as many back, over two streams, in none of which anything waits."""
    there, here = torch.empty(CELLS, device="cuda"), torch.empty(CELLS, device="cuda")
    torch.cuda.synchronize()
    to_gpu, from_gpu = torch.cuda.Stream(), torch.cuda.Stream()
    for each in chunks:
        with torch.cuda.stream(to_gpu):
            there.copy_(each, non_blocking=True)
        with torch.cuda.stream(from_gpu):
            back.copy_(here, non_blocking=True)
    torch.cuda.synchronize()


def spread(op: noyau.Op, cells: int, calls: int = 50) -> dict[str, float]:
    count = torch.cuda.device_count()
    x = torch.randn(cells, device="cuda:0")
    shards = [piece.to(f"cuda:{at}") for at, piece in enumerate(x.tensor_split(count))]
    both = noyau.split(op)

    def burst(run: Callable[[], object]) -> float:
        return seconds(lambda: [run() for _ in range(calls)]) / calls

    one_s, part_s, all_s = burst(lambda: op(x)), burst(lambda: op(shards[0])), burst(lambda: both(shards))
    facts = {"one_gpu_s": one_s, "its_part_s": part_s, "all_gpus_s": all_s, "gpus": count}
    return {**facts, "times": one_s / all_s, "of_the_bound": part_s / all_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path)
    path = parser.parse_args().o
    results: dict[str, object] = {"gpu": torch.cuda.get_device_name(), "chunk_bytes": 4 * CELLS, "chunks": CHUNKS}
    for op in (squares, iterated):
        results[f"overlap {op.name}, {STREAMS} streams"] = overlapped(op, STREAMS)
    if torch.cuda.device_count() > 1:
        for op in (hypotenuse, total):
            for cells in SPREAD:
                results[f"split {op.name}, {cells >> 20} Mi"] = spread(op, cells)
    for name, facts in results.items():
        each = facts if not isinstance(facts, dict) else {key: float(f"{value:.4g}") for key, value in facts.items()}
        results[name] = each
        print(name, each, flush=True)
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
