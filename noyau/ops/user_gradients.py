"""Gradients that a user writes: a NumPy function traced into graphs of the same form as derived ones."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from noyau.compiler.autodiff.adjoints import DerivedGradient, gradient_name, with_sizes
from noyau.compiler.passes.cleanup import drop_unused
from noyau.errors import SignatureError
from noyau.frontends.numpy.trace import follow
from noyau.ir.graph import Graph, Input, Node
from noyau.ir.graph_verifier import check


def derive_by(
    function: Callable[..., Any], graph: Graph, constants: Mapping[str, Any], sizes: Mapping[str, int] | None = None
) -> DerivedGradient:
    """The gradient of a graph by a user's function.

    Its parameters are matched by name: inputs and outputs of the graph, `grad_<output>` for each float output (`grad`
    too if there is one output), and constants. It returns one gradient for each float input, in order (a tuple; for one
    input also the gradient itself), of its dtype and shape, or None for an input without one. `sizes` are those of the
    call that it is traced for. SignatureError for any other parameter, or another number of gradients;
    UnsupportedError, with its line, where it cannot be traced, or a gradient has another dtype or shape."""
    named = _parameters(function, graph, constants)
    arrays = {parameter: node for parameter, node in named.items() if node is not None}
    own_constants = {parameter: constants[parameter] for parameter, node in named.items() if node is None}
    inputs = [replace(node, output=parameter) for parameter, node in arrays.items()]
    there: list[bool] = []
    gradients = _gradients(function, list(arrays), there)
    follow(gradients, inputs, None, own_constants, sizes)  # traced once to see which gradients it returns
    # The inputs that the function returns gradients for
    floats = [node for node in graph.inputs if node.dtype.is_float]
    if len(there) != len(floats):
        names = ", ".join(node.output for node in floats)
        message = f"returns {len(there)} gradients, and there are {len(floats)} float inputs: {names}"
        raise SignatureError(f"{_title(function)} {message}; None stands for none")
    wanted = [node for node, is_there in zip(floats, there, strict=True) if is_there]
    traced = follow(gradients, inputs, [_result(node, arrays) for node in wanted], own_constants, sizes).graph
    own = {parameter: node.output for parameter, node in arrays.items()}
    backward = with_sizes(_with_gradients(_rename_inputs(traced, graph, own), graph), graph)
    grads = {gradient_name(name) for name in graph.outputs}
    saved = tuple(node.output for node in backward.inputs if node.output not in grads)
    return DerivedGradient(
        graph, saved, check(backward), check(_whole(graph, backward)), tuple(n.output for n in wanted)
    )


def _parameters(function: Callable[..., Any], graph: Graph, constants: Mapping[str, Any]) -> dict[str, Node | None]:
    """The role of each parameter: a value, as an input, or a constant (None)."""
    known = _known_values(graph)
    roles: dict[str, Node | None] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            remedy = "its parameters are found by name: write them out"
            raise SignatureError(f"{_title(function)} takes {parameter}; {remedy}")
        if name in known:
            roles[name] = known[name]
        elif name in constants:
            roles[name] = None
        elif parameter.default is parameter.empty:
            there = ", ".join([*known, *constants])
            raise SignatureError(f"{_title(function)} takes {name!r}, which is none of what it can have: {there}")
    return roles


def _known_values(graph: Graph) -> dict[str, Node]:
    """The values that a gradient may be computed from, by the names of parameters."""
    nodes = {node.output: node for node in graph.inputs}
    ends = [graph[name] for name in dict.fromkeys(graph.outputs)]
    for node in ends:
        nodes.setdefault(node.output, replace(node, kind=Input(), inputs=()))
    for node in ends:
        if node.dtype.is_float:
            gradient = Node(gradient_name(node.output), Input(), (), node.dtype, node.shape)
            nodes.setdefault(gradient.output, gradient)
            if len(ends) == 1:
                nodes.setdefault("grad", gradient)
    return nodes


def _gradients(function: Callable[..., Any], names: Sequence[str], there: list[bool]) -> Callable[..., Any]:
    """Wrap the function as one of arrays in order, which returns the gradients except None; `there` records which."""

    def called(*arrays: Any, **constants: Any) -> Any:
        returned = function(**dict(zip(names, arrays, strict=True)), **constants)
        parts = returned if isinstance(returned, tuple | list) else (returned,)
        there[:] = [part is not None for part in parts]
        gradients = tuple(part for part in parts if part is not None)
        return gradients[0] if len(gradients) == 1 else gradients

    called.__name__ = _title(function)
    return called


def _title(function: Callable[..., Any]) -> str:
    return f"the gradient {getattr(function, '__name__', function)}"


def _result(node: Node, arrays: Mapping[str, Node]) -> Node:
    """The gradient of an input, under a name that no argument has."""
    name = gradient_name(node.output)
    while name in arrays or name in {each.output for each in arrays.values()}:
        name += "_"
    return Node(name, Input(), (), node.dtype, node.shape)


def _rename_inputs(traced: Graph, graph: Graph, own: Mapping[str, str]) -> Graph:
    """The traced graph, with its inputs named as in the graph, and no other value named as one of the graph's."""
    ends, names = {*own, *traced.outputs}, dict(own)
    for node in traced.nodes:
        name = node.output
        while name not in ends and (name in graph.by_name or name in names.values()):
            name += "_"
        names.setdefault(node.output, name)
    nodes: dict[str, Node] = {}
    for node in traced.nodes:
        new = replace(node, output=names[node.output], inputs=tuple(names[name] for name in node.inputs))
        nodes.setdefault(new.output, new)  # `grad` and `grad_out` are one
    return replace(traced, nodes=tuple(nodes.values()))


def _with_gradients(backward: Graph, graph: Graph) -> Graph:
    """The graph with inputs in order: the forward graph's, its outputs, then all gradients of float outputs."""
    known = {name: node for name, node in _known_values(graph).items() if name == node.output}
    grads = {gradient_name(name) for name in graph.outputs if graph[name].dtype.is_float}
    read = {node.output: node for node in backward.inputs}
    inputs = [read.get(name, node) for name, node in known.items() if name in read or name in grads]
    rest = [node for node in backward.nodes if not isinstance(node.kind, Input)]
    return Graph((*inputs, *rest), backward.outputs, tuple(dict.fromkeys((*graph.demands, *backward.demands))))


def _whole(graph: Graph, backward: Graph) -> Graph:
    """The gradients from inputs and gradients alone: outputs that are read are recomputed."""
    forward = [node for node in graph.nodes if not isinstance(node.kind, Input)]
    others = [node for node in backward.inputs if node.output not in graph.by_name]
    rest = [node for node in backward.nodes if not isinstance(node.kind, Input)]
    return drop_unused(Graph((*graph.inputs, *others, *forward, *rest), backward.outputs, backward.demands))
