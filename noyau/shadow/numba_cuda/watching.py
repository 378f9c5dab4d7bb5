"""A kernel of Numba-CUDA on an op, launched without a GPU, every access watched."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from noyau.checking.findings import Finding
from noyau.errors import CheckError, DeviceError, NoyauError, SignatureError
from noyau.handwritten.asking import ask
from noyau.handwritten.buffers import GPU
from noyau.handwritten.calling import FunctionKernel
from noyau.handwritten.kernels import HandKernel, python_function
from noyau.references import bind_sizes
from noyau.shadow.numba_cuda.launching import LANGUAGE, Argument, Configuration, Launch, configured, launched
from noyau.shadow.recording import TooManyError
from noyau.shadow.records import Access, Memory, Route, Seen, Site, Watched, findings_of
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance

Array = np.ndarray
MOST = 4_000_000  # accesses of one launch
SMALL = replace(GPU, sm_count=2, model="a GPU of 2 multiprocessors (assumed)")  # what `launch=` is asked for


def watch(
    kernel: HandKernel, instance: Instance, arrays: Sequence[Array], constants: Mapping[str, Any], size: str
) -> Watched:
    """The kernel on these arrays, launched as it says, watched.

    UnsupportedError where it cannot be; SignatureError where it says no launch; CheckError where a thread raises."""
    run = FunctionKernel(kernel, instance, constants)
    shapes = shapes_of(instance.outputs, bind_sizes(instance, arrays))
    outputs = [np.zeros(shape, value.dtype.numpy) for shape, value in zip(shapes, instance.outputs, strict=True)]
    before = run.prepared([np.array(each) for each in arrays], outputs)
    positional, named = run.arguments(before, outputs)
    given = _named(kernel, [*positional, *named.values()], instance, before, outputs, _unset(run, before, outputs))
    try:
        launch = launched(kernel.function or _nothing, _configuration(run, before, outputs), given, MOST)
    except DeviceError as refusal:
        return Watched((_refused(kernel, size, str(refusal)),), 0)
    except TooManyError:
        return Watched((), MOST, notes=(f"ended after {MOST} accesses",))
    except (NoyauError, KeyboardInterrupt):
        raise
    except Exception as fault:
        raise CheckError(f"{kernel.called} raised {type(fault).__name__}: {fault}") from fault
    findings, allowed = findings_of(launch.recorder.shadow.seen(), launch.route, kernel.target.op, kernel.name, size)
    findings += _unwritten(launch, {each.name for each in given if not each.is_set}, kernel, size)
    names = [value.name for value in instance.inputs]
    results = [before[names.index(name)] for name in kernel.usage.updates] or outputs
    notes = (f"launched: {launch.configuration}", *launch.notes)
    return Watched(tuple(findings), launch.recorder.shadow.accesses, tuple(allowed), notes, tuple(results))


def _configuration(run: FunctionKernel, arrays: Sequence[Array], outputs: Sequence[Array]) -> Configuration:
    kernel = run.kernel
    launch = kernel.usage.launch
    if callable(launch):
        launch = ask(launch, {**run.offers(arrays, outputs), "device": SMALL}, f"launch= of {kernel.called}")
    if launch is None or isinstance(launch, str):
        raise SignatureError(f"{kernel.called} needs launch=(grid, block), or a function that gives them")
    return configured(launch)


def _unset(run: FunctionKernel, arrays: Sequence[Array], outputs: Sequence[Array]) -> set[str]:
    """The outputs that hold nothing before."""
    init = run.kernel.usage.init
    told = ask(init, run.offers(arrays, outputs), f"init= of {run.kernel.called}") if callable(init) else init
    return {value.name for value in run.instance.outputs} - set(told)


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
    file, _, line = kernel.place.rpartition(":")
    place = Site.of(file, int(line)) if line.isdigit() else Site(kernel.place, 0)
    for name in sorted(unset & set(launch.arrays)):
        memory = launch.recorder.memories[launch.arrays[name]]
        missed, first = launch.recorder.shadow.unwritten(launch.arrays[name])
        if missed:
            seen = Seen("unwritten", Access.WRITE, 0, -1, first)
            route = Route(LANGUAGE, [place], {-1: memory}, str, {}, {"unwritten": _told(memory, missed, first, launch)})
            found += findings_of([seen], route, kernel.target.op, kernel.name, size)[0]
    return found


def _told(memory: Memory, missed: int, first: int, launch: Launch) -> Callable[[Seen, Route], str]:
    many = f" and {missed - 1} more cells" if missed > 1 else ""
    cells = int(np.prod(memory.shape))
    return lambda seen, route: f"no thread of {launch.configuration} writes {memory.spelt(first)}{many} of {cells}"


def _refused(kernel: HandKernel, size: str, message: str) -> Finding:
    return Finding(kernel.target.op, kernel.name, LANGUAGE, "launch", kernel.place, size, message)


def _nothing() -> None: ...
