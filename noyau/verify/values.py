"""The one certificate of a kernel: its values against float64, beside those of the computation that it replaces.

The truth is the graph evaluated with every float widened to float64. What is allowed follows, cell by cell, from how
far nine runs of the unfused computation stray from it: one as it is, eight with each float input moved by an ulp and
with other roundings. A reference that is one Opaque is rounded inside as its traced graph says, where that is given:
what the graph strays from its own truth, the reference may stray from its.

The certificate of a built kernel: its values, what it touches, and whether its bits depend on how it is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Protocol

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, FindingKind, InputError, NoyauError
from noyau.ir.graph import Graph, Node
from noyau.ir.graph_interpreter import evaluate
from noyau.text import printable
from noyau.toolchain.guard_zones import Order
from noyau.verify.certificate import Certificate, Errors, Failure, Outcome
from noyau.verify.floats import FORMATS, distance, equal_cells, kind, ulp, widen
from noyau.verify.rounding import moved_runs, runs_at_jumps, stepped
from noyau.verify.undefined import undefined_cells

Array = np.ndarray
Arrays = Mapping[str, Array]
KernelFunction = Callable[[Sequence[Array]], Sequence[Array]]
LazyGraph = Callable[[], "Graph | None"]  # the graph of a reference, traced when it is asked for

MOVED_RUNS, FIRST_RUNS = 8, 2  # the others are made only where the first allow less than the kernel needs
# Where a difference cancels, all nine runs happen to be near the truth in about one cell of 10^7; where one rounding
# alone makes it cancel, as that of 1 + tanh(-30), in one of 2^8. So few wrong cells get a second look, with more runs.
RARE, MORE_RUNS = 100, 40
ULPS = 2.0  # allowed anyway
FACTOR = 8.0  # times what the unfused computation strays
SHOWN = 2  # failures kept for each output of a case
PIECES = 3


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of a group, in the order of its graph's inputs; `captured` where they are activations of a model."""

    label: str
    inputs: tuple[Array, ...]
    captured: bool = False


def certify(
    graph: Graph,
    kernel: KernelFunction,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
) -> Certificate:
    """Compare the values of a kernel with the truth of its group's graph.

    `kernel` maps arrays in the order of the graph's inputs to arrays in the order of its outputs. Inputs that the graph
    refuses with an InputError (an index outside its table), the kernel must refuse with one. `made_up`: the captured
    cases come from made-up inputs. `traced` gives the same computation as a graph of the same inputs and outputs, where
    `graph` is one Opaque. A case of which every cell is allowed after two of the eight moved runs is done with them:
    more allow no less, but where all runs overflowed so far. The same arguments give the same certificate."""
    trial = KernelTrial(graph, kernel, traced)
    with np.errstate(all="ignore"):
        return Certificate(name, tuple(trial.outcome(case, number) for number, case in enumerate(cases)), made_up)


def first_runs(jumping: frozenset[str], outputs: Iterable[str]) -> int:
    """The number of moved runs before a case may be decided; `jumping`: the values that only jump (`stepped`), of which
    the closest run says what is allowed. There more runs allow less, and all of them are made."""
    return FIRST_RUNS if jumping.isdisjoint(outputs) else MOVED_RUNS


def is_undecided(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether more unfused runs may allow what is wrong so far, or nothing tells yet what some cell may be."""
    return is_wrong(outcome, judges) or any(judge.is_open for judge in judges)


def is_wrong(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    return outcome.beyond > 0


def is_rare(outcome: Outcome, judges: Sequence[Judge]) -> bool:
    """Whether so few cells are wrong that they get a second look."""
    return 0 < outcome.beyond <= max(1, outcome.cells // RARE)


@dataclass(frozen=True, slots=True)
class Stage:
    """Unfused runs, each the arrays of the outputs, that judges see where `wanted` of the outcome so far."""

    runs: Iterable[Sequence[Array]]
    wanted: Callable[[Outcome, Sequence[Judge]], bool] = is_undecided


def decide(case: Case, inputs: str, judges: Sequence[Judge], stages: Iterator[Stage]) -> Outcome:
    """Judge a case by the first stage of unfused runs, and by further ones as long as they may allow more."""
    outcome = _judged(case, inputs, judges, next(stages).runs)
    for stage in stages:
        if stage.wanted(outcome, judges):
            outcome = _judged(case, inputs, judges, stage.runs)
    return outcome


def _judged(case: Case, inputs: str, judges: Sequence[Judge], runs: Iterable[Sequence[Array]]) -> Outcome:
    for run in runs:
        for judge, unfused in zip(judges, run, strict=True):
            judge.see(unfused)
    return combine_outcomes(case, [judge.outcome(case, inputs) for judge in judges])


class KernelTrial:
    """A kernel, and the graph that says what is right; `is_check`: a user's kernel, of which each failure is told.
    `tolerance`: chosen by a user in the place of what follows from unfused runs."""

    def __init__(
        self,
        graph: Graph,
        kernel: KernelFunction,
        traced: LazyGraph | None = None,
        *,
        is_check: bool = False,
        tolerance: float | None = None,
    ) -> None:
        self.graph, self.kernel, self.stepped = graph, kernel, stepped(graph)
        self.lazy_graph = traced if tolerance is None else None
        self.is_check, self.tolerance = is_check, tolerance
        self.first_runs = first_runs(self.stepped, graph.outputs)

    @cached_property
    def traced(self) -> Graph | None:
        """The traced graph of the reference; it is traced when a kernel is first found wrong."""
        return None if self.lazy_graph is None else self.lazy_graph()

    def outcome(self, case: Case, seed: int) -> Outcome:
        """One case, judged; `seed` draws the moves of its inputs."""
        inputs = dict(zip((node.output for node in self.graph.inputs), case.inputs, strict=True))
        try:
            truth, as_it_is = evaluate(self.graph, inputs, wide=True), evaluate(self.graph, inputs)
        except InputError as refusal:
            return self.refused(case, refusal)
        copies = tuple(np.copy(array, order="C") for array in case.inputs)
        try:
            results = self.kernel(copies)
        except NoyauError as error:
            if isinstance(error, InputError) and not any(truth[name].size for name in self.graph.outputs):
                return Outcome(case.label, case.captured)  # NumPy refuses an index that is looked up for nothing, too
            return self.failed(case, kind_of(error), self.ending(error))
        misfit, written_to = self.misfit(results, truth), changed_input(copies, case.inputs)
        if misfit:
            return self.failed(case, FindingKind.WRONG_VALUE, misfit)
        if written_to:
            return self.failed(case, FindingKind.MUTATED_INPUT, written_to)
        judges = self.judges(inputs, results, truth)
        return decide(case, inputs_text(self.graph, case.inputs), judges, self.stages(inputs, truth, as_it_is, seed))

    def stages(self, inputs: Arrays, truth: Arrays, as_it_is: Arrays, seed: int) -> Iterator[Stage]:
        """The unfused runs of a case, the fewest first."""
        runs = self.in_order(chain([as_it_is], moved_runs(self.graph, inputs, seed, MOVED_RUNS)))
        yield Stage(islice(runs, 1 + self.first_runs))
        yield Stage(runs, is_undecided)
        yield Stage(self.in_order(runs_at_jumps(self.graph, inputs)), is_wrong)
        yield Stage(self.in_order(self.traced_runs(inputs, truth, seed, MOVED_RUNS)), is_wrong)
        yield Stage(self.in_order(self.more_runs(inputs, truth, seed)), is_rare)

    def in_order(self, runs: Iterable[Arrays]) -> Iterator[Sequence[Array]]:
        """The outputs of each run."""
        return ([run[name] for name in self.graph.outputs] for run in runs)

    def judges(self, inputs: Arrays, results: Sequence[Array], truth: Arrays) -> list[Judge]:
        """A judge for each output; what the operator table leaves undefined is skipped."""
        undefined = undefined_cells(self.graph, inputs)
        judges = []
        for name, got in zip(self.graph.outputs, results, strict=True):
            skipped = np.broadcast_to(undefined.get(name, np.array(False)), got.shape)
            steps = name in self.stepped
            judges.append(judge_of(self.graph[name], got, truth[name], skipped, steps, self.tolerance))
        return judges

    def traced_runs(self, inputs: Arrays, truth: Arrays, seed: int, count: int) -> Iterator[Arrays]:
        """Runs of the traced graph that are rounded otherwise, moved by how far its truth is from that of the
        reference: were it traced wrongly, it could not say what is right. None where nothing was traced."""
        if self.traced is None:
            return
        with suppress(InputError):
            own = evaluate(self.traced, inputs, wide=True)
            for run in chain(runs_at_jumps(self.traced, inputs), moved_runs(self.traced, inputs, seed, count)):
                yield {name: shifted_run(run[name], own[name], truth[name]) for name in self.graph.outputs}

    def more_runs(self, inputs: Arrays, truth: Arrays, seed: int) -> Iterator[Arrays]:
        """A second look at few wrong cells."""
        if self.traced is None:
            yield from moved_runs(self.graph, inputs, seed, MORE_RUNS)
        yield from self.traced_runs(inputs, truth, seed, MORE_RUNS)

    def refused(self, case: Case, refusal: InputError) -> Outcome:
        """Judge a kernel on inputs that the graph itself refuses. Where Python or NumPy only has no value for them, as
        for the maximum of nothing or a quotient by 0, a kernel may have any."""
        try:
            self.kernel(tuple(np.copy(array, order="C") for array in case.inputs))
        except InputError:
            return Outcome(case.label, case.captured)
        except NoyauError as error:
            return self.failed(case, kind_of(error), self.ending(error))
        if isinstance(refusal.__cause__, ValueError | ArithmeticError):
            return Outcome(case.label, case.captured)
        return self.failed(case, FindingKind.WRONG_VALUE, f"accepted what it must refuse: {refusal}")

    def ending(self, error: NoyauError) -> str:
        """Describe the end of a run that raised; a check drops the class of a CheckError."""
        is_plain = self.is_check and isinstance(error, CheckError)
        return str(error) if is_plain else f"ended with {type(error).__name__}: {error}"

    def failed(self, case: Case, kind: FindingKind, note: str) -> Outcome:
        return Outcome(
            case.label, case.captured, failures=(Failure(kind, case.label, inputs_text(self.graph, case.inputs), note),)
        )

    def misfit(self, results: Sequence[Array], truth: Mapping[str, Array]) -> str | None:
        """Compare the number, dtypes and shapes of the results with the truth; None where they fit."""
        if len(results) != len(self.graph.outputs):
            return f"gave {len(results)} outputs, not {len(self.graph.outputs)}"
        for name, got in zip(self.graph.outputs, results, strict=True):
            expected, dtype = spell(self.graph[name].dtype, truth[name].shape), from_numpy(got.dtype)
            actual = spell(dtype, got.shape) if dtype else f"{got.dtype}{list(got.shape)}"
            if actual != expected:
                return f"gave {actual} as {printable(name)}, not {expected}"
        return None


def kind_of(error: NoyauError) -> FindingKind:
    """The kind of what an error of a kernel shows; of one that is not about its values, a wrong value."""
    return error.kind if isinstance(error, CheckError) else FindingKind.WRONG_VALUE


def spell(dtype: DType, shape: Sequence[int]) -> str:
    return f"{dtype.value}{list(shape)}"


def inputs_text(graph: Graph, arrays: Sequence[Array]) -> str:
    """The inputs of a graph, in words: `x: f32[4, 41], w: f32[41]`."""
    pairs = zip(graph.inputs, arrays, strict=True)
    return ", ".join(f"{printable(node.output)}: {spell(node.dtype, array.shape)}" for node, array in pairs)


def shifted_run(run: Array, own: Array, truth: Array) -> Array:
    """As far from a truth as a run is from its own; where the two truths are of other kinds, the truth."""
    if run.dtype.kind in "biu":
        return np.where(own == truth, run, truth)
    run, own, truth = widen(run), widen(own), widen(truth)
    near = np.where(np.isfinite(truth), run - own + truth, run)
    return np.where(kind(own) == kind(truth), near, truth)


def changed_input(arrays: Sequence[Array], originals: Sequence[Array]) -> str | None:
    """Name the input that the kernel wrote to, or None."""
    for number, (after, before) in enumerate(zip(arrays, originals, strict=True)):
        if after.tobytes() != before.tobytes():
            return f"changed its input {number}"
    return None


def combine_outcomes(case: Case, parts: Sequence[Outcome]) -> Outcome:
    """The outcome of a case, from those of its outputs."""
    return Outcome(
        case.label,
        case.captured,
        sum(part.cells for part in parts),
        sum(part.beyond for part in parts),
        max((part.worst_ratio for part in parts), default=0.0),
        sum((part.kernel for part in parts), Errors()),
        sum((part.unfused for part in parts), Errors()),
        tuple(failure for part in parts for failure in part.failures),
    )


def judge_of(
    node: Node, got: Array, truth: Array, skipped: Array, steps: bool, tolerance: float | None = None
) -> Judge:
    if node.dtype.is_float:
        return FloatJudge(node, got, truth, skipped, steps, tolerance)
    return Judge(node, got, truth, skipped)


class Judge:
    """The cells of one output, integers, bools or float8: each is the truth's or that of an unfused run."""

    def __init__(self, node: Node, got: Array, truth: Array, skipped: Array) -> None:
        self.node, self.got, self.truth, self.skipped = node, got, truth, skipped
        self.matched = equal_cells(got, truth)
        self.first: Array | None = None

    def see(self, unfused: Array) -> None:
        """Take in one unfused run, the one as it is first."""
        self.first = unfused if self.first is None else self.first
        self.matched |= equal_cells(self.got, unfused)

    @property
    def is_open(self) -> bool:
        """Whether more runs may allow less."""
        return False

    def allowed(self) -> Array:
        return np.zeros(self.got.shape)

    def ratios(self) -> Array:
        """Each cell's error over what is allowed: up to 1 is right."""
        return np.where(self.matched, 0.0, np.inf)

    def errors(self, values: Array) -> Errors:
        """The distance of values from the truth, in units."""
        away = distance(widen(values), widen(self.truth))
        return total(away, away, self.truth, np.isfinite(away) & ~self.skipped)

    def outcome(self, case: Case, inputs: str) -> Outcome:
        ratios = np.where(self.skipped, 0.0, self.ratios())
        failures = self.failures(ratios, case, inputs)
        worst, beyond = float(ratios.max(initial=0.0)), int(np.count_nonzero(ratios > 1))
        assert self.first is not None
        kernel, unfused = self.errors(self.got), self.errors(self.first)
        return Outcome(case.label, case.captured, ratios.size, beyond, worst, kernel, unfused, failures)

    def failures(self, ratios: Array, case: Case, inputs: str) -> tuple[Failure, ...]:
        """The first and the worst cell beyond what is allowed."""
        wrong = np.argwhere(ratios > 1)
        if not len(wrong):
            return ()
        numbers, note = (self.got, self.truth, self.allowed()), extent_of(wrong, ratios.shape)
        cells = dict.fromkeys(tuple(map(int, cell)) for cell in (wrong[0], np.argwhere(ratios == ratios.max())[0]))
        name = printable(self.node.output)
        return tuple(
            Failure.of_cell(case.label, inputs, note, name, cell, *(float(each[cell]) for each in numbers))
            for cell in list(cells)[:SHOWN]
        )


class FloatJudge(Judge):
    """The cells of one float output.

    `base` is the truth, or the first finite unfused run where the truth is not finite; `spread` the largest distance of
    an unfused run from it, `closest` the least; `nearest` the least distance of the kernel's value from any of them.
    `kinds` has a bit for each of finite, NaN, inf and -inf that the truth or a run shows. `lost`: the truth is finite
    and an unfused run is not: its way there overflows, and how it ends means nothing. `measured`: a run was finite."""

    def __init__(
        self, node: Node, got: Array, truth: Array, skipped: Array, steps: bool, tolerance: float | None = None
    ) -> None:
        super().__init__(node, got, truth, skipped)
        self.steps, self.tolerance = steps, tolerance
        self.value, self.base = widen(got), np.array(truth)
        self.kinds, self.spread = kind(truth), np.zeros(truth.shape)
        self.lost, self.measured = np.zeros(truth.shape, bool), np.zeros(truth.shape, bool)
        self.nearest, self.closest = distance(self.value, self.base), np.full(truth.shape, np.inf)

    def see(self, unfused: Array) -> None:
        self.first = unfused if self.first is None else self.first
        run = widen(unfused)
        finite = np.isfinite(run)
        self.kinds |= kind(run)
        self.lost, self.measured = self.lost | (np.isfinite(self.truth) & ~finite), self.measured | finite
        self.base = np.where(finite & ~np.isfinite(self.base), run, self.base)
        away = distance(run, self.base)
        np.fmax(self.spread, away, out=self.spread, where=np.isfinite(away))
        if self.steps:
            self.nearest = np.fmin(self.nearest, distance(self.value, run))
            self.closest = np.fmin(self.closest, away)

    @cached_property
    def ulp(self) -> Array:
        return ulp(self.node.dtype, np.where(np.isfinite(self.base), np.abs(self.base), 0.0))

    @property
    def is_open(self) -> bool:
        """Whether nothing tells how far some cell strays, which is then allowed what others stray at most."""
        return bool((self.lost & ~self.measured).any())

    def allowed(self) -> Array:
        """2 ulp + 8 max(d, r |truth|). Where the value only jumps, d is that of the closest run, and the error is the
        distance from the nearest: no value between two steps is right. Where every run overflows on its way nothing
        tells d, and the largest d/|truth| of the other cells takes the place of r. A tolerance counts times |truth|,
        or 1 where |truth| is less."""
        size, spread = np.where(np.isfinite(self.base), np.abs(self.base), 0.0), self.spread
        if self.tolerance is not None:
            return np.asarray(self.tolerance * np.maximum(1.0, size))
        if self.steps:
            spread = np.where(np.isfinite(self.closest), self.closest, 0.0)
        if self.node.dtype is DType.F64:
            spread = np.maximum(spread, self.ulp / 2)  # the truth is rounded as the result is
        is_counted = (size > 0) & np.isfinite(self.truth)  # of others, the first run that is finite has no distance
        relative = spread[is_counted] / size[is_counted]
        usual, most = (float(np.median(relative)), float(relative.max())) if relative.size else (0.0, 0.0)
        at_least = np.where(self.lost & ~self.measured, most, usual) * size
        return np.asarray(ULPS * self.ulp + FACTOR * np.maximum(spread, at_least))

    def ratios(self) -> Array:
        allowed = self.allowed()
        right = ((self.kinds & kind(self.value)) != 0) | (self.lost & ~np.isfinite(self.value))
        sign = np.where(self.value > 0, 1.0, -1.0)
        overflows = np.isinf(self.value) & (sign * self.base + allowed >= FORMATS[self.node.dtype].overflow)
        away = self.nearest if self.steps else distance(self.value, self.base)
        near = np.isfinite(self.value) & np.isfinite(self.base)
        return np.where(near, away / allowed, np.where(right | overflows, 0.0, np.inf))

    def errors(self, values: Array) -> Errors:
        """The distance of values from the truth, in ulp of the dtype at the truth."""
        away = distance(widen(values), self.truth)
        return total(away / self.ulp, away, self.truth, np.isfinite(away) & ~self.skipped)


def total(ulps: Array, away: Array, truth: Array, is_counted: Array) -> Errors:
    """The errors of the counted cells."""
    largest = float(np.abs(widen(truth[is_counted])).max(initial=0.0)) or 1.0
    ulps, relative = ulps[is_counted], away[is_counted] / largest
    worst_ulp, worst_relative = float(ulps.max(initial=0.0)), float(relative.max(initial=0.0))
    return Errors(worst_ulp, float(ulps.sum()), worst_relative, float(relative.sum()), ulps.size)


def extent_of(wrong: Array, shape: Sequence[int]) -> str:
    """Describe the extent of wrong cells, i64[count, rank]: `all of [:, 40:] is wrong`. Nothing of a single number."""
    if not len(shape):
        return ""
    low, high = wrong.min(0, initial=np.iinfo(np.int64).max), wrong.max(0, initial=-1) + 1
    box = ", ".join(_span(*bounds) for bounds in zip(low, high, shape, strict=True))
    full = len(wrong) == np.prod(high - low, dtype=np.int64)
    if full:
        return f"all of [{box}] is wrong"
    return f"{len(wrong)} of {np.prod(shape, dtype=np.int64)} cells are wrong, in [{box}]"


def _span(low: int, high: int, extent: int) -> str:
    if high - low == 1 and extent > 1:
        return str(low)
    return f"{low or ''}:{high if high < extent else ''}"


class GuardedKernel(Protocol):
    """A kernel as `noyau.toolchain.c.library.Native` is one: it runs on copies between guard zones."""

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]: ...


def certify_native(
    graph: Graph,
    native: GuardedKernel,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
) -> Certificate:
    """The certificate of a kernel that was built for a group's graph.

    Each case runs twice between guard zones, on poisoned outputs: whole, and in three pieces, the last first. A kernel
    that touches what it may not, or leaves a cell unwritten, is wrong; so is one of which the two runs differ in a bit.
    `made_up`: the captured cases come from made-up inputs; `traced` as in `certify`."""
    runs = PieceRuns(native)
    certificate = certify(graph, runs, cases, name=name, made_up=made_up, traced=traced)
    return replace(certificate, order_independent=runs.is_deterministic)


@dataclass(slots=True)
class PieceRuns:
    """A kernel as a function that runs it twice; `is_deterministic` until two runs differ."""

    native: GuardedKernel
    is_deterministic: bool = field(default=True, init=False)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        whole = self.native.call_guarded(*inputs)
        pieces = self.native.call_guarded(*inputs, pieces=PIECES, order=last_first)
        self.is_deterministic &= all(one.tobytes() == other.tobytes() for one, other in zip(whole, pieces, strict=True))
        return whole


def last_first(count: int) -> Iterable[int]:
    """The order of pieces that is not the usual one."""
    return reversed(range(count))
