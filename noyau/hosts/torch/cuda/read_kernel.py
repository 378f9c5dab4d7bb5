"""A Triton kernel that only reads, to measure the rate of reads. torch has none that is not a reduction as well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from noyau.errors import dependency

with dependency("triton, or torch,", "noyau-kernels[triton]"):
    import torch
    import triton

    from noyau.toolchain.triton.module import load

_CELLS, _TIMES = 2048, 4
_KERNELS = load(Path(__file__).with_suffix(".txt").read_text("ascii"))


def reader(words: Any) -> Callable[[], object]:
    """A kernel that reads a tensor of i32 once; a small one by more programs, with less work each."""
    n = words.numel()
    cells, times = (_CELLS, _TIMES) if n > 1 << 21 else (512, 1)
    programs = triton.cdiv(n, cells * times)
    out = torch.empty(programs, dtype=torch.int32, device=words.device)
    return lambda: _KERNELS["read_all"][(programs,)](words, out, n, cells, times, num_warps=8 if cells > 512 else 4)


def idler(words: Any) -> Callable[[], object]:
    """Launch of a kernel that does nothing."""
    return lambda: _KERNELS["nothing"][(1,)](words)
