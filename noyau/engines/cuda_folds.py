"""A reduction over several devices, each with a shard of the rows: each folds its own, and the first one merges."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import torch

from noyau.compiler.autodiff.gradient_builder import GradientBuilder
from noyau.compiler.passes.cleanup import drop_unused
from noyau.compiler.passes.rewrite import same_as
from noyau.dtypes import DType
from noyau.engines.derived import OpReduction, best_of
from noyau.errors import UnsupportedError
from noyau.hosts.numpy.fast_calls import MISS
from noyau.hosts.torch.tensors import in_memory
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Iota, dims_of
from noyau.ops.torch.fast_entries import DeviceFastCall
from noyau.ops.torch.graph_kernels import GraphKernels, as_tensor, draw_graph


class DeviceFolds:
    """A reduction over devices: `folds(shards)` returns its results on the first device without waiting for them.

    Partial results of the others are copied to the first; in a replay, their kernels write to it directly."""

    def __init__(self, plan: OpReduction, devices: Sequence[torch.device]) -> None:
        self.devices, self.inputs = devices, plan.before.graph.inputs
        self.column = [node.output for node in self.inputs].index(plan.columns[0])
        values = [name for node, _ in plan.folds for name in (node.output, best_of(node)) if name in plan.values]
        before = drop_unused(replace(plan.before.graph, outputs=tuple(values)))
        graphs = [*[before] * len(devices), merge_graph(plan, before, len(devices))]
        self.runs = [GraphKernels(each, plan.name, partial(draw_graph, each, {}, {})) for each in graphs]

    def __call__(self, shards: Sequence[Sequence[Any]]) -> Any:
        return self.runs[-1](*self.parts(self.tensors(shards)))

    def tensors(self, shards: Sequence[Sequence[Any]]) -> list[list[torch.Tensor]]:
        """The inputs of each device, on that device, without lazy negations or zeros."""
        return [
            [in_memory(as_tensor(each, node.dtype)).to(device) for each, node in zip(mine, self.inputs, strict=True)]
            for mine, device in zip(shards, self.devices, strict=True)
        ]

    def parts(self, own: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """The inputs of the merge: those of the first device, then for each device its results and number of rows."""
        results, home = [run(*tensors) for run, tensors in zip(self.runs, own, strict=False)], self.devices[0]
        parts = list(own[0])
        for each, tensors in zip(results, own, strict=True):
            parts += [part.to(home, non_blocking=True) for part in (each if isinstance(each, tuple) else (each,))]
            parts.append(torch.full((), len(tensors[self.column]), device=home))
        return parts

    def replay(self, shards: Sequence[Sequence[Any]]) -> Callable[[Sequence[int]], Any] | None:
        """A function that repeats the call on other tensors of these layouts; None if it is more than launches."""
        from noyau.hosts.torch.cuda.peer_replay import PeerReplay, is_replayed

        own, devices = self.tensors(shards), self.devices
        parts = self.parts(own)
        plans = [_record(*pair) for pair in zip(self.runs, (*own, parts), strict=True)]
        if not all(is_replayed(each, devices[0]) for each in plans):
            return None
        inputs = [
            [at * len(devices) + device if isinstance(each, torch.Tensor) else t for at, (each, t) in enumerate(pairs)]
            for device, pairs in enumerate(map(partial(zip, strict=True), shards, own))
        ]
        merged, width = list[Any](inputs[0]), (len(parts) - len(self.inputs)) // len(devices)
        for place, part in enumerate(parts[len(self.inputs) :]):
            merged.append(part if place % width == width - 1 else divmod(place, width))
        return PeerReplay(list(zip(plans, (*inputs, merged), strict=True)))


def _record(run: GraphKernels, tensors: Sequence[torch.Tensor]) -> Any:
    """A recording of the call on these tensors; None if no fast call can be recorded."""
    for each in run.fast_calls:
        if isinstance(each, DeviceFastCall) and each.repeats and not each.looks_up and each(tuple(tensors)) is not MISS:
            return each.run.follow(tensors)[1]
    return None


def merge_graph(plan: OpReduction, before: Graph, devices: int) -> Graph:
    """The graph that merges: from the inputs of the first device, and for each device the outputs of `before` and the
    number of rows, to the results. UnsupportedError where a result depends on more than the total number of rows."""
    size, builder, states = plan.plan.size, GradientBuilder(replace(before, nodes=before.inputs)), list[Any]()
    builder.taken.update(node.output for node in plan.plan.graph.nodes)
    for _ in range(devices):
        values = {
            n: builder.add_input(builder.unused_name(n), before[n].dtype, before[n].shape) for n in before.outputs
        }
        states.append(plan.lift(builder.add_input(builder.unused_name("rows"), DType.I64, ()), values, builder))
    whole = reduce(partial(plan.join, algebra=builder), states)
    merged = plan.fold_values(whole, builder)
    for node in [each for each in plan.after.nodes if each.output not in builder.by_name]:
        index = node.kind.index if isinstance(node.kind, Iota) and not node.shape else Dim.of(0)
        base, one = (index.replace({size: Dim.of(each)}) for each in (0, 1))
        if index != base and index == base + (one - base) * Dim.of(size):
            rows = builder.call("multiply", whole[0], builder.iota(one - base))
            merged[node.output] = builder.cast(builder.call("add", rows, builder.iota(base)), node.dtype)
        elif any(size in dim.names for dim in dims_of(node)):
            fault = f"the value {node.output} asks for more of the rows than their number"
            remedy = f"noyau.stream({plan.name}, ..., engine='cuda') merges every reduction"
            raise UnsupportedError(f"{plan.name} is not split: {fault}; {remedy}")
        builder.add(same_as(node, merged[node.output]) if node.output in merged else node)
    return drop_unused(Graph(tuple(builder.nodes), plan.after.outputs, ()))
