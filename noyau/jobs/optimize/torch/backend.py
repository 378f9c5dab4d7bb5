"""`torch.compile(module, backend="noyau")`: what dynamo captures goes through AOTAutograd to noyau.

torch finds it by the entry point `noyau` of the group `torch_dynamo_backends`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch._dynamo.utils import flatten_graph_inputs
from torch._functorch import config
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition

from noyau.hosts.torch.modules.common_values import drop_detached, keep_compared, merge_equal
from noyau.hosts.torch.modules.executor import is_symbolic
from noyau.jobs.optimize.torch.aot import AheadOfTime
from noyau.jobs.optimize.torch.compile import GraphRecord, compile_graph, may_wait
from noyau.jobs.optimize.torch.options import CompileOptions, options_from
from noyau.toolchain.python_modules import without_collections
from noyau.toolchain.triton.parallel_compile import COMPILER

log = logging.getLogger("noyau")
Partitioner: TypeAlias = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Callable[..., Any]:
    """A graph that dynamo captured as a function that computes the same, gradients too.

    `options` are the fields of noyau.jobs.optimize.torch.options.CompileOptions: rest="eager" or "inductor",
    against="eager" or "inductor", budget_s=60, keep="faster". InputError for an option or a value that there is not."""
    return compile_captured(module, inputs, options_from({**(options or {}), **others}), GraphRecord(forgets=True))


def compile_captured(
    module: fx.GraphModule, inputs: Sequence[Any], wishes: CompileOptions, record: GraphRecord
) -> Callable[..., Any]:
    """As `backend`; what becomes of each graph is told to `record`."""

    on_gpu = any(getattr(each, "is_cuda", False) for each in inputs)
    if on_gpu:
        COMPILER.start()
    waits = not (on_gpu and may_wait(wishes, record)) or is_symbolic(inputs)
    with contextlib.ExitStack() as stack:
        ahead = stack.enter_context(
            AheadOfTime(wishes, log.info, reasons=not record.forgets, on_gpu=on_gpu, waits=waits)
        )
        if on_gpu:  # there, memory of the host is not what is short
            stack.enter_context(without_collections())

        def compiler(graph: fx.GraphModule, examples: Sequence[Any], kind: str) -> Callable[..., Any]:
            return compile_graph(graph, examples, kind, wishes, record, ahead)

        def partition(*args: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
            forward, backward = cut_in_two(*args, **kwargs)
            if not on_gpu:
                gc.collect()  # what was cut, and the network that said where, are in cycles
            for graph in (forward.graph, backward.graph):
                ahead.begin(graph)
            return forward, backward

        return trace_with_autograd(module, inputs, compiler, decompositions(wishes.rest), partition)


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

    def made(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
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
        return flatten_graph_inputs(module, inputs, made)  # type: ignore[no-any-return]
    return made(module, inputs)


def decompositions(rest: str) -> Mapping[Any, Any]:
    """Decompositions before noyau sees a graph: for inductor, what it wants to; else nothing, so that what no kernel
    covers runs as one kernel of torch's. noyau imports composites through their bodies."""
    if rest == "eager":
        return {}
    from torch._inductor import lowering  # noqa: F401  the table names it, and does not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()  # type: ignore[no-any-return]
