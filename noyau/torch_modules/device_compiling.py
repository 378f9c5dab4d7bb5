"""One graph of ATen operators on a GPU: cut into groups that Triton takes, judged there."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from noyau.passes.partition import Partition
from noyau.planning import Plan
from noyau.torch_modules import device_judging, device_kernels, places, running
from noyau.torch_modules.device_inplace import updates
from noyau.torch_modules.judging import Clock, Judged
from noyau.torch_modules.places import Traced
from noyau.torch_modules.wishes import CERTIFICATES, Wishes

log = logging.getLogger("noyau")
IN_PLACE = "it updates an argument, where that lies"


def judged_on(device: torch.device, found: Traced, wishes: Wishes) -> tuple[Partition, Plan, tuple[Judged, ...]]:
    """The groups of a graph on a device, their kernels, and each of these with its evidence. BuildError where nothing
    in Triton runs there."""
    device_judging.require_device(device)
    found = with_updates_apart(found)
    cut = places.cut(found, device_kernels.spelt)
    plan = device_kernels.plan(cut.groups, found)
    judged = device_judging.checked(plan.kernels, found, device, log.info, CERTIFICATES[wishes.certificate])
    clock, rest = Clock(wishes.budget_s), running.RIVALS[wishes.rival]
    made = [device_judging.timed(one, found, device, wishes.rival, rest, wishes.keep, clock) for one in judged]
    return cut, plan, tuple(made)


def with_updates_apart(found: Traced) -> Traced:
    """The graph in which updates of arguments are in no group: they are made where they lie (device_inplace)."""
    names = {node.name for node in updates(found.program)}
    apart = {at: IN_PLACE for at, node in enumerate(found.nodes) if node.name in names}
    return replace(found, model=replace(found.model, opaque={**found.model.opaque, **apart}))
