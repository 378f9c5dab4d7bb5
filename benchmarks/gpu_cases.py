"""What benchmarks/gpu.py times: ops at shapes, and what torch does instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import noyau
from noyau import nn
from noyau.compiler.lowering.input_layouts import INNER, PACKED, STRIDED
from noyau.dtypes import DType
from noyau.kernels.programs.generate import GeneratedProgram, Specialization, generate
from noyau.ops.op import Op

TORCH = {DType.F32: torch.float32, DType.BF16: torch.bfloat16, DType.F16: torch.float16, DType.I64: torch.int64}
BF16, F16, F32, I64 = DType.BF16, DType.F16, DType.F32, DType.I64
Tensors = tuple[torch.Tensor, ...]


@noyau.op("float[n], float[n] -> float[n]")
def add(x: Any, y: Any) -> Any:
    return x + y


@noyau.op("float[n], float[n] -> float[n]")
def hypotenuse(x: Any, y: Any) -> Any:
    return np.sqrt(x * x + y * y)


@noyau.op("float[n, m], float[m] -> float[n, m]")
def bias_gelu(x: Any, bias: Any) -> Any:
    wide = x.astype(np.float32) + bias.astype(np.float32)
    return (0.5 * wide * (1 + np.tanh(0.7978845608028654 * (wide + 0.044715 * wide * wide * wide)))).astype(x.dtype)


@noyau.op("float[n] -> float")
def total(x: Any) -> Any:
    return x.sum()


@noyau.op("float[n], float[n] -> float")
def dot(x: Any, y: Any) -> Any:
    return (x * y).sum()


@noyau.op("float[n, m] -> float[m, n]")
def negated_transpose(x: Any) -> Any:
    return -x.T


@noyau.op("float[n, m] -> float[m]")
def column_sums(x: Any) -> Any:
    return x.astype(np.float32).sum(0).astype(x.dtype)


@noyau.op("float[v, n], i64[m] -> float[m, n]")
def looked_up(table: Any, indices: Any) -> Any:
    return table[indices]


@noyau.op("float[n, m], float[n, m] -> float[n, m]")
def scaled_sum(x: Any, y: Any) -> Any:
    return x * 2 + y


@dataclass(frozen=True)
class Case:
    """An op at one shape: how its inputs are made, of which dtypes, and what torch does instead. `indices` says below
    what integer inputs are; `lies`: whether matrices are packed, have "rows" that do not follow each other, are every
    second of the "columns" of others, or are "shifted", so that they begin at no multiple of 16 bytes."""

    name: str
    op: Op[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    eager: Callable[..., Any]
    indices: int = 0
    target: float = 1.06
    untuned: bool = False
    lies: str = "packed"
    tiles: dict[str, int] = field(default_factory=dict)

    def read_bytes(self, tensors: list[torch.Tensor]) -> int:
        """How many bytes must be read: of a table, the rows that indices name."""
        whole = sum(t.numel() * t.element_size() for t in tensors)
        table, *indices = tensors
        named = indices[0].numel() * table.shape[1] * table.element_size() if self.op is looked_up else 0
        return whole if not named else whole - table.numel() * table.element_size() + named

    def tensors(self) -> list[torch.Tensor]:
        noise = torch.Generator("cuda").manual_seed(0)
        made = []
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            if dtype is I64:
                made.append(torch.randint(0, self.indices, shape, generator=noise, device="cuda"))
            else:
                random = torch.randn(shape, generator=noise, device="cuda").to(TORCH[dtype])
                made.append(lying(random, self.lies) if len(shape) > 1 else random)
        return made

    def generate(self, language: str = "triton") -> GeneratedProgram:
        """Its kernels in a language."""
        ranks = [len(shape) for shape in self.shapes]
        layouts = tuple(LAYOUTS.get(self.lies, PACKED) if rank > 1 else PACKED for rank in ranks)
        instance = self.op.usual(self.dtypes, ranks)
        wanted = Specialization(instance, self.op.description.reference.constants, layouts=layouts)
        return generate(self.op.description, wanted, language)


LAYOUTS = {"rows": INNER, "columns": STRIDED}


def lying(matrix: torch.Tensor, how: str) -> torch.Tensor:
    """The same values in memory that lies so."""
    if how == "rows":
        wide = torch.empty((*matrix.shape[:-1], matrix.shape[-1] + 64), dtype=matrix.dtype, device=matrix.device)
        return wide[..., : matrix.shape[-1]].copy_(matrix)
    if how == "columns":
        wide = torch.empty((*matrix.shape[:-1], 2 * matrix.shape[-1]), dtype=matrix.dtype, device=matrix.device)
        return wide[..., ::2].copy_(matrix)
    if how == "shifted":
        flat = torch.empty(matrix.numel() + 1, dtype=matrix.dtype, device=matrix.device)
        return flat[1:].view(matrix.shape).copy_(matrix)
    return matrix


def rms_norm(x: Any, w: Any) -> Any:
    return F.rms_norm(x, x.shape[-1:], w, 1e-6)


def add_rms_norm(x: Any, r: Any, w: Any) -> Any:
    both = x + r
    return F.rms_norm(both, both.shape[-1:], w, 1e-6), both


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], w, b)


def rope(x: Any, cos: Any, sin: Any) -> Any:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def cross_entropy(x: Any, y: Any) -> Any:
    return F.cross_entropy(x, y, reduction="none")


def doubled(x: Any, y: Any) -> Any:
    return x * 2 + y


def softmax(x: Any) -> Any:
    return torch.softmax(x, -1)


def rows_of(rows: int, n: int, dtype: DType = BF16, *, untuned: bool = False, lies: str = "packed") -> list[Case]:
    """The row kernels at one shape."""
    two, one = (rows, n), (n,)
    long = n >= 32768
    called = f"{dtype.value} {rows}x{n}" + (f" {lies}" if lies != "packed" else "")
    given = {"untuned": untuned, "lies": lies}
    return [
        Case(f"softmax {called}", nn.softmax, (two,), (dtype,), softmax, target=1.30 if long else 1.06, **given),
        Case(f"rmsnorm {called}", nn.rms_norm, (two, one), (dtype,) * 2, rms_norm, **given),
        Case(f"layernorm {called}", nn.layer_norm, (two, one, one), (dtype,) * 3, layer_norm, **given),
        Case(
            f"cross-entropy {called}",
            nn.cross_entropy_each,
            (two, (rows,)),
            (dtype, I64),
            cross_entropy,
            indices=n,
            target=1.30,
            **given,
        ),
    ]


MI = 1 << 20
SQUARE, BIG = (8192, 8192), (64 * MI,)
CASES = [
    Case("add f32 64Mi", add, (BIG, BIG), (F32, F32), torch.add),
    Case("hypot f32 64Mi", hypotenuse, (BIG, BIG), (F32, F32), lambda x, y: torch.sqrt(x * x + y * y)),
    Case("swiglu bf16 8192x8192", nn.swiglu, (SQUARE, SQUARE), (BF16, BF16), lambda g, u: F.silu(g) * u),
    Case(
        "bias+gelu bf16 8192x8192",
        bias_gelu,
        (SQUARE, (8192,)),
        (BF16, BF16),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
    ),
    Case("rope bf16 4x32x4096x128", nn.rope, ((4, 32, 4096, 128), (4096, 128), (4096, 128)), (BF16,) * 3, rope),
    Case("add+rmsnorm bf16 8192x8192", nn.add_rms_norm, (SQUARE, SQUARE, (8192,)), (BF16,) * 3, add_rms_norm),
    *rows_of(8192, 8192),
    *rows_of(4096, 32768),
    *rows_of(4096, 131072),
    Case("sum f32 64Mi", total, (BIG,), (F32,), torch.sum, 0, 1.10),
    Case("dot f32 64Mi", dot, (BIG, BIG), (F32, F32), torch.dot, 0, 1.10),
    Case(
        "transpose f32 4096x4096", negated_transpose, ((4096, 4096),), (F32,), lambda x: (-x.t()).contiguous(), 0, 1.08
    ),
    Case("column sums bf16 8192x8192", column_sums, (SQUARE,), (BF16,), lambda x: x.sum(0), 0, 1.15),
]
UNTUNED = [
    *rows_of(8192, 1000, untuned=True),
    *rows_of(8192, 50257, untuned=True),
    *rows_of(4096, 128256, untuned=True),
    *rows_of(4096, 151936, untuned=True),
    *rows_of(1, 50257, untuned=True),
    *rows_of(7, 128256, untuned=True),
    *rows_of(100_000, 1000, F16, untuned=True),
    *rows_of(4096, 8192, F32, untuned=True),
    *rows_of(4096, 50257, F32, untuned=True),
    *rows_of(8192, 8192, untuned=True, lies="rows"),
    *rows_of(8192, 8192, untuned=True, lies="shifted"),
    Case(
        "bias+gelu bf16 8192x50257",
        bias_gelu,
        ((8192, 50257), (50257,)),
        (BF16, BF16),
        lambda x, b: F.gelu(x + b, approximate="tanh"),
        untuned=True,
    ),
    Case(
        "swiglu f16 100000x1000",
        nn.swiglu,
        ((100_000, 1000), (100_000, 1000)),
        (F16, F16),
        lambda g, u: F.silu(g) * u,
        untuned=True,
    ),
    *(
        Case(
            f"scaled sum bf16 8192x8192 {lies}",
            scaled_sum,
            (SQUARE,) * 2,
            (BF16,) * 2,
            doubled,
            untuned=True,
            lies=lies,
        )
        for lies in (*LAYOUTS, "shifted")
    ),
    Case(
        "embedding bf16 16384 of 128256x4096",
        looked_up,
        ((128256, 4096), (16384,)),
        (BF16, I64),
        lambda table, indices: F.embedding(indices, table),
        indices=128256,
        untuned=True,
    ),
    Case("column sums bf16 100000x1000", column_sums, ((100_000, 1000),), (BF16,), lambda x: x.sum(0), 0, 1.15, True),
]


@dataclass(frozen=True)
class Backward:
    """The gradient of a case by its first `wanted` inputs."""

    case: Case
    wanted: int

    @property
    def name(self) -> str:
        return f"{self.case.name} backward"


WANTED = {"softmax": 1, "rmsnorm": 2, "layernorm": 3, "cross-entropy": 1, "swiglu": 2, "rope": 1}
BACKWARD = [
    Backward(case, WANTED[case.name.split()[0]])
    for case in [
        *(case for case in CASES if "131072" not in case.name),
        *rows_of(100_000, 1000, F16),
        *rows_of(7, 128256),
    ]
    if case.name.split()[0] in WANTED
]
