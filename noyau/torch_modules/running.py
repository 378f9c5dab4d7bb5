"""What runs a graph of torch's: its own kernels, node by node, or inductor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

Boxed = Callable[[list[Any]], Any]


def eager(module: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
    """The nodes of a graph one by one, by torch's own kernels. A value is let go of after its last use, those that are
    given too: the list of arguments is emptied."""
    del inputs
    names = [node for node in module.graph.nodes if node.op == "placeholder"]
    codegen = getattr(fx.graph, "_BoxedCodeGen", None)
    if codegen is None or not names:
        return _unboxed(module.forward)
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, known))
    graph.set_codegen(codegen())
    return _boxed(fx.GraphModule(module, graph).forward)


def _boxed(function: Callable[[list[Any]], Any]) -> Boxed:
    def run(arguments: list[Any]) -> Any:
        return function(arguments)

    return _marked(run)


def _unboxed(function: Callable[..., Any]) -> Boxed:
    def run(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return function(*given)

    return _marked(run)


def _marked(run: Boxed) -> Boxed:
    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it
    return run


def inductor(module: fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
    """The graph compiled by inductor."""
    from torch._inductor.compile_fx import compile_fx_inner

    made: Boxed = compile_fx_inner(module, list(inputs))
    return made


def _eager_part(module: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
    del given
    run: Callable[..., Any] = module.forward
    return run


def _inductor_part(module: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
    """A part as inductor compiles it for these tensors."""
    with torch._dynamo.utils.preserve_rng_state():
        compiled: Callable[..., Any] = torch.compile(module, backend="inductor", fullgraph=True, dynamic=False)
        compiled(*given)
    return compiled


RESTS: Mapping[str, Callable[[fx.GraphModule, Sequence[Any]], Boxed]] = {"eager": eager, "inductor": inductor}
RIVALS: Mapping[str, Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]] = {
    "eager": _eager_part,
    "inductor": _inductor_part,
}
