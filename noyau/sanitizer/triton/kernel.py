"""A kernel of Triton with every access watched: where Triton interprets, and else in a process of its own in which it
does, since it interprets only where it was asked to before it was imported."""

from __future__ import annotations

import atexit
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import NoyauError, SignatureError, UnsupportedError
from noyau.hosts.torch.tensors import tensor_of
from noyau.kernels.call import FunctionKernel
from noyau.kernels.certificates import pack
from noyau.kernels.triton.calls import TritonKernel, is_interpreted
from noyau.kernels.triton.parameters import configs_of
from noyau.kernels.user_kernel import UserKernel, choose_constants, python_function
from noyau.ops.op_homes import Home, home_of, reload_op
from noyau.sanitizer.access_map import AccessMap, TracingShadow
from noyau.sanitizer.engine import Shadow
from noyau.sanitizer.records import Site, WatchedRun, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.sanitizer.triton.interpreter_hooks import MemoryExtents, interpreter_hooks
from noyau.sanitizer.triton.run import MOST, TritonLaunch, launch_watched, plain_launches, roomy
from noyau.signatures.binding import bind
from noyau.verify.findings import Finding
from noyau.workers.worker import Worker

if TYPE_CHECKING:
    from noyau.ops.op import Op

_PATIENCE_S, _LOADING_S = 60.0, 120.0
_LOCAL = "it is watched in a process of its own, which finds its op as a global of a file; put it into one"
_WORKERS: dict[str, Worker] = {}  # the one of the last file of which an op was watched


def watch_in_worker(case: KernelCase) -> WatchedRun:
    """The kernel on its arrays, watched in another process, which stays for the next one of its op.

    UnsupportedError where that process cannot find its op; CheckError where it raises, crashes or does not end."""
    kernel = case.kernel
    home = home_of(_op_with(kernel))
    if home is None:
        raise UnsupportedError(f"{kernel.called}: {_LOCAL}")
    worker = _worker(home, kernel.called)
    choice, constants = (
        {n: v for n, v in each.items() if isinstance(v, bool | int | float | str)}
        for each in (kernel.usage.constants, case.constants)
    )
    worker.patience_s = _LOADING_S if not worker.is_running else _PATIENCE_S
    return worker.ask(watch_at, home, kernel.name, choice, constants, pack(case.arrays), case.size)


def _worker(home: Home, name: str) -> Worker:
    """A process in which Triton interprets, for the ops of a file."""
    if home.file not in _WORKERS:
        end()
        _WORKERS[home.file] = Worker(name, environment={"TRITON_INTERPRET": "1"})
    worker = _WORKERS[home.file]
    worker.name = name
    return worker


@atexit.register
def end() -> None:
    """End the process, if there is one."""
    while _WORKERS:
        _WORKERS.popitem()[1].end()


def _op_with(kernel: UserKernel) -> Op[..., Any]:
    """The op that a kernel is of, among the globals of its function and of what it imports."""
    from noyau.ops.op import Op

    scope = getattr(python_function(kernel.function or _op_with), "__globals__", {})
    modules = [vars(value) for value in scope.values() if isinstance(value, ModuleType)]
    for names in (scope, *modules):
        for value in list(names.values()):
            if isinstance(value, Op) and any(each.target is kernel.target for each in value.kernels.values()):
                return value
    raise UnsupportedError(f"{kernel.called}: {_LOCAL}")


def watch_at(
    home: Home,
    name: str,
    choice: Mapping[str, Any],
    constants: Mapping[str, Any],
    arrays: Sequence[np.ndarray],
    size: str,
) -> WatchedRun:
    """In the worker: one launch of a kernel of the op at a place, watched."""
    op = reload_op(home)
    assert op.signature is not None
    bound = bind(op.signature, arrays, op.known(constants), op.name)
    kernel = op.kernels.get(name) or op.kernels[name.partition(" (")[0]]  # one choice of its constants
    case = KernelCase(choose_constants(kernel, tuple(choice.items())), bound.instance, bound.arrays, constants, size)
    return watch_here(case)


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, watched, on tensors of the CPU, whether there is a GPU or not; where Triton
    interprets, a map of it is put into `maps`.

    UnsupportedError where it cannot be; CheckError where it raises, crashes or does not end."""
    return watch_here(case, maps) if is_interpreted(case.kernel.function) else watch_in_worker(case)


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
        arguments.append(array.item() if value.scalar else tensor_of(array))
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


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> tuple[WatchedRun, Any]:
    """As sanitizer/routes.py has it. SignatureError without a grid, UnsupportedError where Triton does not
    interpret."""
    name = python_function(function).__name__
    if launch is None:
        raise SignatureError(f"{name} needs a grid: noyau.check({name}, args, launch=(programs,))")
    if not is_interpreted(function):
        remedy = "set TRITON_INTERPRET=1 before triton is imported, or run: noyau check SCRIPT.py"
        raise UnsupportedError(f"{name} was made where Triton compiles, so its accesses are not seen; {remedy}")
    grid = launch if callable(launch) or isinstance(launch, tuple) else (launch,)
    with plain_launches():
        triton_launch = launch_watched(function[grid], function, args, {})
    return triton_launch.watched(op, name, f"{size}; launched {triton_launch.grid}"), None
