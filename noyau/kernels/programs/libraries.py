"""Library calls between kernels, by NumPy: matrix products by BLAS, nodes without a kernel, views without copies."""

import math
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Constant, Contract, Graph, Input, Node, View
from noyau.ir.graph_interpreter import Evaluator
from noyau.ir.sizes import Sizes, extents_at

_CALL = np.errstate(all="ignore")(lambda function, *arrays: function(*arrays))
_QUIET = None if np.__version__ < "2" else Context()  # before NumPy 2 the state of errors is a thread's
if _QUIET is not None:
    _QUIET.run(np.seterr, all="ignore")
Array = np.ndarray
Permute: TypeAlias = Callable[[Any, tuple[int, ...]], Any]
Step: TypeAlias = Callable[[Sequence[Array], Sizes], Array]


def prepare(graph: Graph) -> Callable[[Sequence[Array], Sizes], Array]:
    """Compile a graph of views, constants and one other node to a function that returns its one output: packed, in
    memory that the caller may write. Work that depends on neither arrays nor sizes is done here, once."""
    names = [node.output for node in graph.inputs]
    steps = [(node.output, node.inputs, _step(graph, node)) for node in graph.nodes if not isinstance(node.kind, Input)]
    result = graph.outputs[0]
    packed = np.array if shows(graph) else np.asarray  # np.array copies, so that no view or constant is exposed

    def run(arrays: Sequence[Array], sizes: Sizes) -> Array:
        values = dict(zip(names, arrays, strict=True))
        for name, operands, step in steps:
            values[name] = step([values[each] for each in operands], sizes)
        return packed(values[result], order="C")

    return run


def shows(graph: Graph) -> bool:
    """Whether the one output of a graph aliases other memory: a constant, or a view of anything but a product."""
    root = graph[graph.outputs[0]]
    while isinstance(root.kind, View):
        root = graph[root.inputs[0]]
    is_view = root.output != graph.outputs[0]
    return not isinstance(root.kind, Contract) if is_view else isinstance(root.kind, Constant)


def _step(graph: Graph, node: Node) -> Step:
    match node.kind:
        case Contract(equation):
            storage, compute = node.dtype.numpy, node.dtype.compute.numpy
            return lambda operands, sizes: contract(equation, operands, compute).astype(storage, copy=False)
        case View(index) if (axes := transposed_axes(index, node.shape, graph[node.inputs[0]].shape)) is not None:
            return lambda operands, sizes: operands[0].transpose(axes)
        case View(index):
            return _view_step(index, node)
        case Constant(value):
            return lambda operands, sizes: value
        case _:
            return lambda operands, sizes: _evaluate(node, operands, sizes)


def _evaluate(node: Node, operands: Sequence[Array], sizes: Sizes) -> Array:
    value: Array = Evaluator(False, sizes).value(node, operands, {})
    return value


def transposed_axes(index: Sequence[Dim], shape: Shape, source: Shape) -> tuple[int, ...] | None:
    """The permutation of a view that only transposes the whole array; None for any other view."""
    bare = {Dim.of(f"#{axis}"): axis for axis in range(len(shape))}
    places = [bare.get(dim) for dim in index]
    if sorted(place for place in places if place is not None) != list(range(len(shape))) or len(index) != len(shape):
        return None
    axes = tuple(places.index(axis) for axis in range(len(shape)))
    return axes if all(shape[axis] == source[at] for axis, at in enumerate(axes)) else None


def einsum_of(graph: Graph) -> tuple[str, list[str], DType] | None:
    """The equation, the operands and the dtype of a graph that is a Contract of inputs; transposes of them or of the
    result are another order of its letters. None for any other graph."""
    node, axes = _under_transpose(graph, graph.outputs[0])
    if not isinstance(node.kind, Contract) or axes is None:
        return None
    terms, result = node.kind.equation.split("->")
    turned, names = list[str](), list[str]()
    for term, (source, order) in zip(terms.split(","), (_under_transpose(graph, x) for x in node.inputs), strict=True):
        if order is None or not isinstance(source.kind, Input):
            return None
        turned.append("".join(term[order.index(axis)] for axis in range(len(term))))
        names.append(source.output)
    return f"{','.join(turned)}->{''.join(result[axis] for axis in axes)}", names, node.dtype


def _under_transpose(graph: Graph, name: str) -> tuple[Node, Sequence[int] | None]:
    """The value that another is a transpose of, or the value itself; and the order of axes, None for another view."""
    node = graph[name]
    if not isinstance(node.kind, View):
        return node, range(len(node.shape))
    source = graph[node.inputs[0]]
    return source, transposed_axes(node.kind.index, node.shape, source.shape)


def _view_step(index: Sequence[Dim], node: Node) -> Step:
    slopes = slopes_of(index, len(node.shape))

    def step(operands: Sequence[Array], sizes: Sizes) -> Array:
        shape = extents_at(sizes, node.shape)
        seen = None if slopes is None else view(operands[0], index, slopes, shape, sizes)
        return _evaluate(node, operands, sizes) if seen is None else seen

    return step


def view(
    array: Array, index: Sequence[Dim], slopes: Sequence[Sequence[Dim]], shape: Sequence[int], sizes: Sizes
) -> Array:
    """A strided view of an array's cells at `index`, over the axes of `shape`; `slopes`: see `slopes_of`."""
    if 0 in shape:
        return np.empty(shape, array.dtype)
    first = {**sizes, **{f"#{axis}": 0 for axis in range(len(shape))}}
    starts, strides = [int(dim.evaluate(first)) for dim in index], [0] * len(shape)
    for along, stride in zip(slopes, array.strides, strict=True):
        for axis, slope in enumerate(along):
            strides[axis] += int(slope.evaluate(sizes)) * stride
    return as_strided(array[tuple(slice(start, None) for start in starts)], tuple(shape), tuple(strides))


def slopes_of(index: Sequence[Dim], rank: int) -> list[list[Dim]] | None:
    """The slope of each index along each axis; None where an index is not affine."""
    slopes = [[slope_of(dim, axis) for axis in range(rank)] for dim in index]
    known = [[slope for slope in along if slope is not None] for along in slopes]
    return known if known == slopes else None


def slope_of(dim: Dim, axis: int) -> Dim | None:
    """The increase of an index per step along an axis; None where it depends on the position."""
    slope = dim.replace({f"#{axis}": Dim.of(f"#{axis}") + 1}) - dim
    return None if any(name.startswith("#") for name in slope.names) else slope


@dataclass(frozen=True, slots=True)
class Product:
    """An einsum of two operands, no letter twice in one operand, as a batched matrix product. `alone`: for each operand
    the axes that are summed first; `orders`: the transposition of each operand to batch, rows, columns; `batch`: the
    number of batch axes; `sides`: for each operand the numbers of row and column axes; `turned`: the transposition of
    the result; None is the identity. `is_matmul`: np.matmul computes it without a reshape; `is_plain`: and np.dot."""

    alone: tuple[tuple[int, ...], tuple[int, ...]]
    orders: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    batch: int
    sides: tuple[tuple[int, int], tuple[int, int]]
    turned: tuple[int, ...] | None
    is_matmul: bool
    is_plain: bool

    def matrices(self, at: int, array: Any, permute: Permute) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        """An operand, of NumPy or torch, as a stack of matrices; its extents of batch and rows, and of columns."""
        if self.alone[at]:
            array = array.sum(self.alone[at], dtype=array.dtype)
        order, middle = self.orders[at], self.batch + self.sides[at][0]
        array = array if order is None else permute(array, order)
        before, after = tuple(array.shape[:middle]), tuple(array.shape[middle:])
        if self.sides[at] != (1, 1):
            array = array.reshape(*before[: self.batch], math.prod(before[self.batch :]), math.prod(after))
        return array, before, after

    def result(self, product: Any, shape: tuple[int, ...], permute: Permute) -> Any:
        """A matrix product in the equation's layout; `shape`: batch and rows of the first operand, then the columns."""
        if self.sides != ((1, 1), (1, 1)):
            product = product.reshape(shape)
        return product if self.turned is None else permute(product, self.turned)


@lru_cache(maxsize=256)
def product(equation: str) -> Product:
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
    with_vector = not batch and sides in (((1, 1), (1, 0)), ((0, 1), (1, 1)))
    is_matmul = alone == ((), ()) and (with_vector or sides == ((1, 1), (1, 1)))
    is_plain = is_matmul and not batch and sides == ((1, 1), (1, 1))
    return Product((alone[0], alone[1]), orders, len(batch), sides, turned, is_matmul, is_plain)


def _order(term: str, names: Sequence[str]) -> tuple[int, ...] | None:
    order = tuple(term.index(letter) for letter in names)
    return None if order == tuple(range(len(order))) else order


def quiet() -> Callable[..., Array]:
    """A function that calls a function of NumPy on arrays, once, without warnings of what it meets."""
    return _CALL if _QUIET is None else _QUIET.copy().run  # 50 ns, where np.errstate takes 800


def contract(equation: str, operands: Sequence[Array], dtype: np.dtype) -> Array:
    """An einsum of two operands, computed in `dtype` by np.matmul."""
    how, shape = product(equation), None
    left, right = np.asarray(operands[0], dtype), np.asarray(operands[1], dtype)
    if how.is_matmul:  # spelt out, since each call in Python takes as long as a small product
        before, after = how.orders
        left = left if before is None else left.transpose(before)
        right = right if after is None else right.transpose(after)
    else:
        (left, rows, _), (right, _, columns) = how.matrices(0, left, np.transpose), how.matrices(1, right, np.transpose)
        shape = rows + columns
    if how.is_plain and dtype.kind == "f" and left.flags.forc and right.flags.forc:  # dot costs less than np.matmul
        return quiet()(left.dot, right) if how.turned is None else quiet()(right.T.dot, left.T)
    left = left if left.flags.c_contiguous or is_blas_s(left) else np.ascontiguousarray(left)
    right = right if right.flags.c_contiguous or is_blas_s(right) else np.ascontiguousarray(right)
    whole = quiet()(np.matmul, left, right)  # np.einsum warns of nothing
    if shape is not None or how.turned is not None:
        whole = how.result(whole, whole.shape if shape is None else shape, np.transpose)
    return whole if whole.flags.c_contiguous else np.ascontiguousarray(whole)


def is_blas_s(array: Array) -> bool:
    """Whether BLAS takes matrices [..., rows, columns] with these strides. For others NumPy accumulates the products
    sequentially in one number, which is slower than a copy and less accurate than BLAS."""
    if array.ndim < 2 or array.flags.c_contiguous or (array.ndim == 2 and array.flags.f_contiguous):
        return True
    rows, columns = array.shape[-2:]
    down, along, cell = *array.strides[-2:], array.itemsize
    by_rows = (along == cell or columns < 2) and (down >= max(columns, 1) * cell or rows < 2)
    by_columns = (down == cell or rows < 2) and (along >= max(rows, 1) * cell or columns < 2)
    return (by_rows or by_columns) and down % cell == 0 and along % cell == 0
