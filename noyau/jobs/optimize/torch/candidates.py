"""The groups of torch's graphs as kernels: equal groups of all graphs of the process are one, built and checked once.

That begins ahead of the compilation of a graph, while torch goes on. AOTAutograd hands over the graph of the forward,
and that of the backward when a gradient is first asked for; it has both when it cuts them apart. From there on the
second is cut into kernels while those of the first are built and checked."""

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
from noyau.jobs.optimize.pipeline import Candidate, Say, attempt, certify
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
_BEGINNING = Lock()  # of Triton: what two threads find out at once they both work for
MOST_AT_ONCE = 8
_LOOK_S = 0.5  # a limit of time is seen between two looks at what runs elsewhere
_SEED = 0


def plan(groups: Iterable[Group], operators: Sequence[str], target: str) -> Plan:
    """One kernel for each kind of group. `operators`: what torch calls the nodes, by position."""
    return plan_by(groups, operators, lambda group: SHELF.kernel(group, target))


def library_of(text: str) -> Path:
    """The built library of one kernel's text, from the cache or built. BuildError as the compiler says."""
    return c_compiler.compile_library([text], OPTIONS)


@dataclass(frozen=True, slots=True)
class KernelEnds:
    """Ends of a kernel: dtypes and ranks of its inputs, and the number of its results."""

    inputs: tuple[Argument, ...]
    results: int


def ends_of(graph: Graph) -> KernelEnds:
    """The ends of the kernel of a graph in normal form."""
    return KernelEnds(tuple(Argument(node.dtype, len(node.shape), PACKED) for node in graph.inputs), len(graph.outputs))


def open_kernel(name: str, library: Path, ends: KernelEnds, scalars: Sequence[np.ndarray | None]) -> Callable[..., Any]:
    """A built kernel as a function of tensors of the CPU, which gives a tensor, or a tuple of them: new ones, packed.

    `scalars` has the numbers that stand for inputs, in their order, None where a tensor is given; a tensor that is not
    packed is copied. BuildError where the library cannot be loaded; a call raises InputError where an index is out of
    bounds or shapes do not fit."""
    fast_call = TensorFastCall(library, f"{name}_kernel", ends.inputs, name, mapped_memory)
    fixed = [None if each is None else tensor_of(np.asarray(each)) for each in scalars]
    call = _bind_numbers(fast_call.call, fixed) if any(each is not None for each in fixed) else fast_call.call

    def run(*tensors: Tensor) -> Any:
        result = call(tensors)
        if result is MISS:
            result = call(tuple(_pack(each) for each in tensors))
        return _by_arrays(fast_call, fixed, tensors) if result is MISS else result

    run.__name__ = run.__qualname__ = name
    return run


def _bind_numbers(fast_call: Callable[..., Any], fixed: Sequence[Tensor | None]) -> Callable[[tuple[Tensor, ...]], Any]:
    """The fast call behind its numbers."""

    def call(tensors: tuple[Tensor, ...]) -> Any:
        others = iter(tensors)
        return fast_call(tuple(next(others) if each is None else each for each in fixed))

    return call


def _pack(tensor: Tensor) -> Tensor:
    """The tensor as a fast call takes it: its own cells, in C order."""
    result: Tensor = in_memory(tensor.detach()).contiguous()
    return result


def _by_arrays(fast_call: TensorFastCall, fixed: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> Any:
    """The slow way, which says what does not fit."""
    others = iter(_pack(each) for each in tensors)
    arrays = [(next(others) if each is None else each) for each in fixed]
    result = tuple(tensor_of(array) for array in fast_call.native(*map(array_of, arrays)))
    return result if len(result) > 1 else result[0]


def input_names(group: Group) -> tuple[str, ...]:
    """The values that a kernel is given as tensors, in order."""
    scalars = scalars_of(group)
    return tuple(node.output for node in group.graph.inputs if node.output not in scalars)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A graph cut into kernels."""

    source: TracedGraph
    cut: Partition
    plan: Plan


class AheadOfTime:
    """Graphs of one captured module, and the certificates of their kernels. Use it in a `with`, which ends what still
    runs; what is known by then stays known. Once `closed`, who begins something ends it. `waits`: whether kernels
    are wanted at once."""

    def __init__(
        self, wishes: CompileOptions, say: Say, *, reasons: bool = True, on_gpu: bool = False, waits: bool = True
    ) -> None:
        self.certification, self.say = Certification(CERTIFICATES[wishes.certificate]), say
        self.reasons, self.limit_s = reasons, wishes.limit_s
        self.closed = False
        self._sketches: dict[str, Sketch] = {}
        # The C that calls kernels takes a compiler half a second; Triton, twice that for what calls the driver.
        self._fast_calls = Thread(target=(begin_triton if on_gpu else library) if waits else None, daemon=True)

    def __enter__(self) -> AheadOfTime:
        self._fast_calls.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self._fast_calls.join()
        self.certification.__exit__()

    def begin(self, program: fx.Graph) -> None:
        """Begin with a graph that will be compiled; what is wrong with it, or takes too long, is said when it is."""
        with contextlib.suppress(Exception, TimeIsUp), time_limit(self.limit_s), _disable_current_modes():
            if modules_sites.device_of(program) == modules_sites.CPU:
                sketch = self.make_sketch(modules_sites.trace_graph(program))
                self._sketches[program_key(program)] = sketch
                self.certification.begin(sketch.plan.kernels, sketch.source, self.say)
        ranges.forget()

    def sketch(self, program: fx.Graph) -> Sketch | None:
        """The kernels of a graph that was begun with, which is forgotten here."""
        return self._sketches.pop(program_key(program), None) if self._sketches else None

    def make_sketch(self, source: TracedGraph) -> Sketch:
        """A graph cut into kernels; the reasons of the cuts where `reasons` is."""
        cut = modules_groups.cut(source, reasons=self.reasons)
        return Sketch(source, cut, plan(cut.groups, source.operators, c_compiler.level()))

    def ready(self) -> None:
        """Wait for what a first kernel needs and is found out beside."""
        self._fast_calls.join()

    def candidates(self, sketch: Sketch) -> list[Candidate]:
        """The kernels of a graph with their evidence; nothing else is built or checked any more after that."""
        self.ready()
        return self.certification.candidates(sketch.plan.kernels, sketch.source, self.say)


def begin_triton() -> None:
    """Triton's own beginnings, once; where they go wrong, the first kernel says so."""
    with _BEGINNING, contextlib.suppress(Exception):
        from noyau.toolchain.triton import module as triton_module

        triton_module.begin()


def program_key(program: fx.Graph) -> str:
    """A digest of all that noyau sees in a graph: its nodes by name, their arguments, and what they make."""
    nodes = (f"{node.name} {node.op} {node.target} {node.args} {node.kwargs}" for node in program.nodes)
    return digest(*nodes, *(str(node.meta.get("val")) for node in program.nodes))


@dataclass(slots=True)
class CertifiedKernels:
    """The candidates of this process, by their names and by how much was tried: libraries and certificates, so that no
    graph asks again for what another one has."""

    candidates: dict[tuple[str, Effort], Candidate] = field(default_factory=dict)

    def of(self, kernel: PlannedKernel, effort: Effort) -> Candidate | None:
        """The candidate as it was found with this effort, or with all of it."""
        candidate = self.candidates.get((kernel.operator, effort)) or self.candidates.get((kernel.operator, FULL))
        return candidate and replace(candidate, planned=kernel)

    def keep(self, candidate: Candidate, effort: Effort) -> None:
        """Keep what was found, without the places, which hold their graph."""
        bare = replace(candidate, planned=replace(candidate.planned, groups=()))
        self.candidates[candidate.planned.operator, effort] = bare


MEMORY = CertifiedKernels()


class Certification(contextlib.AbstractContextManager["Certification"]):
    """Kernels that are built and certified beside what else goes on here, several at once, the certificates in
    processes of their own. Use it in a `with`, which ends those."""

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
        """Begin with the kernels of a graph that nothing is known of. BuildError where there is no compiler at all."""
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
            # What runs ends with its process.
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
        """Wait for all that was begun: what is timed needs the machine for itself."""
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
    candidate = attempt(lambda: replace(bare, library=library_of(kernel.text)), bare, "does not build")
    library = candidate.library
    return candidate if library is None else certify(candidate, lambda: (certificate(task(library)), ""))
