"""Constants as expressions of their index: a kernel has no memory for them."""

from __future__ import annotations

import numpy as np

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Node

MOST = 4096  # cells that are looked at for steps


def cell_of(node: Node, value: np.ndarray, index: Shape) -> ir.Expr:
    """A cell of a constant whose cells are all alike, or integers in even steps; else UnsupportedError."""
    cells, dtype = value.astype(node.dtype.compute.numpy), node.dtype.compute
    if not cells.size or cells.tobytes() == cells.flat[0].tobytes() * cells.size:
        return ir.Const(cells.flat[0].item() if cells.size else 0, dtype)
    steps = _steps(cells)
    if steps is None:
        reason = f"the {cells.size} cells of a constant follow no rule, and no kernel spells them out"
        raise UnsupportedError(f"{node.output}: {reason}; make it an input")
    position = ir.Index(sum((at * step for at, step in zip(index, steps, strict=True)), Dim.of(int(cells.flat[0]))))
    return position if dtype is DType.I64 else ir.Call("cast", (position,), dtype)


def _steps(cells: np.ndarray) -> list[int] | None:
    """Give the constant step of integers along each axis; None where a step is not constant."""
    if cells.dtype.kind not in "iu" or cells.size > MOST or cells.dtype == np.uint64:
        return None
    first, shape = int(cells.flat[0]), cells.shape
    steps = [int(cells.take(1, axis).flat[0]) - first if shape[axis] > 1 else 0 for axis in range(cells.ndim)]
    grid = np.indices(shape, object)
    whole = sum((along * step for along, step in zip(grid, steps, strict=True)), np.full(shape, first, object))
    return steps if (whole == cells).all() else None
