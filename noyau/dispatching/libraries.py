"""What is left to NumPy between kernels: matrix products by BLAS, and what has no kernel, on views without copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from noyau.ir.dims import Dim
from noyau.ir.evaluation import Evaluator
from noyau.ir.graph import Constant, Contract, Graph, Input, View

Array = np.ndarray
Letters = Sequence[str]


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


def contract(equation: str, operands: Sequence[Array], dtype: np.dtype) -> Array:
    """An einsum of two operands, no letter twice in one of them, as a product of stacks of matrices."""
    (first, second), result = equation.split("->", maxsplit=1)[0].split(","), equation.split("->")[1]
    left, right = (np.asarray(operand, dtype) for operand in operands)
    both = [x for x in first if x in second]
    batch, summed = [x for x in both if x in result], [x for x in both if x not in result]
    left, first = _summed(left, first, second + result)
    right, second = _summed(right, second, first + result)
    rows, columns = ([x for x in term if x not in both] for term in (first, second))
    extents = {**dict(zip(first, left.shape, strict=True)), **dict(zip(second, right.shape, strict=True))}
    matrices = (
        _matrices(left, first, batch, rows, summed, extents),
        _matrices(right, second, batch, summed, columns, extents),
    )
    axes = [*batch, *rows, *columns]
    made: Array = np.matmul(*matrices).reshape([extents[x] for x in axes])
    return made.transpose([axes.index(x) for x in result])


def _summed(array: Array, term: str, elsewhere: str) -> tuple[Array, str]:
    """The array summed over the letters that are nowhere else."""
    alone = [at for at, letter in enumerate(term) if letter not in elsewhere]
    kept = "".join(letter for letter in term if letter in elsewhere)
    return (array.sum(tuple(alone), dtype=array.dtype), kept) if alone else (array, term)


def _matrices(
    array: Array,
    term: str,
    batch: Sequence[str],
    rows: Sequence[str],
    columns: Sequence[str],
    extents: Mapping[str, int],
) -> Array:
    """The array as a stack of matrices; groups of axes become one."""
    turned = array.transpose([term.index(x) for x in (*batch, *rows, *columns)])
    sides = [int(np.prod([extents[x] for x in side], dtype=np.int64)) for side in (rows, columns)]
    return turned.reshape([*(extents[x] for x in batch), *sides])
