"""A program of several steps as a call that looks nothing up: kernels by their doors, and NumPy between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from noyau.dispatching import libraries
from noyau.dispatching.layouts import PACKED
from noyau.dispatching.programs import KernelStep, LibraryStep
from noyau.dispatching.running import Built, BuiltKernel
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Constant, Contract, Graph, Input, Node
from noyau.runtimes.numpy.doors import MISS, Argument, Door
from noyau.runtimes.numpy.memory import empty
from noyau.runtimes.numpy.threads import threads

Array = np.ndarray
Sizes = Mapping[str, int]
Step: TypeAlias = Callable[[list[Array], Sizes], Sequence[Array]]


class Runner:
    """A built program, run on arrays that lie as it wants them. InputError where their shapes do not fit."""

    def __init__(self, built: Built) -> None:
        program = built.generated.program
        names = [node.output for node in program.graph.inputs]
        self.solve = solver(program.graph)
        self.known = {n.output: n.kind.value for n in program.graph.nodes if isinstance(n.kind, Constant)}
        places = {name: at for at, name in enumerate(dict.fromkeys([*names, *self.known, *_made(built)]))}
        self.start = [None] * len(places)
        self.given, self.constants = len(names), [(places[name], value) for name, value in self.known.items()]
        self.steps = [
            (call, [places[n.output] for n in step.graph.inputs], [places[name] for name in step.graph.outputs])
            for call, step in zip(_calls(built), program.steps, strict=True)
        ]
        self.results = [places[name] for name in program.graph.outputs]

    def __call__(self, *arrays: Array) -> list[Array]:
        sizes = self.solve(arrays)
        values: list[Any] = [*arrays, *self.start[len(arrays) :]]
        for place, value in self.constants:
            values[place] = value
        for call, given, made in self.steps:
            results = call([values[place] for place in given], sizes)
            for place, result in zip(made, results, strict=True):
                values[place] = result
        return [values[place] for place in self.results]


def solver(graph: Graph) -> Callable[[Sequence[Array]], Sizes]:
    """What gives the sizes for arrays in the order of the inputs. InputError where they do not fit."""

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
    found = [_name_or_number(dim) for dim in shape]
    return [each for each in found if each is not None] if None not in found else None


def _name_or_number(dim: Dim) -> str | int | None:
    if dim.constant is not None:
        return dim.constant
    name = next(iter(dim.names))
    return name if dim == Dim.of(name) else None


def _made(built: Built) -> list[str]:
    return [name for step in built.generated.program.steps for name in step.graph.outputs]


def _calls(built: Built) -> list[Step]:
    kernels = iter(built.kernels)
    return [
        _kernel(built, step, next(kernels)) if isinstance(step, KernelStep) else _library(step)
        for step in built.generated.program.steps
    ]


def _library(step: LibraryStep) -> Step:
    match [node for node in step.graph.nodes if not isinstance(node.kind, Input)]:
        case [Node(kind=Contract(equation), inputs=names, dtype=dtype)] if dtype.compute is dtype:
            inputs = [node.output for node in step.graph.inputs]  # one, of a product of an array with itself
            at = [inputs.index(name) for name in names]
            return lambda given, sizes: [libraries.contract(equation, [given[k] for k in at], dtype.numpy)]
        case _:
            run = libraries.prepared(step.graph)
            return lambda given, sizes: [run(given, sizes)]


def _kernel(built: Built, step: KernelStep, native: BuiltKernel) -> Step:
    """A kernel by its door; by its slow way where there is no door, or what a library made is not packed."""
    if built.library is None or any(buffer.strides for buffer in step.kernel.buffers):
        return lambda given, sizes: native(*given, threads=threads(), empty=empty)
    ends = [Argument(node.dtype, len(node.shape), PACKED) for node in step.graph.inputs]
    return partial(_through, Door(built.library, f"{step.kernel.name}_kernel", ends).call, native)


def _through(door: Callable[..., Any], native: BuiltKernel, given: list[Array], sizes: Sizes) -> Sequence[Array]:
    made = door(tuple(given), None)
    if made is MISS:
        return native(*map(np.ascontiguousarray, given), threads=threads(), empty=empty)
    return made if isinstance(made, tuple) else [made]
