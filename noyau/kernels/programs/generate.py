"""Kernels made of an op's reference: traced, cut into a program, printed in a language, built, and called on arrays.

The key of a call: what kernels are made for, so that calls alike in it run the same one."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from noyau.codegen.language import GENERATIONS, LANGUAGES, Schedule, languages_for
from noyau.compiler.lowering.input_layouts import PACKED, Layout, laid_out, layout_of, lie, strided_names
from noyau.compiler.lowering.names import identifier
from noyau.compiler.schedules.gpu.rows_and_columns import join_rows_and_columns
from noyau.compiler.schedules.gpu.scatters import merges_in_any_order
from noyau.errors import NoyauError, UnsupportedError
from noyau.frontends.numpy.trace import follow, holds
from noyau.ir.graph import Constant, Contract, Graph, Input, Iota, Node, Scan, View, constant
from noyau.ir.loops import Kernel, Role, conditions_of, runs
from noyau.kernels.programs.program import LibraryStep, Program, ProgramRunner, program, schedule_kernel
from noyau.kernels.reference import Description, Reference
from noyau.signatures.instances import Bound, sizing_integers, usual_sizes
from noyau.signatures.types import Instance, Signature, Value
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from noyau.toolchain.guard_zones import Empty, Order

CPU = "cpu"
NONE: Mapping[str, Any] = MappingProxyType({})
Key = tuple[Any, ...]  # what `key_of` gives
T = TypeVar("T")
Array = np.ndarray
Call: TypeAlias = "Callable[[BuiltKernel, Sequence[Array]], list[Array]]"


def languages_on(device: str) -> tuple[str, ...]:
    """The languages that kernels for calls are generated in on a device, "cpu" or "cuda:0", the first choice first."""
    return languages_for(gpu=device != CPU)


def in_order(languages: Sequence[str], graph: Callable[[], Graph | None]) -> Sequence[str]:
    """The languages for a graph, the first choice first: for a running result those whose threads share it."""
    shared = [name for name in languages if GENERATIONS[name].shares_scans]
    whole = graph() if shared else None
    if whole is None or not any(isinstance(node.kind, Scan) for node in whole.nodes):
        return languages
    return [*shared, *(name for name in languages if name not in shared)]


@dataclass(frozen=True, slots=True)
class Specialization:
    """The specialization of a program: dtypes and ranks settled, the op's constants, the integer parameters that give a
    dim as numbers, and how the inputs lie (nothing: packed). `sizes` are those of the call: they answer what a
    reference asks of sizes (`if n > 4`, `range(n)`), and what it was told then becomes a demand of the graph. `device`:
    where the inputs lie, "cpu" or "cuda:0"; `is_deterministic`: what is merged has the same bits in every run."""

    instance: Instance
    constants: Mapping[str, Any] = field(default_factory=lambda: NONE)
    integers: Mapping[str, int] = field(default_factory=lambda: NONE)
    layouts: tuple[Layout, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=lambda: NONE)
    device: str = CPU
    is_deterministic: bool = False

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
    def title(self) -> str:
        """Its name in messages: `softmax[c]`."""
        return f"{self.name}[{self.language}]"

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for these sizes too."""
        return holds(self.specialised, self.graph.demands, sizes)

    def is_certified_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is right for these sizes too, and its certificate is of what runs there: on a GPU other launches
        run for long rows than for short ones, and those of the call that it was made for were tried."""
        return self.holds(sizes) and (not self.wanted.sizes or self.launches(sizes) == self.launches(self.wanted.sizes))

    @property
    def is_deterministic(self) -> bool:
        """Whether its results have the same bits in every run: where threads merge no floats in whatever order."""
        return not any(map(merges_in_any_order, self.program.kernels))

    def launches(self, sizes: Mapping[str, int]) -> tuple[bool, ...]:
        """Tell for each launch that depends on sizes whether it runs at these."""
        kernels = self.program.kernels if LANGUAGES[self.language].on_gpu else ()
        return tuple(runs(when, sizes) for kernel in kernels for when in conditions_of(kernel))


def generate(
    description: Description, specialization: Specialization, language: str = "c", options: Schedule | None = None
) -> GeneratedProgram:
    """The kernels of an op's reference in a language, by its own schedule unless `options` say otherwise.

    UnsupportedError, with the line, for what is not traced; or, with the sizes, for what the language lacks."""
    generation = GENERATIONS.get(language)
    if generation is None:
        *others, last = GENERATIONS
        names = f"{', '.join(others)} and {last}"
        raise UnsupportedError(f"{description.name}: no kernels are generated in {language!r} yet; {names} are")
    is_deterministic = specialization.is_deterministic or description.is_deterministic
    specialization = replace(specialization, is_deterministic=is_deterministic)
    graph, specialised = trace_with_sizes(description.reference, specialization)
    if not generation.has_float8 and any(node.dtype.is_float8 for node in graph.nodes):
        raise UnsupportedError(f"{description.name}: {language} has no float8 here yet; cast outside of the op")
    layouts = [specialization.layout(at) for at in range(len(specialization.instance.inputs))]
    try:
        options = options or schedule_of(language, is_deterministic=is_deterministic)
        name = identifier(description.name)
        name = f"v_{name}" if name in generation.reserved else name  # which the text has another use for
        kernels = program_in(laid_out(graph, layouts), name, layouts, language, options)
    except UnsupportedError as error:
        raise UnsupportedError(str(error), partial(holds, specialised, graph.demands)) from error
    text = print_program(kernels, language, f"{description.name}: {specialization.instance}")
    return GeneratedProgram(description.name, language, specialization, graph, specialised, kernels, text)


def generate_usual(description: Description, instance: Instance, language: str) -> GeneratedProgram:
    """As `generate`, for default constants; of a reference that asks a size for its number, for usual sizes."""
    specialization = Specialization(instance, description.reference.constants)
    try:
        return generate(description, specialization, language)
    except UnsupportedError:
        return generate(description, replace(specialization, sizes=usual_sizes(instance, {})), language)


def generate_from_graph(
    graph: Graph,
    label: str,
    layouts: Sequence[Layout],
    language: str,
    device: str = CPU,
    sizes: Mapping[str, int] = NONE,
    *,
    is_deterministic: bool = False,
) -> GeneratedProgram:
    """The kernels of a graph in a language, for such inputs and sizes. UnsupportedError for what has none."""
    values = tuple(Value(node.output, node.dtype, node.shape) for node in graph.inputs)
    results = tuple(Value(name, graph[name].dtype, graph[name].shape) for name in graph.outputs)
    instance = Instance(values, results, ())
    request = Specialization(instance, NONE, NONE, tuple(layouts), sizes, device, is_deterministic)
    scheduling = schedule_of(language, is_deterministic=is_deterministic)
    kernels = program_in(laid_out(graph, layouts), identifier(label), layouts, language, scheduling)
    text = print_program(kernels, language, f"{label}: {instance}")
    return GeneratedProgram(label, language, request, graph, {}, kernels, text)


def schedule_of(language: str, *, is_deterministic: bool) -> Schedule:
    """The schedule of a language, or that for the same bits in every run."""
    generation = GENERATIONS[language]
    return (generation.deterministic if is_deterministic else None) or generation.schedule


def program_in(
    memory: Graph, name: str, layouts: Sequence[Layout], language: str, options: Schedule | None = None
) -> Program:
    """The program of a graph that is laid out so. On a GPU, what no schedule there takes is cut into what some do.
    UnsupportedError for what has none."""
    strided, scheduling = strided_names(memory, layouts), options or GENERATIONS[language].schedule
    if not LANGUAGES[language].on_gpu:
        return program(memory, name, strided, scheduling)
    try:
        whole = program(memory, name, strided, scheduling, joining=join_rows_and_columns)
        print_program(whole, language, "")
        return whole
    except UnsupportedError:
        generation = GENERATIONS[language]

        def text_of(kernel: Kernel) -> str:
            return generation.printer([schedule_kernel(kernel, generation.schedule)])

        whole = program(memory, name, strided, scheduling, text_of=text_of, joining=join_rows_and_columns)
        nodes = [node for step in whole.steps if isinstance(step, LibraryStep) for node in step.graph.nodes]
        if not all(isinstance(node.kind, Constant | Contract | Input | Iota | View) for node in nodes):
            raise  # torch does not compute them on the device
        return whole


def print_program(program: Program, language: str, comment: str) -> str:
    """The text of all kernels of a program; none gives the comment alone."""
    return GENERATIONS[language].printer(program.kernels, comment)


def trace_reference(reference: Reference, specialization: Specialization) -> Graph:
    """The graph of a reference, with every input in order. UnsupportedError with the line that cannot be traced."""
    return trace_with_sizes(reference, specialization)[0]


def lazy_graph(reference: Reference, specialization: Specialization) -> Callable[[], Graph | None]:
    """The graph of a reference, traced when it is first asked for; None where it cannot be."""

    @cache
    def traced() -> Graph | None:
        try:
            return trace_reference(reference, specialization)
        except NoyauError:
            return None

    return traced


def trace_with_sizes(reference: Reference, specialization: Specialization) -> tuple[Graph, Mapping[str, int]]:
    """As `trace_reference`, and the sizes that the reference asked for as numbers."""
    if reference.outputs:
        message = "it fills its outputs, so it is evaluated and not traced"
        raise UnsupportedError(f"the reference {reference.name} has no graph: {message}; let it return them")
    instance = specialization.instance
    inputs = [_input(value, specialization.integers) for value in instance.inputs]
    results = [Node(v.name, Input(), (), v.dtype, v.shape) for v in instance.outputs]
    trace = follow(reference.function, inputs, results, specialization.constants, specialization.sizes or None)
    nodes = {node.output: node for node in trace.inputs}
    arguments = [nodes.get(v.name, Node(v.name, Input(), (), v.dtype, v.shape)) for v in instance.inputs]
    computed = [node for node in trace.graph.nodes if not isinstance(node.kind, Input)]
    return replace(trace.graph, nodes=(*arguments, *computed)), trace.specialised


def _input(value: Value, integers: Mapping[str, int]) -> Node:
    """A parameter as tracing takes it: an integer that gives a dim is a number."""
    if value.scalar and value.name in integers:
        return constant(value.name, np.array(integers[value.name], value.dtype.numpy))
    return Node(value.name, Input(), (), value.dtype, value.shape)


def specialization_of(
    signature: Signature, bound: Bound, constants: Mapping[str, Any], device: str = CPU
) -> Specialization:
    """The specialization of a call on `device`. Arrays that no kernel reads where they lie count as packed."""
    names = sizing_integers(signature)
    pairs = zip(bound.instance.inputs, bound.arrays, strict=True)
    integers = {value.name: int(array) for value, array in pairs if value.name in names}
    layouts = tuple(layout_of(array) or PACKED for array in bound.arrays)
    return Specialization(bound.instance, constants, integers, layouts, bound.sizes, device)


def key_of(specialization: Specialization) -> Key:
    """The key that tells calls apart."""
    numbers = constants_key(specialization.constants), constants_key(specialization.integers)
    place = specialization.layouts, specialization.is_deterministic, specialization.device
    return (specialization.instance, *numbers, *place)


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
        array
        if layout_of(array) is not None and (layout is not PACKED or array.flags.c_contiguous)
        else np.require(array, requirements=["C", "A"])
        for array, layout in zip(arrays, layouts, strict=True)
    ]


class Once:
    """A value made once a key, by one thread while others wait: one lock a key. A forked child has locks of its own,
    for who held one of its parent's will not let go there."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, Hashable], Lock] = {}

    def value(self, key: Hashable, known: Callable[[], T | None], make: Callable[[], T]) -> T:
        """The known value of a key, or one that is made now, which makes it known."""
        value = known()
        if value is None:
            with self._locks.setdefault((os.getpid(), key), Lock()):
                value = known()
                if value is None:
                    value = make()
        return value


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
        results = self.run(arrays, lambda kernel, inputs: kernel(*inputs, threads=threads))
        if out is None:
            return results
        for result, target in zip(results, out, strict=True):
            target[...] = result
        return list(out)

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """As a call of arrays that are laid out as they are wanted to be, each kernel between guard zones."""
        wanted = self.generated.wanted
        laid = [lie(array, wanted.layout(at)) for at, array in enumerate(arrays)]
        return self.run(laid, lambda kernel, inputs: kernel.call_guarded(*inputs, pieces=pieces, order=order))

    def in_memory(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays as kernels take them."""
        return [self.generated.wanted.layout(at).in_memory(np.asarray(array)) for at, array in enumerate(arrays)]

    def run(self, arrays: Sequence[Array], call: Call) -> list[Array]:
        """Every step in order."""
        calls = [lambda inputs, sizes, kernel=kernel: call(kernel, inputs) for kernel in self.kernels]
        return ProgramRunner(self.generated.program, calls)(*self.in_memory(arrays))


def build(generated: GeneratedProgram, *, runs: bool = True) -> BuiltProgram:
    """The kernels of a program, from the cache or built. BuildError as the compiler says. Without `runs` one in
    language numba, which is then not compiled, can only be watched."""
    if not generated.program.kernels:
        return BuiltProgram(generated, ())
    return BUILDERS[generated.language](generated, runs)


def _in_c(generated: GeneratedProgram, runs: bool) -> BuiltProgram:
    library = c_compiler.compile_library([generated.text])
    kernels = tuple(
        Native(library, f"{kernel.name}_kernel", [buffer.layout for buffer in kernel.of(Role.INPUT)])
        for kernel in generated.program.kernels
    )
    return BuiltProgram(generated, kernels, library)


def _in_numba(generated: GeneratedProgram, runs: bool) -> BuiltProgram:
    from noyau.toolchain.numba.kernel import NumbaKernel

    kernels = generated.program.kernels
    return BuiltProgram(generated, tuple(NumbaKernel(generated.text, kernel, runs=runs) for kernel in kernels))


def _on_device(generated: GeneratedProgram, module: str = "", name: str = "") -> BuiltProgram:
    """Kernels as functions of tensors, each of a text and a kernel by a class of a module, or of a text of Triton."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    kind = getattr(import_module(f"noyau.hosts.torch.cuda.{module}"), name) if module else lambda text, kernel: None
    text, device, kernels = generated.text, generated.wanted.device, generated.program.kernels
    built = (DeviceKernel(text, kernel, device, function=kind(text, kernel)) for kernel in kernels)
    return BuiltProgram(generated, tuple(built))


# The toolchain of each language that is generated.
BUILDERS: Mapping[str, Callable[[GeneratedProgram, bool], BuiltProgram]] = {
    "c": _in_c,
    "numba": _in_numba,
    "triton": lambda generated, runs: _on_device(generated),
    "cuda": lambda generated, runs: _on_device(generated, "cuda_kernel", "CudaKernel"),
    "numba_cuda": lambda generated, runs: _on_device(generated, "numba_cuda_kernel", "NumbaCudaKernel"),
}
