"""The rules of the graph IR. Tests run this after every pass."""

from __future__ import annotations

from typing import assert_never

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir.dims import Dim, index_name, same_shape, shape_of
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Input,
    Iota,
    Lookup,
    Map,
    Node,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
    View,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, dtype_of


def check(graph: Graph) -> Graph:
    """The graph itself; GraphError names the first value that breaks a rule."""
    earlier: dict[str, Node] = {}
    for node in graph.nodes:
        missing = [name for name in node.inputs if name not in earlier]
        if missing:
            raise GraphError(f"{node.output} uses {missing[0]} before it is made")
        if node.output in earlier:
            raise GraphError(f"{node.output} is made twice")
        reason = _count_fault(node) or _fault(node, tuple(earlier[name] for name in node.inputs))
        if reason:
            raise GraphError(f"{node.output}: {reason}")
        earlier[node.output] = node
    absent = [name for name in graph.outputs if name not in earlier]
    if absent:
        raise GraphError(f"the output {absent[0]} is never made")
    return graph


def _count_fault(node: Node) -> str | None:
    """A number of inputs that the kind does not take, or None."""
    match node.kind:
        case Opaque():
            return None
        case Input() | Constant() | Iota():
            expected = 0
        case Map(function):
            expected = OPERATORS[function].arity if function in OPERATORS else len(node.inputs)
        case Reduce() | Scan() | View() | Part():
            expected = 1
        case Select(_, starts):
            expected = max(len(starts), 1)
        case Gather(index):
            expected = 1 + max((entry.input for entry in index if isinstance(entry, Lookup)), default=0)
        case Scatter():
            expected = 3
        case Contract():
            expected = 2
        case _:
            assert_never(node.kind)
    return None if len(node.inputs) == expected else f"{len(node.inputs)} inputs, but it takes {expected}"


def _fault(node: Node, inputs: tuple[Node, ...]) -> str | None:
    """Describe the first fault of a node, or give None."""
    match node.kind:
        case Input() | Opaque() | Part():
            return None
        case Constant(value):
            fine = value.dtype == node.dtype.numpy and shape_of(value.shape) == node.shape
            array = f"the array is {value.dtype}{list(value.shape)}"
            return None if fine else f"{array}, not {node.dtype.value}{node.shape}"
        case Iota(index):
            return _index_fault((index,), node)
        case Map(function):
            return _map_fault(function, node, inputs)
        case Reduce(monoid, axes):
            return _reduce_fault(monoid, axes, node, inputs[0])
        case Scan(monoid, axis, _, _):
            fine = monoid in MONOIDS and 0 <= axis < len(node.shape) and node.shape == inputs[0].shape
            return None if fine else f"the scan of {monoid} along {axis} does not fit {node.shape}"
        case View(index):
            return _view_fault(index, node, inputs[0])
        case Select(axis, starts):
            return _select_fault(axis, starts, node, inputs)
        case Gather(index):
            return _gather_fault(index, node, inputs)
        case Scatter(index, _):
            return None if len(index) == len(node.shape) else "the index does not have the rank of the result"
        case Contract(equation):
            return None if "->" in equation and len(inputs) == 2 else f"{equation} is no einsum of two operands"
        case _:
            assert_never(node.kind)


def _map_fault(function: str, node: Node, inputs: tuple[Node, ...]) -> str | None:
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


def _reduce_fault(monoid: str, axes: tuple[int, ...], node: Node, operand: Node) -> str | None:
    if monoid not in MONOIDS:
        return f"{monoid} is not in the table of monoids"
    if operand.dtype.kind not in MONOIDS[monoid].accepts or MONOIDS[monoid].result(operand.dtype) is not node.dtype:
        return f"{monoid} of {operand.dtype.value} does not give {node.dtype.value}"
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(len(operand.shape))):
        return f"the axes {axes} are not those of a value of rank {len(operand.shape)}"
    rest = tuple(dim for axis, dim in enumerate(operand.shape) if axis not in axes)
    fine = same_shape(rest, node.shape)
    return None if fine else f"what is left of {operand.shape} without {axes} is not {node.shape}"


def _index_fault(index: tuple[Dim, ...], node: Node) -> str | None:
    axes = {index_name(axis) for axis in range(len(node.shape))}
    strange = [name for dim in index for name in dim.names if name.startswith("#") and name not in axes]
    return f"{strange[0]} is no index of a value of rank {len(node.shape)}" if strange else None


def _view_fault(index: tuple[Dim, ...], node: Node, operand: Node) -> str | None:
    if len(index) != len(operand.shape):
        return f"the index has {len(index)} entries for an operand of rank {len(operand.shape)}"
    if operand.dtype is not node.dtype:
        return f"a view cannot turn {operand.dtype.value} into {node.dtype.value}"
    return _index_fault(index, node)


def _select_fault(axis: int, starts: tuple[Dim, ...], node: Node, inputs: tuple[Node, ...]) -> str | None:
    if not inputs or not 0 <= axis < len(node.shape) or starts[0] != Dim.of(0):
        return f"{len(inputs)} pieces from {starts} along axis {axis} of a value of rank {len(node.shape)}"
    ends = (*starts[1:], node.shape[axis])
    for piece, start, end in zip(inputs, starts, ends, strict=True):
        shape = (*node.shape[:axis], end - start, *node.shape[axis + 1 :])
        if piece.dtype is not node.dtype or not same_shape(piece.shape, shape):
            return f"the piece {piece.output} is {piece.dtype.value}{piece.shape}, not {node.dtype.value}{shape}"
    return None


def _gather_fault(index: tuple[Dim | Lookup, ...], node: Node, inputs: tuple[Node, ...]) -> str | None:
    if len(index) != len(inputs[0].shape):
        return f"the index has {len(index)} entries for an operand of rank {len(inputs[0].shape)}"
    for entry in index:
        if isinstance(entry, Lookup):
            if inputs[entry.input].dtype not in (DType.I32, DType.I64):
                return f"the indices {inputs[entry.input].output} are {inputs[entry.input].dtype.value}"
            if len(entry.at) != len(inputs[entry.input].shape):
                return f"the indices {inputs[entry.input].output} are looked up with {len(entry.at)} entries"
            if fault := _index_fault(entry.at, node):
                return fault
        elif fault := _index_fault((entry,), node):
            return fault
    return None
