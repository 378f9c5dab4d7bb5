"""The graphs of forward and backward of what dynamo captured, traced by AOTAutograd and cut where the least is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dynamo.utils import flatten_graph_inputs
from torch._functorch import config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition

from noyau.hosts.torch.modules.simplification import drop_detached, keep_compared, merge_equal

Partitioner: TypeAlias = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def cut_in_two(
    joint: fx.GraphModule, *args: Any, num_fwd_outputs: int, **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The graphs of forward and backward, cut where the least must be kept."""
    drop_detached(joint.graph)
    merge_equal(joint.graph)
    keep_compared(joint.graph, num_fwd_outputs)
    with config.patch(cse=False):  # it is done, and torch's own imports all of inductor
        forward, backward = min_cut_rematerialization_partition(joint, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
    return forward, backward


def trace_with_autograd(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    compiler: Callable[[fx.GraphModule, Sequence[Any], str], Callable[..., Any]],
    taken_apart: Mapping[Any, Any] | None = None,
    partition: Partitioner = cut_in_two,
) -> Callable[..., Any]:
    """Trace what dynamo captured, functional and cut into the graphs of forward and backward by `partition`, each given
    to `compiler` with its kind: inference, forward or backward."""

    def of_kind(kind: str) -> Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, examples: compiler(graph, examples, kind)

    def traced(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        run = aot_module_simplified(
            graph,
            examples,
            fw_compiler=of_kind("forward"),
            bw_compiler=backward,
            inference_compiler=of_kind("inference"),
            partition_fn=partition,
            decompositions=dict(taken_apart or {}),
            keep_inference_input_mutations=any(getattr(each, "is_cuda", False) for each in examples),  # device_inplace
        )
        return torch._dynamo.disable(run)  # type: ignore[no-any-return]

    def backward(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """In the midst of a run, neither compiled by dynamo nor giving what it compiles."""
        return torch._dynamo.disable(torch._dynamo.disable(of_kind("backward"))(graph, examples))  # type: ignore[no-any-return]

    if any(isinstance(each, list | tuple | dict) for each in inputs):
        return flatten_graph_inputs(module, inputs, traced)  # type: ignore[no-any-return]
    return traced(module, inputs)


def decompositions(rest: str) -> Mapping[Any, Any]:
    """Decompositions before noyau sees a graph: for inductor, what it wants to; else nothing, so that what no kernel
    covers runs as one kernel of torch's. noyau imports composites through their bodies."""
    if rest == "eager":
        return {}
    from torch._inductor import lowering  # noqa: F401  the table names it, and does not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()  # type: ignore[no-any-return]
