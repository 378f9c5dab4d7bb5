"""A kernel that only reads, in Triton: what reads are compared with. torch has none that is not a reduction as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noyau.errors import MissingExtraError

try:
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    raise MissingExtraError("triton, or torch, is not installed; run: pip install 'noyau-kernels[triton]'") from error

_CELLS, _TIMES = 2048, 4


@triton.jit  # type: ignore[untyped-decorator]
def read_all(x, out, n, CELLS: tl.constexpr, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program reads TIMES * CELLS words, several at once, and writes one."""
    start = tl.program_id(0).to(tl.int64) * CELLS * TIMES
    seen = tl.zeros((CELLS,), tl.int32)
    for k in tl.static_range(TIMES):
        at = start + k * CELLS + tl.arange(0, CELLS)
        seen |= tl.load(x + at, mask=at < n, other=0)
    tl.store(out + tl.program_id(0), tl.max(seen, 0))


@triton.jit
def nothing(x):  # type: ignore[no-untyped-def]
    """A launch, and no work."""


def reader(words: Any) -> Callable[[], object]:
    """Kernel that reads a tensor of i32 once. On small ones more programs have less each to do."""
    n = words.numel()
    cells, times = (_CELLS, _TIMES) if n > 1 << 21 else (512, 1)
    programs = triton.cdiv(n, cells * times)
    out = torch.empty(programs, dtype=torch.int32, device=words.device)
    return lambda: read_all[(programs,)](words, out, n, cells, times, num_warps=8 if cells > 512 else 4)


def idler(words: Any) -> Callable[[], object]:
    """Launch of a kernel that does nothing."""
    return lambda: nothing[(1,)](words)
