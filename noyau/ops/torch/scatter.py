"""Scatters by torch, where no kernel merges in memory: on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from noyau.dtypes import DType
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.ir.dims import Dim
from noyau.ir.graph import Lookup, Scatter

_REDUCES = {"prod": "prod", "max": "amax", "min": "amin"}


def scatter(kind: Scatter, operands: Sequence[torch.Tensor], dtype: DType, sizes: Mapping[str, int]) -> torch.Tensor:
    """A copy of operand 0 in which operand 2 is merged; half types are summed in float32. Updates outside are left out,
    as all kernels on a GPU do. Deterministic where torch.use_deterministic_algorithms asks for it."""
    base, updates = operands[0], operands[2]
    inner = _rows(kind.index, base.shape, updates.shape)
    rows, width = base.shape[: base.dim() - inner], int(np.prod(base.shape[base.dim() - inner :]))
    lead = updates.shape[: updates.dim() - inner]
    at, inside = _places(kind.index[: len(rows)], rows, lead, operands, sizes)
    count = int(np.prod(rows))
    at = torch.where(inside, at, count).reshape(-1)  # one row more takes what is outside
    wide = TO_TORCH[dtype.compute]
    room = torch.zeros((count + 1, width), dtype=wide, device=base.device)
    room[:count] = base.reshape(count, width)
    cells = updates.to(wide).expand(updates.shape).reshape(at.numel(), width)
    if kind.monoid == "sum":
        room.index_add_(0, at, cells)
    else:
        room.scatter_reduce_(0, at[:, None].expand_as(cells), cells, _REDUCES[str(kind.monoid)])
    return room[:count].reshape(base.shape).to(TO_TORCH[dtype])


def _rows(index: Sequence[Dim | Lookup], shape: Sequence[int], updates: Sequence[int]) -> int:
    """Number of the last axes that are the same in both, cell by cell."""
    inner = 0
    while inner < min(len(shape), len(updates)):
        axis = len(updates) - 1 - inner
        same = index[len(shape) - 1 - inner] == Dim.of(f"#{axis}") and shape[len(shape) - 1 - inner] == updates[axis]
        others = index[: len(shape) - 1 - inner]
        dims = (dim for entry in others for dim in (entry.at if isinstance(entry, Lookup) else (entry,)))
        names = any(f"#{axis}" in dim.names for dim in dims)
        if not same or names:
            break
        inner += 1
    return inner


def _places(
    index: Sequence[Dim | Lookup],
    rows: Sequence[int],
    lead: Sequence[int],
    operands: Sequence[torch.Tensor],
    sizes: Mapping[str, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each update, the number of the row that it goes to, and whether there is such a row."""
    device = operands[0].device
    at = torch.zeros(tuple(lead), dtype=torch.int64, device=device)
    inside = torch.ones(tuple(lead), dtype=torch.bool, device=device)
    for entry, extent in zip(index, rows, strict=True):
        if isinstance(entry, Lookup):
            looked = operands[entry.input]
            where = tuple(along(dim, lead, sizes, device) for dim in entry.at)
            place = (looked[where] if where else looked).to(torch.int64)
        else:
            place = along(entry, lead, sizes, device)
        inside = inside & (place >= 0) & (place < extent)
        at = at * extent + place
    return at.expand(tuple(lead)), inside.expand(tuple(lead))


def along(dim: Dim, extents: Sequence[int], sizes: Mapping[str, int], device: torch.device) -> torch.Tensor:
    """An index over axes of these extents; a plain one is made on the device, as a CUDA graph wants it."""
    axes = {}
    for k, extent in enumerate(extents):
        shape = [-1 if k == j else 1 for j in range(len(extents))]
        if dim == Dim.of(f"#{k}"):
            return torch.arange(extent, device=device).reshape(shape)
        axes[f"#{k}"] = np.arange(extent).reshape(shape)
    return torch.as_tensor(np.asarray(dim.evaluate({**sizes, **axes}), np.int64), device=device)
