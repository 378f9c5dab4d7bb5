"""A random graph in the making, with its values at hand.

So nothing in it is undefined (float to integer out of range, division by zero), and few values are NaN or infinite.
Every decision is one integer that a `Chooser` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from noyau.dtypes import DType
from noyau.ir.dims import Dim, DimLike, Shape, equal, index_name, indices, same_shape, shape_of
from noyau.ir.graph import Constant, Input, Kind, Map, Node, View, constant
from noyau.ir.graph_interpreter import Evaluator

T = TypeVar("T")
CELLS = 1500  # of one value at most
FLOATS = (DType.F32, DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
INTEGERS = (DType.I64, DType.I32, DType.I32, DType.I16, DType.I8, DType.U8, DType.U16, DType.U32, DType.U64)
EXTENTS = (0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 11, 13, 16, 17)
LONG = (19, 31, 33, 64, 67, 130)
STATIC = (1, 2, 2, 3, 4, 4, 5, 6, 7, 8)
NAMES = ("v{}", "v{}", "/model/layers.{}/Add_output_0", "double", "exp", "x{}*/ y", "i{}", "\u00e9tat_{}", "n", "")


class Unfit(Exception):
    """A step that cannot be taken here; another one is tried."""


class Chooser(Protocol):
    def integer(self, low: int, high: int) -> int:
        """One of low..high."""


class Sketch:
    """A graph in the making: its nodes, the array of each value, the sizes, and what was done, for the counters."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.nodes: dict[str, Node] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.sizes: dict[str, int] = {}
        self.tags: dict[str, str] = {}  # of a value: what sort of view, select or gather made it
        self.below: dict[str, int] = {}  # of integers that depend on floats: what they stay below though these move
        self.evaluator = Evaluator(False, self.sizes)
        self.style = self.one_of(NAMES)
        self.special = self.chance(6)  # NaN and infinities among the inputs

    # Choices.

    def chance(self, percent: int) -> bool:
        return self.chooser.integer(0, 99) < percent

    def one_of(self, options: Sequence[T]) -> T:
        if not options:
            raise Unfit
        return options[self.chooser.integer(0, len(options) - 1)]

    def pick(self, fits: Callable[[Node], bool] = lambda node: True) -> Node:
        """A value that fits, a late one rather than an early one."""
        found = [node for node in self.nodes.values() if fits(node) and not isinstance(node.kind, Constant)]
        if self.chance(70):
            found = found[-2:]
        return self.one_of(found)

    # Nodes.

    def add(self, kind: Kind, inputs: Sequence[Node], dtype: DType, shape: Sequence[DimLike], tag: str = "") -> Node:
        """One more value; Unfit where it is too large, or overflows, or is mostly NaN."""
        node = Node(self.name(), kind, tuple(operand.output for operand in inputs), dtype, shape_of(shape))
        extents = self.extents(node.shape)
        if len(extents) > 6 or math.prod(extents) > CELLS or min(extents, default=0) < 0:
            raise Unfit
        array = self.evaluator.value(node, [self.arrays[name] for name in node.inputs], self.inputs)
        if not self.special and not tame(array):
            raise Unfit
        self.nodes[node.output], self.arrays[node.output] = node, array
        if dtype.is_float or any(operand.output in self.below for operand in inputs):
            self.below[node.output] = CELLS * CELLS
        if tag:
            self.tags[node.output] = tag
        return node

    def extents(self, shape: Sequence[DimLike]) -> list[int]:
        return [int(dim.evaluate(self.sizes)) for dim in shape_of(shape)]

    def name(self) -> str:
        made = self.style.format(len(self.nodes))
        return made if made not in self.nodes else f"{made}_{len(self.nodes)}"

    def input(self, dtype: DType, shape: Sequence[DimLike], below: int | None = None) -> Node:
        """A new input with an array of its own; `below`: indices into an axis of that extent."""
        dims = shape_of(shape)
        extents = self.extents(dims)
        if len(self.inputs) >= 7 or math.prod(extents) > CELLS or (below == 0 and math.prod(extents)):
            raise Unfit
        noise = np.random.default_rng(self.chooser.integer(0, 1 << 30))
        if below is None:
            array = fill(noise, dtype, extents, self.special)
        else:
            array = np.asarray(noise.integers(0, max(below, 1), extents))
        self.inputs[self.name()] = array.astype(dtype.numpy)
        return self.add(Input(), (), dtype, dims)

    def map(self, function: str, *operands: Node, dtype: DType | None = None) -> Node:
        return self.add(Map(function), operands, dtype or operands[0].dtype, operands[0].shape)

    def view(self, node: Node, shape: Sequence[DimLike], index: Sequence[DimLike], tag: str) -> Node:
        """A view; Unfit where an index would be outside."""
        if math.prod(extents := self.extents(shape)):
            axes = zip(indices(len(extents)), np.ogrid[tuple(map(slice, extents))] if extents else (), strict=True)
            names = {**self.sizes, **{str(name): at for name, at in axes}}
            found = [np.asarray(dim.evaluate(names)) for dim in shape_of(index)]
            if any(at.min() < 0 or at.max() >= most for at, most in zip(found, self.value(node).shape, strict=True)):
                raise Unfit
        return self.add(View(shape_of(index)), (node,), node.dtype, shape, tag)

    def number(self, value: float, dtype: DType, shape: Shape) -> Node:
        """A constant, expanded to a shape."""
        name = self.name()
        self.nodes[name] = constant(name, np.array(value, dtype.numpy))
        self.arrays[name] = np.array(value, dtype.numpy)
        return self.nodes[name] if not shape else self.view(self.nodes[name], shape, (), "expand")

    def value(self, node: Node) -> np.ndarray:
        return self.arrays[node.output]

    # Making operands fit.

    def cast(self, node: Node, dtype: DType) -> Node:
        """The value as another dtype; first made to lie in its range."""
        if node.dtype is dtype:
            return node
        if node.dtype.is_float and not dtype.is_float and dtype is not DType.BOOL:
            low = -100 if dtype.kind == "int" else 0
            if np.isnan(self.value(node).astype(np.float64)).any():
                zero = self.number(0, node.dtype, node.shape)
                node = self.map("where", self.map("is_nan", node, dtype=DType.BOOL), zero, node, dtype=node.dtype)
            node = self.map("maximum", node, self.number(low, node.dtype, node.shape))
            node = self.map("minimum", node, self.number(100, node.dtype, node.shape))
        return self.map("cast", node, dtype=dtype)

    def fit(self, node: Node, shape: Shape) -> Node:
        """The value with another shape: its axes are found among the axes of the shape, in order; Unfit if not."""
        if same_shape(node.shape, shape):
            return node
        index: list[Dim] = []
        axis = len(shape) - 1
        for dim in reversed(node.shape):
            if dim == Dim.of(1):
                index.append(Dim.of(0))
                continue
            while axis >= 0 and equal(shape[axis], dim) is not True:
                axis -= 1
            if axis < 0:
                raise Unfit
            index.append(Dim.of(index_name(axis)))
            axis -= 1
        return self.view(node, shape, index[::-1], "broadcast")

    def fitting(self, shape: Shape) -> Node:
        """Any value of that shape."""
        for _ in range(6):
            try:
                return self.fit(self.pick(lambda node: len(node.shape) <= len(shape)), shape)
            except Unfit:
                continue
        raise Unfit


def tame(array: np.ndarray) -> bool:
    """Whether a float array is mostly finite and small."""
    if array.dtype.kind not in "fV" or not array.size:
        return True
    wide = np.abs(array.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    return finite.size >= 0.7 * wide.size and (not finite.size or finite.max() < 2e4)


def fill(noise: np.random.Generator, dtype: DType, extents: Sequence[int], special: bool) -> np.ndarray:
    """Values of an input: normal, sometimes whole numbers (so that there are ties); integers are small."""
    if dtype is DType.BOOL:
        return np.asarray(noise.random(extents) < 0.5)
    if not dtype.is_float:
        return np.asarray(noise.integers(-9 if dtype.kind == "int" else 0, 21, extents))
    values = np.asarray(noise.normal(0, noise.choice([0.3, 1, 3]), extents))
    values = np.rint(values) if noise.random() < 0.15 else values
    if special:
        chosen = noise.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], extents)
        values = np.where(noise.random(extents) < 0.2, chosen, values)
    return np.asarray(values)


def begin(s: Sketch) -> None:
    """The sizes, and one to three inputs whose shapes share them."""
    count = s.chooser.integer(0, 3)
    for name in ("batch", "n", "k")[:count]:
        s.sizes[name] = s.one_of(LONG if s.chance(20) else EXTENTS)
    dims: list[Dim] = [Dim.of(name) for name in s.sizes] or [Dim.of(s.one_of(STATIC))]
    rank = s.one_of((0, 1, 1, 2, 2, 2, 3, 3, 4))
    shape: Shape = ()
    for _ in range(rank):
        shape = (*shape, s.one_of(shape) if shape and s.chance(20) else extent(s, dims))
    for dim in dims:  # each size is seen alone once, so that it can be bound
        if dim.names and dim not in shape and (rank == 0 or s.chance(60)):
            shape = (*shape, dim)
    s.input(dtype(s), shape)
    for dim in dims:
        if dim.names and dim not in shape:
            s.input(dtype(s), (dim,))
    for _ in range(s.chooser.integer(0, 2)):
        try:
            s.input(dtype(s), part_of(s, shape))
        except Unfit:
            continue


def extent(s: Sketch, dims: Sequence[Dim]) -> Dim:
    """An extent: a size, a number, or a polynomial of them."""
    dim = s.one_of(dims) if s.chance(60) else Dim.of(s.one_of(STATIC))
    if s.chance(25):
        made = s.one_of([dim + 1, dim * 2, dim * 4, dim * s.one_of(dims), dim + s.one_of(dims), dim * 2 + 2])
        return made if made.evaluate(s.sizes) <= 130 else dim
    return dim


def part_of(s: Sketch, shape: Shape) -> Shape:
    """A shape that is expanded to another: some axes of extent 1, or fewer axes."""
    made = tuple(Dim.of(1) if s.chance(25) else dim for dim in shape)
    return made[s.chooser.integer(0, len(made)) :] if made and s.chance(50) else made


def dtype(s: Sketch) -> DType:
    if s.chance(75):
        return s.one_of(FLOATS)
    return s.one_of(INTEGERS) if s.chance(80) else DType.BOOL
