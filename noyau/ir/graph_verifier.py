"""The rules of the graph IR. Tests run this after every pass."""

from collections.abc import Sequence
from typing import assert_never

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, same_shape, shape_of
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of


def check(graph: nodes.Graph) -> nodes.Graph:
    """Return the graph itself; GraphError names the first value that breaks a rule."""
    earlier: dict[str, nodes.Node] = {}
    for node in graph.nodes:
        if missing := [name for name in node.inputs if name not in earlier]:
            raise GraphError(f"{node.output} uses {missing[0]} before it is made")
        if node.output in earlier:
            raise GraphError(f"{node.output} is made twice")
        if reason := _count_fault(node) or _fault(node, tuple(earlier[name] for name in node.inputs)):
            raise GraphError(f"{node.output}: {reason}")
        earlier[node.output] = node
    if absent := [name for name in graph.outputs if name not in earlier]:
        raise GraphError(f"the output {absent[0]} is never made")
    return graph


def _count_fault(node: nodes.Node) -> str | None:
    """Describe a wrong number of inputs, or give None."""
    match node.kind:
        case nodes.Opaque():
            return None
        case nodes.Input() | nodes.Constant() | nodes.Iota():
            expected = 0
        case nodes.Map(function):
            expected = OPERATORS[function].arity if function in OPERATORS else len(node.inputs)
        case nodes.Reduce() | nodes.Scan() | nodes.View() | nodes.Part():
            expected = 1
        case nodes.Select(_, starts):
            expected = max(len(starts), 1)
        case nodes.Gather(index):
            expected = 1 + max((entry.input for entry in index if isinstance(entry, nodes.Lookup)), default=0)
        case nodes.Scatter():
            expected = 3
        case nodes.Contract():
            expected = 2
        case _:
            assert_never(node.kind)
    return None if len(node.inputs) == expected else f"{len(node.inputs)} inputs, but it takes {expected}"


def _fault(node: nodes.Node, inputs: tuple[nodes.Node, ...]) -> str | None:
    """Describe the first fault of a node, or give None."""
    match node.kind:
        case nodes.Input() | nodes.Opaque() | nodes.Part():
            return None
        case nodes.Constant(value):
            ok = value.dtype == node.dtype.numpy and shape_of(value.shape) == node.shape
            return None if ok else f"the array is {value.dtype}{list(value.shape)}, not {node.dtype.value}{node.shape}"
        case nodes.Iota(index):
            return _index_fault((index,), node)
        case nodes.Map(function):
            return _map_fault(function, node, inputs)
        case nodes.Reduce(monoid, axes):
            return _reduce_fault(monoid, axes, node, inputs[0])
        case nodes.Scan(monoid, axis, _, _):
            fine = monoid in MONOIDS and 0 <= axis < len(node.shape) and node.shape == inputs[0].shape
            return None if fine else f"the scan of {monoid} along {axis} does not fit {node.shape}"
        case nodes.View(index):
            return _view_fault(index, node, inputs[0])
        case nodes.Select(axis, starts):
            return _select_fault(axis, starts, node, inputs)
        case nodes.Gather(index):
            return _gather_fault(index, node, inputs)
        case nodes.Scatter(index, _):
            return None if len(index) == len(node.shape) else "the index does not have the rank of the result"
        case nodes.Contract(equation):
            return None if "->" in equation and len(inputs) == 2 else f"{equation} is no einsum of two operands"
        case _:
            assert_never(node.kind)


def _map_fault(function: str, node: nodes.Node, inputs: tuple[nodes.Node, ...]) -> str | None:
    if function not in OPERATORS:
        return f"{function} is not in the operator table"
    for operand in inputs:
        if not same_shape(operand.shape, node.shape):
            return f"{operand.output} has shape {operand.shape}, not {node.shape}: expand it first"
    if function == "cast":
        return None
    try:
        result = dtype_of(function, tuple(operand.dtype for operand in inputs))
    except GraphError as error:
        return str(error)
    return None if result is node.dtype else f"{function} does not give {node.dtype.value}"


def _reduce_fault(monoid: str, axes: tuple[int, ...], node: nodes.Node, operand: nodes.Node) -> str | None:
    if monoid not in MONOIDS:
        return f"{monoid} is not in the table of monoids"
    if operand.dtype.kind not in MONOIDS[monoid].accepts or MONOIDS[monoid].result(operand.dtype) is not node.dtype:
        return f"{monoid} of {operand.dtype.value} does not give {node.dtype.value}"
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(len(operand.shape))):
        return f"the axes {axes} are not those of a value of rank {len(operand.shape)}"
    fits = same_shape(tuple(dim for axis, dim in enumerate(operand.shape) if axis not in axes), node.shape)
    return None if fits else f"what is left of {operand.shape} without {axes} is not {node.shape}"


def _index_fault(index: tuple[Dim, ...], node: nodes.Node) -> str | None:
    strange = [name for dim in index for name in dim.names if name.startswith("#") and name not in node.extents]
    return f"{strange[0]} is no index of a value of rank {len(node.shape)}" if strange else None


def _view_fault(index: tuple[Dim, ...], node: nodes.Node, operand: nodes.Node) -> str | None:
    if len(index) != len(operand.shape):
        return f"the index has {len(index)} entries for an operand of rank {len(operand.shape)}"
    if operand.dtype is not node.dtype:
        return f"a view cannot turn {operand.dtype.value} into {node.dtype.value}"
    return _index_fault(index, node)


def _select_fault(axis: int, starts: tuple[Dim, ...], node: nodes.Node, inputs: tuple[nodes.Node, ...]) -> str | None:
    if not inputs or not 0 <= axis < len(node.shape) or starts[0] != Dim.of(0):
        return f"{len(inputs)} pieces from {starts} along axis {axis} of a value of rank {len(node.shape)}"
    for piece, start, end in zip(inputs, starts, (*starts[1:], node.shape[axis]), strict=True):
        shape = (*node.shape[:axis], end - start, *node.shape[axis + 1 :])
        if piece.dtype is not node.dtype or not same_shape(piece.shape, shape):
            return f"the piece {piece.output} is {piece.dtype.value}{piece.shape}, not {node.dtype.value}{shape}"
    return None


def _gather_fault(index: Sequence[Dim | nodes.Lookup], node: nodes.Node, inputs: Sequence[nodes.Node]) -> str | None:
    if len(index) != len(inputs[0].shape):
        return f"the index has {len(index)} entries for an operand of rank {len(inputs[0].shape)}"
    for entry in index:
        if isinstance(entry, nodes.Lookup):
            indices = inputs[entry.input]
            if indices.dtype not in (DType.I32, DType.I64):
                return f"the indices {indices.output} are {indices.dtype.value}"
            if len(entry.at) != len(indices.shape):
                return f"the indices {indices.output} are looked up with {len(entry.at)} entries"
        if fault := _index_fault(entry.at if isinstance(entry, nodes.Lookup) else (entry,), node):
            return fault
    return None
