"""The choice among the places of a plan, by the names of kernels or of values that they write."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.codegen.plan import Plan, no_such, without
from noyau.compiler.partition.cut import Group
from noyau.hosts.onnxruntime.path_ends import closest


def choose_places(plan: Plan, only: Sequence[str], drop: Sequence[str]) -> Plan:
    """The plan with the places that are asked for: those that `only` names, or all, without those that `drop` names.

    A name is that of a kernel, for all of its places, or of a value that a kernel writes, for that place alone. What is
    left out is among the refused. InputError for a name that is neither."""
    places = [group for kernel in plan.kernels for group in kernel.groups]
    names = {group.positions for name in only for group in places_by_name(plan, name)}
    names = names if only else {group.positions for group in places}
    names -= {group.positions for name in drop for group in places_by_name(plan, name)}
    return without(plan, [(group, "left out as asked") for group in places if group.positions not in names])


def places_by_name(plan: Plan, name: str) -> list[Group]:
    """The places of a kernel, or the one that writes a value. InputError where there is none of that name."""
    for kernel in plan.kernels:
        if kernel.operator == name:
            return list(kernel.groups)
    writers = [group for kernel in plan.kernels for group in kernel.groups if name in group.outputs]
    if writers:
        return writers
    values = [output for kernel in plan.kernels for group in kernel.groups for output in group.outputs]
    raise no_such(name, plan.kernels, closest(name, values, cutoff=0.75))
