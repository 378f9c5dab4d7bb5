"""The kernels that noyau itself prints for Numba-CUDA, launched without a GPU, every access watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role
from noyau.kernels.programs.generate import BuiltProgram
from noyau.sanitizer.engine import root_of
from noyau.sanitizer.numba_cuda.kernel import MOST
from noyau.sanitizer.numba_cuda.launch import SimulatedLaunch, WatchedArgument, configuration_of, launch_kernel
from noyau.sanitizer.records import Site, WatchedRun, unwritten
from noyau.toolchain.numba.kernel import load, parameters_of
from noyau.verify.findings import Finding

Array = np.ndarray


def watch_generated(program: BuiltProgram, arrays: Sequence[Array], op: str, name: str, size: str) -> WatchedRun:
    """Each kernel of a program, on arrays as it wants them. UnsupportedError where a launch cannot be watched."""
    text, kernels = program.generated.text, program.generated.program.kernels
    calls = [SimulatedCall(load(text)[1], kernel) for kernel in kernels]
    built: Any = tuple(calls)
    results = replace(program, kernels=built).run(arrays, lambda call, inputs: call(*inputs))
    findings = [finding for call in calls for finding in call.findings(op, name, size)]
    runs = [run for call in calls for run in call.runs]
    accesses, is_cut = sum(run.recorder.shadow.accesses for run in runs), any(run.is_cut for run in runs)
    return WatchedRun(tuple(findings), accesses, outputs=None if is_cut else tuple(results), is_cut=is_cut)


class SimulatedCall:
    """One call of the function of the host of a kernel: `runs`, its launches; `memory`, its outputs and scratch, and
    masks of the cells that are written, by the identity of the array."""

    def __init__(self, names: dict[str, Any], kernel: Kernel) -> None:
        self.kernel, self.names, self.runs = kernel, names, list[SimulatedLaunch]()
        self.memory, self.written = list[Array](), dict[int, Array]()

    def __call__(self, *arrays: Array) -> list[Array]:
        sizes, ends = bind_sizes(self.kernel, list(arrays), {}), self.kernel.of(Role.OUTPUT)
        shapes = (tuple(int(dim.evaluate(sizes)) for dim in buffer.shape) for buffer in ends)
        outputs = [self.unset(shape, buffer.dtype.numpy) for shape, buffer in zip(shapes, ends, strict=True)]
        numbers = range(len(self.kernel.launches))
        launches = {name: _Kernel(self, self.names[name]) for name in (f"{self.kernel.name}_{n}" for n in numbers)}
        scope = {**self.names, **launches, "cuda": SimpleNamespace(device_array=self.unset)}
        inputs = [array.view(np.uint16) if array.dtype == DType.BF16.numpy else array for array in arrays]
        FunctionType(self.names[self.kernel.name].__code__, scope, argdefs=(0,))(*inputs, *outputs)
        return [output.view(buffer.dtype.numpy) for output, buffer in zip(outputs, ends, strict=True)]

    def unset(self, shape: tuple[int, ...], dtype: Any, stream: int = 0) -> Array:
        """An array of which no cell is written yet."""
        self.memory.append(array := np.zeros(shape, np.uint16 if dtype == DType.BF16.numpy else dtype))
        self.written[id(array)] = np.zeros(shape, np.bool_)
        return array

    def launch(self, function: Any, launch: Any, *values: Any) -> None:
        """Run a kernel in the place of a launch, and note what it has written."""
        is_set = [not isinstance(each, Array) or self.written.get(id(root_of(each)), True) for each in values]
        ends = zip(parameters_of(function.py_func), values, is_set, strict=True)
        arguments = [WatchedArgument(*each) for each in ends]
        self.runs.append(run := launch_kernel(function, configuration_of(launch), arguments, MOST))
        for each in arguments:
            if isinstance(each.is_set, np.ndarray):
                mask = run.recorder.written_elements(run.arrays[each.name])
                each.is_set[...] |= mask.reshape(each.is_set.shape)

    def findings(self, op: str, name: str, size: str) -> Iterator[Finding]:
        """The findings of its launches; and of cells of outputs that none has written."""
        yield from (finding for run in self.runs for finding in run.report_run(op, name, size).findings)
        code = self.names[self.kernel.name].__code__
        for output in self.memory[: len(self.kernel.of(Role.OUTPUT))]:
            missed = np.flatnonzero(~self.written[id(output)])
            run = next((run for run in self.runs if id(output) in run.recorder.roots), None)
            if missed.size and run is not None:
                number = run.recorder.roots[id(output)].memory
                place = Site.at(f"{code.co_filename}:{code.co_firstlineno}")
                holes = {number: (missed.size, int(missed[0]))}
                memories, nobody = {number: run.recorder.memories[number]}, f"no thread of {run.configuration} writes"
                yield from unwritten(memories, holes.__getitem__, nobody, place, run.route(op, name, size))


class _Kernel:
    """A kernel as the function of the host finds it: in its brackets stands a launch, then it is called."""

    def __init__(self, call: SimulatedCall, function: Any) -> None:
        self.call, self.function = call, function

    def __getitem__(self, launch: Any) -> Callable[..., None]:
        return partial(self.call.launch, self.function, launch)
