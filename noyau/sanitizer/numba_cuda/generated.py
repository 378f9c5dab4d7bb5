"""The kernels that noyau itself prints for Numba-CUDA, launched without a GPU, every access watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.ir.loop_interpreter import bind_sizes
from noyau.ir.loops import Kernel, Role
from noyau.kernels.programs.generate import BuiltProgram, GeneratedProgram
from noyau.sanitizer.numba_cuda.kernel import MOST
from noyau.sanitizer.numba_cuda.launch import SimulatedLaunch, WatchedArgument, configuration_of, launch_kernel, root_of
from noyau.sanitizer.records import Site, WatchedRun, unwritten
from noyau.toolchain.guard_zones import Empty, Order
from noyau.toolchain.numba.kernel import parameters_of
from noyau.toolchain.numba_cuda.module import load
from noyau.verify.findings import Finding

Array = np.ndarray


def watch_generated(program: GeneratedProgram, arrays: Sequence[Array], op: str, name: str, size: str) -> WatchedRun:
    """Every kernel of a program in language numba_cuda, on arrays that lie as it wants them. UnsupportedError where a
    launch cannot be watched."""
    kernels = [SimulatedKernel(program.text, kernel) for kernel in program.program.kernels]
    results = BuiltProgram(program, tuple(kernels))(*arrays)
    findings = [each for kernel in kernels for each in kernel.findings(op, name, size)]
    runs = [run for kernel in kernels for run in kernel.runs]
    accesses = sum(run.recorder.shadow.accesses for run in runs)
    return WatchedRun(tuple(findings), accesses, outputs=tuple(results), is_cut=any(run.is_cut for run in runs))


class SimulatedKernel:
    """A kernel of a text, launched by the text's own function of the host. `runs`: its launches, once they were."""

    def __init__(self, text: str, kernel: Kernel) -> None:
        self.kernel, self.names = kernel, load(text)
        self.runs: list[SimulatedLaunch] = []
        self.written: dict[int, Array] = {}  # masks of the cells of outputs and scratch, by the identity of the array
        self.memory: list[Array] = []  # these

    def __call__(
        self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1, empty: Empty | None = None
    ) -> list[Array]:
        """The results; where they are to lie, and on how many threads of a processor, is of no account here."""
        sizes, ends = bind_sizes(self.kernel, list(arrays), {}), self.kernel.of(Role.OUTPUT)
        shapes = [tuple(int(dim.evaluate(sizes)) for dim in buffer.shape) for buffer in ends]
        outputs = [self.unset(shape, buffer.dtype.numpy) for shape, buffer in zip(shapes, ends, strict=True)]
        launches = {name: _Launcher(partial(self.launch, self.names[name])) for name in self.launches}
        scope = {**self.names, **launches, "cuda": SimpleNamespace(device_array=self.unset)}
        FunctionType(self.names[self.kernel.name].__code__, scope, argdefs=(0,))(*map(_bits, arrays), *outputs)
        return [output.view(buffer.dtype.numpy) for output, buffer in zip(outputs, ends, strict=True)]

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """As a call: every access is seen anyway."""
        return self(*arrays)

    @property
    def launches(self) -> list[str]:
        """The names of its kernels in the text."""
        return [f"{self.kernel.name}_{position}" for position in range(len(self.kernel.launches))]

    def unset(self, shape: tuple[int, ...], dtype: Any, stream: int = 0) -> Array:
        """An array of which no cell is written yet."""
        array = _bits(np.zeros(shape, dtype))
        self.memory.append(array)
        self.written[id(array)] = np.zeros(shape, np.bool_)
        return array

    def launch(self, function: Any, launch: Any, *values: Any) -> None:
        """Run a kernel in the place of a launch, and note what it has written."""
        names = parameters_of(function.py_func)
        pairs = list(zip(names, values, strict=True))
        masks = {name: self.written.get(id(root_of(each))) for name, each in pairs if isinstance(each, np.ndarray)}
        arguments = [WatchedArgument(name, each, True if (m := masks.get(name)) is None else m) for name, each in pairs]
        run = launch_kernel(function, configuration_of(launch), arguments, MOST)
        self.runs.append(run)
        for name, mask in masks.items():
            if mask is not None:
                mask |= run.recorder.shadow.written(run.arrays[name], mask.size).reshape(mask.shape)

    def findings(self, op: str, name: str, size: str) -> Iterator[Finding]:
        """The findings of its launches; and of cells of outputs that none has written."""
        for run in self.runs:
            yield from run.watched(op, name, size).findings
        for output in self.memory[: len(self.kernel.of(Role.OUTPUT))]:
            missed = np.flatnonzero(~self.written[id(output)])
            last = next((run for run in self.runs[::-1] if id(output) in run.roots), None)
            if missed.size and last is not None:
                number, hole = last.roots[id(output)].memory, (missed.size, int(missed[0]))
                code = self.names[self.launches[-1]].py_func.__code__
                place = Site.at(f"{code.co_filename}:{code.co_firstlineno}")
                memories = {number: last.recorder.memories[number]}
                nobody = f"no thread of {last.configuration} writes"
                yield from unwritten(memories, lambda _, hole=hole: hole, nobody, place, last.route(op, name, size))


class _Launcher:
    """A kernel in whose brackets stands a launch, and which is called then."""

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        return partial(self.launch, configuration)


def _bits(array: Array) -> Array:
    """bfloat16 as its bits."""
    return array.view(np.uint16) if array.dtype == DType.BF16.numpy else array
