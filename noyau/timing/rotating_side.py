"""A side of a comparison that calls a contender on rotating arrays, verified on runs that are timed.

It makes inputs new between calls, outside the time that is measured, and keeps what some of the timed calls returned,
chosen at random beforehand. What they returned is verified when all timing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from noyau.errors import CheckError
from noyau.timing.conditions import others_rest
from noyau.timing.input_rotation import Arrays, Rotation, packed_sets
from noyau.timing.output_checks import Check
from noyau.timing.sides import Clock, Contender, SelfTimed
from noyau.workers.tamper_detection import Snapshot, poison

VERIFIED = 4  # timed runs of each side and temperature


@dataclass(slots=True)
class RotatingSide(SelfTimed):
    """A candidate on a rotation of inputs; every sample is split around a call that is chosen before it runs.

    `into`: memory for the outputs of each set, made here where none is given; sides may share it, and the rotation, for
    both change before each call that is looked at. `verified`: how many calls are."""

    candidate: Contender
    rotation: Rotation
    like: Sequence[np.ndarray]
    rng: np.random.Generator
    clock: Clock
    into: list[Arrays] = field(default_factory=list)
    verified: int = VERIFIED
    samples: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    taken: list[tuple[Any, ...]] = field(default_factory=list)
    taken_out: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.candidate.into and not self.into:
            self.into = packed_sets(len(self.rotation.sets), self.like)
            for arrays in self.into:
                poison(arrays)
        self.taken = [self.candidate.takes(arrays) for arrays in self.rotation.sets]
        self.taken_out = [self.candidate.takes_out(arrays) for arrays in self.into] if self.candidate.into else []

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls, on inputs that are made new between turns of the rotation, while no clock runs, and
        once the threads of whoever was timed before rest."""
        others_rest()
        chosen, calls_before, took_s = int(self.rng.integers(calls)), 0, 0.0
        self.samples += 1  # of n samples, each is kept as likely as any other
        place = self.samples - 1 if self.samples <= self.verified else int(self.rng.integers(self.samples))
        slot = place if place < self.verified else None
        while calls_before < calls:
            first = self.rotation.next
            count = len(self.rotation.take(calls - calls_before))
            within = first + chosen - calls_before if calls_before <= chosen < calls_before + count else None
            took_s += self._turn(range(first, first + count), within, slot)
            calls_before += count
        return took_s

    def _turn(self, sets: range, chosen: int | None, slot: int | None) -> float:
        """Seconds of a call on each set, in two parts: up to the chosen one, whose result is copied, and from there."""
        if chosen is None:
            return self._timed(sets)[0]
        snapshot, into = None, self.into[chosen] if self.taken_out else ()
        if slot is not None:
            live = self.rotation.sets[chosen]
            snapshot = Snapshot([array.copy() for array in live], live)
            poison(into)
        took_s, result = self._timed(range(sets.start, chosen + 1))
        if snapshot is not None:
            snapshot.keep(None if into else self.candidate.gives(result), into)
        rest_s = self._timed(range(chosen + 1, sets.stop))[0] if chosen + 1 < sets.stop else 0.0
        if snapshot is not None and slot is not None:
            snapshot.settle()
            self.snapshots[slot : slot + 1] = [snapshot]
        return took_s + rest_s

    def _timed(self, sets: range) -> tuple[float, object]:
        """Seconds of a call on each set, and what the last one returned."""
        run, clock, arguments = self.candidate.run, self.clock, self.taken[sets.start : sets.stop]
        result: object = None
        if self.taken_out:
            pairs = list(zip(arguments, self.taken_out[sets.start : sets.stop], strict=True))
            start_s = clock()
            for arrays, out in pairs:
                run(*arrays, out=out)
            return clock() - start_s, None
        start_s = clock()
        for arrays in arguments:
            result = run(*arrays)
        return clock() - start_s, result

    def refuse(self, check: Check) -> None:
        """CheckError where one of the kept runs was wrong."""
        for snapshot in self.snapshots:
            fault = snapshot.fault or check(snapshot.inputs, snapshot.outputs)
            if fault:
                raise CheckError(f"{self.candidate.name} was wrong in a run that was timed: {fault}")
