"""Strides of inputs that need not be packed: sizes of the kernel, which each call reads from its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.ir.sizes import Binding

LAYOUTS = ("packed", "inner", "strided")


ZERO, ONE = Dim.of(0), Dim.of(1)


def with_strides(kernel: Kernel, layouts: Mapping[str, str]) -> Kernel:
    """The kernel with inputs, by the names that the graph has for them, of these layouts.

    The stride of input x along axis 0 is the size x_stride0. An axis of one cell needs none: there the stride is 0. An
    input of which no stride is a size stays packed. UnsupportedError where there is no such input or layout."""
    inputs = {buffer.source: buffer for buffer in kernel.of(Role.INPUT)}
    for name, layout in layouts.items():
        if name not in inputs:
            raise UnsupportedError(f"{kernel.name} has no input {name}; its inputs are {', '.join(inputs)}")
        if layout not in LAYOUTS:
            raise UnsupportedError(f"{name} cannot be {layout!r}; a layout is one of {', '.join(LAYOUTS)}")
    names = {name for buffer in kernel.buffers for dim in buffer.shape for name in dim.names}
    binding, buffers = list(kernel.binding), list(kernel.buffers)
    for at, buffer in enumerate(kernel.of(Role.INPUT)):
        own = _strides(buffer, layouts.get(buffer.source, "packed"), at, names)
        if own:
            strides = [ZERO] * len(buffer.shape)
            for stride in own:
                strides[stride.axis - len(buffer.shape)] = Dim.of(stride.size)
            if layouts[buffer.source] == "inner":
                strides[-1] = ONE
            buffers[at] = replace(buffer, strides=tuple(strides))
            binding += own
    return replace(kernel, buffers=tuple(buffers), binding=tuple(binding))


def _strides(buffer: Buffer, layout: str, position: int, names: set[str]) -> list[Binding]:
    """List the bindings of the strides of an input that are sizes."""
    rank = len(buffer.shape)
    axes = {"packed": 0, "inner": rank - 1, "strided": rank}[layout]
    bindings = []
    for axis in range(axes):
        if buffer.shape[axis] != ONE:
            name = f"{buffer.name}_stride{axis}"
            while name in names:
                name = f"{name}_"
            names.add(name)
            bindings.append(Binding(name, position, rank + axis, ZERO, 1))
    return bindings


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a packed array, in elements."""
    steps, step = list[int](), 1
    for extent in reversed(shape):
        steps.append(step)
        step *= max(extent, 1)
    return tuple(reversed(steps))
