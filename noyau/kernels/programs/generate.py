"""Kernels generated from an op's reference: traced, cut into a program, printed in a language, built, and called on
arrays. Calls with the same key (dtypes, ranks, constants, layouts, device) run the same kernels."""

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
from noyau.compiler.passes.algebra import products_as_sums
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
Key = tuple[Any, ...]  # the result of `key_of`
T = TypeVar("T")
Array = np.ndarray
Call: TypeAlias = "Callable[[BuiltKernel, Sequence[Array]], list[Array]]"


def languages_on(device: str) -> tuple[str, ...]:
    """The languages of generated kernels on a device, "cpu" or "cuda:0", in order of preference."""
    return languages_for(gpu=device != CPU)


def in_order(languages: Sequence[str], graph: Callable[[], Graph | None]) -> Sequence[str]:
    """The languages for a graph in order of preference: with a Scan, those first whose threads share one."""
    shared = [name for name in languages if GENERATIONS[name].shares_scans]
    whole = graph() if shared else None
    if whole is None or not any(isinstance(node.kind, Scan) for node in whole.nodes):
        return languages
    return [*shared, *(name for name in languages if name not in shared)]


@dataclass(frozen=True, slots=True)
class Specialization:
    """The specialization of a program. `instance`: dtypes and ranks; `constants`: the op's; `integers`: the values of
    integer parameters that give a dim; `layouts`: of the inputs (empty: all packed). `sizes`: of the call; they answer
    a reference's conditions on sizes (`if n > 4`, `range(n)`), and each answer becomes a demand of the graph. `device`:
    of the inputs, "cpu" or "cuda:0"; `is_deterministic`: merges of threads have the same bits in every run."""

    instance: Instance
    constants: Mapping[str, Any] = field(default_factory=lambda: NONE)
    integers: Mapping[str, int] = field(default_factory=lambda: NONE)
    layouts: tuple[Layout, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=lambda: NONE)
    device: str = CPU
    is_deterministic: bool = False

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of generated kernels on the device."""
        return languages_on(self.device)

    def layout(self, at: int) -> Layout:
        """The layout of input `at`."""
        return self.layouts[at] if self.layouts else PACKED


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """The kernels of an op for one key. `graph`: the traced reference, its inputs in the order of a call;
    `specialised`: the sizes that it used as numbers; `program`: the steps that compute it from arrays of the layouts in
    `wanted`; `text`: all kernels in one self-contained file."""

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
        """Whether it is valid for these sizes: its demands and specialised sizes hold."""
        return holds(self.specialised, self.graph.demands, sizes)

    def is_certified_at(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is valid for these sizes and its certificate covers the launches that run at them. On a GPU long
        rows run other launches than short ones; the certificate tried those of the call that it was generated for."""
        return self.holds(sizes) and (not self.wanted.sizes or self.launches(sizes) == self.launches(self.wanted.sizes))

    @property
    def is_deterministic(self) -> bool:
        """Whether its results have the same bits in every run: no threads merge floats in arbitrary order."""
        return not any(map(merges_in_any_order, self.program.kernels))

    def launches(self, sizes: Mapping[str, int]) -> tuple[bool, ...]:
        """Whether each launch with a condition on sizes runs at these, in order; empty on a CPU."""
        kernels = self.program.kernels if LANGUAGES[self.language].on_gpu else ()
        return tuple(runs(when, sizes) for kernel in kernels for when in conditions_of(kernel))


def generate(
    description: Description, specialization: Specialization, language: str = "c", options: Schedule | None = None
) -> GeneratedProgram:
    """Generate the kernels of an op's reference in a language, by the language's schedule unless `options` is given.

    UnsupportedError, with the line, where tracing fails; or, with the sizes, where the language lacks something."""
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
        name = f"v_{name}" if name in generation.reserved else name
        by_vector = not LANGUAGES[language].on_gpu
        kernels = program_in(laid_out(graph, layouts), name, layouts, language, options, vector=by_vector)
    except UnsupportedError as error:
        raise UnsupportedError(str(error), partial(holds, specialised, graph.demands)) from error
    text = print_program(kernels, language, f"{description.name}: {specialization.instance}")
    return GeneratedProgram(description.name, language, specialization, graph, specialised, kernels, text)


def generate_usual(description: Description, instance: Instance, language: str) -> GeneratedProgram:
    """Generate with default constants; if the reference needs sizes as numbers, with usual ones."""
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
    """Generate the kernels of a graph in a language, for inputs of these layouts. UnsupportedError where none exist."""
    values = tuple(Value(node.output, node.dtype, node.shape) for node in graph.inputs)
    results = tuple(Value(name, graph[name].dtype, graph[name].shape) for name in graph.outputs)
    instance = Instance(values, results, ())
    request = Specialization(instance, NONE, NONE, tuple(layouts), sizes, device, is_deterministic)
    scheduling = schedule_of(language, is_deterministic=is_deterministic)
    kernels = program_in(laid_out(graph, layouts), identifier(label), layouts, language, scheduling)
    text = print_program(kernels, language, f"{label}: {instance}")
    return GeneratedProgram(label, language, request, graph, {}, kernels, text)


def schedule_of(language: str, *, is_deterministic: bool) -> Schedule:
    """The schedule of a language; with `is_deterministic` its deterministic one, if it has a separate one."""
    generation = GENERATIONS[language]
    return (generation.deterministic if is_deterministic else None) or generation.schedule


def program_in(
    memory: Graph,
    name: str,
    layouts: Sequence[Layout],
    language: str,
    options: Schedule | None = None,
    *,
    vector: bool = False,
) -> Program:
    """The program of a graph whose inputs have these layouts. On a GPU, a kernel that no schedule takes is partitioned
    further, until each part has one. `vector`: products by vectors are sums. UnsupportedError where that fails."""
    generation = GENERATIONS[language]
    strided, scheduling = strided_names(memory, layouts), options or generation.schedule
    memory = products_as_sums(memory, small=True, vector=vector) if generation.sums_small_products else memory
    if not LANGUAGES[language].on_gpu:
        return program(memory, name, strided, scheduling)
    try:
        whole = program(memory, name, strided, scheduling, joining=join_rows_and_columns)
        print_program(whole, language, "")
        return whole
    except UnsupportedError:

        def text_of(kernel: Kernel) -> str:
            return generation.printer([schedule_kernel(kernel, generation.schedule)])

        whole = program(memory, name, strided, scheduling, text_of=text_of, joining=join_rows_and_columns)
        nodes = [node for step in whole.steps if isinstance(step, LibraryStep) for node in step.graph.nodes]
        if not all(isinstance(node.kind, Constant | Contract | Input | Iota | View) for node in nodes):
            raise  # torch computes no other nodes on the device
        return whole


def print_program(program: Program, language: str, comment: str) -> str:
    """The text of all kernels of a program; only the comment if it has none."""
    return GENERATIONS[language].printer(program.kernels, comment)


def trace_reference(reference: Reference, specialization: Specialization) -> Graph:
    """Trace a reference to a graph with every input, in order. UnsupportedError with the line that cannot be traced."""
    return trace_with_sizes(reference, specialization)[0]


def lazy_graph(reference: Reference, specialization: Specialization) -> Callable[[], Graph | None]:
    """A function that traces a reference once, at its first call, and returns the graph; None where tracing fails."""

    @cache
    def traced() -> Graph | None:
        try:
            return trace_reference(reference, specialization)
        except NoyauError:
            return None

    return traced


def trace_with_sizes(reference: Reference, specialization: Specialization) -> tuple[Graph, Mapping[str, int]]:
    """Trace a reference to a graph, and the sizes that it used as numbers."""
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
    """The node of a parameter for tracing: an Input, or a Constant for an integer that gives a dim."""
    if value.scalar and value.name in integers:
        return constant(value.name, np.array(integers[value.name], value.dtype.numpy))
    return Node(value.name, Input(), (), value.dtype, value.shape)


def specialization_of(
    signature: Signature, bound: Bound, constants: Mapping[str, Any], device: str = CPU
) -> Specialization:
    """The specialization of a call on `device`. Arrays whose strides no kernel reads count as packed."""
    names = sizing_integers(signature)
    pairs = zip(bound.instance.inputs, bound.arrays, strict=True)
    integers = {value.name: int(array) for value, array in pairs if value.name in names}
    layouts = tuple(layout_of(array) or PACKED for array in bound.arrays)
    return Specialization(bound.instance, constants, integers, layouts, bound.sizes, device)


def key_of(specialization: Specialization) -> Key:
    """The cache key of a specialization; sizes are not part of it."""
    numbers = constants_key(specialization.constants), constants_key(specialization.integers)
    place = specialization.layouts, specialization.is_deterministic, specialization.device
    return (specialization.instance, *numbers, *place)


def constants_key(constants: Mapping[str, Any]) -> tuple[Any, ...]:
    """Constants as a hashable key; an unhashable value counts by its repr. 1, 1.0 and True differ."""
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
    """The arrays, with packed copies of those that kernels of these layouts cannot read."""
    return [
        array
        if layout_of(array) is not None and (layout is not PACKED or array.flags.c_contiguous)
        else np.require(array, requirements=["C", "A"])
        for array, layout in zip(arrays, layouts, strict=True)
    ]


class Once:
    """Memoisation by key with one lock for each key: one thread makes the value while others wait. Locks belong to a
    process, since a lock that another thread holds at a fork is never released in the child."""

    def __init__(self) -> None:
        self._locks: dict[tuple[int, Hashable], Lock] = {}

    def value(self, key: Hashable, known: Callable[[], T | None], make: Callable[[], T]) -> T:
        """The known value of a key, or the result of `make`, which has to store it for `known`."""
        value = known()
        if value is None:
            with self._locks.setdefault((os.getpid(), key), Lock()):
                value = known()
                if value is None:
                    value = make()
        return value


class BuiltKernel(Protocol):
    """Protocol of a built kernel: it is called directly, or between guard zones."""

    def __call__(
        self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1, empty: Empty | None = None
    ) -> list[Array]: ...

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]: ...


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A generated program with its built kernels, one for each KernelStep, in order. `library`: of kernels in C."""

    generated: GeneratedProgram
    kernels: tuple[BuiltKernel, ...]
    library: Path | None = None

    def __call__(self, *arrays: Array, out: Sequence[Array] | None = None, threads: int = 1) -> list[Array]:
        """Run it on arrays in the order of a call, of the layouts in `generated.wanted`."""
        if self.generated.program.single is not None:
            return self.kernels[0](*self.in_memory(arrays), out=out, threads=threads)
        results = self.run(arrays, lambda kernel, inputs: kernel(*inputs, threads=threads))
        if out is None:
            return results
        for result, target in zip(results, out, strict=True):
            target[...] = result
        return list(out)

    def call_guarded(self, *arrays: Array, pieces: int = 1, order: Order = range) -> list[Array]:
        """Lay the arrays out as `generated.wanted` says and run it, each kernel between guard zones."""
        wanted = self.generated.wanted
        laid = [lie(array, wanted.layout(at)) for at, array in enumerate(arrays)]
        return self.run(laid, lambda kernel, inputs: kernel.call_guarded(*inputs, pieces=pieces, order=order))

    def in_memory(self, arrays: Sequence[Array]) -> list[Array]:
        """The arrays in the memory order of the kernels' parameters."""
        return [self.generated.wanted.layout(at).in_memory(np.asarray(array)) for at, array in enumerate(arrays)]

    def run(self, arrays: Sequence[Array], call: Call) -> list[Array]:
        """Run every step in order."""
        calls = [lambda inputs, sizes, kernel=kernel: call(kernel, inputs) for kernel in self.kernels]
        return ProgramRunner(self.generated.program, calls)(*self.in_memory(arrays))


def build(generated: GeneratedProgram, *, runs: bool = True) -> BuiltProgram:
    """Build the kernels of a program, or load them from the cache. BuildError with the compiler's message. Without
    `runs` Numba does not compile a kernel, which then runs only under the sanitizer."""
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
    """Build kernels on tensors: by the class `name` of `module`, or without one from a text in Triton."""
    from noyau.hosts.torch.cuda.array_kernels import DeviceKernel

    kind = getattr(import_module(f"noyau.hosts.torch.cuda.{module}"), name) if module else lambda text, kernel: None
    text, device, kernels = generated.text, generated.wanted.device, generated.program.kernels
    built = (DeviceKernel(text, kernel, device, function=kind(text, kernel)) for kernel in kernels)
    return BuiltProgram(generated, tuple(built))


# The builder of each generated language.
BUILDERS: Mapping[str, Callable[[GeneratedProgram, bool], BuiltProgram]] = {
    "c": _in_c,
    "numba": _in_numba,
    "triton": lambda generated, runs: _on_device(generated),
    "cuda": lambda generated, runs: _on_device(generated, "cuda_kernel", "CudaKernel"),
    "numba_cuda": lambda generated, runs: _on_device(generated, "numba_cuda_kernel", "NumbaCudaKernel"),
}
