"""Kernels made of an op's reference: traced, cut into a program, printed in a language.

The key of a call: what kernels are made for, so that calls alike in it run the same one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from noyau.codegen.language import GENERATIONS, LANGUAGES, generated_on
from noyau.compiler.lowering.input_layouts import PACKED, Layout, laid_out, layout_of, strided_names
from noyau.compiler.lowering.names import identifier
from noyau.compiler.schedules.cpu.strategy_choice import Options
from noyau.compiler.schedules.gpu.rows_and_columns import joined
from noyau.errors import NoyauError, UnsupportedError
from noyau.frontends.numpy.trace import follow, holds
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Node, Scatter, View, constant
from noyau.ir.loops import Kernel, conditions_of, runs
from noyau.ir.monoids import MONOIDS
from noyau.kernels.description import Description
from noyau.kernels.programs.program import LibraryStep, Program, program, schedule_kernel
from noyau.kernels.reference import Reference
from noyau.signatures.binding import Bound
from noyau.signatures.inputs import usual_sizes
from noyau.signatures.instances import sizing_integers
from noyau.signatures.types import Instance, Signature, Value

CPU = "cpu"
NONE: Mapping[str, Any] = MappingProxyType({})


def languages_on(device: str) -> tuple[str, ...]:
    """The languages that kernels for calls are generated in on a device, "cpu" or "cuda:0", the first choice first."""
    return generated_on(gpu=device != CPU)


@dataclass(frozen=True, slots=True)
class Specialization:
    """The specialization of a program: dtypes and ranks settled, the op's constants, the integer parameters that give a
    dim as numbers, and how the inputs lie (nothing: packed). `sizes` are those of the call: they answer what a
    reference asks of sizes (`if n > 4`, `range(n)`), and what it was told then becomes a demand of the graph. `device`:
    where the inputs lie, "cpu" or "cuda:0"."""

    instance: Instance
    constants: Mapping[str, Any] = field(default_factory=lambda: NONE)
    integers: Mapping[str, int] = field(default_factory=lambda: NONE)
    layouts: tuple[Layout, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=lambda: NONE)
    device: str = CPU

    @property
    def languages(self) -> tuple[str, ...]:
        """Those that kernels are generated in where the inputs lie."""
        return languages_on(self.device)

    def layout(self, at: int) -> Layout:
        """The layout of input `at`."""
        return self.layouts[at] if self.layouts else PACKED


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """The kernels of an op for one key. `graph`: what was traced, its inputs in the order of a call; `specialised`: the
    sizes that it took as numbers; `program`: what computes it from arrays that lie as they are wanted to; `text`: all
    kernels, in one file that stands alone."""

    name: str
    language: str
    wanted: Specialization
    graph: Graph
    specialised: Mapping[str, int]
    program: Program
    text: str

    @property
    def called(self) -> str:
        """Its name in messages: `softmax[c]`."""
        return f"{self.name}[{self.language}]"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for these sizes too."""
        return holds(self.specialised, self.graph.demands, sizes)

    def certified_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for these sizes too, and its certificate is of what runs there: on a GPU other launches
        run for long rows than for short ones, and those of the call that it was made for were tried."""
        return self.holds(sizes) and (not self.wanted.sizes or self.launches(sizes) == self.launches(self.wanted.sizes))

    def launches(self, sizes: Mapping[str, int]) -> tuple[bool, ...]:
        """Tell for each launch that depends on sizes whether it runs at these."""
        kernels = self.program.kernels if LANGUAGES[self.language].on_gpu else ()
        return tuple(runs(when, sizes) for kernel in kernels for when in conditions_of(kernel))


def generate(
    description: Description, specialization: Specialization, language: str = "c", options: Options | None = None
) -> GeneratedProgram:
    """The kernels of an op's reference in a language, by its own schedule unless `options` say otherwise.

    UnsupportedError where the reference cannot be traced, with its line, or the language lacks what it needs, and at
    which sizes that is so."""
    generation = GENERATIONS.get(language)
    if generation is None:
        *others, last = GENERATIONS
        names = f"{', '.join(others)} and {last}"
        raise UnsupportedError(f"{description.name}: no kernels are generated in {language!r} yet; {names} are")
    graph, specialised = trace_with_sizes(description.reference, specialization)
    if not generation.has_float8 and any(node.dtype.is_float8 for node in graph.nodes):
        raise UnsupportedError(f"{description.name}: {language} has no float8 here yet; cast outside of the op")
    layouts = [specialization.layout(at) for at in range(len(specialization.instance.inputs))]
    try:
        made = program_in(laid_out(graph, layouts), _called(description.name, language), layouts, language, options)
    except UnsupportedError as error:
        raise UnsupportedError(str(error), partial(holds, specialised, graph.demands)) from error
    text = print_program(made, language, f"{description.name}: {specialization.instance}")
    return GeneratedProgram(description.name, language, specialization, graph, specialised, made, text)


def _called(name: str, language: str) -> str:
    """The name of an op's kernel: that of the op, unless a text of the language has another use for that."""
    made = identifier(name)
    return f"v_{made}" if made in GENERATIONS[language].reserved else made


def generate_usual(description: Description, instance: Instance, language: str) -> GeneratedProgram:
    """As `generate`, for the constants at their defaults; of a reference that asks a size for its number, for usual
    sizes."""
    specialization = Specialization(instance, description.reference.constants)
    try:
        return generate(description, specialization, language)
    except UnsupportedError:
        return generate(description, replace(specialization, sizes=usual_sizes(instance, {})), language)


def program_in(
    memory: Graph, name: str, layouts: Sequence[Layout], language: str, options: Options | None = None
) -> Program:
    """The program of a graph that is laid out so. On a GPU, what no schedule there takes is cut into what some do, and
    torch merges in memory. UnsupportedError for what has none."""
    strided, scheduling = strided_names(memory, layouts), options or GENERATIONS[language].schedule
    if not LANGUAGES[language].on_gpu:
        return program(memory, name, strided, scheduling)
    try:
        made = program(memory, name, strided, scheduling, joining=joined)
        print_program(made, language, "")
        return made
    except UnsupportedError:
        spelt = partial(_spelt, language)
        made = program(memory, name, strided, scheduling, spelt=spelt, joining=joined)
        if not all(_is_torch_s(step.graph) for step in made.steps if isinstance(step, LibraryStep)):
            raise
        return made


def _spelt(language: str, kernel: Kernel) -> str:
    generation = GENERATIONS[language]
    return generation.printer([schedule_kernel(kernel, generation.schedule)])


def _is_torch_s(graph: Graph) -> bool:
    """Whether torch computes the values of a step on the device."""
    return all(
        node.kind.monoid in MONOIDS and MONOIDS[node.kind.monoid].is_arithmetic
        if isinstance(node.kind, Scatter)
        else isinstance(node.kind, Constant | Contract | Input | Iota | View)
        for node in graph.nodes
    )


def print_program(program: Program, language: str, comment: str) -> str:
    """The text of all kernels of a program; none gives the comment alone."""
    return GENERATIONS[language].printer(program.kernels, comment)


def trace_reference(reference: Reference, specialization: Specialization) -> Graph:
    """The graph of a reference, with every input of the instance, in order. UnsupportedError with the line of what
    cannot be traced."""
    return trace_with_sizes(reference, specialization)[0]


def lazy_graph(reference: Reference, specialization: Specialization) -> Callable[[], Graph | None]:
    """The graph of a reference, traced when it is first asked for; None where it cannot be."""

    @cache
    def spelt() -> Graph | None:
        try:
            return trace_reference(reference, specialization)
        except NoyauError:
            return None

    return spelt


def trace_with_sizes(reference: Reference, specialization: Specialization) -> tuple[Graph, Mapping[str, int]]:
    """As `trace_reference`, and the sizes that the reference asked for as numbers."""
    if reference.outputs:
        message = "it fills its outputs, so it is evaluated and not traced"
        raise UnsupportedError(f"the reference {reference.name} has no graph: {message}; let it return them")
    instance = specialization.instance
    inputs = [_input(value, specialization.integers) for value in instance.inputs]
    results = [Node(v.name, Input(), (), v.dtype, v.shape) for v in instance.outputs]
    found = follow(reference.function, inputs, results, specialization.constants, specialization.sizes or None)
    nodes = {node.output: node for node in found.inputs}
    given = [nodes.get(v.name, Node(v.name, Input(), (), v.dtype, v.shape)) for v in instance.inputs]
    made = [node for node in found.graph.nodes if not isinstance(node.kind, Input)]
    return replace(found.graph, nodes=(*given, *made)), found.specialised


def _input(value: Value, integers: Mapping[str, int]) -> Node:
    """A parameter as tracing takes it: an integer that gives a dim is a number."""
    if value.scalar and value.name in integers:
        return constant(value.name, np.array(integers[value.name], value.dtype.numpy))
    return Node(value.name, Input(), (), value.dtype, value.shape)


Key = tuple[Any, ...]  # what `key_of` gives
T = TypeVar("T")


def specialization_of(
    signature: Signature, bound: Bound, constants: Mapping[str, Any], device: str = CPU
) -> Specialization:
    """The specialization for the arguments of a call, which lie on `device`. Arrays that no kernel reads where they lie
    count as packed."""
    names = sizing_integers(signature)
    pairs = zip(bound.instance.inputs, bound.arrays, strict=True)
    integers = {value.name: int(array) for value, array in pairs if value.name in names}
    layouts = tuple(layout_of(array) or PACKED for array in bound.arrays)
    return Specialization(bound.instance, constants, integers, layouts, bound.sizes, device)


def key_of(specialization: Specialization) -> Key:
    """The key that tells calls apart."""
    return (
        specialization.instance,
        constants_key(specialization.constants),
        constants_key(specialization.integers),
        specialization.layouts,
        specialization.device,
    )


def constants_key(constants: Mapping[str, Any]) -> tuple[Any, ...]:
    """Constants as a key; what cannot be hashed counts by how it is written. 1, 1.0 and True are three."""
    return tuple((name, type(value), _hashable(value)) for name, value in sorted(constants.items()))


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return repr(value) if isinstance(value, float) else value  # -0.0 is not 0.0, and NaN is NaN


def fit_layouts(arrays: Sequence[np.ndarray], layouts: Sequence[Layout]) -> list[np.ndarray]:
    """The arrays as kernels of these layouts may read them: packed copies where they lie otherwise."""
    return [
        array if layout_of(array) is not None and (layout is not PACKED or array.flags.c_contiguous) else _packed(array)
        for array, layout in zip(arrays, layouts, strict=True)
    ]


def _packed(array: np.ndarray) -> np.ndarray:
    return np.require(array, requirements=["C", "A"])


class Once:
    """A value made once a key, by one thread while others wait: one lock a key. A forked child has locks of its own,
    for who held one of its parent's will not let go there."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, Hashable], Lock] = {}

    def made(self, key: Hashable, known: Callable[[], T | None], make: Callable[[], T]) -> T:
        """The known value of a key, or one that is made now, which makes it known."""
        found = known()
        if found is None:
            with self._locks.setdefault((os.getpid(), key), Lock()):
                found = known()
                if found is None:
                    found = make()
        return found
