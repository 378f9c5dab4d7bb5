"""A kernel of Numba-CUDA on an op, launched without a GPU, every access watched."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from noyau.checking.findings import Finding
from noyau.errors import DeviceError, NoyauError, RaisedError, SignatureError
from noyau.handwritten.asking import ask
from noyau.handwritten.buffers import GPU
from noyau.handwritten.calling import FunctionKernel
from noyau.handwritten.kernels import HandKernel, python_function
from noyau.shadow.cases import Case
from noyau.shadow.mapping import Map, mapped, thread_owner
from noyau.shadow.numba_cuda.advising import advised
from noyau.shadow.numba_cuda.launching import LANGUAGE, Argument, Configuration, Launch, configured, launched
from noyau.shadow.recording import TooManyError
from noyau.shadow.records import Site, Watched, findings_of, unwritten
from noyau.shadow.tracing import Traced
from noyau.signatures.types import Instance

Array = np.ndarray
MOST = 4_000_000  # accesses of one launch
SMALL = replace(GPU, sm_count=2, model="a GPU of 2 multiprocessors (assumed)")  # what `launch=` is asked for


def watch(case: Case, maps: list[Map] | None = None) -> Watched:
    """The kernel on its arrays, launched as it says, watched; a map of it is put into `maps`.

    UnsupportedError where it cannot be; SignatureError where it says no launch; RaisedError where a thread raises."""
    kernel, instance, size = case.kernel, case.instance, case.size
    run, outputs = FunctionKernel(kernel, instance, case.constants), case.zeroed_outputs()
    before = run.prepared([np.array(each) for each in case.arrays], outputs)
    positional, named = run.arguments(before, outputs)
    given = _named(kernel, [*positional, *named.values()], instance, before, outputs, run.unset(before, outputs))
    traced = None if maps is None else Traced()
    try:
        launch = launched(kernel.function or _nothing, _configuration(run, before, outputs), given, MOST, traced)
    except DeviceError as refusal:
        return Watched((_refused(kernel, size, str(refusal)),), 0)
    except TooManyError:
        return Watched((), MOST, notes=(f"ended after {MOST} accesses",))
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise RaisedError(f"{kernel.called} raised {type(fault).__name__}: {fault}") from fault
    findings, allowed = findings_of(launch.recorder.shadow.seen(), launch.route, kernel.target.op, kernel.name, size)
    findings += _unwritten(launch, {each.name for each in given if not each.is_set}, kernel, size)
    function, name = kernel.function or _nothing, kernel.name
    if callable(kernel.usage.launch):  # else its grid is for sizes that this one is not
        findings += advised(launch, function, kernel.target.op, name, kernel.place, size, is_whole=False)
    if maps is not None and traced is not None:
        maps.append(map_of(kernel.called, launch, traced))
    notes, results = (f"launched: {launch.configuration}", *launch.notes), run.results(before, outputs)
    return Watched(tuple(findings), launch.recorder.shadow.accesses, tuple(allowed), notes, tuple(results))


def map_of(called: str, launch: Launch, traced: Traced) -> Map:
    """The map of a launch."""
    own = {number: launch.recorder.memories[number] for number in launch.arrays.values()}
    made = launch.configuration
    return mapped(called, str(made), "thread", partial(thread_owner, grid=made.grid, block=made.block), own, traced)


def _configuration(run: FunctionKernel, arrays: Sequence[Array], outputs: Sequence[Array]) -> Configuration:
    kernel = run.kernel
    launch = kernel.usage.launch
    if callable(launch):
        launch = ask(launch, {**run.offers(arrays, outputs), "device": SMALL}, f"launch= of {kernel.called}")
    if launch is None or isinstance(launch, str):
        raise SignatureError(f"{kernel.called} needs launch=(grid, block), or a function that gives them")
    return configured(launch)


def _named(
    kernel: HandKernel,
    values: Sequence[Any],
    instance: Instance,
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    unset: set[str],
) -> list[Argument]:
    """The arguments, arrays by the names that the op gives them, else by those of the kernel's parameters."""
    ends = {id(a): v.name for v, a in zip((*instance.inputs, *instance.outputs), (*arrays, *outputs), strict=True)}
    parameters = list(inspect.signature(python_function(kernel.function or _nothing)).parameters)
    names = [ends.get(id(each), name) for each, name in zip(values, parameters, strict=False)]
    return [Argument(name, each, name not in unset) for name, each in zip(names, values, strict=False)]


def _unwritten(launch: Launch, unset: set[str], kernel: HandKernel, size: str) -> list[Finding]:
    """A finding for each output of which cells were never written."""
    found: list[Finding] = []
    place, nobody = Site.at(kernel.place), f"no thread of {launch.configuration} writes"
    route, op = replace(launch.route, remedies={}), kernel.target.op
    for number in (launch.arrays[name] for name in sorted(unset & set(launch.arrays))):
        holes, memory = launch.recorder.shadow.unwritten(number), launch.recorder.memories[number]
        found += unwritten(holes, memory, nobody, place, route, op, kernel.name, size)
    return found


def _refused(kernel: HandKernel, size: str, message: str) -> Finding:
    return Finding(kernel.target.op, kernel.name, LANGUAGE, "launch", kernel.place, size, message)


def _nothing() -> None: ...
