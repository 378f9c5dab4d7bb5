"""One graph of ATen operators on a GPU: cut into groups that Triton takes, judged there."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from noyau.errors import UnsupportedError
from noyau.ir.loops import Kernel, Role
from noyau.passes.partition import Partition
from noyau.planning import Plan
from noyau.torch_modules import device_judging, device_kernels, places, running
from noyau.torch_modules.ahead import Ahead
from noyau.torch_modules.device_inplace import updates
from noyau.torch_modules.judging import Clock, Judged
from noyau.torch_modules.places import Traced
from noyau.torch_modules.wishes import CERTIFICATES, Wishes

log = logging.getLogger("noyau")
IN_PLACE = "it updates an argument, where that lies"


def judged_on(
    device: torch.device, found: Traced, wishes: Wishes, ahead: Ahead | None = None
) -> tuple[Partition, Plan, tuple[Judged, ...]]:
    """The groups of a graph on a device, their kernels, and each of these with its evidence; `ahead`: what is known of
    it already. BuildError where nothing in Triton runs there."""
    device_judging.require_device(device)
    found = with_updates_apart(found)
    known = ahead.copied.result() if ahead is not None and ahead.copied is not None else None
    if known is not None:
        cut, plan = known.cut, known.plan
    else:
        cut, plan = planned_for_triton(found, reasons=ahead is None or ahead.reasons)
    if ahead is not None:
        ahead.ready()
    judged = device_judging.checked(plan.kernels, found, device, log.info, CERTIFICATES[wishes.certificate])
    clock, rest = Clock(wishes.budget_s), running.RIVALS[wishes.rival]
    made = [device_judging.timed(one, found, device, wishes.rival, rest, wishes.keep, clock) for one in judged]
    return cut, plan, tuple(made)


def planned_for_triton(found: Traced, *, reasons: bool = True) -> tuple[Partition, Plan]:
    """The groups of a graph and their kernels, all of which Triton takes: it is asked for the few kinds that come of
    the cut, and at each step of another cut only where it takes one of them not, which is rare."""
    cut = places.cut(found, require_inputs, reasons=reasons)
    plan = device_kernels.plan(cut.groups, found)
    if plan.refused:
        cut = places.cut(found, device_kernels.spelt, reasons=reasons)
        plan = device_kernels.plan(cut.groups, found)
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
