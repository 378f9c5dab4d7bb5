"""A kernel of Numba-CUDA, on an op or called on one's own arguments, launched without a GPU, every access watched."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

from noyau.errors import DeviceError, FindingKind, NoyauError, SignatureError
from noyau.kernels.call import FunctionKernel, error_of
from noyau.kernels.user_kernel import GPU, ask, python_function
from noyau.sanitizer.access_map import AccessMap, TracingShadow
from noyau.sanitizer.lint.diagnostics import Diagnostic, warnings_of
from noyau.sanitizer.lint.launches import LaunchFacts, advise, sm_count_in
from noyau.sanitizer.numba_cuda.launch import SimulatedLaunch, WatchedArgument, configuration_of, launch_kernel
from noyau.sanitizer.records import Site, WatchedRun, unwritten
from noyau.sanitizer.routes import KernelCase
from noyau.verify.findings import Finding

MOST = 30_000_000  # accesses of one launch
SMALL = replace(GPU, sm_count=2, model="a GPU of 2 multiprocessors (assumed)")  # what `launch=` is asked for


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
    site, text = Site.at(place), ""
    with suppress(OSError, TypeError):
        text = inspect.getsource(python_function(function))
    shapes = [launch.recorder.memories[number].shape for number in launch.arrays.values()]
    shape, sm_count = max(shapes, key=math.prod, default=()), sm_count_in(site.file) if is_whole else 0
    facts = LaunchFacts(launch.configuration.grid, launch.configuration.block, shape, text, launch.idle, sm_count)
    advice = [each for each in advise(facts) if is_whole or "touch nothing" in each[0]]
    remarks = [Diagnostic(FindingKind.LAUNCH, site.file, site.line, *each, kernel, size) for each in advice]
    return warnings_of(remarks, op, kernel, "numba_cuda")


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """The kernel on its arrays, launched as it says, watched; a map of it is put into `maps`.

    UnsupportedError where it cannot be; SignatureError where it says no launch; RaisedError where a thread raises."""
    kernel, function, ends = case.kernel, case.kernel.function, (case.kernel.target.op, case.kernel.name, case.size)
    assert function is not None
    run, outputs = FunctionKernel(kernel, case.instance, case.constants), case.zero_outputs()
    before = run.prepare([np.array(each) for each in case.arrays], outputs)
    arguments = _arguments(run, before, outputs)
    traced = None if maps is None else TracingShadow()
    try:
        configuration = configuration_of(_launch_of(run, before, outputs))
        launch = launch_kernel(function, configuration, arguments, MOST, traced)
    except DeviceError as refusal:
        op, name, size = ends
        finding = Finding(op, name, kernel.language, FindingKind.LAUNCH, kernel.place, size, str(refusal))
        return WatchedRun((finding,), 0)
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise error_of(kernel.title, fault) from fault
    watched = launch.report_run(*ends)
    if launch.is_cut:  # what it would have written is not known
        return replace(watched, notes=(f"ended after {MOST} accesses",))
    findings = [*watched.findings, *_unwritten(launch, arguments, case)]
    if callable(kernel.usage.launch):  # else its grid is for sizes that this one is not
        findings += lint_call(launch, function, ends[0], ends[1], kernel.place, case.size, is_whole=False)
    if maps is not None and traced is not None:
        maps.append(launch.access_map(kernel.title, traced))
    notes = f"launched: {launch.configuration}", *launch.notes
    return replace(watched, findings=tuple(findings), notes=notes, outputs=tuple(run.results(before, outputs)))


def _launch_of(run: FunctionKernel, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Any:
    kernel, launch = run.kernel, run.kernel.usage.launch
    if callable(launch):
        launch = ask(launch, {**run.offers(arrays, outputs), "device": SMALL}, f"launch= of {kernel.title}")
    if launch is None or isinstance(launch, str):
        raise SignatureError(f"{kernel.title} needs launch=(grid, block), or a function that gives them")
    return launch


def _arguments(
    run: FunctionKernel, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> list[WatchedArgument]:
    """The arguments, arrays by the names that the op gives them, else by those of the kernel's parameters."""
    positional, by_name = run.arguments(arrays, outputs)
    unset, terms = run.unset(arrays, outputs), (*run.instance.inputs, *run.instance.outputs)
    ends = {id(array): term.name for term, array in zip(terms, (*arrays, *outputs), strict=True)}
    assert run.kernel.function is not None
    parameters = inspect.signature(python_function(run.kernel.function)).parameters
    values = [(ends.get(id(a), name), a) for name, a in zip(parameters, (*positional, *by_name.values()), strict=False)]
    return [WatchedArgument(name, value, name not in unset) for name, value in values]


def _unwritten(launch: SimulatedLaunch, arguments: Sequence[WatchedArgument], case: KernelCase) -> list[Finding]:
    kernel, recorder = case.kernel, launch.recorder
    unset = sorted({each.name for each in arguments if not each.is_set} & launch.arrays.keys())
    memories = {launch.arrays[name]: recorder.memories[launch.arrays[name]] for name in unset}
    route = launch.route(kernel.target.op, kernel.name, case.size)
    nobody = f"no thread of {launch.configuration} writes"
    return unwritten(memories, recorder.shadow.unwritten, nobody, Site.at(kernel.place), route)


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> tuple[WatchedRun, Any]:
    """As sanitizer/routes.py has it. SignatureError without a launch, or for another number of arguments; DeviceError
    for a launch that no GPU takes."""
    plain = python_function(function)
    name, names = plain.__name__, list(inspect.signature(plain).parameters)
    if launch is None:
        raise SignatureError(f"{name} needs a launch: noyau.check({name}, args, launch=(grid, block))")
    if len(args) != len(names):
        raise SignatureError(f"{name} takes {', '.join(names)}; it was given {len(args)} arguments")
    configuration = configuration_of(launch)
    arguments = [WatchedArgument(each, _on_host(value)) for each, value in zip(names, args, strict=True)]
    try:
        run = launch_kernel(plain, configuration, arguments, MOST, goes_on=True)
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise error_of(name, fault) from fault
    return run.report_run(op, name, f"{size}; launched {configuration}"), None


def _on_host(value: Any) -> Any:
    """An array of NumPy, where an array of the simulator stands."""
    array: Any = value._ary if isinstance(value, FakeCUDAArray) else value
    return array if isinstance(array, np.ndarray) or not hasattr(array, "copy_to_host") else array.copy_to_host()
