"""Memory layouts of inputs for which a kernel is specialised: permuted axes, strides as sizes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

import numpy as np

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Input, Node, View
from noyau.ir.loops import Buffer, Kernel, Role
from noyau.ir.sizes import Binding


class Order(Enum):
    """The class of a layout. Any other array (unaligned, strides that are no multiple of the item) is copied."""

    PACKED = "packed"  # in C order
    PERMUTED = "permuted"  # packed after a permutation of its axes
    INNER = "inner"  # the last axis is contiguous, the others may have any strides
    STRIDED = "strided"  # any strides of whole items, also 0 and negative ones


@dataclass(frozen=True, slots=True)
class Layout:
    """`axes`: of a permuted array, its axes from the outermost in memory to the innermost."""

    order: Order = Order.PACKED
    axes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"permuted {list(self.axes)}" if self.axes else self.order.value

    def in_memory(self, array: np.ndarray) -> np.ndarray:
        """The array as the kernel takes it: a view with the axes in the order of memory."""
        return array.transpose(self.axes) if self.axes else array

    def as_called(self, array: np.ndarray) -> np.ndarray:
        """The inverse: an array in the order of memory as the caller sees it."""
        return array.transpose(np.argsort(self.axes)) if self.axes else array


PACKED, INNER, STRIDED = Layout(), Layout(Order.INNER), Layout(Order.STRIDED)


def layout_of(array: np.ndarray) -> Layout | None:
    """The layout of an array; None where it must be copied."""
    if array.flags.c_contiguous:
        return PACKED if array.flags.aligned else None
    item = array.itemsize
    if not array.flags.aligned or any(stride % item for stride in array.strides):
        return None
    axes = tuple(sorted(range(array.ndim), key=lambda axis: (-abs(array.strides[axis]), axis)))
    if array.transpose(axes).flags.c_contiguous:
        return Layout(Order.PERMUTED, axes)
    return INNER if array.strides[-1] == item else STRIDED


def laid_out(graph: Graph, layouts: Sequence[Layout]) -> Graph:
    """The graph with inputs of these layouts: a permuted one is an input in the order of memory, and its transpose."""
    by_name = {node.output: layout for node, layout in zip(graph.inputs, layouts, strict=True)}
    nodes: list[Node] = []
    for node in graph.nodes:
        layout = by_name.get(node.output, PACKED) if isinstance(node.kind, Input) else PACKED
        if layout.axes:
            memory = f"{node.output}_in_memory"
            nodes.append(replace(node, output=memory, shape=tuple(node.shape[axis] for axis in layout.axes)))
            node = replace(node, kind=View(tuple(Dim.of(f"#{axis}") for axis in layout.axes)), inputs=(memory,))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def strided_names(graph: Graph, layouts: Sequence[Layout]) -> dict[str, str]:
    """The inputs of a graph in these layouts, as `lower` takes them: "inner" or "strided" by name."""
    pairs = zip(graph.inputs, layouts, strict=True)
    return {node.output: layout.order.value for node, layout in pairs if layout.order in (Order.INNER, Order.STRIDED)}


def lie(array: np.ndarray, layout: Layout) -> np.ndarray:
    """A copy of an array in a layout, as far as its extents allow: with no cells, or one, it is packed anyway."""
    match layout.order:
        case Order.PACKED:
            return np.ascontiguousarray(array).reshape(array.shape)
        case Order.PERMUTED:
            return layout.as_called(np.ascontiguousarray(layout.in_memory(array)))
        case Order.INNER:
            room = np.empty((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
            view = room[..., 2:-1]
        case Order.STRIDED:
            room = np.empty([2 * extent + 1 for extent in array.shape], array.dtype)
            view = room[tuple(slice(2 * extent - 1, None, -2) if extent else slice(0) for extent in array.shape)]
        case _:
            assert_never(layout.order)
    view[...] = array
    return view


LAYOUTS = ("packed", "inner", "strided")
ZERO, ONE = Dim.of(0), Dim.of(1)


def with_strides(kernel: Kernel, layouts: Mapping[str, str]) -> Kernel:
    """The kernel with inputs in these layouts, by the graph's names for them.

    The stride of input x along axis 0 is the size x_stride0. An axis of one cell has stride 0. An input without strides
    that are sizes stays packed. UnsupportedError where there is no such input or layout."""
    inputs = {buffer.source: buffer for buffer in kernel.of(Role.INPUT)}
    for name, layout in layouts.items():
        if name not in inputs:
            raise UnsupportedError(f"{kernel.name} has no input {name}; its inputs are {', '.join(inputs)}")
        if layout not in LAYOUTS:
            raise UnsupportedError(f"{name} cannot be {layout!r}; a layout is one of {', '.join(LAYOUTS)}")
    names = {name for buffer in kernel.buffers for dim in buffer.shape for name in dim.names}
    binding, buffers = list(kernel.binding), list(kernel.buffers)
    for at, buffer in enumerate(kernel.of(Role.INPUT)):
        if own := _strides(buffer, layouts.get(buffer.source, "packed"), at, names):
            steps = {stride.axis - len(buffer.shape): Dim.of(stride.size) for stride in own}
            strides = [steps.get(axis, ZERO) for axis in range(len(buffer.shape))]
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
    return tuple(math.prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape)))
