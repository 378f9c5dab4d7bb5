"""torch on CUDA as a host of the pipeline: one graph of ATen operators, cut into groups that Triton compiles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from noyau.codegen.plan import Plan, PlannedKernel
from noyau.codegen.triton import printer as triton_printer
from noyau.compiler.partition.cut import Partition
from noyau.compiler.partition.traffic import traffic
from noyau.compiler.schedules.gpu.strategies import on_gpu, require_no_scatter
from noyau.errors import CheckError, UnsupportedError, first_line
from noyau.hosts.torch.cuda.device import guard
from noyau.hosts.torch.modules import executor
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules.device_inputs import PATTERNS, Drawer, sizes_in, sizes_of
from noyau.hosts.torch.modules.rewrite import KernelSwap
from noyau.hosts.torch.modules.simplification import updates
from noyau.hosts.torch.modules.sites import TracedGraph, isolate
from noyau.ir.loops import Kernel, Role
from noyau.jobs.optimize.cuda import candidates as cuda_candidates
from noyau.jobs.optimize.cuda import certificate
from noyau.jobs.optimize.pipeline import BindingTiming, Candidate, Sizes
from noyau.jobs.optimize.torch.candidates import AheadOfTime, input_names
from noyau.jobs.optimize.torch.host import Budget, rounds_of, swaps_of
from noyau.jobs.optimize.torch.options import CERTIFICATES, CompileOptions
from noyau.kernels.certificates import timing_key
from noyau.timing.verdict import Comparison

log = logging.getLogger("noyau")
IN_PLACE = "it updates an argument, where that lies"
ROUNDS = 6  # rounds of a timing


@dataclass(frozen=True, slots=True)
class CudaHost:
    """A graph that runs on a device, without in-place updates of its arguments. `ahead`: work begun ahead of time;
    `planned` holds its plan once there is one."""

    source: TracedGraph
    device: torch.device
    wishes: CompileOptions
    ahead: AheadOfTime | None = None
    registered: bool = False
    planned: list[tuple[Partition, Plan]] = field(default_factory=list)

    def plan(self) -> tuple[Partition, Plan]:
        """The groups of the graph and their kernels, whose launches begin to compile. BuildError if nothing in Triton
        runs on the device."""
        if not self.planned:
            certificate.require_device(self.device)
            self.planned.append(plan_for_triton(self.source, reasons=self.ahead is None or self.ahead.reasons))
            if self.ahead is not None:
                self.ahead.ready()
            cuda_candidates.begin(self.planned[0][1].kernels, self.source, self.device)
        return self.planned[0]

    def certify(self, kernels: Sequence[PlannedKernel]) -> list[Candidate]:
        effort = CERTIFICATES[self.wishes.certificate]
        return certificate.certify_all(kernels, self.source, self.device, log.info, effort)

    def bindings(self) -> Sequence[Sizes]:
        return rounds_of(self.wishes)

    def bench(self, sizes: Sizes, candidates: Sequence[Candidate]) -> CudaBench:
        return CudaBench(self.source, self.device, self.wishes.rival, Budget(self.wishes.budget_s))

    def install(self, candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[KernelSwap]]:
        """Each kept kernel in each of its places; its text has the scalars as literals."""

        def opening(candidate: Candidate, _: object) -> Callable[..., Any]:
            return cuda_candidates.call_of(candidate.planned, self.source)

        return swaps_of(candidates, self.source, opening, registered=self.registered)


@dataclass(frozen=True, slots=True)
class CudaBench:
    """The clock of a graph on a device; `rival` runs torch's own nodes."""

    source: TracedGraph
    device: torch.device
    rival: str
    clock: Budget
    sizes: Sizes = field(default_factory=dict)  # of the round: a torch graph has one, without names of sizes

    def timing(self, candidate: Candidate) -> BindingTiming:
        """Time the kernel in its first place against torch's own nodes there, by the device's clock."""
        kernel = candidate.planned
        try:
            part, reads = isolate(self.source, kernel.groups[0])
            fakes = [each.meta["val"] for each in reads]
            shapes = [str((fake.shape, fake.dtype)) for fake in fakes if hasattr(fake, "shape")]
            key = timing_key((kernel.text, self.rival, certificate.machine_on(self.device), part.code, *shapes), {}, 1)
            moved = traffic(kernel.graph, sizes_in(kernel.graph, self.source))
            sizes = sizes_of(kernel.groups[0], self.source)
            return self.clock.timing(key, sizes, moved, lambda: self._compare(kernel, part, reads))
        except Exception as error:  # errors of torch and of Triton's compiler share no other class
            raise CheckError(first_line(error)) from error

    def _compare(self, kernel: PlannedKernel, part: fx.GraphModule, reads: Sequence[fx.Node]) -> Comparison:
        group, call = kernel.groups[0], cuda_candidates.call_of(kernel, self.source)
        inputs = Drawer(group, self.source, self.device).draw(PATTERNS[0], 0)
        own, others = [inputs[name] for name in input_names(group)], [inputs[node.name] for node in reads]
        before = executor.RIVALS[self.rival](part, others)
        from noyau.hosts.torch.cuda.clock import compare_calls  # the time on the device, without Python's launches

        with torch.no_grad(), guard(self.device):
            return compare_calls(lambda: before(*others), lambda: call(*own), rounds=ROUNDS, cold=False)


def plan_for_triton(source: TracedGraph, *, reasons: bool = True) -> tuple[Partition, Plan]:
    """The groups of a graph and their kernels, all of which Triton accepts. The cut is made optimistically and only the
    resulting kernels are tested; if Triton rejects one (rare), the graph is cut again with a test at every step. Groups
    that read no tensor are rejected in every cut, and do not count."""
    cut = modules_groups.cut(source, require_basics, reasons=reasons)
    plan = cuda_candidates.plan(cut.groups, source)
    if any(input_names(group) for group, _ in plan.refused):
        cut = modules_groups.cut(source, lambda kernel: triton_printer.together([on_gpu(kernel)]), reasons=reasons)
        plan = cuda_candidates.plan(cut.groups, source)
    return cut, plan


def require_basics(kernel: Kernel) -> None:
    """UnsupportedError for a kernel that scatters, or has no inputs: Triton takes its device from the first input."""
    require_no_scatter(kernel)
    if not kernel.of(Role.INPUT):
        raise UnsupportedError(f"{kernel.name} has no inputs: language triton takes the device of the first one")


def with_updates_apart(source: TracedGraph) -> TracedGraph:
    """The graph in which no group contains updates of arguments: they stay in place (simplification)."""
    names = {node.name for node in updates(source.program)}
    apart = {at: IN_PLACE for at, node in enumerate(source.nodes) if node.name in names}
    return replace(source, model=replace(source.model, opaque={**source.model.opaque, **apart}))
