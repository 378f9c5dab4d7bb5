"""A generated program as a callable on arrays: its kernels built, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, assert_never

import numpy as np

from noyau.ir.graph import Constant
from noyau.ir.loops import Kernel, Role
from noyau.kernels.programs import libraries
from noyau.kernels.programs.generate import GeneratedProgram
from noyau.kernels.programs.program import KernelStep, LibraryStep, Step
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import Empty, Order

Array = np.ndarray
Call: TypeAlias = "Callable[[BuiltKernel, Sequence[Array]], list[Array]]"


class BuiltKernel(Protocol):
    """A kernel that was built: called plainly, and between guard zones."""

    def __call__(
        self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1, empty: Empty | None = None
    ) -> list[Array]: ...

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]: ...


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A generated program and its kernels, one for each KernelStep, in order. `library`: of those in C."""

    generated: GeneratedProgram
    kernels: tuple[BuiltKernel, ...]
    library: Path | None = None

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1) -> list[Array]:
        """The results for arrays in the order of a call, that lie as they are wanted to."""
        if self.generated.program.single is not None:
            return self.kernels[0](*self.in_memory(arrays), out=out, threads=threads)
        made = self.run(arrays, lambda kernel, given: kernel(*given, threads=threads))
        return made if out is None else _written(made, out)

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """As a call, each kernel between guard zones."""
        return self.run(arrays, lambda kernel, given: kernel.call_guarded(*given, pieces=pieces, order=order))

    def in_memory(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays as kernels take them."""
        specialization = self.generated.wanted
        return [specialization.layout(at).in_memory(np.asarray(array)) for at, array in enumerate(arrays)]

    def run(self, arrays: Sequence[Array], call: Call) -> list[Array]:
        """Every step in order."""
        graph = self.generated.program.graph
        values = dict(zip((node.output for node in graph.inputs), self.in_memory(arrays), strict=True))
        sizes = graph.bind([array.shape for array in values.values()])
        values |= {node.output: node.kind.value for node in graph.nodes if isinstance(node.kind, Constant)}
        kernels = iter(self.kernels)
        for step in self.generated.program.steps:
            given = [values[node.output] for node in step.graph.inputs]
            values |= zip(step.graph.outputs, _results(step, given, sizes, kernels, call), strict=True)
        return [values[name] for name in graph.outputs]


def build(generated: GeneratedProgram, *, runs: bool = True) -> BuiltProgram:
    """The kernels of a program, from the cache or built. BuildError as the compiler says. Without `runs` one in
    language numba, which is then not compiled, can only be watched."""
    if not generated.program.kernels:
        return BuiltProgram(generated, ())
    return BUILDERS[generated.language](generated, runs)


def _in_c(generated: GeneratedProgram, runs: bool) -> BuiltProgram:
    library = c_compiler.compile_library([generated.text])
    return BuiltProgram(generated, tuple(_native(library, kernel) for kernel in generated.program.kernels), library)


def _in_numba(generated: GeneratedProgram, runs: bool) -> BuiltProgram:
    from noyau.toolchain.numba.kernel import NumbaKernel

    kernels = generated.program.kernels
    return BuiltProgram(generated, tuple(NumbaKernel(generated.text, kernel, runs=runs) for kernel in kernels))


def _in_triton(generated: GeneratedProgram, runs: bool) -> BuiltProgram:
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    text, device = generated.text, generated.wanted.device
    return BuiltProgram(generated, tuple(DeviceKernel(text, kernel, device) for kernel in generated.program.kernels))


# The toolchain of each language that is generated.
BUILDERS: Mapping[str, Callable[[GeneratedProgram, bool], BuiltProgram]] = {
    "c": _in_c,
    "numba": _in_numba,
    "triton": _in_triton,
}


def _native(library: Path, kernel: Kernel) -> Native:
    return Native(library, f"{kernel.name}_kernel", [buffer.layout for buffer in kernel.of(Role.INPUT)])


def _results(
    step: Step, arrays: Sequence[Array], sizes: Mapping[str, int], kernels: Iterator[BuiltKernel], call: Call
) -> list[Array]:
    match step:
        case KernelStep():
            return call(next(kernels), arrays)
        case LibraryStep(graph):
            return [libraries.call(graph, arrays, sizes)]
        case _:
            assert_never(step)


def _written(made: Sequence[Array], out: Sequence[Array]) -> list[Array]:
    for result, target in zip(made, out, strict=True):
        target[...] = result
    return list(out)
