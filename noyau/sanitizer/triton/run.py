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
from noyau.sanitizer.access_map import Map, Owner, Traced, mapped
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Route, Seen, Site, Watched, findings_of, unwritten
from noyau.sanitizer.routes import Case
from noyau.sanitizer.triton.interpreter_hooks import Hooks, hooked
from noyau.sanitizer.triton.memory_extents import Extents
from noyau.verify.findings import Finding

Array = np.ndarray
LANGUAGE = "triton"
MOST = 30_000_000  # accesses of one launch
_WIDEN = "a product of int32 overflowed on the way: widen it, as in row.to(tl.int64) * stride"
_ZONE, _ALIGNED = 1 << 16, 64  # bytes around an argument, at least; how it is aligned


def watch_here(case: Case, maps: list[Map] | None = None) -> Watched:
    """The kernel on its arrays, watched; a map of it is put into `maps`. UnsupportedError where it cannot be;
    RaisedError where it raises, CheckError for what the interpreter does not calculate in."""
    kernel, instance, size = case.kernel, case.instance, case.size
    if any(value.dtype is DType.BF16 for value in (*instance.inputs, *instance.outputs)):
        raise CheckError("Triton's interpreter takes bfloat16 for integers")
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    unset = run.unset(before, outputs)
    config = sum(extent for array in (*before, *outputs) for extent in array.shape)
    made = TritonKernel(kernel, instance, case.constants, config if configs_of(kernel.function) else None)
    shadow = Shadow() if maps is None else Traced()
    extents = Extents(shadow)
    ends = zip((*instance.inputs, *instance.outputs), (*before, *outputs), strict=True)
    placed = [array if value.scalar else roomy(array) for value, array in ends]
    given: list[Any] = []
    numbers: dict[str, int] = {}
    for value, array in zip((*instance.inputs, *instance.outputs), placed, strict=True):
        if not value.scalar:
            numbers[value.name] = extents.add(value.name, array, is_set=value.name not in unset)
        given.append(array.item() if value.scalar else tensor_of(array))
    count = len(instance.inputs)
    extents.shadow.region()
    hooks = _launched(made, given[:count], given[count:], extents)
    seen = told_once(extents.shadow.seen())
    findings, allowed = findings_of(seen, route_of(hooks, extents), kernel.target.op, kernel.name, size)
    if not hooks.was_cut:
        findings += _unwritten([numbers[name] for name in sorted(unset)], hooks, extents, kernel, size)
    if maps is not None and isinstance(shadow, Traced):
        maps.append(map_of(kernel.called, hooks, extents, shadow))
    results = tuple(run.results(placed[:count], placed[count:]))
    return Watched(tuple(findings), extents.shadow.accesses, tuple(allowed), notes_of(hooks), results)


def map_of(called: str, hooks: Hooks, extents: Extents, traced: Traced) -> Map:
    """The map of a launch."""
    grid = grid_text(hooks.grid)
    return mapped(called, f"[{grid}]", "program", lambda n: Owner("", hooks.owner(n)[8:]), extents.memories, traced)


def roomy(array: Array) -> Array:
    """A packed copy with room around it, which nothing else lies in."""
    zone = max(_ZONE, array.nbytes)
    whole = np.empty(array.nbytes + 2 * zone + _ALIGNED, np.uint8)
    start = zone + -(whole.__array_interface__["data"][0] + zone) % _ALIGNED
    made = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def route_of(hooks: Hooks, extents: Extents) -> Route:
    """How sites, memories and programs of a launch are spelt."""
    remedies = {FindingKind.OUT_OF_BOUNDS: _WIDEN} if hooks.overflows else {}
    return Route(LANGUAGE, hooks.sites, extents.memories, hooks.owner, remedies)


def told_once(seen: Sequence[Seen]) -> list[Seen]:
    """What was seen; of races on one argument that share a line only the one with most writes."""
    kept = [each for each in seen if each.kind is not FindingKind.RACE]
    lines: set[tuple[int, int]] = set()
    for each in sorted(
        (each for each in seen if each.kind is FindingKind.RACE), key=lambda each: each.writes, reverse=True
    ):
        own = {(each.memory, each.site), (each.memory, each.other_site)}
        if not own & lines:
            kept.append(each)
        lines |= own
    return kept


def notes_of(hooks: Hooks) -> tuple[str, ...]:
    """What a report says of a launch beside its findings."""
    told = [f"launched: a grid of {grid_text(hooks.grid)}"]
    if hooks.overflows:
        lines = ", ".join(str(hooks.sites[site].line) for site in sorted(hooks.overflows))
        told.append(f"int32: a product overflowed (line {lines})")
    if hooks.was_cut:
        told.append(f"ended: after {MOST} accesses")
    return tuple(told)


def grid_text(grid: Sequence[int]) -> str:
    """`(4,)` or `(4, 2)`."""
    axes = list(grid)
    while len(axes) > 1 and axes[-1] == 1:
        axes.pop()
    return str(tuple(axes))


def _launched(made: TritonKernel, inputs: Sequence[Any], outputs: Sequence[Any], extents: Extents) -> Hooks:
    with hooked(extents, MOST) as hooks:
        try:
            made.into(inputs, outputs)
        except NoyauError:
            raise
        except Exception as fault:
            if not hooks.was_cut:
                raise RaisedError(f"{made.kernel.called} raised {type(fault).__name__}: {fault}") from fault
    return hooks


def _unwritten(numbers: Sequence[int], hooks: Hooks, extents: Extents, kernel: UserKernel, size: str) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    found: list[Finding] = []
    place, nobody = Site.at(kernel.place), f"no program of the grid {grid_text(hooks.grid)} stores"
    route, op = route_of(hooks, extents), kernel.target.op
    for number in numbers:
        holes, memory = extents.shadow.unwritten(number), extents.memories[number]
        found += unwritten(holes, memory, nobody, place, route, op, kernel.name, size)
    return found
