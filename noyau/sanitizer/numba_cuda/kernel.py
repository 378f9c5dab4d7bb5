"""A kernel of Numba-CUDA on an op, launched without a GPU, every access watched.

What is said of a launch that was run: how it was launched, and how many of its threads had nothing to do.

A kernel of Numba-CUDA that is on no op, launched on one's own arguments without a GPU, every access watched.
"""

from __future__ import annotations

import inspect
import linecache
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

from noyau.errors import DeviceError, FindingKind, NoyauError, RaisedError, SignatureError
from noyau.kernels.buffers import GPU, ask
from noyau.kernels.call import FunctionKernel
from noyau.kernels.user_kernel import UserKernel, python_function
from noyau.sanitizer.access_map import AccessMap, TracingShadow, map_of_writes, thread_owner
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.launches import LaunchFacts, advise
from noyau.sanitizer.numba_cuda.launch import (
    LANGUAGE,
    Configuration,
    SimulatedLaunch,
    WatchedArgument,
    configuration_of,
    launch_kernel,
)
from noyau.sanitizer.recording_array import TooManyError
from noyau.sanitizer.records import Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.signatures.types import Instance
from noyau.verify.findings import Finding

_ASKED = "multiprocessor_count"  # in a script: it sizes its grids by the machine, which is a small one here


def lint_call(
    launch: SimulatedLaunch,
    function: Callable[..., Any],
    op: str,
    kernel: str,
    place: str,
    size: str,
    *,
    is_whole: bool,
) -> list[Finding]:
    """Warnings on a launch, at `place`. `is_whole`: its sizes are those that are meant, as a script's own; else only
    what its threads did is judged."""
    file, _, line = place.rpartition(":")
    shapes = [launch.recorder.memories[number].shape for number in launch.arrays.values()]
    facts = LaunchFacts(
        launch.configuration.grid,
        launch.configuration.block,
        max(shapes, key=math.prod, default=()),
        _source(function),
        launch.idle,
        0 if not is_whole or _ASKED in "".join(linecache.getlines(file)).lower() else GPU.sm_count,
    )
    advice = advise(facts) if is_whole else [each for each in advise(facts) if "touch nothing" in each[0]]
    remarks = [
        Diagnostic(FindingKind.LAUNCH, file, int(line) if line.isdigit() else 0, *each, kernel, size) for each in advice
    ]
    return [each.finding(op, kernel, LANGUAGE) for each in remarks if not each.is_allowed]


def _source(function: Callable[..., Any]) -> str:
    with suppress(OSError, TypeError):
        return inspect.getsource(python_function(function))
    return ""


Array = np.ndarray
MOST = 4_000_000  # accesses of one launch
SMALL = replace(GPU, sm_count=2, model="a GPU of 2 multiprocessors (assumed)")  # what `launch=` is asked for


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, launched as it says, watched; a map of it is put into `maps`.

    UnsupportedError where it cannot be; SignatureError where it says no launch; RaisedError where a thread raises."""
    kernel, instance, size = case.kernel, case.instance, case.size
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    positional, named = run.arguments(before, outputs)
    arguments = _named(kernel, [*positional, *named.values()], instance, before, outputs, run.unset(before, outputs))
    traced = None if maps is None else TracingShadow()
    try:
        launch = launch_kernel(
            kernel.function or _nothing, _configuration(run, before, outputs), arguments, MOST, traced
        )
    except DeviceError as refusal:
        return WatchedRun((_refused(kernel, size, str(refusal)),), 0)
    except TooManyError:
        return WatchedRun((), MOST, notes=(f"ended after {MOST} accesses",))
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise RaisedError(f"{kernel.called} raised {type(fault).__name__}: {fault}") from fault
    findings, allowed = findings_of(launch.recorder.shadow.seen(), launch.route, kernel.target.op, kernel.name, size)
    findings += _unwritten(launch, {each.name for each in arguments if not each.is_set}, kernel, size)
    function, name = kernel.function or _nothing, kernel.name
    if callable(kernel.usage.launch):  # else its grid is for sizes that this one is not
        findings += lint_call(launch, function, kernel.target.op, name, kernel.place, size, is_whole=False)
    if maps is not None and traced is not None:
        maps.append(map_of(kernel.called, launch, traced))
    notes, results = (f"launched: {launch.configuration}", *launch.notes), run.results(before, outputs)
    return WatchedRun(tuple(findings), launch.recorder.shadow.accesses, tuple(allowed), notes, tuple(results))


def map_of(name: str, launch: SimulatedLaunch, traced: TracingShadow) -> AccessMap:
    """The map of a launch."""
    own = {number: launch.recorder.memories[number] for number in launch.arrays.values()}
    configuration = launch.configuration
    return map_of_writes(
        name,
        str(configuration),
        "thread",
        partial(thread_owner, grid=configuration.grid, block=configuration.block),
        own,
        traced,
    )


def _configuration(run: FunctionKernel, arrays: Sequence[Array], outputs: Sequence[Array]) -> Configuration:
    kernel = run.kernel
    launch = kernel.usage.launch
    if callable(launch):
        launch = ask(launch, {**run.offers(arrays, outputs), "device": SMALL}, f"launch= of {kernel.called}")
    if launch is None or isinstance(launch, str):
        raise SignatureError(f"{kernel.called} needs launch=(grid, block), or a function that gives them")
    return configuration_of(launch)


def _named(
    kernel: UserKernel,
    values: Sequence[Any],
    instance: Instance,
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    unset: set[str],
) -> list[WatchedArgument]:
    """The arguments, arrays by the names that the op gives them, else by those of the kernel's parameters."""
    ends = {id(a): v.name for v, a in zip((*instance.inputs, *instance.outputs), (*arrays, *outputs), strict=True)}
    parameters = list(inspect.signature(python_function(kernel.function or _nothing)).parameters)
    names = [ends.get(id(each), name) for each, name in zip(values, parameters, strict=False)]
    return [WatchedArgument(name, each, name not in unset) for name, each in zip(names, values, strict=False)]


def _unwritten(launch: SimulatedLaunch, unset: set[str], kernel: UserKernel, size: str) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    findings: list[Finding] = []
    place, nobody = Site.at(kernel.place), f"no thread of {launch.configuration} writes"
    route, op = launch.route, kernel.target.op
    for number in (launch.arrays[name] for name in sorted(unset & set(launch.arrays))):
        holes, memory = launch.recorder.shadow.unwritten(number), launch.recorder.memories[number]
        findings += unwritten(holes, memory, nobody, place, route, op, kernel.name, size)
    return findings


def _refused(kernel: UserKernel, size: str, message: str) -> Finding:
    return Finding(kernel.target.op, kernel.name, LANGUAGE, FindingKind.LAUNCH, kernel.place, size, message)


def _nothing() -> None: ...


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op_name: str) -> tuple[WatchedRun, Any]:
    """As sanitizer/routes.py has it. SignatureError without a launch, or for another number of arguments;
    DeviceError for
    a launch that no GPU takes, or that made too many accesses."""
    plain = python_function(function)
    names = list(inspect.signature(plain).parameters)
    if launch is None:
        raise SignatureError(
            f"{plain.__name__} needs a launch: noyau.check({plain.__name__}, args, launch=(grid, block))"
        )
    if len(args) != len(names):
        raise SignatureError(f"{plain.__name__} takes {', '.join(names)}; it was given {len(args)} arguments")
    configuration = configuration_of(launch)
    arguments = [WatchedArgument(name, _held(value)) for name, value in zip(names, args, strict=True)]
    try:
        run = launch_kernel(plain, configuration, arguments, MOST)
    except TooManyError:
        raise DeviceError(
            f"{plain.__name__}{configuration} made more than {MOST} accesses; check smaller arrays"
        ) from None
    size_and_launch = f"{size}; launched {configuration}"
    findings, allowed = findings_of(run.recorder.shadow.seen(), run.route, op_name, plain.__name__, size_and_launch)
    return WatchedRun(tuple(findings), run.recorder.shadow.accesses, tuple(allowed), run.notes), None


def _held(value: Any) -> Any:
    """An array of NumPy, where an array of the simulator stands."""
    array: Any = value._ary if isinstance(value, FakeCUDAArray) else value
    return array if isinstance(array, np.ndarray) or not hasattr(array, "copy_to_host") else array.copy_to_host()
