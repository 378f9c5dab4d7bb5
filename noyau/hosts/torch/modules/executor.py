"""Executors of a graph of torch's: its own kernels, node by node, or inductor."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from noyau.hosts.torch.modules.simplification import merge_equal
from noyau.hosts.torch.tensors import in_memory

Boxed = Callable[[list[Any]], Any]
_ATEN = torch.ops.aten
_METHODS = {  # methods with the same arguments, in the same order
    **{getattr(_ATEN, name).default: name for name in "view reshape expand permute t unsqueeze detach".split()},
    _ATEN._unsafe_view.default: "view",
    _ATEN.transpose.int: "transpose",
    _ATEN.squeeze.dim: "squeeze",
    _ATEN.select.int: "select",
}
_FUNCTIONS = {
    _ATEN.linear.default: torch.nn.functional.linear,
    _ATEN.mm.default: torch.mm,
    _ATEN.bmm.default: torch.bmm,
}


def eager(module: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
    """Run the nodes of a graph one by one, by torch's own kernels. A value is freed after its last use, arguments too:
    the list of arguments is emptied."""
    del inputs
    shorten(module.graph)
    codegen = getattr(fx.graph, "_BoxedCodeGen", None)
    if codegen is None or not module.graph.find_nodes(op="placeholder"):
        return _unbox(module.forward)
    graph = copy_graph(module.graph)
    for node in graph.nodes:
        node.meta = {}  # torch's facts about shapes are large, and would live as long as the function
        call_bound(node)
    graph.set_codegen(codegen())
    forward = fx.GraphModule(module, graph).forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    return _mark_boxed(run)


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """A graph of the same nodes."""
    result = fx.Graph()
    result.output(result.graph_copy(graph, {}))
    return result


def with_device_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a compiled graph on a GPU, so that errors of memory and of the device are one line each."""

    def run(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception:
            from noyau.hosts.torch.cuda.device import device_errors

            with device_errors("a compiled graph", "the GPU"):
                raise

    return _mark_boxed(run)


def in_memory_at(places: Sequence[int], function: Boxed) -> Boxed:
    """Wrap a function, so that arguments at `places`, which were not checked before, lie in memory: a gradient may be a
    view that negates, or zeros without memory, which kernels do not see."""

    def run(arguments: list[Any]) -> Any:
        for at in places:
            arguments[at] = in_memory(arguments[at])
        return function(arguments)

    return _mark_boxed(run)


def shorten(graph: fx.Graph) -> None:
    """Replace several calls of a graph by one: equal values are computed once, and a product with a transposed matrix
    becomes a linear layer, which calls the same function of BLAS."""
    merge_equal(graph)
    for node in list(graph.nodes):
        if node.target not in (_ATEN.mm.default, _ATEN.addmm.default) or node.kwargs:
            continue
        *bias, value, turned = node.args
        if turned.target is _ATEN.t.default and all(getattr(each.meta.get("val"), "ndim", 0) == 1 for each in bias):
            node.target, node.args = _ATEN.linear.default, (value, turned.args[0], *bias)
            if not turned.users:
                graph.erase_node(turned)


def call_bound(node: fx.Node) -> None:
    """Let a node call torch's own Python binding of its operator, not the operator of torch's registry, which takes
    twice as long to read its arguments."""
    if node.op != "call_function" or node.kwargs:
        return
    if node.target in _METHODS:
        node.op, node.target = "call_method", _METHODS[node.target]
    else:
        node.target = _FUNCTIONS.get(node.target, node.target)


def _unbox(function: Callable[..., Any]) -> Boxed:
    def run(arguments: list[Any]) -> Any:
        values = tuple(arguments)
        arguments.clear()
        return function(*values)

    return _mark_boxed(run)


def _mark_boxed(run: Boxed) -> Boxed:
    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it
    return run


def inductor(module: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
    """The graph compiled by inductor."""
    from torch._inductor.compile_fx import compile_fx_inner

    return compile_fx_inner(module, list(inputs))  # type: ignore[no-any-return]


def _inductor_part(module: fx.GraphModule, arguments: Sequence[Any]) -> Callable[..., Any]:
    """A part as inductor compiles it for these tensors."""
    with torch._dynamo.utils.preserve_rng_state():
        compiled: Callable[..., Any] = torch.compile(module, backend="inductor", fullgraph=True, dynamic=False)
        compiled(*arguments)
    return compiled


RESTS: Mapping[str, Callable[[fx.GraphModule, Sequence[Any]], Boxed]] = {"eager": eager, "inductor": inductor}
RIVALS: Mapping[str, Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]] = {
    "eager": lambda module, arguments: module.forward,
    "inductor": _inductor_part,
}
