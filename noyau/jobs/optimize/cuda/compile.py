"""One graph of ATen operators on a GPU: cut into groups that Triton takes, judged there."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from noyau.codegen.plan import Plan
from noyau.compiler.partition.cut import Partition
from noyau.errors import UnsupportedError
from noyau.hosts.torch.modules import executor
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_simplification import updates
from noyau.hosts.torch.modules.sites import Traced
from noyau.ir.loops import Kernel, Role
from noyau.jobs.optimize.candidate import Candidate
from noyau.jobs.optimize.cuda import candidates as cuda_candidates
from noyau.jobs.optimize.cuda import selection as cuda_selection
from noyau.jobs.optimize.torch.aot import Ahead
from noyau.jobs.optimize.torch.options import CERTIFICATES, Wishes
from noyau.jobs.optimize.torch.selection import Clock

log = logging.getLogger("noyau")
IN_PLACE = "it updates an argument, where that lies"


def judged_on(
    device: torch.device, found: Traced, wishes: Wishes, ahead: Ahead | None = None
) -> tuple[Partition, Plan, tuple[Candidate, ...]]:
    """The groups of a graph on a device, their kernels, and each of these with its evidence; `ahead`: what is known of
    it already. BuildError where nothing in Triton runs there."""
    cuda_selection.require_device(device)
    found = with_updates_apart(found)
    known = ahead.copied.result() if ahead is not None and ahead.copied is not None else None
    if known is not None:
        cut, plan = known.cut, known.plan
    else:
        cut, plan = planned_for_triton(found, reasons=ahead is None or ahead.reasons)
    if ahead is not None:
        ahead.ready()
    judged = cuda_selection.checked(plan.kernels, found, device, log.info, CERTIFICATES[wishes.certificate])
    clock, rest = Clock(wishes.budget_s), executor.RIVALS[wishes.rival]
    made = [cuda_selection.timed(one, found, device, wishes.rival, rest, wishes.keep, clock) for one in judged]
    return cut, plan, tuple(made)


def planned_for_triton(found: Traced, *, reasons: bool = True) -> tuple[Partition, Plan]:
    """The groups of a graph and their kernels, all of which Triton takes: it is asked for the few kinds that come of
    the cut, and at each step of another cut only where it takes one of them not, which is rare."""
    cut = modules_sites.cut(found, require_inputs, reasons=reasons)
    plan = cuda_candidates.plan(cut.groups, found)
    if plan.refused:
        cut = modules_sites.cut(found, cuda_candidates.spelt, reasons=reasons)
        plan = cuda_candidates.plan(cut.groups, found)
    return cut, plan


def require_inputs(kernel: Kernel) -> None:
    """UnsupportedError for a kernel without inputs: Triton takes the device of the first one."""
    if not kernel.of(Role.INPUT):
        raise UnsupportedError(f"{kernel.name} has no inputs: language triton takes the device of the first one")


def with_updates_apart(found: Traced) -> Traced:
    """The graph in which updates of arguments are in no group: they are made where they lie (device_inplace)."""
    names = {node.name for node in updates(found.program)}
    apart = {at: IN_PLACE for at, node in enumerate(found.nodes) if node.name in names}
    return replace(found, model=replace(found.model, opaque={**found.model.opaque, **apart}))
