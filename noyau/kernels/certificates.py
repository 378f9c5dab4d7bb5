"""Certificates made in worker processes, several at once; a disk cache of certificates and timings.

A crash or a hang of a worker is reported as an error. Entries are valid until text, machine, versions or code change.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import math
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain, islice, permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Graph
from noyau.ir.sizes import Sizes
from noyau.kernels.programs.generate import BuiltProgram, GeneratedProgram, Specialization
from noyau.kernels.reference import Description, graph_of
from noyau.signatures.instances import Maker, bind, draw_inputs, in_dtypes, sizes_of
from noyau.text import from_json
from noyau.timing.machine import this_machine
from noyau.timing.verdict import Comparison, Verdict
from noyau.toolchain import cache as toolchain_cache
from noyau.toolchain.c.library import Native
from noyau.toolchain.cache import today
from noyau.toolchain.guard_zones import Order
from noyau.verify.adversarial import FULL, NORMAL, Effort, cases, covering, schedule, spell
from noyau.verify.awkward_sizes import cells, fits, shrunk, usual_sizes
from noyau.verify.case_arrays import CaseMaker, Pattern
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.verify.trial import GuardedKernel, RepeatedRows, certify_native, few_rows
from noyau.workers.worker import Worker

Item = TypeVar("Item")
Made = TypeVar("Made")

PATIENCE_S = 180.0  # for one certificate; most take a second or two
MOST_AT_ONCE = 8  # workers, each with its own arrays
Array = np.ndarray
_JUDGES = ("verify", "ir", "toolchain/c/library.py", "toolchain/guard_zones.py", "dtypes.py")
_CLOCKS = ("timing",)


@dataclass(frozen=True, slots=True)
class OriginalInputs:
    """Adapter of a built kernel to the original graph's inputs; that graph's scalar constants are kernel inputs."""

    native: GuardedKernel
    original: Graph
    graph: Graph

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        known = {n.output: n.kind.value for n in self.original.nodes if isinstance(n.kind, Constant)}
        values = {**known, **{n.output: a for n, a in zip(self.original.inputs, arrays, strict=True)}}
        wanted = [values[node.output] for node in self.graph.inputs]
        return self.native.call_guarded(*wanted, pieces=pieces, order=order)


@dataclass(frozen=True, slots=True)
class CertificateTask:
    """A built kernel to certify. `original` and `graph`: its graph as imported and in normal form; `captured`:
    activations of a model; `sizes`: usual ones; `seed` and `effort`: of the adversarial inputs."""

    operator: str
    library: Path
    original: Graph
    graph: Graph
    captured: Sequence[Case]
    sizes: dict[str, int]
    seed: int
    made_up: bool
    effort: Effort = FULL

    @property
    def key(self) -> str:
        tried = f"{sorted(self.sizes.items())} {self.effort}"
        return certificate_key(f"{self.library.name} {tried}", self.original, self.captured, self.made_up, self.seed)

    @property
    def name(self) -> str:
        return f"{self.operator}[c]"


def judge(task: CertificateTask) -> Certificate:
    """Make the certificate of a kernel in this process."""
    kernel = OriginalInputs(Native(task.library, f"{task.operator}_kernel"), task.original, task.graph)
    few = few_rows(task.original) if task.effort.few and not task.captured else None
    if few is not None and task.effort.few is not None:
        repeated = RepeatedRows(kernel, few, np.random.default_rng(task.seed))
        certificate = _judge(few.graph, repeated, task, task.effort.few)
        if not certificate.ok or repeated.alike:  # a kernel that mixes rows is tried with all rows too
            return certificate
    return _judge(task.original, kernel, task, task.effort)


def _judge(graph: Graph, kernel: GuardedKernel, task: CertificateTask, effort: Effort) -> Certificate:
    hints = cases(graph, task.sizes, np.random.default_rng(task.seed), effort)
    return certify_native(graph, kernel, [*task.captured, *hints], name=task.name, made_up=task.made_up)


class Certifiers(AbstractContextManager["Certifiers"]):
    """A pool of `count` worker processes for certificates; `__exit__` ends only those that it created itself."""

    def __init__(self, workers: Sequence[Worker], count: int, patience_s: float = PATIENCE_S) -> None:
        self.more = [Worker("its process") for _ in range(count - len(workers))]
        self.count, self.patience_s = max(count, 1), patience_s
        self.idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in (*workers, *self.more):
            self.idle.put(worker)

    def __exit__(self, *_: object) -> None:
        for worker in self.more:
            worker.end()

    def start(self) -> None:
        """Start its own processes without waiting for them."""
        for worker in self.more:
            worker.start()

    def each(self, step: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
        """Map `step` over the items, as many at once as there are processes; the results keep the items' order."""
        pool = ThreadPoolExecutor(self.count)
        try:
            yield from pool.map(step, items)
        finally:
            pool.shutdown(cancel_futures=True)

    def certificate(self, task: CertificateTask) -> Certificate:
        """The certificate of a kernel, from the cache or made now and stored.

        CheckError where the process crashes or does not answer in time."""
        return recall_certificate(task.key, task.name, lambda: self._judge(task))

    def _judge(self, task: CertificateTask) -> Certificate:
        worker = self.idle.get()
        usual_s, worker.patience_s = worker.patience_s, self.patience_s
        try:
            return worker.ask(judge, task)
        finally:
            worker.patience_s = usual_s
            self.idle.put(worker)


def pack(arrays: Sequence[Array]) -> list[Array]:
    """The arrays for another process, each in C order. UnsupportedError for a dtype that noyau does not have."""
    for array in arrays:
        if from_numpy(array.dtype) in (None, DType.OTHER):
            raise UnsupportedError(f"an array of {array.dtype} cannot go to another process")
    return [np.asarray(array, order="C") for array in arrays]


def call_guarded(library: Path, symbol: str, arrays: Sequence[Array]) -> list[Array]:
    """Run a kernel once between guard zones; runs in the worker."""
    return Native(library, symbol).call_guarded(*arrays)


@dataclass(frozen=True, slots=True)
class CachedTiming:
    """A comparison of an earlier run, and the day of its measurement."""

    comparison: Comparison
    timed_on: str


def certificate_key(library_key: str, graph: Graph, captured: Sequence[Case], made_up: bool, seed: int) -> str:
    """The cache key of a certificate: the library, the graph, the cases, and noyau's code that judges them."""
    cases = (part for case in captured for part in (case.label, *map(_digest, case.inputs)))
    judge = _code(_JUDGES), np.__version__, this_machine().cpu
    return toolchain_cache.digest("certificate", *judge, library_key, _graph(graph), str((made_up, seed)), *cases)


def recall_certificate(key: str, name: str, make: Callable[[], Certificate]) -> Certificate:
    """The cached certificate, under the kernel's present name; else the result of `make`, which is stored."""
    certificate: Certificate | None = toolchain_cache.recall_as(key, partial(from_json, Certificate))
    if certificate is not None:
        return dataclasses.replace(certificate, name=name)
    certificate = make()
    toolchain_cache.keep(key, dataclasses.asdict(certificate))
    return certificate


def timing_key(parts: Iterable[str | bytes], arrays: Mapping[str, np.ndarray], threads: int) -> str:
    """The cache key of a timing: the texts and models of both sides (`parts`), the shapes of their inputs, the machine
    and its versions, the threads, and noyau's code that times."""
    where = map(str, this_machine().to_json().values())
    shapes = (f"{name}: {array.dtype}{array.shape}" for name, array in sorted(arrays.items()))
    return toolchain_cache.digest("timing", _code(_CLOCKS), *where, str(threads), *parts, *shapes)


def recall_timing(key: str, ambiguous: bool = False) -> CachedTiming | None:
    """The cached comparison; None if it is older than 30 days, or AMBIGUOUS because of noise, which another measurement
    may resolve. `ambiguous`: return the latter too."""
    timing: CachedTiming | None = toolchain_cache.recall_as(key, partial(from_json, CachedTiming))
    if timing is None or not toolchain_cache.is_recent(timing.timed_on):
        return None
    comparison = timing.comparison
    is_noise = comparison.verdict is Verdict.AMBIGUOUS and not comparison.is_nearly_same
    return None if is_noise and not ambiguous else timing


def keep_timing(key: str, comparison: Comparison) -> None:
    """Store a comparison, which replaces that of the key; an AMBIGUOUS one too, so that no older verdict stays."""
    toolchain_cache.keep(key, {"timed_on": today(), "comparison": dataclasses.asdict(comparison)})


def recall_late(key: str, limit_s: float) -> bool:
    """Whether the runs of this key take longer than `limit_s`, by a record of at most 30 days ago."""

    def is_late(record: Any) -> bool:
        return limit_s < float(record["runs_s"]) and toolchain_cache.is_recent(record["timed_on"])

    return bool(toolchain_cache.recall_as(toolchain_cache.digest("late", key), is_late))


def keep_late(key: str, runs_s: float) -> None:
    """Record that the runs of this key would take `runs_s` seconds."""
    toolchain_cache.keep(toolchain_cache.digest("late", key), {"timed_on": today(), "runs_s": runs_s})


def _graph(graph: Graph) -> str:
    """The complete text of a graph, with digests of its constants; of an Opaque node only the name."""
    nodes = (
        f"{node.output} {_digest(node.kind.value) if isinstance(node.kind, Constant) else node.kind} "
        f"{node.inputs} {node.dtype.value} {tuple(map(str, node.shape))}"
        for node in graph.nodes
    )
    return "\n".join([*nodes, str(graph.outputs), *map(str, graph.demands)])


def _digest(array: np.ndarray) -> str:
    return f"{array.dtype}{array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


def prepare() -> None:
    """Compute the memoised parts of all keys: the digests of noyau's code and the machine."""
    _code(_JUDGES), _code(_CLOCKS), this_machine()


@cache
def _code(names: tuple[str, ...]) -> str:
    """A digest of files and folders of noyau, by their paths in the package."""
    total = hashlib.sha256()
    for name in names:
        for path in _files(files("noyau").joinpath(*name.split("/"))):
            total.update(path.read_bytes())
    return total.hexdigest()


def _files(place: Traversable) -> Iterable[Traversable]:
    if place.is_file():
        return [place] if place.name.endswith((".py", ".c")) else []
    return [path for each in sorted(place.iterdir(), key=lambda each: each.name) for path in _files(each)]


Inputs = tuple[str, list[Array]]  # with their description
Plan = Iterable[tuple[Sizes, Pattern]]
Program: TypeAlias = "GeneratedProgram | None"
ENOUGH_S = 0.1  # after which no further case begins
MOST = 8
CELLS = 1 << 13  # of the largest array
RENAMED = 24  # attempts to match sizes of the graph to parameters of the maker with other names
MADE = 1 << 20  # the largest product of sizes requested of a maker of inputs
NO_SIZES: Sizes = MappingProxyType({})
EDGES = (33, 1, 16, 5)  # for all sizes: beyond a block of lanes, one, a whole block, a few


def smoke(description: Description, program: BuiltProgram) -> Certificate:
    """Certify a built program against the op's reference in float64, on a few small inputs, after inputs of sizes at
    which launches run that the small ones do not reach."""
    generated, wanted = program.generated, program.generated.wanted
    judged_by = graph_of(description.reference, wanted.instance, wanted.constants)
    with np.errstate(all="ignore"):
        small = maker_inputs(description, wanted, generated)
        first = list(islice(small, 1))
        if not first:  # there is no maker, or the program is not valid for its inputs
            small = _draw_inputs(generated)
            first = list(islice(small, 1))
        tried = [generated.graph.bind([array.shape for array in arrays]) for _, arrays in first]
        longer = _of_launches(description, generated, sizes_missed(generated, tried))
        inputs = chain(longer, first, islice(_until(ENOUGH_S, small), MOST - 1))
        cases = (Case(label, tuple(arrays)) for label, arrays in inputs)
        how = partial(certify_native, traced=lambda: generated.graph, is_deterministic=generated.is_deterministic)
        return how(judged_by, program, cases, name=generated.title)


def _until(limit_s: float, inputs: Iterator[Inputs]) -> Iterator[Inputs]:
    """The inputs up to the first that ends after the time limit; at least one."""
    end_s = time.monotonic() + limit_s
    for each in inputs:
        yield each
        if time.monotonic() > end_s:
            return


def sizes_missed(generated: GeneratedProgram, tried: Sequence[Sizes]) -> list[dict[str, int]]:
    """Sizes at which launches run that do not run at the `tried` ones; on a GPU only launches of the call's sizes."""
    graph, kernels = generated.graph, generated.program.kernels
    if LANGUAGES[generated.language].on_gpu:
        return covering(kernels, graph, tried, generated.wanted.sizes)
    return covering(kernels, graph, tried, most=CELLS)


def _of_launches(description: Description, generated: GeneratedProgram, missed: Iterable[Sizes]) -> Iterator[Inputs]:
    """Inputs of the `missed` sizes: of the op's maker if it has one, else random ones."""
    for sizes in missed:
        inputs = _draw_inputs(generated, [(sizes, NORMAL)])
        if description.inputs is not None:
            inputs = maker_inputs_at(description, generated.wanted, generated.graph, sizes, generated)
        yield from inputs


def maker_inputs_at(
    description: Description, wanted: Specialization, graph: Graph, sizes: Sizes, of: Program = None
) -> Iterator[Inputs]:
    """Inputs of `sizes` by the op's maker, trying its other parameter names for sizes that it does not know by name. If
    no assignment gives all sizes, only those that it knows by name are passed; nothing if that fails too."""
    takes = sizes_of(description.inputs) if description.inputs is not None else []
    others, free = [size for name, size in sizes.items() if name not in takes], [n for n in takes if n not in sizes]
    renamed = (dict(zip(names, others, strict=False)) for names in permutations(free, min(len(others), len(free))))
    for more in [*(islice(renamed, RENAMED) if others else ()), None]:
        with contextlib.suppress(Exception):  # of a user's function
            for label, arrays in islice(maker_inputs(description, wanted, of, {**sizes, **(more or {})}), 1):
                if more is None or sizes.items() <= graph.bind([array.shape for array in arrays]).items():
                    yield label, arrays
                    return


def _draw_inputs(generated: GeneratedProgram, plan: Plan | None = None) -> Iterator[Inputs]:
    graph, integers = generated.graph, generated.wanted.integers
    maker = CaseMaker(graph, np.random.default_rng(0))
    for sizes, pattern in _plan(graph, maker, generated.wanted.sizes) if plan is None else plan:
        inputs = maker.inputs(sizes, pattern)
        if inputs is not None:
            arrays = {**inputs, **{n: np.array(value).astype(inputs[n].dtype) for n, value in integers.items()}}
            yield spell(pattern, sizes), [arrays[node.output] for node in graph.inputs]


def _plan(graph: Graph, maker: CaseMaker, called: Mapping[str, int]) -> Iterator[tuple[Mapping[str, int], Pattern]]:
    """Usual sizes, all sizes at an edge while the arrays stay small, then other sizes and patterns."""
    patterns = schedule(graph, hint(graph, called), False, maker.has_floats)
    yield from islice(patterns, 1)
    yield from ((sizes, NORMAL) for sizes in sizes_at_edges(graph, usual_sizes(graph, {}), CELLS))
    yield from patterns


def hint(graph: Graph, called: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes of the call, if the graph is not valid for usual ones and the call is small; else none."""
    return {} if fits(graph, usual_sizes(graph, {})) or not called or cells(graph, called) > MADE else called


def sizes_at_edges(graph: Graph, usual: Mapping[str, int], cells: int) -> list[dict[str, int]]:
    """Assignments of all sizes at an edge, shrunk to at most `cells` cells an array, that are valid for the graph."""
    last = next(iter(list(usual)[-1:]), None)
    edges = [shrunk(graph, dict.fromkeys(usual, edge), cells, last) for edge in EDGES]
    return [sizes for sizes in edges if fits(graph, sizes)]


def maker_inputs(
    description: Description, wanted: Specialization, of: Program = None, sizes: Sizes = NO_SIZES
) -> Iterator[Inputs]:
    """Inputs by the op's maker for these dtypes and ranks, each with its seed; nothing without a maker.
    `of`: only inputs for which this program is valid; its specialised sizes are requested by name, and nothing is made
    if these are large. `sizes`: requested besides."""
    maker, signature = description.inputs, description.signature
    if maker is None or signature is None:
        return
    known = {**description.sizes, **wanted.integers}
    demand = {} if of is None else maker_sizes(maker, of.specialised)
    if math.prod(demand.values()) > MADE:
        return
    demand |= {name: size for name, size in sizes.items() if name in sizes_of(maker)}
    for number in range(MOST):
        rng = np.random.default_rng([0, number])
        arguments = draw_inputs(maker, rng, demand, description.reference.parameters, description.name)
        arguments = in_dtypes(arguments, signature, wanted.instance.dtypes)
        bound = bind(signature, arguments, known, f"inputs= of {description.name}")
        if bound.instance == wanted.instance and (of is None or of.holds(bound.sizes)):
            yield f"inputs(rng), seed {number}", list(bound.arrays)


def maker_sizes(maker: Maker, specialised: Mapping[str, int]) -> dict[str, int]:
    """The sizes to request of a maker: the specialised ones of a program and, if an array of all sizes would have more
    cells than MADE, its other sizes too, halved from their defaults."""
    result = {name: specialised[name] for name in sizes_of(maker) if name in specialised}
    defaults = {name: each.default for name, each in inspect.signature(maker).parameters.items()}
    others = {name: size for name, size in defaults.items() if isinstance(size, int) and name not in result}
    smaller: dict[str, int] = {}
    while result and math.prod((result | others).values()) > MADE and max(others.values(), default=1) > 1:
        largest = max(others, key=others.__getitem__)
        others[largest] //= 2
        smaller[largest] = others[largest]
    return result | smaller
