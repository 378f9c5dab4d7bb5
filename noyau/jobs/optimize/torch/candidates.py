"""The groups of torch's graphs as kernels: equal groups of all graphs of the process share one, built and checked once.

That work begins ahead of a graph's compilation, while torch goes on. AOTAutograd hands over the forward graph, and the
backward graph when a gradient is first wanted; it has both when it splits them. From then on the second is cut into
kernels while those of the first are built and checked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from noyau.codegen.plan import Plan, PlannedKernel, Shelf, plan_by
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.partition.cut import Group, Partition, scalars_of
from noyau.errors import InputError, NoyauError
from noyau.hosts.numpy.fast_calls import MISS, Argument
from noyau.hosts.torch.fast_calls import TensorFastCall, library, mapped_memory
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.device_inputs import sizes_of
from noyau.hosts.torch.modules.sites import TracedGraph
from noyau.hosts.torch.tensors import array_of, in_memory, tensor_of
from noyau.ir import ranges
from noyau.ir.graph import Graph
from noyau.jobs.optimize.pipeline import NOT_BUILT, Candidate, Say, attempt, certify
from noyau.jobs.optimize.torch.options import CERTIFICATES, CompileOptions
from noyau.kernels.certificates import CertificateTask, Certifiers
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.cache import digest
from noyau.verify.adversarial import FULL, Effort
from noyau.verify.awkward_sizes import fits, usual_sizes
from noyau.verify.certificate import Certificate
from noyau.workers.signals import TimeIsUp, time_limit

Tensor: TypeAlias = torch.Tensor
OPTIONS = c_compiler.CompilerOptions(export=True)
SHELF = Shelf(12)  # of all graphs of the process
_BEGINNING = Lock()  # one thread initializes Triton: two at once would do the same work twice
MOST_AT_ONCE = 8
_LOOK_S = 0.5  # seconds between two polls of work elsewhere, when a time limit can interrupt
_SEED = 0


def plan(groups: Iterable[Group], operators: Sequence[str], target: str) -> Plan:
    """One kernel for each set of equal groups. `operators`: torch's names of the nodes, by position."""
    return plan_by(groups, operators, lambda group: SHELF.kernel(group, target))


def library_of(text: str) -> Path:
    """The built library of one kernel's text, cached or built. BuildError with the compiler's message."""
    return c_compiler.compile_library([text], OPTIONS)


@dataclass(frozen=True, slots=True)
class KernelEnds:
    """Signature of a kernel: dtypes and ranks of its inputs, and the number of its results."""

    inputs: tuple[Argument, ...]
    results: int


def ends_of(graph: Graph) -> KernelEnds:
    """The signature of the kernel of a graph in normal form."""
    return KernelEnds(tuple(Argument(node.dtype, len(node.shape), PACKED) for node in graph.inputs), len(graph.outputs))


def open_kernel(name: str, library: Path, ends: KernelEnds, scalars: Sequence[np.ndarray | None]) -> Callable[..., Any]:
    """A built kernel as a function of tensors on the CPU; it returns a new packed tensor, or a tuple of them. `scalars`
    has the constants of inputs, in their order, None for an input that is a tensor; a tensor that is not packed is
    copied. BuildError if the library cannot be loaded; a call raises InputError if an index is out of bounds or shapes
    do not fit."""
    fast_call = TensorFastCall(library, f"{name}_kernel", ends.inputs, name, mapped_memory)
    fixed = [None if each is None else tensor_of(np.asarray(each)) for each in scalars]
    call = partial(_with_numbers, fast_call.call, fixed) if any(each is not None for each in fixed) else fast_call.call

    def run(*tensors: Tensor) -> Any:
        result = call(tensors)
        if result is MISS:
            result = call(tuple(_pack(each) for each in tensors))
        return _by_arrays(fast_call, fixed, tensors) if result is MISS else result

    run.__name__ = run.__qualname__ = name
    return run


def _with_numbers(fast_call: Callable[..., Any], fixed: Sequence[Tensor | None], tensors: tuple[Tensor, ...]) -> Any:
    others = iter(tensors)
    return fast_call(tuple(next(others) if each is None else each for each in fixed))


def _pack(tensor: Tensor) -> Tensor:
    """The tensor as a fast call accepts it: with memory of its own, in C order."""
    result: Tensor = in_memory(tensor.detach()).contiguous()
    return result


def _by_arrays(fast_call: TensorFastCall, fixed: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> Any:
    """The slow call, which raises the error of inputs that do not fit."""
    others = iter(_pack(each) for each in tensors)
    arrays = [(next(others) if each is None else each) for each in fixed]
    result = tuple(tensor_of(array) for array in fast_call.native(*map(array_of, arrays)))
    return result if len(result) > 1 else result[0]


def input_names(group: Group) -> tuple[str, ...]:
    """The values that a kernel takes as tensors, in order."""
    scalars = scalars_of(group)
    return tuple(node.output for node in group.graph.inputs if node.output not in scalars)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph cut into kernels."""

    source: TracedGraph
    cut: Partition
    plan: Plan


class AheadOfTime:
    """Work on the graphs of one captured module ahead of time, and the certificates of their kernels. Use it in a
    `with`, which ends running work; finished results stay. Once `closed`, the caller ends the work that it begins.
    `waits`: whether kernels are needed at once."""

    def __init__(
        self, wishes: CompileOptions, say: Say, *, reasons: bool = True, on_gpu: bool = False, waits: bool = True
    ) -> None:
        self.certification, self.say = Certification(CERTIFICATES[wishes.certificate]), say
        self.reasons, self.limit_s = reasons, wishes.limit_s
        self.closed = False
        self._sketches: dict[str, Sketch] = {}
        # Compiling the C code of fast calls takes half a second, and Triton's launcher twice that.
        self._fast_calls = Thread(target=(begin_triton if on_gpu else library) if waits else None, daemon=True)

    def __enter__(self) -> AheadOfTime:
        self._fast_calls.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self._fast_calls.join()
        self.certification.__exit__()

    def begin(self, program: fx.Graph) -> None:
        """Begin with a graph that will be compiled; errors and time limits are reported when it is."""
        with contextlib.suppress(Exception, TimeIsUp), time_limit(self.limit_s), _disable_current_modes():
            if modules_sites.device_of(program) == modules_sites.CPU:
                sketch = self.make_sketch(modules_sites.trace_graph(program))
                self._sketches[program_key(program)] = sketch
                self.certification.begin(sketch.plan.kernels, sketch.source, self.say)
        ranges.forget()

    def sketch(self, program: fx.Graph) -> Sketch | None:
        """The kernels of a graph that was begun ahead; they are handed over once."""
        return self._sketches.pop(program_key(program), None) if self._sketches else None

    def make_sketch(self, source: TracedGraph) -> Sketch:
        """A graph cut into kernels; with reasons for its cuts if `reasons` is set."""
        cut = modules_groups.cut(source, reasons=self.reasons)
        return Sketch(source, cut, plan(cut.groups, source.operators, c_compiler.level()))

    def ready(self) -> None:
        """Wait for the code that the first kernel needs and another thread compiles."""
        self._fast_calls.join()

    def candidates(self, sketch: Sketch) -> list[Candidate]:
        """The kernels of a graph with their evidence, once all begun work has ended."""
        self.ready()
        return self.certification.candidates(sketch.plan.kernels, sketch.source, self.say)


def begin_triton() -> None:
    """Initialize Triton, once; if that fails, the first kernel reports it."""
    with _BEGINNING, contextlib.suppress(Exception):
        from noyau.toolchain.triton import module as triton_module

        triton_module.begin()


def program_key(program: fx.Graph) -> str:
    """A digest of all that noyau reads in a graph: its nodes by name, their arguments, and their results."""
    nodes = (f"{node.name} {node.op} {node.target} {node.args} {node.kwargs}" for node in program.nodes)
    return digest(*nodes, *(str(node.meta.get("val")) for node in program.nodes))


@dataclass(slots=True)
class CertifiedKernels:
    """The candidates of this process, by name and effort, with libraries and certificates: graphs share them."""

    candidates: dict[tuple[str, Effort], Candidate] = field(default_factory=dict)

    def of(self, kernel: PlannedKernel, effort: Effort) -> Candidate | None:
        """The candidate as certified with this effort, or with full effort."""
        candidate = self.candidates.get((kernel.operator, effort)) or self.candidates.get((kernel.operator, FULL))
        return candidate and replace(candidate, planned=kernel)

    def keep(self, candidate: Candidate, effort: Effort) -> None:
        """Keep a candidate, without its places, which hold their graph."""
        bare = replace(candidate, planned=replace(candidate.planned, groups=()))
        self.candidates[candidate.planned.operator, effort] = bare


MEMORY = CertifiedKernels()


class Certification(contextlib.AbstractContextManager["Certification"]):
    """Builds and certifies kernels in the background, several at once, the certificates in worker processes. Use it in
    a `with`, which ends these."""

    def __init__(self, effort: Effort = FULL, memory: CertifiedKernels = MEMORY) -> None:
        self.effort, self.memory = effort, memory
        self._stack = contextlib.ExitStack()
        self._certifiers: Certifiers | None = None
        self._begun: dict[str, Future[Candidate]] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._certifiers = None
        self._begun.clear()

    def begin(self, kernels: Sequence[PlannedKernel], source: TracedGraph, say: Say) -> None:
        """Begin with the kernels of a graph that are neither begun nor known. BuildError without any compiler."""
        others = (each for each in kernels if each.operator not in self._begun)
        fresh = [each for each in others if self.memory.of(each, self.effort) is None]
        if not fresh:
            return
        c_compiler.find_compiler()
        say(f"building and checking {len(fresh)} kernels")
        if self._certifiers is None:
            count = min(len(fresh), os.cpu_count() or 1, MOST_AT_ONCE)
            self._pool = ThreadPoolExecutor(count)
            self._stack.callback(self._pool.shutdown)
            self._certifiers = self._stack.enter_context(Certifiers((), count))
            # Work that runs ends with its process.
            self._stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
            self._certifiers.start()
        for kernel in fresh:
            task = self._task(kernel, source)
            self._begun[kernel.operator] = self._pool.submit(_certify, kernel, task, self._certifiers.certificate)

    def _task(self, kernel: PlannedKernel, source: TracedGraph) -> Callable[[Path], CertificateTask]:
        group = kernel.groups[0]
        try:
            sizes = sizes_of(group, source)
            if sizes and not fits(group.graph, usual_sizes(group.graph, sizes)):
                raise InputError("what it reads is not there for the sizes that torch saw")
        except NoyauError as error:
            return partial(_raise, error)
        return lambda library: CertificateTask(
            kernel.operator, library, group.original, group.graph, (), sizes, _SEED, made_up=False, effort=self.effort
        )

    def settle(self) -> None:
        """Wait for all begun work: timings need the machine for themselves."""
        for name, future in list(self._begun.items()):
            while not future.done():
                wait([future], _LOOK_S)
            self.memory.keep(self._begun.pop(name).result(), self.effort)

    def candidates(self, kernels: Sequence[PlannedKernel], source: TracedGraph, say: Say) -> list[Candidate]:
        """Each kernel of a graph with its certificate, or the reason that there is none."""
        self.begin(kernels, source, say)
        self.settle()
        return [each for kernel in kernels if (each := self.memory.of(kernel, self.effort))]


def _raise(error: NoyauError, library: Path) -> CertificateTask:
    raise error


def _certify(
    kernel: PlannedKernel,
    task: Callable[[Path], CertificateTask],
    certificate: Callable[[CertificateTask], Certificate],
) -> Candidate:
    bare = Candidate(kernel)
    candidate = attempt(lambda: replace(bare, library=library_of(kernel.text)), bare, NOT_BUILT)
    library = candidate.library
    return candidate if library is None else certify(candidate, lambda: (certificate(task(library)), ""))
