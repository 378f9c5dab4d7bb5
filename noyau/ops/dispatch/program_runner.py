"""A program of several steps as a call that looks nothing up: kernels by their fast calls, and NumPy between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from noyau.compiler.lowering.input_layouts import PACKED
from noyau.errors import InputError
from noyau.hosts.numpy.c_library import threads
from noyau.hosts.numpy.fast_calls import MISS, Argument, FastCall
from noyau.hosts.numpy.memory import empty
from noyau.ir.dims import Shape
from noyau.ir.graph import Constant, Contract, Graph, Input, Node
from noyau.ir.sizes import Sizes
from noyau.kernels.programs import libraries
from noyau.kernels.programs.generate import BuiltKernel, BuiltProgram
from noyau.kernels.programs.program import KernelStep, LibraryStep

Array = np.ndarray
Run: TypeAlias = Callable[..., list[Array]]
Into: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], bool]
Step: TypeAlias = Callable[[list[Array], Sizes], Sequence[Array]]


class ProgramRunner:
    """A built program, run on arrays that lie as it wants them. InputError where their shapes do not fit."""

    def __init__(self, built: BuiltProgram, calls: Sequence[Callable[..., Any]], constant: Callable[..., Any]) -> None:
        program = built.generated.program
        names = [node.output for node in program.graph.inputs]
        self.solve = solver(program.graph)
        constants = {n.output: n.kind.value for n in program.graph.nodes if isinstance(n.kind, Constant)}
        results = [name for step in program.steps for name in step.graph.outputs]
        places = {name: at for at, name in enumerate(dict.fromkeys([*names, *constants, *results]))}
        self.room = [None] * (len(places) - len(names))
        self.constants = [(places[name], constant(value)) for name, value in constants.items()]
        self.steps = [
            (call, [places[n.output] for n in step.graph.inputs], [places[name] for name in step.graph.outputs])
            for call, step in zip(calls, program.steps, strict=True)
        ]
        self.results = [places[name] for name in program.graph.outputs]

    def __call__(self, *arrays: Any) -> list[Any]:
        sizes = self.solve(arrays)
        values: list[Any] = [*arrays, *self.room]
        for place, value in self.constants:
            values[place] = value
        for call, reads, writes in self.steps:
            for place, result in zip(writes, call([values[place] for place in reads], sizes), strict=True):
                values[place] = result
        return [values[place] for place in self.results]


def array_runner(built: BuiltProgram) -> ProgramRunner:
    """A built program on NumPy's arrays."""
    kernels, steps = iter(built.kernels), built.generated.program.steps
    calls = [_kernel(built, step, next(kernels)) if isinstance(step, KernelStep) else _library(step) for step in steps]
    return ProgramRunner(built, calls, lambda value: value)


def in_memory(program: BuiltProgram) -> Run:
    """A program on arrays whose axes are in the order of memory, as fast calls read them."""
    if program.generated.program.single is None:
        return array_runner(program)
    return lambda *arrays: program.kernels[0](*arrays, threads=threads(), empty=empty)


def into(program: BuiltProgram) -> Into | None:
    """A function that writes the results of a program of one kernel to the arrays of `out`, where that takes them."""
    if program.generated.program.single is None:
        return None

    def write_into(arrays: Sequence[Array], out: Sequence[Array]) -> bool:
        if not all(isinstance(target, np.ndarray) for target in out):
            return False
        try:
            program.kernels[0](*arrays, out=out, threads=threads())
        except InputError:
            return False
        return True

    return write_into


def solver(graph: Graph) -> Callable[[Sequence[Array]], Sizes]:
    """A function that gives the sizes for arrays in the order of the inputs. InputError where they do not fit."""

    def solve(arrays: Sequence[Array]) -> Sizes:
        return graph.bind([array.shape for array in arrays])

    plain = [_plain(node.shape) for node in graph.inputs]
    if graph.demands or any(shape is None for shape in plain):
        return solve

    def match(arrays: Sequence[Array]) -> Sizes:
        sizes: dict[str, int] = {}
        for shape, array in zip(plain, arrays, strict=True):
            for dim, extent in zip(shape or (), array.shape, strict=True):
                if (dim if type(dim) is int else sizes.setdefault(str(dim), extent)) != extent:
                    return solve(arrays)
        return sizes

    return match


def _plain(shape: Shape) -> list[str | int] | None:
    """A shape of names and numbers alone, else None."""
    if any(dim.constant is None and str(dim) not in dim.names for dim in shape):
        return None
    return [str(dim) if dim.constant is None else dim.constant for dim in shape]


def _library(step: LibraryStep) -> Step:
    match [node for node in step.graph.nodes if not isinstance(node.kind, Input)]:
        case [Node(kind=Contract(equation), inputs=names, dtype=dtype)] if dtype.compute is dtype:
            inputs = [node.output for node in step.graph.inputs]  # one, of a product of an array with itself
            at = [inputs.index(name) for name in names]
            return lambda arrays, sizes: [libraries.contract(equation, [arrays[k] for k in at], dtype.numpy)]
        case _:
            run = libraries.prepare(step.graph)
            return lambda arrays, sizes: [run(arrays, sizes)]


def _kernel(program: BuiltProgram, step: KernelStep, native: BuiltKernel) -> Step:
    """A kernel by its fast call; by its slow way where there is no fast call, or what a library made is not packed."""
    if program.library is None or any(buffer.strides for buffer in step.kernel.buffers):
        return lambda arrays, sizes: native(*arrays, threads=threads(), empty=empty)
    ends = [Argument(node.dtype, len(node.shape), PACKED) for node in step.graph.inputs]
    return partial(_through, FastCall(program.library, f"{step.kernel.name}_kernel", ends).call, native)


def _through(fast_call: Callable[..., Any], native: BuiltKernel, arrays: list[Array], sizes: Sizes) -> Sequence[Array]:
    results = fast_call(tuple(arrays), None)
    if results is MISS:
        return native(*map(np.ascontiguousarray, arrays), threads=threads(), empty=empty)
    return results if isinstance(results, tuple) else [results]
