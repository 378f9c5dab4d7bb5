"""The judgement of what a submission gave: bytes against float64, the rule of its benchmark, inputs, replays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import FindingKind, Severity
from noyau.ir.dims import shape_of
from noyau.ir.graph import Input, Node
from noyau.jobs.check.submissions.problem import Status, Tolerance
from noyau.text import several
from noyau.verify.failures import Case, Failure
from noyau.verify.floats import widen
from noyau.verify.judges import judge_of

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth of a trial and a seed: results as they are, in float64, rounded otherwise; inputs; facts on both."""

    native: tuple[Array, ...]
    wide: tuple[Array, ...]
    runs: tuple[tuple[Array, ...], ...]
    inputs: tuple[Array, ...]
    facts: dict[str, Any]

    @staticmethod
    def of(results: tuple[list[Array], dict[str, Any]], inputs: Sequence[Array]) -> Truth:
        """The parts of a file of results."""
        arrays, facts = results
        count = facts["count"]
        parts = [tuple(arrays[at : at + count]) for at in range(0, len(arrays), max(count, 1))]
        return Truth(parts[0], parts[1], (parts[0], *parts[2:]), tuple(inputs), facts)

    @property
    def writable(self) -> set[int]:
        """The inputs that a submission may write to: those that nobody wrote to, those that the reference changes too,
        and those that it does not read."""
        return {*self.facts["unset"], *self.facts["changed"], *self.facts["unread"]}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: the results of a call, its inputs afterwards, and facts on their memory."""

    results: tuple[Array, ...]
    inputs: tuple[Array, ...]
    facts: dict[str, Any]

    @staticmethod
    def of(results: tuple[list[Array], dict[str, Any]]) -> Answer:
        """The parts of a file of results."""
        arrays, facts = results
        return Answer(tuple(arrays[: facts["count"]]), tuple(arrays[facts["count"] :]), facts)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with an answer."""

    status: Status
    kind: FindingKind
    message: str
    cell: tuple[int, ...] | None = None
    severity: Severity = "error"


def passes(got: Array, native: Array, tolerance: Tolerance) -> bool:
    """Whether the rule of a benchmark passes a result: so many cells are near, none too far, all are finite, and they
    are not all 0 unless those of the reference are."""
    one, other = (each.astype(np.float32).astype(np.float64) for each in (got, native))
    if got.shape != native.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return False
    if other.any() and not one.any():
        return False
    away = np.abs(one - other)
    near = np.count_nonzero(away <= tolerance.atol + tolerance.rtol * np.abs(other))
    capped = tolerance.cap is None or float(away.max(initial=0.0)) <= tolerance.cap
    return bool(capped and near >= tolerance.share * away.size)


def faults_of(answer: Answer, truth: Truth, label: str, tolerance: Tolerance | None, poison: int) -> Iterator[Fault]:
    """The faults of one answer. Without a tolerance the format has its own check, and no dtype is asked for."""
    yield from _changed_inputs(answer, truth)
    if len(answer.results) != len(truth.native):
        message = f"it gave {several(len(answer.results), 'result')}, and the reference {len(truth.native)}"
        yield Fault(Status.WRONG_SHAPE, FindingKind.WRONG_VALUE, message)
        return
    for at, (got, native) in enumerate(zip(answer.results, truth.native, strict=True)):
        name = f"out{at}" if len(truth.native) > 1 else "out"
        misfit = list(_misfits(got, native, name, tolerance is not None))
        unset = unset_cells(got, poison)
        if unset.any() and (got.shape != native.shape or (unset & ~_may_be(native, poison)).any()):
            yield _unwritten(unset, name)
        elif not misfit:
            runs = [run[at] for run in truth.runs]
            yield from _wrong_values(name, got, truth.wide[at].reshape(got.shape), runs, label, tolerance)
        yield from misfit


def _misfits(got: Array, native: Array, name: str, is_strict: bool) -> Iterator[Fault]:
    same_cells = [extent for extent in got.shape if extent != 1] == [extent for extent in native.shape if extent != 1]
    if got.shape != native.shape and (is_strict or not same_cells):
        message = f"{name} has the shape {list(got.shape)}, and the reference's {list(native.shape)}"
        yield Fault(Status.WRONG_SHAPE, FindingKind.WRONG_VALUE, message)
    if got.dtype != native.dtype and is_strict:
        message = f"{name} holds {got.dtype}, and the reference's {native.dtype}"
        yield Fault(Status.WRONG_DTYPE, FindingKind.WRONG_VALUE, message)


def _changed_inputs(answer: Answer, truth: Truth) -> Iterator[Fault]:
    for at, (after, before) in enumerate(zip(answer.inputs, truth.inputs, strict=False)):
        if at in truth.writable or after.tobytes() == before.tobytes():
            continue
        bits = [np.ascontiguousarray(each).reshape(-1).view(f"V{each.itemsize}") for each in (after, before)]
        cells = np.flatnonzero(bits[0] != bits[1]) if after.shape == before.shape else np.zeros(1, np.int64)
        cell = tuple(map(int, np.unravel_index(int(cells[0]), before.shape))) if before.ndim else ()
        message = f"it changed {several(len(cells), 'cell')} of its input {at}, {list(cell)} first"
        yield Fault(Status.CHANGED_INPUTS, FindingKind.MUTATED_INPUT, message, cell)


def unset_cells(array: Array, poison: int) -> Array:
    """A mask of the cells of which every byte is the one that memory began with: a NaN of floats, a rare number."""
    if array.dtype.kind == "b" or array.itemsize < 2 or not array.size:
        return np.zeros(array.shape, bool)
    cells = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    return np.asarray((cells == poison).all(1).reshape(array.shape))


def _may_be(native: Array, poison: int) -> Array:
    """A mask of the cells whose right value may have those bytes: of a NaN any."""
    is_nan = np.isnan(widen(native)) if poison == 0xFF else np.zeros(native.shape, bool)
    return np.asarray(unset_cells(native, poison) | is_nan)


def _unwritten(mask: Array, name: str) -> Fault:
    first, count = tuple(map(int, np.argwhere(mask)[0])), int(np.count_nonzero(mask))
    many = f"{several(count, 'cell')} of {mask.size} of {name}"
    message = f"{many} {'was' if count == 1 else 'were'} never written, {list(first)} first"
    return Fault(Status.UNWRITTEN, FindingKind.UNWRITTEN, message, first)


def _wrong_values(
    name: str, got: Array, wide: Array, runs: Sequence[Array], label: str, tolerance: Tolerance | None
) -> Iterator[Fault]:
    """The first wrong cell. Lost precision that the tolerance of the problem allows at every cell is a warning."""
    dtype = from_numpy(got.dtype)
    if dtype is None or dtype is DType.OTHER:
        return
    node = Node(name, Input(), (), dtype, shape_of(got.shape))
    truth = wide if dtype.is_float else wide.astype(got.dtype)
    judge = judge_of(node, got, truth, np.zeros(got.shape, bool), False, None)
    with np.errstate(all="ignore"):
        for run in runs:
            judge.see(run.reshape(got.shape) if dtype.is_float else run.reshape(got.shape).astype(got.dtype))
        outcome = judge.outcome(Case(label, ()), label)
    if not outcome.broken:
        return
    failure: Failure = outcome.failures[0]
    rule = tolerance or Tolerance(0.0, 0.0)
    is_near = bool((np.abs(widen(got) - widen(wide)) <= rule.atol + rule.rtol * np.abs(widen(wide))).all())
    is_mild = failure.kind is FindingKind.PRECISION and (is_near or tolerance is None)  # the task's own check decides
    yield Fault(Status.WRONG, failure.kind, str(failure), failure.cell, "warning" if is_mild else "error")


def replays(answers: dict[str, Answer], truths: dict[str, Truth]) -> Iterator[Fault]:
    """The faults that the calls of a trial show together. `a` and `b` are on other values in the same memory, `c` is on
    those of a in the tensors of b."""
    first, second, third = (answers.get(name) for name in "abc")
    if first is not None:
        yield from _aliases(first, truths["a"])
    if first is None or second is None or _same(truths["a"].native, truths["b"].native):
        return
    if second.facts["changed"] and not second.facts["is_same_memory"]:
        message = "the results of its first call changed with the second one"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message, severity="warning")
    if _same(first.results, second.results) and not _same(first.results, truths["b"].native):
        message = "it gave the results of its first call again, for other values in the same memory"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message)
    if third is not None and _same(second.results, third.results):
        message = "it gave the results of an earlier call again, for the same tensors with other values in them"
        yield Fault(Status.REPLAYED, FindingKind.WRONG_VALUE, message)


def _same(one: Sequence[Array], other: Sequence[Array]) -> bool:
    return [each.tobytes() for each in one] == [each.tobytes() for each in other]


def _aliases(answer: Answer, truth: Truth) -> Iterator[Fault]:
    """A result in the memory of an input, where the reference's lies elsewhere."""
    for at, to in answer.facts["aliases"]:
        if to not in truth.writable and [at, to] not in truth.facts["aliases"]:
            message = f"its result {at} lies in the memory of its input {to}: who changes one changes the other"
            yield Fault(Status.REPLAYED, FindingKind.MUTATED_INPUT, message)
