"""Arrays of the same values that lie otherwise in memory. Support for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def laid_out(array: np.ndarray, order: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """The same values: the axes of memory are those of the array in an order, and along axis k every `steps[k]`th cell
    is one of the array, backwards where that is negative; a step of 0 is along an axis of which all cells are alike,
    those of its first."""
    if not array.ndim:
        return array
    chosen = array[tuple(slice(0, 1) if not step else slice(None) for step in steps)]
    extents = [extent * max(1, abs(step)) + 1 for extent, step in zip(chosen.shape, steps, strict=True)]
    memory = np.zeros([extents[axis] for axis in order], array.dtype).transpose(np.argsort(order))
    cells = [slice(1, None, step) if step > 0 else slice(None, 0, step or -1) for step in steps]
    view = memory[tuple(cells)]
    view[...] = chosen
    return np.broadcast_to(view, array.shape) if 0 in steps else view


def views(array: np.ndarray) -> dict[str, np.ndarray]:
    """An array packed, transposed, sliced, reversed, and (of other values) expanded."""
    axes, back = range(array.ndim), range(array.ndim)[::-1]
    ones = [1] * array.ndim
    return {
        "packed": array,
        "transposed": laid_out(array, back, ones),
        "rows apart": laid_out(array, axes, ones),
        "sliced": laid_out(array, axes, [3, *[2] * array.ndim][: array.ndim]),
        "reversed": laid_out(array, axes, [-1] * array.ndim),
        "backwards rows": laid_out(array, axes, [-2, *ones][: array.ndim]),
        "expanded": laid_out(array, axes, [0, *ones][: array.ndim]),
        "one cell": laid_out(array, axes, [0] * array.ndim),
    }
