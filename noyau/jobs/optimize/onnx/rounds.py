"""Kernels timed in rounds, one for each binding of the sizes: who loses one is out, and is not timed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from noyau.errors import InputError, ModelError
from noyau.hosts.onnxruntime.capture import Capturing
from noyau.hosts.onnxruntime.inputs import Feeds, Seen, look_again
from noyau.hosts.onnxruntime.size_bindings import MOST_BYTES, Dims, bindings, called, inputs_at, largest_bytes, spell
from noyau.hosts.onnxruntime.source_model import Original
from noyau.jobs.optimize.onnx.candidates import Judged, right
from noyau.jobs.optimize.onnx.kernel_timing import Bench, Scene, decided, timed
from noyau.timing.conditions import is_brief

Say = Callable[[str], None]
Sizes = dict[str, int]


@dataclass(frozen=True, slots=True)
class Deadline:
    """When all work has to end: so many seconds after it is made."""

    within_s: float
    start_s: float = field(default_factory=time.monotonic)

    @property
    def passed(self) -> bool:
        return time.monotonic() - self.start_s > self.within_s

    @property
    def fault(self) -> str:
        """What is wrong with going on, or nothing."""
        return f"no time is left of the {self.within_s:g} s that were given" if self.passed else ""


@dataclass(frozen=True, slots=True)
class Course:
    """What kernels are timed for: a model, its inputs, what flows through it with them, which sizes are asked for.

    `capturing` may have a session that shows what flows through it with others."""

    original: Original
    feeds: Feeds
    asked: Seen
    dims: Dims
    seed: int = 0
    capturing: Capturing | None = None
    notes: list[str] = field(default_factory=list)

    def bindings(self) -> list[Sizes]:
        """The sizes of each round; a user's arrays have theirs. The first alone where clocks are to be brief."""
        fixed = not self.feeds.made_up or not self.feeds.asked.arrays
        imported = self.original.imported
        first, *others = [dict(self.feeds.asked.sizes)] if fixed else bindings(imported, self.dims)
        assert fixed or first == dict(self.feeds.asked.sizes)
        return [first, *(sizes for sizes in others if not is_brief() and self._fits(sizes))]

    def _fits(self, sizes: Sizes) -> bool:
        """Whether the largest value has room at sizes that nobody asked for; if not, that is noted."""
        imported = self.original.imported
        largest = 0 if self.dims else largest_bytes(imported.graph, sizes)
        if largest > MOST_BYTES:
            at = spell(called(imported, sizes))
            self._note(f"not timed at {at}: a value takes {largest / 2**30:.1f} GiB; --dim asks for that")
        return largest <= MOST_BYTES

    def seen(self, kernels: Sequence[Judged], sizes: Sizes) -> Seen | None:
        """What flows through the model at some sizes; None, and a note, where it does not run."""
        if sizes == dict(self.feeds.asked.sizes):
            return self.asked
        try:
            inputs = inputs_at(self.original.imported, sizes, self.feeds.missing, self.seed)
            return look_again(self.original, right(kernels), inputs, self.feeds.made_up, self.capturing)
        except (InputError, ModelError) as error:
            self._note(f"not timed at {spell(called(self.original.imported, sizes))}: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def raced(bench: Bench, judged: Sequence[Judged], course: Course, deadline: Deadline, keep: str, say: Say) -> Raced:
    """The kernels, timed at each binding and kept or not, and what the whole model is to be timed on."""
    scenes, made = list[Scene](), list(judged)
    for sizes in course.bindings():
        named = called(course.original.imported, sizes)
        if scenes:
            say(f"running the model at {spell(named)}")
        seen = None if deadline.passed and scenes else course.seen(made, sizes)
        if seen is None:
            continue
        at = replace(bench, seen=seen, sizes=named, cold=not scenes)
        where = f" at {spell(named)}" if named else ""
        turn = aloud(f"timing{where}", len(made), say, partial(_timed, bench=at, deadline=deadline, keep=keep))
        made = [turn(each) for each in enumerate(made, 1)]
        scenes += _scene(course.original, seen, named)
    if deadline.passed:
        course.notes.append(f"the whole model is not timed: {deadline.fault}")
    return Raced([decided(one, keep) for one in made], [] if deadline.passed else scenes)


@dataclass(frozen=True, slots=True)
class Raced:
    """What came of all rounds."""

    judged: list[Judged]
    scenes: list[Scene]


def _timed(judged: Judged, bench: Bench, deadline: Deadline, keep: str) -> Judged:
    """A kernel timed at one more binding; without time, one that was timed before stays as it is."""
    if not deadline.passed:
        return timed(judged, bench, keep)
    if judged.reason or judged.timings:
        return judged
    return replace(judged, kept=keep == "all", reason=f"not timed: {deadline.fault}")


def aloud(doing: str, count: int, say: Say, step: Callable[[Judged], Judged]) -> Callable[[tuple[int, Judged]], Judged]:
    """`step` with one of so many kernels and its number, said as its turn comes while nothing speaks against it."""

    def turn(numbered: tuple[int, Judged]) -> Judged:
        number, one = numbered
        if not one.reason:
            say(f"{doing}, {number} of {count}: {one.planned.operator}")
        return step(one)

    return turn


def _scene(original: Original, seen: Seen, sizes: Sizes) -> list[Scene]:
    """What the whole model reads at a binding; nothing where an input is not known."""
    stored = original.imported.initializers
    names = [value.name for value in original.model.graph.input if value.name not in stored]
    if not seen.arrays.keys() >= set(names):
        return []
    return [Scene(sizes, {name: seen.arrays[name] for name in names})]
