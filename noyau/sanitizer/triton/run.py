"""A kernel of Triton on an op, launched in this process, in which Triton interprets, with every access watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind, NoyauError, RaisedError
from noyau.hosts.torch.tensors import tensor_of
from noyau.kernels.call import FunctionKernel
from noyau.kernels.triton.calls import TritonKernel
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel
from noyau.sanitizer.access_map import AccessMap, Owner, TracingShadow, map_of_writes
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Observation, Route, Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.sanitizer.triton.interpreter_hooks import Hooks, interpreter_hooks
from noyau.sanitizer.triton.memory_extents import MemoryExtents
from noyau.verify.findings import Finding

Array = np.ndarray
LANGUAGE = "triton"
MOST = 30_000_000  # accesses of one launch
_WIDEN = "a product of int32 overflowed on the way: widen it, as in row.to(tl.int64) * stride"
_ZONE, _ALIGNED = 1 << 16, 64  # bytes around an argument, at least; how it is aligned


def watch_here(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, watched; a map of it is put into `maps`. UnsupportedError where it cannot be;
    RaisedError where it raises, CheckError for what the interpreter does not calculate in."""
    kernel, instance, size = case.kernel, case.instance, case.size
    if any(value.dtype is DType.BF16 for value in (*instance.inputs, *instance.outputs)):
        raise CheckError("Triton's interpreter takes bfloat16 for integers")
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    unset = run.unset(before, outputs)
    config = sum(extent for array in (*before, *outputs) for extent in array.shape)
    launcher = TritonKernel(kernel, instance, case.constants, config if configs_of(kernel.function) else None)
    shadow = Shadow() if maps is None else TracingShadow()
    extents = MemoryExtents(shadow)
    ends = zip((*instance.inputs, *instance.outputs), (*before, *outputs), strict=True)
    arrays = [array if value.scalar else roomy(array) for value, array in ends]
    arguments: list[Any] = []
    numbers: dict[str, int] = {}
    for value, array in zip((*instance.inputs, *instance.outputs), arrays, strict=True):
        if not value.scalar:
            numbers[value.name] = extents.add(value.name, array, is_set=value.name not in unset)
        arguments.append(array.item() if value.scalar else tensor_of(array))
    count = len(instance.inputs)
    extents.shadow.region()
    hooks = _launched(launcher, arguments[:count], arguments[count:], extents)
    observations = unique_races(extents.shadow.seen())
    findings, allowed = findings_of(observations, route_of(hooks, extents), kernel.target.op, kernel.name, size)
    if not hooks.was_cut:
        findings += _unwritten([numbers[name] for name in sorted(unset)], hooks, extents, kernel, size)
    if maps is not None and isinstance(shadow, TracingShadow):
        maps.append(map_of(kernel.called, hooks, extents, shadow))
    results = tuple(run.results(arrays[:count], arrays[count:]))
    return WatchedRun(tuple(findings), extents.shadow.accesses, tuple(allowed), notes_of(hooks), results)


def map_of(name: str, hooks: Hooks, extents: MemoryExtents, traced: TracingShadow) -> AccessMap:
    """The map of a launch."""
    grid = grid_text(hooks.grid)
    return map_of_writes(
        name, f"[{grid}]", "program", lambda n: Owner("", hooks.owner(n)[8:]), extents.memories, traced
    )


def roomy(array: Array) -> Array:
    """A packed copy with room around it, which nothing else lies in."""
    zone = max(_ZONE, array.nbytes)
    whole = np.empty(array.nbytes + 2 * zone + _ALIGNED, np.uint8)
    start = zone + -(whole.__array_interface__["data"][0] + zone) % _ALIGNED
    copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def route_of(hooks: Hooks, extents: MemoryExtents) -> Route:
    """The names of sites, memories and programs of a launch."""
    remedies = {FindingKind.OUT_OF_BOUNDS: _WIDEN} if hooks.overflows else {}
    return Route(LANGUAGE, hooks.sites, extents.memories, hooks.owner, remedies)


def unique_races(observations: Sequence[Observation]) -> list[Observation]:
    """Observations; of races on one argument that share a line only the one with most writes."""
    unique = [each for each in observations if each.kind is not FindingKind.RACE]
    lines: set[tuple[int, int]] = set()
    for each in sorted(
        (each for each in observations if each.kind is FindingKind.RACE), key=lambda each: each.writes, reverse=True
    ):
        own = {(each.memory, each.site), (each.memory, each.other_site)}
        if not own & lines:
            unique.append(each)
        lines |= own
    return unique


def notes_of(hooks: Hooks) -> tuple[str, ...]:
    """Notes of a report on a launch, beside its findings."""
    notes = [f"launched: a grid of {grid_text(hooks.grid)}"]
    if hooks.overflows:
        lines = ", ".join(str(hooks.sites[site].line) for site in sorted(hooks.overflows))
        notes.append(f"int32: a product overflowed (line {lines})")
    if hooks.was_cut:
        notes.append(f"ended: after {MOST} accesses")
    return tuple(notes)


def grid_text(grid: Sequence[int]) -> str:
    """`(4,)` or `(4, 2)`."""
    axes = list(grid)
    while len(axes) > 1 and axes[-1] == 1:
        axes.pop()
    return str(tuple(axes))


def _launched(launcher: TritonKernel, inputs: Sequence[Any], outputs: Sequence[Any], extents: MemoryExtents) -> Hooks:
    with interpreter_hooks(extents, MOST) as hooks:
        try:
            launcher.into(inputs, outputs)
        except NoyauError:
            raise
        except Exception as fault:
            if not hooks.was_cut:
                raise RaisedError(f"{launcher.kernel.called} raised {type(fault).__name__}: {fault}") from fault
    return hooks


def _unwritten(
    numbers: Sequence[int], hooks: Hooks, extents: MemoryExtents, kernel: UserKernel, size: str
) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    findings: list[Finding] = []
    place, nobody = Site.at(kernel.place), f"no program of the grid {grid_text(hooks.grid)} stores"
    route, op = route_of(hooks, extents), kernel.target.op
    for number in numbers:
        holes, memory = extents.shadow.unwritten(number), extents.memories[number]
        findings += unwritten(holes, memory, nobody, place, route, op, kernel.name, size)
    return findings
