"""Scatters in CUDA C++ on a CUDA device, each way that updates may go, against a plain copy or read of the same bytes.

Rows of the table of gpu_languages.py, which writes them; here are the ops, and what torch does instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu import bytes_of, plain

import noyau
from noyau.codegen.cuda.printer import together
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.dtypes import DType
from noyau.hosts.torch.cuda.clock import time_calls
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.kernels.programs.generate import Specialization, generate
from noyau.ops.op import Op
from noyau.timing.verdict import Comparison

DTYPES = {torch.float32: DType.F32, torch.bfloat16: DType.BF16, torch.int64: DType.I64}


def histogram_of(bins: int) -> Op[..., Any]:
    @noyau.op(f"f32[n] -> i32[{bins}]", name=f"histogram_{bins}")
    def histogram(x: Any) -> Any:
        out = np.zeros(bins, np.int32)
        np.add.at(out, np.clip(np.floor((x + 4) * (bins / 8)), 0, bins - 1).astype(np.int32), 1)
        return out

    return histogram


def sums_of_rows(rows: int) -> Op[..., Any]:
    @noyau.op(f"i64[n], float[n, c] -> float[{rows}, c]", name=f"sums_of_{rows}_rows")
    def sums(at: Any, x: Any) -> Any:
        out = np.zeros((rows, x.shape[1]), x.dtype)
        np.add.at(out, at, x)
        return out

    return sums


@noyau.op("float[k], i64[n], float[n] -> float[k]")
def sums_of_cells(a: Any, at: Any, x: Any) -> Any:
    out = a.copy()
    np.add.at(out, at, x)
    return out


@dataclass(frozen=True)
class Case:
    """An op, its inputs, what torch does instead, the ways to time."""

    name: str
    op: Op[..., Any]
    tensors: Callable[[], list[torch.Tensor]]
    eager: Callable[..., torch.Tensor]
    ways: tuple[Way, ...]


NOISE = torch.Generator("cuda" if torch.cuda.is_available() else "cpu")


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=NOISE, device="cuda").to(dtype)


def below(most: int, n: int) -> torch.Tensor:
    return torch.randint(0, most, (n,), generator=NOISE, device="cuda")


def added(rows: int) -> Callable[..., torch.Tensor]:
    return lambda at, x: torch.zeros(rows, x.shape[1], device="cuda", dtype=x.dtype).index_add_(0, at, x)


def embedding_gradient(at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.embedding_dense_backward(x, at, 32000, -1, False)


ROWS = (Way.OWNER, Way.ATOMIC)
CASES = (
    *(
        Case(
            f"histogram f32 64Mi in {bins} bins",
            histogram_of(bins),
            lambda: [normal(1 << 26)],
            lambda x, bins=bins: torch.histc(x, bins, -4, 4).int(),
            (Way.PRIVATE,),
        )
        for bins in (64, 4096)
    ),
    Case(
        "scatter-add f32 65536x1024 to 4096",
        sums_of_rows(4096),
        lambda: [below(4096, 65536), normal(65536, 1024)],
        added(4096),
        ROWS,
    ),
    Case(
        "embedding gradient f32 16384 of 32000x4096",
        sums_of_rows(32000),
        lambda: [below(32000, 16384), normal(16384, 4096)],
        embedding_gradient,
        ROWS,
    ),
    Case(
        "embedding gradient bf16 16384 of 32000x4096",
        sums_of_rows(32000),
        lambda: [below(32000, 16384), normal(16384, 4096, dtype=torch.bfloat16)],
        embedding_gradient,
        (Way.OWNER,),
    ),
    *(
        Case(
            f"scatter-add f32 16Mi to {cells} cells",
            sums_of_cells,
            lambda cells=cells: [normal(cells), below(cells, 1 << 24), normal(1 << 24)],
            lambda a, at, x: a.index_add(0, at, x),
            ways,
        )
        for cells, ways in ((4096, (Way.PRIVATE, Way.ATOMIC, Way.OWNER)), (1 << 20, (Way.ATOMIC, Way.OWNER)))
    ),
)


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """One row of the table: times over those of a plain copy, by the way; and whether runs have the same bits."""
    tensors, reference = case.tensors(), case.op.description.reference
    instance = case.op.usual([DTYPES[t.dtype] for t in tensors], [t.dim() for t in tensors])
    (step,) = generate(case.op.description, Specialization(instance, reference.constants), "cuda").program.steps
    calls: dict[str, Callable[[], Any]] = {}
    for way in case.ways:
        kernel = in_blocks(step.lowered, way)
        calls[way.name.lower()] = partial(CudaKernel(together([kernel]), kernel), *tensors)
    results = {name: [call() for _ in range(4)] for name, call in calls.items()}
    same = [name for name, runs in results.items() if all(torch.equal(runs[0], each) for each in runs)]
    calls["torch"] = lambda: case.eager(*tensors)
    word, calls["plain"] = plain(bytes_of(tensors), bytes_of([results[case.ways[0].name.lower()][0]]))
    del results
    times = time_calls(calls, rounds=rounds)
    plain_s = times["plain"].samples_s
    ways = {name: each.samples_s for name, each in times.items() if name != "plain"}
    over = {name: round(Comparison(samples_s, plain_s).speedup, 3) for name, samples_s in ways.items()}
    plain_us = round(times["plain"].median_s * 1e6, 1)
    print(f"{case.name:45} {over} of a {word} of {plain_us} us, same bits in every run: {', '.join(same)}", flush=True)
    return {"case": case.name, f"{word}_us": plain_us, **over, "same bits": same}
