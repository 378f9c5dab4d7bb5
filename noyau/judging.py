"""Each kernel judged: does it build, is it right, does it win? One that does not is dropped, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.builders import cc
from noyau.builders.native import Native, Order
from noyau.checking.adversarial import cases, cells
from noyau.checking.certificate import Certificate
from noyau.checking.native import certify_native
from noyau.checking.values import Case
from noyau.dtypes import from_numpy
from noyau.errors import InputError, NoyauError
from noyau.ir.graph import Constant, Graph, names_of
from noyau.original import Original, foreign
from noyau.planning import Planned
from noyau.reports.machine import usable_cores
from noyau.runtimes.bodies import ValueType
from noyau.runtimes.extract import extract
from noyau.runtimes.putting_back import value_type
from noyau.seeing import Seen, ends_of
from noyau.timing.comparing import Comparison, Verdict, compare
from noyau.timing.onnxruntime_pairs import BoundRun, PlainRun, ends_run
from noyau.timing.onnxruntime_workers import Job, Workers

if TYPE_CHECKING:
    import onnx

MOST_CELLS = 1 << 22  # of captured values that a certificate takes in: each goes through the interpreter ten times
_ROUNDING = 1e-3  # what two ways to round may come to; where it is more, the reason is looked for
KEEPS = {
    "faster": frozenset({Verdict.FASTER}),
    "not-slower": frozenset({Verdict.FASTER, Verdict.SAME, Verdict.AMBIGUOUS}),
    "all": frozenset(Verdict),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel with its evidence: the certificate, the comparison where it came to one, and whether it is kept.

    `reason` says why it is not kept, or not timed; `note` what the certificate leaves out."""

    planned: Planned
    certificate: Certificate | None = None
    comparison: Comparison | None = None
    kept: bool = False
    reason: str = ""
    note: str = ""

    @property
    def evidence(self) -> str:
        """The certificate in words, or why there is none."""
        return "; ".join(filter(None, [self.certificate.summary() if self.certificate else self.reason, self.note]))


@dataclass(frozen=True, slots=True)
class Respelled:
    """A built kernel that takes the inputs of the original graph: scalars that are constants there are given to it."""

    native: Native
    original: Graph
    graph: Graph

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        known = {n.output: n.kind.value for n in self.original.nodes if isinstance(n.kind, Constant)}
        given = {**known, **{n.output: a for n, a in zip(self.original.inputs, arrays, strict=True)}}
        wanted = [given[node.output] for node in self.graph.inputs]
        return self.native.call_guarded(*wanted, pieces=pieces, order=order)


@dataclass(frozen=True, slots=True)
class Bench:
    """What kernels are timed on: the model as it is and with every right kernel in it, and what flows through it.

    `workers` are the processes that time it, where there are any yet."""

    original: Original
    fused: onnx.ModelProto
    library: Path | None
    seen: Seen
    workers: Workers | None = None
    threads: int = 1
    budget_s: float = 0.6

    def compare(self, before: onnx.ModelProto, after: onnx.ModelProto, arrays: Mapping[str, np.ndarray]) -> Comparison:
        """`after`, with the library, against `before`, each in a process of its own. UnsupportedError for strings and
        for what is no tensor, CheckError for a session that crashes, hangs or gives something else when it is timed."""
        folder, prepacked = self.original.folder, self.original.prepacked
        jobs = [
            Job(model.SerializeToString(), arrays, library, folder, self.threads, prepacked)
            for model, library in ((before, None), (after, self.library))
        ]
        if self.workers is not None:
            return self.workers.compare(jobs[0], jobs[1], budget_s=self.budget_s)[0]
        with Workers() as workers:
            return workers.compare(jobs[0], jobs[1], budget_s=self.budget_s)[0]


def right(judged: Iterable[Judged]) -> list[Planned]:
    """The kernels that nothing speaks against so far."""
    return [one.planned for one in judged if not one.reason]


def compiled(kernels: Sequence[Planned], options: cc.Options) -> list[Judged]:
    """Each kernel, with the reason where it does not build. BuildError where there is no compiler at all."""
    if kernels:
        cc.find_compiler(options.compiler)
    pool = ThreadPoolExecutor(usable_cores())
    try:
        return list(pool.map(lambda kernel: _compiled(kernel, options), kernels))
    except BaseException:
        cc.end_all()  # the pool waits for its threads, and they for their compilers
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _compiled(planned: Planned, options: cc.Options) -> Judged:
    def compile_it() -> Judged:
        cc.compile_object(planned.text, options)
        return Judged(planned)

    return attempted(compile_it, Judged(planned), "does not build")


def attempted(step: Callable[[], Judged], before: Judged, fault: str) -> Judged:
    """What a step makes of a kernel; where that is an error of noyau, the kernel before it, with the reason."""
    try:
        return step()
    except NoyauError as error:
        return replace(before, reason=f"{fault}: {error}")


def certified(judged: Judged, seen: Seen, options: cc.Options, seed: int) -> Judged:
    """The kernel with its certificate, against the graph as the model spells it."""
    if judged.reason:
        return judged
    return attempted(lambda: _certified(judged, seen, options, seed), judged, "cannot be checked")


def _certified(judged: Judged, seen: Seen, options: cc.Options, seed: int) -> Judged:
    planned, first = judged.planned, judged.planned.groups[0]
    library = cc.compile_library([planned.text], options)
    kernel = Respelled(Native(library, f"{planned.operator}_kernel"), first.original, first.graph)
    captured, left = captured_cases(planned, seen)
    hints = cases(first.original, seen.sizes_of(first.original), np.random.default_rng(seed))
    certificate = certify_native(
        first.original, kernel, [*captured, *hints], name=f"{planned.operator}[c]", made_up=seen.made_up
    )
    return replace(judged, certificate=certificate, note=left, reason="" if certificate.ok else certificate.summary())


def captured_cases(planned: Planned, seen: Seen) -> tuple[list[Case], str]:
    """What a kernel reads in its first and in its last place, and a note where that is too much to be checked."""
    made, spent, note = list[Case](), 0, ""
    for group in ends_of(planned):
        arrays = seen.of(group.original)
        if arrays is None:
            note = "what it reads in the model could not be captured"
            continue
        count = _cells(group.original, seen.sizes_of(group.original), arrays)
        if spent + count <= MOST_CELLS:
            made.append(Case(f"captured at {', '.join(group.outputs)}"[:80], arrays, captured=True))
            spent += count
        elif not made:
            note = f"its activations, of {count:,} cells, are too large to be among the cases"
    return made, note


def _cells(graph: Graph, sizes: dict[str, int], arrays: Sequence[np.ndarray]) -> int:
    """How many cells the largest value has, as far as that is known."""
    known = cells(graph, sizes) if names_of(graph) <= sizes.keys() else 0
    return max(known, *(array.size for array in arrays), 0)


def timed(judged: Judged, bench: Bench, keep: str) -> Judged:
    """The kernel timed in onnxruntime against the operators that it replaces, and kept or not."""
    if judged.reason:
        return judged
    try:
        return verdict(replace(judged, comparison=comparison(judged.planned, bench)), keep)
    except NoyauError as error:
        return replace(judged, kept=keep == "all", reason=f"not timed: {error}")


def comparison(planned: Planned, bench: Bench) -> Comparison:
    """The kernel in its first place, after, against the operators there, before."""
    group, model = planned.groups[0], bench.original.model
    if bench.seen.of(group.original) is None:
        raise InputError("what it reads could not be captured")
    position = next(k for k, node in enumerate(bench.fused.graph.node) if set(group.outputs) <= set(node.output))
    tensors, arrays = bench.original.imported.initializers, bench.seen.arrays
    names = dict.fromkeys(bench.fused.graph.node[position].input)
    read = {name: arrays[name] for name in names if name in arrays and name not in tensors}
    types = {name: ValueType(dtype, (None,) * a.ndim) for name, a in read.items() if (dtype := from_numpy(a.dtype))}
    types |= {node.output: value_type(node) for node in group.graph.nodes}
    before = extract(model, group.positions, tuple(read), group.outputs, types)
    after = extract(bench.fused, [position], tuple(read), group.outputs, types)
    return bench.compare(before, after, read)


def verdict(judged: Judged, keep: str) -> Judged:
    """Kept, or the reason why not."""
    assert judged.comparison is not None
    found = judged.comparison.verdict
    kept = found in KEEPS[keep]
    return replace(judged, kept=kept, reason="" if kept else f"{found.value.lower()}: {judged.comparison.speedup:.2f}x")


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole model before and after: `comparison` None where it was not timed, for the reason in `note`.

    `apart`: how far the outputs of both are from each other, at most, over the largest; inf where others than floats
    differ, None where the model itself does not give the same twice, or its outputs are not at hand."""

    comparison: Comparison | None = None
    apart: float | None = None
    note: str = ""


def timed_whole(bench: Bench) -> Whole:
    """The model before and after, with all of onnxruntime's optimizations. ModelError where the fused does not open."""
    original = bench.original
    if bench.library is None:
        return Whole()
    names = [value.name for value in original.model.graph.input if value.name not in original.imported.initializers]
    if foreign(original.model) or not bench.seen.arrays.keys() >= set(names):
        return Whole()
    arrays = {name: bench.seen.arrays[name] for name in names}
    try:
        before = ends_run(original.session(original.model, threads=bench.threads), arrays)
    except NoyauError as error:
        return Whole(note=f"the whole model is not timed: {error}")
    after = ends_run(original.session(bench.fused, bench.library, threads=bench.threads), arrays)
    moved, portable = apart(before, after), isinstance(before, BoundRun)
    slow = "" if original.prepacked else "the whole model is timed with its weights as they lie in the file, not copied"
    if not portable:  # strings, or what is no tensor, cannot go to another process
        return Whole(compare(before, after, budget_s=bench.budget_s), moved, slow)
    del before, after  # their memory goes before that of the other processes comes
    try:
        return Whole(bench.compare(original.model, bench.fused, arrays), moved, slow)
    except NoyauError as error:
        return Whole(apart=moved, note=f"the whole model is not timed: {error}")


def apart(before: BoundRun | PlainRun, after: BoundRun | PlainRun) -> float | None:
    """How far the outputs of two callables are from each other, as `Whole` has it."""
    before()
    after()
    first = {name: array.copy() for name, array in before.outputs.items()}
    found = max((_distance(first[name], after.outputs[name]) for name in first), default=None)
    if found is None or found < _ROUNDING:
        return found
    before()  # a model that draws random numbers is apart from itself
    again = max(_distance(first[name], before.outputs[name]) for name in first)
    return found if again < _ROUNDING else None


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    dtype = from_numpy(one.dtype)
    if dtype is None or not dtype.is_float or one.shape != other.shape:
        return 0.0 if np.array_equal(one, other) else np.inf
    one, other = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return np.inf
    largest = np.abs(one[finite]).max(initial=0.0) or 1.0
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0) / largest)
