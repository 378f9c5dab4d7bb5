"""The watched runs of a kernel under check: on small sizes first, so that what is found is at the smallest.

Who writes which cell in the kernels of an op that are written by hand, on a small call.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import process_time as process_s
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import CheckError, FindingKind, NoyauError
from noyau.jobs.check.attempts import usual_case
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.sanitizer.access_map import Map
from noyau.sanitizer.records import Watched
from noyau.sanitizer.routes import Case, is_watched, watch
from noyau.text import counted, printable, several
from noyau.verify.findings import Finding

if TYPE_CHECKING:
    from noyau.jobs.check.attempts import Attempt, Sizes

_APART = "Triton compiles here; TRITON_INTERPRET=1 in the environment has it interpret, which a map needs"


def maps_of(op: Op[..., Any]) -> list[Map]:
    """A map of a call of each kernel; of one that cannot be watched, or that is watched in another process, why."""
    maps: list[Map] = []
    for kernel in op.kernels.values():
        made: list[Map] = []
        try:
            instance, arrays, size = usual_case(op)
            watch(Case(kernel, instance, arrays, {}, size), made)
        except NoyauError as error:
            made = [Map(kernel.called, "", "", {}, (), (str(error),))]
        if not made and LANGUAGES[kernel.language].on_gpu:
            made = [Map(kernel.called, "", "", {}, (), (_APART,))]
        maps += made
    return maps


Array = np.ndarray
Inputs = Callable[["Attempt", "Sizes"], Sequence[Array] | None]
Watch = Callable[["Attempt", Sequence[Array], str], Watched]  # a run on arrays, of sizes in words
SMALL = (0, 1, 2, 3, 4, 5, 8, 9, 17, 33, 65)  # sizes that are tried for all at once
CELLS = 20_000  # of the inputs of an attempt; a larger one is left out
INSTANCES, FEWEST, PATIENCE = 3, 6, 3

# Kinds that a run without a watch finds too, and what else each explains.
EXPLAINED = frozenset(
    {
        FindingKind.WRONG_VALUE,
        FindingKind.PRECISION,
        FindingKind.ORDER_DEPENDENT,
        FindingKind.RACE,
        FindingKind.OUT_OF_BOUNDS,
        FindingKind.UNWRITTEN,
    }
)
CRASHING = frozenset(  # what may end a run
    {
        FindingKind.OUT_OF_BOUNDS,
        FindingKind.NEGATIVE_INDEX,
        FindingKind.UNINITIALISED,
        FindingKind.DIVERGENT_BARRIER,
    }
)


@dataclass(slots=True)
class Seen:
    """What the watched runs of a kernel showed. `why`: why there was none."""

    findings: dict[str, Finding] = field(default_factory=dict)
    accesses: int = 0
    shapes: list[str] = field(default_factory=list)
    allowed: dict[str, None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    why: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """For a report: how much was seen, what a mark allows, the class of each loop."""
        if self.why:
            return (f"its accesses are not seen: {self.why}",)
        if not self.shapes:
            return ()
        shapes = several(len(self.shapes), "shape")
        if not self.accesses and not self.findings:
            return (f"it touches no cell itself on {shapes}: what it calls is not watched", *self.allowed)
        kinds = {each.kind for each in self.findings.values()}
        none = "" if kinds & {FindingKind.RACE, FindingKind.WRITTEN_TWICE} else "no race found "
        accesses = f"{counted(self.accesses)} access{'es' * (self.accesses != 1)}"
        many = f"{none or 'watched '}on {shapes}, {accesses}"
        return (many, *self.allowed, *self.notes.values())


def by_hand(kernel: UserKernel, constants: Mapping[str, Any]) -> Watch | str:
    """How a kernel written by hand is watched, or why it is not."""
    if not is_watched(kernel.language):
        return f"kernels in {kernel.language} are not watched"
    return lambda attempt, arrays, size: watch(Case(kernel, attempt.instance, arrays, constants, size))


@dataclass(slots=True)
class Costs:
    """What the runs so far tell of the time that others take: as much more than the shortest as they have more cells
    of all sizes together, by the run of most cells: the first ones take long for what is compiled."""

    least_s: float = math.inf
    time_s: float = 0.0  # of the last run of most cells
    cells: int = 1

    def note(self, sizes: Sizes, time_s: float) -> None:
        self.least_s = min(self.least_s, time_s)
        if math.prod(sizes.values()) >= self.cells:
            self.time_s, self.cells = time_s, math.prod(sizes.values())

    def expected_s(self, sizes: Sizes) -> float:
        if not self.time_s:
            return 0.0
        return self.least_s + (self.time_s - self.least_s) * math.prod(sizes.values()) / self.cells


def watched(run: Watch | str, attempts: Sequence[Attempt], inputs: Inputs, budget_s: float) -> Seen:
    """Runs of a kernel with every access watched, the smallest first, for `budget_s` of this process and of those that
    it starts, or a few times that on the clock; at last the largest that is left, where many threads run. After the
    first few, none that is expected to take longer than that alone. What the first run builds is not counted."""
    if isinstance(run, str):
        return Seen(why=run)
    seen, costs, began_s, end_s = Seen(), Costs(), spent_s(), time.monotonic() + PATIENCE * budget_s
    left = list(_by_size(attempts))
    while left and not seen.why:
        short = left
        if len(seen.shapes) >= FEWEST:
            short = [attempt for attempt in left if costs.expected_s(attempt.sizes) <= budget_s]
            if not short or spent_s() > began_s + budget_s or time.monotonic() > end_s:
                long = (attempt for attempt in left if costs.expected_s(attempt.sizes) > budget_s)
                if any(_given(attempt, inputs) is not None for attempt in long):
                    seen.notes["costly"] = f"not at larger sizes, where a run would take more than {budget_s:g} s"
                any(_is_watched(run, attempt, inputs, seen, costs) for attempt in reversed(short))
                break
        _is_watched(run, short[0], inputs, seen, costs)
        began_s = spent_s() if len(seen.shapes) < 2 else began_s
        left = [attempt for attempt in left if attempt is not short[0]]
    return seen


def spent_s() -> float:
    """What this process, and those that it has started and that have ended, have had of the processors."""
    return math.fsum(os.times()[:4])


def _is_watched(run: Watch, attempt: Attempt, inputs: Inputs, seen: Seen, costs: Costs) -> bool:
    """Whether a run is to be had; what it shows is seen."""
    arrays = _given(attempt, inputs)
    if arrays is None:
        return False
    size, began_s = ", ".join(f"{printable(name)} = {value}" for name, value in attempt.sizes.items()), process_s()
    try:
        found = run(attempt, arrays, size)
    except CheckError as error:
        seen.notes.setdefault("raised", f"a watched run was not finished: {error}")
        return False
    except NoyauError as error:
        seen.why = str(error)
        return True
    costs.note(attempt.sizes, process_s() - began_s)
    seen.accesses += found.accesses
    seen.shapes.append(size)
    seen.allowed |= dict.fromkeys(found.allowed)
    seen.notes |= {note.partition(": ")[0]: note for note in found.notes}
    for finding in found.findings:
        seen.findings.setdefault(finding.id, finding)
    return True


def _given(attempt: Attempt, inputs: Inputs) -> Sequence[Array] | None:
    """The arrays of an attempt, where there are such and they are few cells."""
    arrays = inputs(attempt, attempt.sizes)
    return None if arrays is None or sum(array.size for array in arrays) > CELLS else arrays


def _by_size(attempts: Sequence[Attempt]) -> Iterator[Attempt]:
    """The attempts and small ones like them, the smallest first, each sizes once for each instance."""
    first: dict[Any, Attempt] = {}
    for attempt in attempts:
        first.setdefault(attempt.instance, attempt)
    chosen = list(first.values())[:INSTANCES]
    small = [replace(each, sizes=dict.fromkeys(each.sizes, size)) for each in chosen for size in SMALL]
    given = [attempt for attempt in attempts if attempt.instance in [each.instance for each in chosen]]
    ordered = sorted([*small, *given], key=lambda attempt: sum(attempt.sizes.values()))
    done = set()
    for attempt in ordered:
        key = attempt.instance, tuple(attempt.sizes.items())
        if key not in done:
            done.add(key)
            yield attempt


def explained(findings: Sequence[Finding], seen: Seen) -> list[Finding]:
    """The findings of a check, and what was watched in place of those that it is the cause of."""
    errors = any(each.severity == "error" for each in seen.findings.values())
    kinds = {each.kind for each in seen.findings.values()}
    known = kinds | (EXPLAINED if errors else set()) | ({FindingKind.CRASH} if kinds & CRASHING else set())
    kept = [each for each in findings if each.kind not in known]
    crashed = any(each.kind is FindingKind.CRASH for each in kept)
    seen_first = [each for each in seen.findings.values() if not (crashed and each.kind is FindingKind.UNWRITTEN)]
    return [*seen_first, *kept]
