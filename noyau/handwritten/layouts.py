"""Ways an array may lie in memory, for kernels that take strided ones: each between guard zones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noyau.builders.guards import Guarded
from noyau.dtypes import DType

Array = np.ndarray
# a label, an array, its dtype, which poison is around -> the memory, the view
Layout = Callable[..., tuple[Guarded, Array]]


def contiguous(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """Packed, in C order."""
    made = Guarded.holding(label, array, dtype, poison)
    return made, made.array


def transposed(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """The axes in the other order: the first has neighbouring cells."""
    made = Guarded.holding(label, array.T, dtype, poison)
    return made, made.array.T


def sliced(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """Every second cell along the last axis; what lies between is poison."""
    if not array.ndim:
        return contiguous(label, array, dtype, poison)
    return _viewed(label, array, dtype, poison, (*array.shape[:-1], 2 * array.shape[-1]), (..., slice(None, None, 2)))


def offset(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """Behind a row of poison, and rows are longer than what is seen of them."""
    if not array.ndim:
        return contiguous(label, array, dtype, poison)
    shape = tuple(extent + 1 for extent in array.shape)
    return _viewed(label, array, dtype, poison, shape, (slice(1, None),) * array.ndim)


def flipped(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """From the last cell to the first: strides are negative."""
    if not array.ndim:
        return contiguous(label, array, dtype, poison)
    back = (slice(None, None, -1),) * array.ndim
    made = Guarded.holding(label, array[back], dtype, poison)
    return made, made.array[back]


def expanded(label: str, array: Array, dtype: DType, poison: int = 0) -> tuple[Guarded, Array]:
    """Where all cells are equal, one cell with strides of 0, which nobody may write; else packed."""
    flat = array.reshape(-1)
    if flat.size < 2 or any(cell.tobytes() != flat[0].tobytes() for cell in flat[1:]):
        return contiguous(label, array, dtype, poison)
    made = Guarded.holding(label, flat[:1], dtype, poison)
    return made, np.broadcast_to(made.array[0], array.shape)


LAYOUTS: dict[str, Layout] = {
    "transposed": transposed,
    "sliced": sliced,
    "offset": offset,
    "flipped": flipped,
    "expanded": expanded,
}
BY_NAME: dict[str, Layout] = {"contiguous": contiguous, **LAYOUTS}


def _viewed(
    label: str, array: Array, dtype: DType, poison: int, shape: tuple[int, ...], where: tuple[object, ...]
) -> tuple[Guarded, Array]:
    """Memory of a shape, poisoned, and the part of it that is the array."""
    around = Guarded.holding(label, np.empty(shape, dtype.numpy), dtype, poison)
    around.array.reshape(-1).view(np.uint8).reshape(-1, dtype.bytes)[:] = np.frombuffer(around.poison, np.uint8)
    view = around.array[where]  # type: ignore[index]
    view[...] = array
    return around, view
