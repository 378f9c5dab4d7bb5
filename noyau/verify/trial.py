"""The trial of a kernel: its values against float64, beside those of the computation that it replaces.

The truth is the graph evaluated with every float widened to float64. What is allowed follows, cell by cell, from how
far nine runs of the unfused computation stray from it: one as it is, eight with each float input moved by an ulp and
with other roundings. A reference that is one Opaque is rounded inside as its traced graph says, where that is given:
what the graph strays from its own truth, the reference may stray from its."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Protocol

import numpy as np

from noyau.errors import CheckError, FindingKind, InputError, NoyauError, UnsupportedError
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.toolchain.guard_zones import Order
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.failures import Array, Arrays, Case, Failure, changed_input, inputs_text, misfit
from noyau.verify.floats import shift_run
from noyau.verify.judges import MORE_RUNS, MOVED_RUNS, Judge, Stage, decide, first_runs, is_rare, is_wrong, judge_of
from noyau.verify.jumps import runs_at_jumps, step_values
from noyau.verify.rounding import DIRECTIONS, longer_runs, move_runs
from noyau.verify.undefined import undefined_cells

KernelFunction = Callable[[Sequence[Array]], Sequence[Array]]
LazyGraph = Callable[[], "Graph | None"]  # the graph of a reference, traced when it is asked for


class KernelTrial:
    """A kernel, and the graph that says what is right; `is_check`: a user's kernel, of which each failure is told.
    `tolerance`: chosen by a user in the place of what follows from unfused runs; `refuses`: whether it can."""

    def __init__(
        self,
        graph: Graph,
        kernel: KernelFunction,
        traced: LazyGraph | None = None,
        *,
        is_check: bool = False,
        tolerance: float | None = None,
        refuses: bool = True,
    ) -> None:
        self.graph, self.kernel, self.stepped = graph, kernel, step_values(graph)
        self.lazy_graph = traced if tolerance is None else None
        self.is_check, self.tolerance, self.refuses = is_check, tolerance, refuses
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
            return self.judge_refusal(case, refusal)
        copies = tuple(np.copy(array, order="C") for array in case.inputs)
        try:
            results = self.kernel(copies)
        except NoyauError as error:
            if isinstance(error, InputError) and not any(truth[name].size for name in self.graph.outputs):
                return Outcome(case.label, case.captured)  # NumPy refuses an index that is looked up for nothing, too
            return self.judge_error(case, error)
        unfit, written_to = misfit(self.graph, results, truth), changed_input(copies, case.inputs)
        if unfit:
            return self.fail(case, FindingKind.WRONG_VALUE, unfit)
        if written_to:
            return self.fail(case, FindingKind.MUTATED_INPUT, written_to)
        judges = self.judges(inputs, results, truth)
        return decide(case, inputs_text(self.graph, case.inputs), judges, self.stages(inputs, truth, as_it_is, seed))

    def stages(self, inputs: Arrays, truth: Arrays, as_it_is: Arrays, seed: int) -> Iterator[Stage]:
        """The unfused runs of a case, the fewest first."""
        runs = self.in_order(chain([as_it_is], move_runs(self.graph, inputs, seed, MOVED_RUNS)))
        yield Stage(islice(runs, 1 + self.first_runs))
        yield Stage(runs)
        for directions in (DIRECTIONS, [None] * MOVED_RUNS) if self.lazy_graph is None else ():
            yield Stage(self.in_order(longer_runs(self.graph, inputs, seed, directions)), is_wrong)
        yield Stage(self.in_order(runs_at_jumps(self.graph, inputs)), is_wrong)
        yield Stage(self.in_order(self.move_traced_runs(inputs, truth, seed, MOVED_RUNS)), is_wrong)
        yield Stage(self.in_order(self.more_runs(inputs, truth, seed)), is_rare)

    def in_order(self, runs: Iterable[Arrays]) -> Iterator[Sequence[Array]]:
        return ([run[name] for name in self.graph.outputs] for run in runs)

    def judges(self, inputs: Arrays, results: Sequence[Array], truth: Arrays) -> list[Judge]:
        """A judge for each output; what the operator table leaves undefined is skipped."""
        undefined = undefined_cells(self.graph, inputs)
        judges = []
        for name, got in zip(self.graph.outputs, results, strict=True):
            skipped = np.broadcast_to(undefined.get(name, np.array(False)), got.shape)
            judges.append(judge_of(self.graph[name], got, truth[name], skipped, name in self.stepped, self.tolerance))
        return judges

    def move_traced_runs(self, inputs: Arrays, truth: Arrays, seed: int, count: int) -> Iterator[Arrays]:
        """Runs of the traced graph that are rounded otherwise, moved by how far its truth is from that of the
        reference: were it traced wrongly, it could not say what is right. None where nothing was traced."""
        if self.traced is None:
            return
        with suppress(InputError):
            own = evaluate(self.traced, inputs, wide=True)
            longer = longer_runs(self.traced, inputs, seed, [*DIRECTIONS, *[None] * count])
            for run in chain(runs_at_jumps(self.traced, inputs), move_runs(self.traced, inputs, seed, count), longer):
                yield {name: shift_run(run[name], own[name], truth[name]) for name in self.graph.outputs}

    def more_runs(self, inputs: Arrays, truth: Arrays, seed: int) -> Iterator[Arrays]:
        """A second look at few wrong cells."""
        if self.traced is None:
            yield from move_runs(self.graph, inputs, seed, MORE_RUNS)
            yield from longer_runs(self.graph, inputs, seed, [None] * (MORE_RUNS // 2))
        yield from self.move_traced_runs(inputs, truth, seed, MORE_RUNS)

    def judge_refusal(self, case: Case, refusal: InputError) -> Outcome:
        """Judge a kernel on inputs that the graph itself refuses. Where Python or NumPy only has no value for them, as
        for the maximum of nothing or a quotient by 0, or it cannot refuse, a kernel may have any."""
        try:
            self.kernel(tuple(np.copy(array, order="C") for array in case.inputs))
        except InputError:
            return Outcome(case.label, case.captured)
        except NoyauError as error:
            return self.judge_error(case, error)
        if not self.refuses or isinstance(refusal.__cause__, ValueError | ArithmeticError):
            return Outcome(case.label, case.captured)
        return self.fail(case, FindingKind.WRONG_VALUE, f"accepted what it must refuse: {refusal}")

    def judge_error(self, case: Case, error: NoyauError) -> Outcome:
        """The outcome of a run that raised; a check drops the class of a CheckError. An UnsupportedError of a user's
        kernel is raised again: noyau cannot run it so, and nothing is said of the kernel."""
        if self.is_check and isinstance(error, UnsupportedError):
            raise error
        is_plain = self.is_check and isinstance(error, CheckError)
        note = str(error) if is_plain else f"ended with {type(error).__name__}: {error}"
        return self.fail(case, kind_of(error), note)

    def fail(self, case: Case, kind: FindingKind, note: str) -> Outcome:
        failure = Failure(kind, case.label, inputs_text(self.graph, case.inputs), note)
        return Outcome(case.label, case.captured, failures=(failure,))


def kind_of(error: NoyauError) -> FindingKind:
    """The kind of what an error of a kernel shows; of one that is not about its values, a wrong value."""
    return error.kind if isinstance(error, CheckError) else FindingKind.WRONG_VALUE


def certify(
    graph: Graph,
    kernel: KernelFunction,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
    refuses: bool = True,
) -> Certificate:
    """Compare the values of a kernel with the truth of its group's graph.

    `kernel` maps arrays in the order of the graph's inputs to arrays in the order of its outputs. Inputs that the graph
    refuses with an InputError (an index outside its table), the kernel must refuse with one, if it `refuses` any: on a
    GPU it need only keep to its memory. `made_up`: the captured cases come from made-up inputs. `traced` gives the same
    computation as a graph of the same inputs and outputs, where `graph` is one Opaque. A case of which every cell is
    allowed after two of the eight moved runs is done with them: more allow no less, but where all runs overflowed so
    far. The same arguments give the same certificate."""
    trial = KernelTrial(graph, kernel, traced, refuses=refuses)
    with np.errstate(all="ignore"):
        return Certificate(name, tuple(trial.outcome(case, number) for number, case in enumerate(cases)), made_up)


PIECES = 3


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
    is_deterministic: bool = True,
    refuses: bool = True,
) -> Certificate:
    """The certificate of a kernel that was built for a group's graph.

    Each case runs twice between guard zones, on poisoned outputs: whole, and in three pieces, the last first. A kernel
    that touches what it may not, or leaves a cell unwritten, is wrong; so is one whose two runs differ in a bit, unless
    it is not `is_deterministic`. `made_up`: captured cases are of made-up inputs; the rest is as in `certify`."""
    runs = PieceRuns(native)
    certificate = certify(graph, runs, cases, name=name, made_up=made_up, traced=traced, refuses=refuses)
    return replace(certificate, order_independent=runs.is_deterministic if is_deterministic else None)


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
