"""Copies of two rows to one index of two tensors, as caches of keys and values grow, in one launch."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import torch
import triton

from noyau.hosts.torch.cuda.device import has_early_launches
from noyau.toolchain.triton.module import load

_CELLS = 1024  # of each tensor, in a program
TRUSTED: dict[tuple[torch.dtype, torch.device], bool] = {}  # the results of `is_right`
Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]
copy_cells = load(Path(__file__).with_suffix(".txt").read_text("ascii"))["copy_cells"]


def copy_rows(tensors: Pair, axis: int, index: torch.Tensor, rows: Pair) -> None:
    """`index_copy_` of two contiguous tensors of one shape and dtype, with one index and rows of one shape."""
    kind = tensors[0].dtype, tensors[0].device
    if kind not in TRUSTED and not is_capturing(index):  # the trial reads the device, which a recording forbids
        TRUSTED[kind] = is_right(*kind)
    if TRUSTED.get(kind):
        launch(tensors, axis, index, rows)
        return
    for each, row in zip(tensors, rows, strict=True):
        each.index_copy_(axis, index, row)


def is_capturing(tensor: torch.Tensor) -> bool:
    """Whether operations on a tensor are captured now."""
    return bool(tensor.is_cuda and torch.cuda.is_current_stream_capturing())


copy_rows._schema = SimpleNamespace(is_mutable=True)  # type: ignore[attr-defined]  # as an operator of torch's says it


def launch(tensors: Pair, axis: int, index: torch.Tensor, rows: Pair) -> None:
    """The copies by the kernel."""
    (one, other), (x, y) = tensors, (each.contiguous() for each in rows)
    early = one.is_cuda and has_early_launches(one.device)
    options = {"debug": True, "sanitize_overflow": False, "launch_pdl": early} if one.is_cuda else {}
    sizes = x.numel(), math.prod(one.shape[axis + 1 :]), one.shape[axis]
    copy_cells[(triton.cdiv(x.numel(), _CELLS),)](one, other, index, x, y, *sizes, _CELLS, early, **options)


def is_right(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel copies the same bits as torch, at either end of small tensors."""
    caches = torch.arange(2400, device=device).remainder(251).view(2, 2, 3, 5, 40).to(dtype)  # leaves the user's seed
    rows, are_equal = (caches[0, :, :, 1:2] + 1, caches[1, :, :, 2:3] + 1), True
    for at in (0, 4):
        index, got, want = torch.tensor([at], device=device), caches.clone(), caches.clone()
        launch((got[0], got[1]), 2, index, rows)
        for each, row in zip(want, rows, strict=True):
            each.index_copy_(2, index, row)
        are_equal &= torch.equal(got, want)
    return are_equal
