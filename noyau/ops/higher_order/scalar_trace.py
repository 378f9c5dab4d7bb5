"""The graph of a function of numbers, for some dtypes; functions that combine cells are refused. And a few signatures
for an op on arrays of any rank: a check tries an op with each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.compiler.passes.normal_form import normalise
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import follow
from noyau.ir.dims import shape_of
from noyau.ir.graph import Constant, Graph, Input, Map, Node, View
from noyau.signatures.types import Family

TRIED = (DType.F32, DType.I64, DType.BOOL)  # a function of numbers must take one of these dtypes


def graph_over(
    function: Callable[..., Any], names: Sequence[str], dtypes: Sequence[DType], constants: Mapping[str, Any]
) -> Graph:
    """Trace a function of numbers of these dtypes into a graph of values without axes, which includes unused inputs.
    UnsupportedError where it cannot be traced, with its line, or where a cell of its result needs more than the cells
    at its place."""
    inputs = [Node(n, Input(), (), d, shape_of(["cells"])) for n, d in zip(names, dtypes, strict=True)]
    with np.errstate(all="ignore"):
        graph = follow(function, inputs, None, constants).graph
    if len(graph.outputs) != 1:
        raise UnsupportedError(f"{function.__name__} gives {len(graph.outputs)} results; let it give one")
    for node in graph.nodes:
        if not _is_of_numbers(graph, node):
            kind = type(node.kind).__name__
            message = f"it takes cells together ({kind})" if kind != "Constant" else "it has an array in it"
            raise UnsupportedError(f"{function.__name__} is no function of numbers: {message}; write it for one cell")
    used = {node.output for node in graph.inputs}
    unused = (node for node in inputs if node.output not in used)
    ordered = sorted((*graph.inputs, *unused), key=lambda node: list(names).index(node.output))
    rest = (_alone(node) for node in graph.nodes if not isinstance(node.kind, Input))
    return Graph((*map(_alone, ordered), *rest), graph.outputs)


def _is_of_numbers(graph: Graph, node: Node) -> bool:
    match node.kind:
        case Input() | Map():
            return True
        case Constant():
            return not node.shape
        case View(index):
            return not graph[node.inputs[0]].shape or list(map(str, index)) == ["#0"]
        case _:
            return False


def _alone(node: Node) -> Node:
    """A value without its axis."""
    return replace(node, kind=Map("identity") if isinstance(node.kind, View) else node.kind, shape=())


def require_traceable(function: Callable[..., Any], names: Sequence[str], constants: Mapping[str, Any]) -> None:
    """UnsupportedError where a function of numbers can be traced for no dtype: the reason for the first one."""
    reasons: list[UnsupportedError] = []
    for dtype in TRIED:
        try:
            graph_over(function, names, [dtype] * len(names), constants)
        except UnsupportedError as error:
            reasons.append(error)
        else:
            return
    raise reasons[0]


def reorder_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its inputs at the front: those of these names in their order, then the others."""
    inputs = [graph[name] for name in names if name in graph.by_name]
    inputs += [node for node in graph.inputs if node.output not in names]
    first = {node.output for node in inputs}
    return replace(graph, nodes=(*inputs, *(node for node in graph.nodes if node.output not in first)))


def normal(graph: Graph) -> Graph:
    """The normal form of a function of numbers, with its inputs in their order."""
    names = [node.output for node in graph.inputs]
    result = normalise(graph)
    kept = {node.output: node for node in result.inputs if node.output in names}
    inputs = tuple(kept.get(node.output, node) for node in graph.inputs)
    lifted = {node.output: graph[node.output] for node in result.inputs if node.output not in names}
    rest = [lifted.get(node.output, node) for node in result.nodes if node.output not in names]
    same = [replace(node, kind=Map("identity")) if isinstance(node.kind, View) else node for node in rest]
    return replace(result, nodes=(*inputs, *same))


def form(graph: Graph) -> list[Any]:
    """A graph without its names."""
    places = {node.output: place for place, node in enumerate(graph.nodes)}
    nodes = [(node.kind, [places[name] for name in node.inputs], node.dtype) for node in graph.nodes]
    return [nodes, [places[name] for name in graph.outputs]]


Result = Callable[[DType], DType]  # from the dtype of all inputs to that of the result
FAMILIES = ((Family.FLOAT, DType.F32, DType.F64), (Family.INT, DType.I64, DType.I32), (None, DType.BOOL, DType.BOOL))


def elements_of(result: Result) -> Iterator[tuple[str, str]]:
    """The elements of the inputs and of the result, as in signatures, for the first family that the function takes."""
    for family, usual, other in FAMILIES:
        try:
            element, same = result(usual), result(other)
        except UnsupportedError:
            continue
        if family is not None and (element, same) == (usual, other):
            yield family.value, family.value
        elif family is not None and element is same:
            yield family.value, element.value
        else:
            yield usual.value, element.value
        return


def map_signatures(element: str, result: str, names: Sequence[str]) -> list[str]:
    """Signatures of functions cell by cell: equal shapes, a row beside a matrix, a column beside a row."""
    batch, row, column, out = fresh(names, "batch", "n", "m", "out")
    same, rest = f"{element}[*{batch}, {row}]", ", ".join([f"{element}[{row}]"] * (len(names) - 1))
    texts = [", ".join([same] * len(names)) + f" -> {out}: {result}[*{batch}, {row}]"]
    if rest:
        texts.append(f"{same}, {rest} -> {out}: {result}[*{batch}, {row}]")
        texts.append(f"{element}[{column}, 1], {rest} -> {out}: {result}[{column}, {row}]")
    return texts


def reduce_signatures(element: str, result: str, name: str) -> dict[str, Mapping[str, Any]]:
    """Signatures of a reduction, with its arguments: along the last axis, the first one, all of them."""
    batch, row, column, out = fresh([name], "batch", "n", "m", "out")
    return {
        f"{element}[*{batch}, {row}] -> {out}: {result}[*{batch}]": {"axis": -1, "keepdims": False},
        f"{element}[{row}, *{batch}] -> {out}: {result}[1, *{batch}]": {"axis": 0, "keepdims": True},
        f"{element}[{column}, {row}] -> {out}: {result}": {"axis": None, "keepdims": False},
    }


def fresh(taken: Sequence[str], *wanted: str) -> list[str]:
    """The wanted names, each lengthened if an input has it."""
    names = []
    for name in wanted:
        while name in taken:
            name += "_"
        names.append(name)
    return names
