"""A launch of a kernel of an op, and one on whatever arguments, watched in this process, where Triton interprets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.errors import NoyauError
from noyau.kernels.call import FunctionKernel
from noyau.kernels.triton.calls import HostTensor, TritonKernel
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.access_map import AccessMap, TracingShadow
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Site, WatchedRun, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.sanitizer.triton.interpreter_hooks import MemoryExtents, interpreter_hooks
from noyau.sanitizer.triton.run import MOST, TritonLaunch, launch_watched, plain_launches, roomy
from noyau.verify.findings import Finding


def watch_here(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, watched; a map of it is put into `maps`. UnsupportedError where it cannot be;
    RaisedError where it raises."""
    kernel, instance = case.kernel, case.instance
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    unset = run.unset(before, outputs)
    config = sum(extent for array in (*before, *outputs) for extent in array.shape)
    launcher = TritonKernel(kernel, instance, case.constants, config if configs_of(kernel.function) else None)
    traced = None if maps is None else TracingShadow()
    extents = MemoryExtents(traced or Shadow())
    values = (*instance.inputs, *instance.outputs)
    arrays = [a if v.scalar else roomy(a) for v, a in zip(values, (*before, *outputs), strict=True)]
    arguments: list[Any] = []
    for value, array in zip(values, arrays, strict=True):
        if not value.scalar:
            extents.add(value.name, array, is_set=value.name not in unset)
        arguments.append(array.item() if value.scalar else HostTensor(array))
    count = len(instance.inputs)
    extents.shadow.region()
    launch = _launched(launcher, arguments[:count], arguments[count:], extents)
    watched = launch.watched(kernel.target.op, kernel.name, case.size)
    findings = watched.findings if launch.hooks.was_cut else (*watched.findings, *_unwritten(launch, unset, case))
    if maps is not None and traced is not None:
        maps.append(launch.access_map(kernel.called, traced))
    return replace(watched, findings=findings, outputs=tuple(run.results(arrays[:count], arrays[count:])))


def _launched(
    launcher: TritonKernel, inputs: Sequence[Any], outputs: Sequence[Any], extents: MemoryExtents
) -> TritonLaunch:
    with interpreter_hooks(extents, MOST) as hooks:
        try:
            launcher.into(inputs, outputs)
        except NoyauError:
            if not hooks.was_cut:
                raise
    return TritonLaunch(hooks)


def _unwritten(launch: TritonLaunch, unset: set[str], case: KernelCase) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    kernel, extents = case.kernel, launch.hooks.extents
    by_name = sorted(extents.memories.items(), key=lambda pair: pair[1].name)
    memories = {number: memory for number, memory in by_name if memory.name in unset}
    route = launch.route(kernel.target.op, kernel.name, case.size)
    nobody = f"no program of the grid {launch.grid} stores"
    return unwritten(memories, extents.shadow.unwritten, nobody, Site.at(kernel.place), route)


def watch_call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> WatchedRun:
    """One launch of a kernel of no op. `launch`: its grid, or the number of its programs."""
    grid = launch if callable(launch) or isinstance(launch, tuple) else (launch,)
    with plain_launches():
        triton_launch = launch_watched(function[grid], function, args, {})
    return triton_launch.watched(op, python_function(function).__name__, f"{size}; launched {triton_launch.grid}")
