"""torch on the CPU as a host of the pipeline: one graph of ATen operators, its kernels certified ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noyau.codegen.plan import Plan, Planned
from noyau.compiler.partition.cut import Group, Partition
from noyau.hosts.torch.modules.rewrite import KernelSwap, operator_of
from noyau.hosts.torch.modules.sites import TracedGraph, plain
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.host import Sizes
from noyau.jobs.optimize.torch.aot import AheadOfTime, Sketch
from noyau.jobs.optimize.torch.bench import Budget, TorchBench, kernel_of
from noyau.jobs.optimize.torch.candidates import input_names
from noyau.jobs.optimize.torch.options import CompileOptions


@dataclass(frozen=True, slots=True)
class TorchHost:
    """A graph that runs on torch's CPU. `ahead` may have begun with its kernels; these are operators of torch's
    registry where they are `registered`, else functions."""

    sketch: Sketch
    wishes: CompileOptions
    ahead: AheadOfTime
    registered: bool

    @property
    def source(self) -> TracedGraph:
        """The graph as noyau sees it."""
        return self.sketch.source

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the graph and their kernels."""
        return self.sketch.cut, self.sketch.plan

    def certify(self, kernels: Sequence[Planned]) -> list[Candidate]:
        """The kernels built and certified; what was begun ahead of time is waited for."""
        return self.ahead.candidates(self.sketch)

    def bindings(self) -> Sequence[Sizes]:
        """One round, at the sizes that torch saw."""
        return rounds_of(self.wishes)

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> TorchBench:
        """The clock of the graph, with its budget."""
        return TorchBench(self.source, self.wishes.rival, Budget(self.wishes.budget_s), len(candidates))

    def install(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[KernelSwap]]:
        """Each kept kernel in each of its places, with the numbers of that place."""
        return swaps_of(candidates, self.source, kernel_of, registered=self.registered)


def rounds_of(wishes: CompileOptions) -> Sequence[Sizes]:
    """One round, without names of sizes, for torch's graphs have one set; none where every right kernel is kept."""
    return () if wishes.keep == "all" else ({},)


def swaps_of(
    candidates: Sequence[Candidate],
    source: TracedGraph,
    opening: Callable[[Candidate, Group], Callable[..., Any]],
    *,
    registered: bool,
) -> tuple[list[Candidate], list[KernelSwap]]:
    """Each kept kernel in each of its places: as the function that `opening` makes of it, or as an operator that torch
    has registered. A kept kernel needs no reason, though it was not timed."""
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
