"""Block pointers, whatever the release: tl.make_block_ptr, tl.advance, loads and stores; blocks of descriptors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.errors import CheckError
from noyau.toolchain.triton.builder import DTYPES, Handle, alone, is_tensor, number_of, tensor_of, tl


@dataclass(frozen=True)
class BlockPointer:
    """A block of a tensor at `base`, of that `shape` and `strides`, in cells; `offsets`: of the block's first cell."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    block_shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return tl.pointer_type(tl.block_type(self.base.dtype.element_ty, list(self.block_shape)))

    type = dtype

    def advance(self, offsets: Any) -> BlockPointer:
        """The block so many cells further along each axis."""
        return replace(self, offsets=tuple(a + b for a, b in zip(self.offsets, _integers(offsets), strict=True)))

    def cells(self, boundary_check: Any) -> tuple[Any, Any]:
        """Pointers to its cells, and which of them lie in the tensor along the axes that are checked."""
        checked = {number_of(each) % len(self.shape) for each in _sequence(boundary_check)}
        size = max(1, self.base.dtype.element_ty.primitive_bitwidth // 8)
        places, inside = np.zeros(self.block_shape, np.int64), np.ones(self.block_shape, bool)
        for axis, index in enumerate(np.ogrid[tuple(map(slice, self.block_shape))]):
            index = index + self.offsets[axis]
            places = places + size * index * self.strides[axis]
            inside = inside & (axis not in checked or ((index >= 0) & (index < self.shape[axis])))
        pointers = self.base.handle.data.reshape(()) + places.astype(np.uint64)
        return tensor_of(pointers, self.base.dtype), tensor_of(inside, tl.int1)


def _sequence(values: Any) -> Sequence[Any]:
    return values if isinstance(values, tuple | list | tl.core.tuple) else (values,)


def _integers(values: Any) -> tuple[int, ...]:
    """Numbers, constants and tensors of one cell, or their handles, as integers."""
    handles = (each.handle if is_tensor(each) else each for each in _sequence(values))
    return tuple(int(each.data.item() if isinstance(each, Handle) else number_of(each)) for each in handles)


def _make(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = (), **rest: Any) -> Any:
    return BlockPointer(base, *map(_integers, (shape, strides, offsets, block_shape)))


def _loading(plain: Callable[..., Any]) -> Callable[..., Any]:
    def load(pointer: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(pointer, BlockPointer):
            return plain(pointer, *rest, **options)
        words = {**dict(zip(("mask", "other", "boundary_check", "padding_option"), rest, strict=False)), **options}
        cells, inside = pointer.cells(words.get("boundary_check", ()))
        element = pointer.base.dtype.element_ty
        fill = np.nan if number_of(words.get("padding_option", "")) == "nan" else 0
        return plain(cells, inside, tensor_of(np.full(pointer.block_shape, fill, DTYPES[element.name]), element))

    return load


def _storing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def store(pointer: Any, value: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(pointer, BlockPointer):
            return plain(pointer, value, *rest, **options)
        cells, inside = pointer.cells(options.get("boundary_check", rest[1] if len(rest) > 1 else ()))
        return plain(cells, value, inside)

    return store


@alone
def descriptor_cells(descriptor: Any, offsets: Any) -> tuple[Any, ...]:
    """Pointers to the cells of a block of a tensor descriptor, and which of them lie in its tensor. CheckError where a
    GPU refuses the descriptor."""
    base = tl.core.tensor(descriptor.base, descriptor.base.dtype)
    block = BlockPointer(base, *map(_integers, (descriptor.shape, descriptor.strides, offsets, descriptor.block_shape)))
    size, (*strides, last) = base.dtype.element_ty.primitive_bitwidth // 8, block.strides
    if last != 1 or any(each % 16 for each in (*_integers(base), *(size * each for each in strides))):
        fault = f"a tensor descriptor has the strides {block.strides}, in cells of {size} bytes"
        raise CheckError(f"{fault}: a GPU takes 1 as the last, and address and rows at multiples of 16 bytes alone")
    return tuple(each.handle for each in block.cells((*range(len(offsets)),)))


def words_of(plain: Callable[[Any], Callable[..., Any]]) -> Mapping[str, Any]:
    """The words of the language that take block pointers. `plain`: builtins as functions."""
    words = {"make_block_ptr": alone(_make), "advance": BlockPointer.advance}
    return {**words, "load": _loading(plain(tl.load)), "store": _storing(plain(tl.store))}
