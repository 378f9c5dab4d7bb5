"""What is left to NumPy between kernels: matrix products by BLAS, and what has no kernel, on views without copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from noyau.ir.dims import Dim
from noyau.ir.evaluation import Evaluator
from noyau.ir.graph import Constant, Contract, Graph, Input, View

Array = np.ndarray


def call(graph: Graph, given: Sequence[Array], sizes: Mapping[str, int]) -> Array:
    """The one output of a graph of views, constants and one value, for its inputs in order."""
    values = dict(zip((node.output for node in graph.inputs), given, strict=True))
    evaluator = Evaluator(False, sizes)
    for node in graph.nodes:
        if isinstance(node.kind, Input):
            continue
        operands = [values[name] for name in node.inputs]
        match node.kind:
            case Contract(equation):
                values[node.output] = contract(equation, operands, node.dtype.compute.numpy).astype(
                    node.dtype.numpy, copy=False
                )
            case View(index):
                seen = view(operands[0], index, evaluator.shape(node), sizes)
                values[node.output] = evaluator.value(node, operands, values) if seen is None else seen
            case Constant(value):
                values[node.output] = value
            case _:
                values[node.output] = evaluator.value(node, operands, values)
    return values[graph.outputs[0]]


def view(array: Array, index: Sequence[Dim], shape: Sequence[int], sizes: Mapping[str, int]) -> Array | None:
    """The cells of an array at `index`, over the axes of `shape`, as a view of it; None where no strides say that."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    first = {**sizes, **{f"#{axis}": 0 for axis in range(len(shape))}}
    starts, strides = [int(dim.evaluate(first)) for dim in index], [0] * len(shape)
    for dim, stride in zip(index, array.strides, strict=True):
        for axis in range(len(shape)):
            slope = slope_of(dim, axis)
            if slope is None:
                return None
            strides[axis] += int(slope.evaluate(sizes)) * stride
    return as_strided(array[tuple(slice(start, None) for start in starts)], tuple(shape), tuple(strides))


def slope_of(dim: Dim, axis: int) -> Dim | None:
    """By how much an index grows with that of an axis; None where that differs from place to place."""
    slope = dim.replace({f"#{axis}": Dim.of(f"#{axis}") + 1}) - dim
    return None if any(name.startswith("#") for name in slope.names) else slope


@dataclass(frozen=True, slots=True)
class Product:
    """An einsum of two operands, no letter twice in one of them, as a product of stacks of matrices: letters that are
    summed away beforehand; the axes of each operand in the order batch, rows, columns; how many are of the batch, and
    are rows and columns; the order of the result. An order that is None is the one there is."""

    alone: tuple[tuple[int, ...], tuple[int, ...]]
    orders: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    batch: int
    sides: tuple[tuple[int, int], tuple[int, int]]
    turned: tuple[int, ...] | None


@lru_cache(maxsize=256)
def product(equation: str) -> Product:
    """How an equation is a product."""
    (first, second), result = equation.split("->", maxsplit=1)[0].split(","), equation.split("->")[1]
    alone = tuple(
        tuple(at for at, letter in enumerate(term) if letter not in other + result)
        for term, other in ((first, second), (second, first))
    )
    first = "".join(letter for letter in first if letter in second + result)
    second = "".join(letter for letter in second if letter in first + result)
    both = [letter for letter in first if letter in second]
    batch, summed = [x for x in both if x in result], [x for x in both if x not in result]
    rows, columns = ([x for x in term if x not in both] for term in (first, second))
    orders = _order(first, [*batch, *rows, *summed]), _order(second, [*batch, *summed, *columns])
    sides = (len(rows), len(summed)), (len(summed), len(columns))
    turned = _order("".join([*batch, *rows, *columns]), list(result))
    return Product((alone[0], alone[1]), orders, len(batch), sides, turned)


def _order(term: str, wanted: Sequence[str]) -> tuple[int, ...] | None:
    order = tuple(term.index(letter) for letter in wanted)
    return None if order == tuple(range(len(order))) else order


def contract(equation: str, operands: Sequence[Array], dtype: np.dtype) -> Array:
    """An einsum of two operands, computed in `dtype` by np.matmul."""
    how = product(equation)
    left, right = (
        _matrices(np.asarray(operand, dtype), how.alone[at], how.orders[at], how.batch, how.sides[at])
        for at, operand in enumerate(operands)
    )
    made: Array = np.matmul(left[0], right[0])
    if how.sides != ((1, 1), (1, 1)):
        made = made.reshape(left[1] + right[2])
    return made if how.turned is None else made.transpose(how.turned)


def _matrices(
    array: Array, alone: tuple[int, ...], order: tuple[int, ...] | None, batch: int, sides: tuple[int, int]
) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    """The array as a stack of matrices, its extents before the columns, and those of the columns."""
    if alone:
        array = array.sum(alone, dtype=array.dtype)
    if order is not None:
        array = array.transpose(order)
    middle = batch + sides[0]
    shape = array.shape
    if sides != (1, 1):
        array = array.reshape(*shape[:batch], math.prod(shape[batch:middle]), math.prod(shape[middle:]))
    return array, shape[:middle], shape[middle:]
