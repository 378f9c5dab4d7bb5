"""torch on the CPU as a host of the pipeline: one graph of ATen operators, its kernels certified ahead of time.

Kernels are timed against torch's own nodes, in their first place, on synthetic inputs of the sizes that torch saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import fx

from noyau.codegen.plan import Plan, PlannedKernel
from noyau.compiler.partition.cut import Group, Partition, scalars_of
from noyau.compiler.partition.traffic import Traffic, traffic
from noyau.errors import CheckError, InputError, NoyauError, OutsideError
from noyau.frontends.torch.tensors import size_hint
from noyau.hosts.torch.modules import executor
from noyau.hosts.torch.modules.device_inputs import sizes_in, sizes_of
from noyau.hosts.torch.modules.rewrite import KernelSwap, operator_of
from noyau.hosts.torch.modules.sites import TracedGraph, draw, isolate, plain
from noyau.hosts.torch.tensors import tensor_of
from noyau.ir.graph import Gather, Scatter
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, Sizes
from noyau.jobs.optimize.torch.candidates import AheadOfTime, Sketch, ends_of, input_names, open_kernel
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.jobs.optimize.torch.whole import Run
from noyau.kernels.certificates import keep_timing, recall_timing, timing_key
from noyau.timing.comparison import compare
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain.cache import today
from noyau.verify.inputs import make_inputs

_SEED = 0
_SHARE_S = 0.1  # the most of the clock's budget for one kernel
_GLANCE_S, _CLEARLY = 0.03, 1.15  # the first comparison, and the sure ratio that makes it the last


@dataclass(frozen=True, slots=True)
class TorchHost:
    """A graph that runs on torch's CPU. `ahead` may have begun with its kernels; these become operators in torch's
    registry if `registered`, otherwise functions."""

    sketch: Sketch
    wishes: CompileOptions
    ahead: AheadOfTime
    registered: bool

    @property
    def source(self) -> TracedGraph:
        return self.sketch.source

    def plan(self) -> tuple[Partition, Plan]:
        return self.sketch.cut, self.sketch.plan

    def certify(self, kernels: Sequence[PlannedKernel]) -> list[Candidate]:
        """The kernels, built and certified, once all that began ahead of time has ended."""
        return self.ahead.candidates(self.sketch)

    def bindings(self) -> Sequence[Sizes]:
        return rounds_of(self.wishes)

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> TorchBench:
        return TorchBench(self.source, self.wishes.rival, Budget(self.wishes.budget_s), len(candidates))

    def install(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[KernelSwap]]:
        """Each kept kernel in each of its places, with the scalars of that place."""
        return swaps_of(candidates, self.source, self._kernel, registered=self.registered)

    def _kernel(self, candidate: Candidate, group: Group) -> Run:
        """A kernel; for an index out of bounds it runs torch's nodes, which raise torch's error."""
        kernel = kernel_of(candidate, group)
        if not any(isinstance(node.kind, Gather | Scatter) for node in group.graph.nodes):
            return kernel
        part, reads = isolate(self.source, group)
        for node in part.graph.nodes:
            node.meta = {}  # fakes would live as long as the function
        own = [self.source.givers[plain(name)].name for name in input_names(group)]
        names = [node.name for node in reads]

        @wraps(kernel)
        def run(*tensors: torch.Tensor) -> Any:
            try:
                return kernel(*tensors)
            except OutsideError as error:
                outside = error
            values = dict(zip(own, tensors, strict=True))
            if values.keys() >= set(names):
                part(*(values[name] for name in names))
            raise outside

        return run


def rounds_of(wishes: CompileOptions) -> Sequence[Sizes]:
    """One round without named sizes, for a torch graph has one set of sizes; no round if every right kernel is kept."""
    return () if wishes.keep == "all" else ({},)


def swaps_of(
    candidates: Sequence[Candidate],
    source: TracedGraph,
    opening: Callable[[Candidate, Group], Run],
    *,
    registered: bool,
) -> tuple[list[Candidate], list[KernelSwap]]:
    """Each kept kernel in each of its places: as the function that `opening` returns, or as a registered operator of
    torch. A kept kernel has no reason, even if it was not timed."""
    candidates = [replace(each, reason="") if each.kept else each for each in candidates]

    def giver(value: str) -> str:
        return str(source.givers[plain(value)].name)

    def swap(candidate: Candidate, group: Group) -> KernelSwap:
        kernel = opening(candidate, group)
        return KernelSwap(
            operator_of(candidate.planned.operator, group, kernel) if registered else kernel,
            tuple(source.nodes[position].name for position in group.positions),
            tuple(map(giver, input_names(group))),
            tuple(map(giver, group.outputs)),
            {giver(value): giver(other) for value, other in group.stand_ins.items()},
        )

    kept = [each for each in candidates if each.kept]
    return candidates, [swap(each, group) for each in kept for group in each.planned.groups]


@dataclass(slots=True)
class Budget:
    """The seconds left for timing all kernels of a graph."""

    left_s: float

    def share_s(self, kernels: int) -> float:
        """The most seconds for the next kernel, if `kernels` are left."""
        return min(_SHARE_S, self.left_s / max(kernels, 1))

    def timing(self, key: str, sizes: Sizes, moved: Traffic, measure: Callable[[], Comparison]) -> BindingTiming:
        """The timing that an earlier run cached under `key`, or a new one. InputError if no time is left."""
        recalled = recall_timing(key)
        if recalled is not None:
            return BindingTiming(sizes, recalled.comparison, None, moved, timed_on=recalled.timed_on, recalled=True)
        if self.left_s <= 0:
            raise InputError("there is no time left; a larger budget_s would do")
        start_s = time.perf_counter()
        comparison = measure()
        self.left_s -= time.perf_counter() - start_s
        keep_timing(key, comparison)
        return BindingTiming(sizes, comparison, None, moved, timed_on=today())


@dataclass(slots=True)
class TorchBench:
    """The clock of a graph on the CPU; `rival` runs torch's own nodes, `left` kernels are still to be timed."""

    source: TracedGraph
    rival: str
    clock: Budget
    left: int
    sizes: Sizes = field(default_factory=dict)  # of the round: a torch graph has one, without names of sizes

    def timing(self, candidate: Candidate) -> BindingTiming:
        """Time the kernel against torch's nodes. An error of noyau, also if torch's nodes do not run."""
        share_s = self.clock.share_s(self.left)
        self.left -= 1
        group = candidate.planned.groups[0]
        part, reads = isolate(self.source, group)
        sizes = sizes_of(group, self.source)
        ends = [(node, [each.evaluate(sizes) for each in node.shape]) for node in group.original.inputs]
        shapes = (f"{node.output}: {node.dtype}{shape}" for node, shape in ends)
        stamp = (candidate.planned.text, self.rival, torch.__version__, part.code, *shapes)
        moved = traffic(group.graph, sizes_in(group.graph, self.source))
        key = timing_key(stamp, {}, torch.get_num_threads())
        try:
            return self.clock.timing(key, sizes, moved, lambda: self._compare(candidate, part, reads, share_s))
        except NoyauError:
            raise
        except (RuntimeError, IndexError, ValueError) as error:
            raise CheckError(str(error)) from error

    def _compare(self, candidate: Candidate, part: fx.GraphModule, reads: list[fx.Node], share_s: float) -> Comparison:
        group = candidate.planned.groups[0]
        arrays = make_inputs(group.original, sizes_of(group, self.source), np.random.default_rng(_SEED)).arrays
        tensors = {name: lay_out(tensor_of(array), self.source.givers[name]) for name, array in arrays.items()}
        arguments = [tensors[node.name] if node.name in tensors else draw(node) for node in reads]
        own = [tensors[name] for name in input_names(group)]
        before, after = executor.RIVALS[self.rival](part, arguments), kernel_of(candidate, group)
        with torch.no_grad():
            return compare_briefly(lambda: before(*arguments), lambda: after(*own), share_s)


def compare_briefly(before: Callable[[], object], after: Callable[[], object], budget_s: float) -> Comparison:
    """Compare torch's nodes and a kernel: a short comparison suffices if the kernel is clearly faster."""
    glance = compare(before, after, budget_s=min(_GLANCE_S, budget_s))
    clear = glance.verdict is Verdict.FASTER and glance.low > _CLEARLY
    return glance if clear else compare(before, after, budget_s=budget_s)


def kernel_of(candidate: Candidate, group: Group) -> Run:
    """A built kernel as a function of tensors, with the scalars of one place."""
    assert candidate.library is not None
    scalars = scalars_of(group)
    fixed = [scalars.get(node.output) for node in group.graph.inputs]
    return open_kernel(candidate.planned.operator, candidate.library, ends_of(group.graph), fixed)


def lay_out(tensor: torch.Tensor, giver: fx.Node) -> torch.Tensor:
    """A tensor with the strides of torch's own at a node."""
    fake = giver.meta["val"]
    if fake.is_contiguous():
        return tensor
    strides = [size_hint(stride) for stride in fake.stride()]
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
