"""The interpreter of the graph IR: its executable definition, in NumPy, at any float width."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from noyau.dtypes import DType, of_array
from noyau.errors import GraphError, InputError, OutsideError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim
from noyau.ir.monoids import MONOIDS, Monoid, State
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Sizes, bind, extend, extents_at, require

Array = np.ndarray
Arrays = Mapping[str, Array]


def evaluate(graph: nodes.Graph, inputs: Arrays, *, wide: bool = False, sizes: Sizes | None = None) -> dict[str, Array]:
    """Evaluate a graph: its outputs, by name.

    By default each node computes and rounds in its own dtype (float16 and bfloat16 compute in float32). `wide`: every
    float is float64, casts among floats are dropped, casts to integers and to float8 are obeyed: this is the truth.
    `sizes`: sizes that no input binds. InputError where an input is missing or does not fit."""
    missing = [node.output for node in graph.inputs if node.output not in inputs]
    if missing:
        raise InputError(f"no array is given for the input {missing[0]}")
    typed = [node for node in graph.inputs if node.dtype is not DType.OTHER]
    shapes, names = [node.shape for node in typed], [node.output for node in typed]
    bound = {**(sizes or {}), **bind(shapes, [np.shape(inputs[name]) for name in names], names)}
    require(graph.demands, bound)
    return Evaluator(wide, bound).run(graph, inputs)


def rearrange(value: Array, index: Sequence[Dim], shape: tuple[int, ...]) -> Array | None:
    """Evaluate a view that permutes axes, repeats along new ones and reads others at a fixed index; None for any other
    index map, and where an axis is not read from end to end."""
    places, read = list[Any](), list[int]()
    for dim, extent in zip(index, value.shape, strict=True):
        axis, at = AXES.get(dim), dim.constant
        if axis is not None and axis not in read and shape[axis] == extent:
            read.append(axis)
            places.append(slice(None))
        elif at is not None and 0 <= at < extent:
            places.append(at)
        else:
            return None
    value_in_order = value[(*places, ...)].transpose(np.argsort(read))
    missing = tuple(axis for axis in range(len(shape)) if axis not in read)
    return np.array(np.broadcast_to(np.expand_dims(value_in_order, missing), shape), order="C")


AXES = {Dim.of(f"#{axis}"): axis for axis in range(8)}


class Numeric:
    """The algebra of arrays: operator table applied to NumPy arrays."""

    def call(self, name: str, *operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(OPERATORS[name].evaluate(*operands))

    def like(self, value: float, other: Any) -> Any:
        return np.full_like(other, value)

    def cast(self, value: Any, dtype: DType) -> Any:
        return np.asarray(value).astype(dtype.numpy)


class Evaluator:
    """One evaluation: a width, and the values of the sizes."""

    def __init__(self, wide: bool, sizes: Sizes) -> None:
        self.wide, self.sizes, self.algebra = wide, sizes, Numeric()

    def run(self, graph: nodes.Graph, inputs: Arrays) -> dict[str, Array]:
        values: dict[str, Any] = {}
        last = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
        for at, node in enumerate(graph.nodes):
            values[node.output] = self.value(node, [values[name] for name in node.inputs], inputs)
            if isinstance(node.kind, nodes.Opaque | nodes.Part) and node.dtype is not DType.OTHER:
                values[node.output] = np.asarray(values[node.output]).astype(self.dtype(node.dtype), copy=False)
                self.sizes = extend(self.sizes, node.shape, values[node.output].shape, node.output)
            for name in set(node.inputs):
                if last[name] == at and name not in graph.outputs:
                    del values[name]
        return {name: values[name] for name in graph.outputs}

    def dtype(self, dtype: DType) -> np.dtype:
        """The NumPy dtype that holds values of a dtype."""
        return np.dtype(np.float64) if self.wide and dtype.is_float else dtype.numpy

    @np.errstate(all="ignore")
    def value(self, node: nodes.Node, operands: Sequence[Any], inputs: Arrays) -> Any:
        match node.kind:
            case nodes.Input() if node.dtype is DType.OTHER:
                return inputs[node.output]
            case nodes.Input():
                return np.asarray(inputs[node.output]).astype(self.dtype(node.dtype), copy=False)
            case nodes.Constant(value):
                return value.astype(self.dtype(node.dtype), copy=False)
            case nodes.Iota(index):
                cells = index.evaluate(self.axes(node.shape))
                return np.broadcast_to(cells, self.shape(node)).astype(self.dtype(node.dtype))
            case nodes.Map("cast"):
                return self.cast(operands[0], node)
            case nodes.Map(function):
                wide = [self.widen(np.asarray(x)) for x in operands]
                return self.algebra.call(function, *wide).astype(self.dtype(node.dtype), copy=False)
            case nodes.Reduce(monoid, axes):
                return self.reduce(MONOIDS[monoid], axes, node, operands[0])
            case nodes.Scan():
                return self.scan(node.kind, node, operands[0])
            case nodes.View(index):
                return self.view(operands[0], index, node)
            case nodes.Select(axis, _):
                return np.concatenate(operands, axis)
            case nodes.Gather(index):
                return operands[0][self.positions_of(index, node.shape, operands)]
            case nodes.Scatter():
                return self.scatter(node.kind, node, operands)
            case nodes.Contract(equation):
                product = np.einsum(equation, *map(self.widen, operands), optimize=True)
                return np.asarray(product).astype(self.dtype(node.dtype), copy=False)
            case nodes.Opaque():
                return self.opaque(node.kind, node, operands)
            case nodes.Part(position):
                return operands[0][position] if isinstance(operands[0], tuple) else operands[0]  # of one alone
            case _:
                assert_never(node.kind)

    def view(self, value: Array, index: Sequence[Dim], node: nodes.Node) -> Any:
        shape = self.shape(node)
        if (spread := rearrange(value, index, shape)) is not None:
            return spread
        axes = self.axes(node.shape)
        try:
            return value[tuple(np.broadcast_to(dim.evaluate(axes), shape) for dim in index)]
        except IndexError as fault:
            reading = f"{node.inputs[0]} cannot be read by {node.output}: {list(value.shape)} as {list(shape)}"
            raise InputError(f"{reading}: the inputs do not fit") from fault

    def widen(self, value: Array) -> Array:
        """Widen float16 and bfloat16 to float32, in which they compute."""
        return value.astype(np.float32) if value.dtype.itemsize == 2 and value.dtype.kind in "fV" else value

    def shape(self, node: nodes.Node) -> tuple[int, ...]:
        return extents_at(self.sizes, node.shape)

    def axes(self, shape: tuple[Dim, ...]) -> dict[str, Any]:
        """The sizes, and the indices of a shape as open grids."""
        scope, rank = dict[str, Any](self.sizes), len(shape)
        for axis, dim in enumerate(shape):
            extent = int(dim.evaluate(self.sizes))
            scope[f"#{axis}"] = np.arange(extent).reshape([-1 if at == axis else 1 for at in range(rank)])
        return scope

    def cast(self, value: Array, node: nodes.Node) -> Any:
        if self.wide and node.dtype.is_float and value.dtype == np.float64:
            return value
        return np.not_equal(value, 0) if node.dtype is DType.BOOL else value.astype(self.dtype(node.dtype))

    def positions_of(
        self, index: Sequence[Dim | nodes.Lookup], shape: tuple[Dim, ...], operands: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Index arrays into operand 0; OutsideError where a looked-up index is outside."""
        axes, target = self.axes(shape), extents_at(self.sizes, shape)
        positions = []
        for axis, entry in enumerate(index):
            if isinstance(entry, nodes.Lookup):
                at = tuple(np.broadcast_to(dim.evaluate(axes), target) for dim in entry.at)
                where = operands[entry.input][at] if at else np.broadcast_to(operands[entry.input], target)
                extent = operands[0].shape[axis]
                if where.size and (where.min() < 0 or where.max() >= extent):
                    raise OutsideError(f"an index is outside [0, {extent}) along axis {axis} of a gather")
            else:
                where = np.broadcast_to(entry.evaluate(axes), target)
            positions.append(where)
        return tuple(positions)

    def reduce(self, monoid: Monoid, axes: tuple[int, ...], node: nodes.Node, value: Array) -> Array:
        """Reduce pairwise: by NumPy's ufunc, else by merging neighbours; ordered monoids one value after the other."""
        moved = np.moveaxis(self.widen(value), axes, tuple(range(-len(axes), 0)))
        shape = moved.shape[: moved.ndim - len(axes)]
        rows = np.ascontiguousarray(moved).reshape(*shape, math.prod(moved.shape[len(shape) :]))
        if not monoid.function or (monoid.chooses and (not rows.shape[-1] or rows.dtype == bool)):
            merged = self.in_order if monoid.ordered else self.merge
            result = monoid.finish(self.algebra, merged(monoid, np.moveaxis(rows, -1, 0)))
        else:
            ufunc: Any = OPERATORS[monoid.function].evaluate
            result = ufunc.reduce(rows, -1, dtype=rows.dtype)
        return np.asarray(result).astype(self.dtype(node.dtype), copy=False)

    def merge(self, monoid: Monoid, flat: Array) -> State:
        """The state of all rows of `flat`, merged two neighbours at a time."""
        if not len(flat):
            return self.empty(monoid, flat)
        positions = np.broadcast_to(np.arange(len(flat)).reshape(-1, *([1] * (flat.ndim - 1))), flat.shape)
        state = monoid.lift(self.algebra, flat, positions)
        while len(state[0]) > 1:
            odd = tuple(part[-1:] for part in state) if len(state[0]) % 2 else None
            even = len(state[0]) // 2 * 2
            state = monoid.merge(self.algebra, *(tuple(part[first:even:2] for part in state) for first in (0, 1)))
            if odd:
                state = tuple(np.concatenate([part, last]) for part, last in zip(state, odd, strict=True))
        return tuple(part[0] for part in state)

    def in_order(self, monoid: Monoid, flat: Array) -> State:
        """The state of all rows of `flat`, taken in from the first to the last."""
        state = self.empty(monoid, flat)
        for at, row in enumerate(flat):
            state = monoid.merge(self.algebra, state, monoid.lift(self.algebra, row, np.full(row.shape, at)))
        return state

    def empty(self, monoid: Monoid, flat: Array) -> State:
        """The monoid's empty state, for each cell of a row of `flat`."""
        source = of_array(flat)
        pairs = zip(monoid.init(source), monoid.states(source), strict=True)
        return tuple(np.full(flat.shape[1:], value, self.dtype(state.compute)) for value, state in pairs)

    def scan(self, kind: nodes.Scan, node: nodes.Node, value: Array) -> Array:
        monoid = MONOIDS[kind.monoid]
        rows = np.moveaxis(self.widen(value), kind.axis, 0)
        rows = rows[::-1] if kind.reverse else rows
        state = self.empty(monoid, rows)
        result = np.empty(rows.shape, self.dtype(node.dtype))
        for at, row in enumerate(rows):
            after = monoid.merge(self.algebra, state, monoid.lift(self.algebra, row, np.full(row.shape, at)))
            result[at] = monoid.finish(self.algebra, state if kind.exclusive else after)
            state = after
        return np.moveaxis(result[::-1] if kind.reverse else result, 0, kind.axis)

    def scatter(self, kind: nodes.Scatter, node: nodes.Node, operands: Sequence[Array]) -> Array:
        result, updates = operands[0].copy(), operands[2]
        shape = tuple(Dim.of(extent) for extent in updates.shape)
        where = self.positions_of(kind.index, shape, [operands[0], operands[1]])
        if kind.monoid is None:
            result[where] = updates
        else:
            ufunc: Any = OPERATORS[MONOIDS[kind.monoid].function].evaluate
            ufunc.at(result, where, updates)
        return result

    def opaque(self, kind: nodes.Opaque, node: nodes.Node, operands: Sequence[Any]) -> Any:
        if kind.evaluate is None:
            raise GraphError(f"{node.output} is made by {kind.name}, which cannot be evaluated here")
        results = kind.evaluate(*operands)
        return results if len(results) != 1 else results[0]
