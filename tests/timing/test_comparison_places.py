"""Sides in places of their own, swapped half of the time: what a place is worth cancels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from noyau.timing.comparison import compare_swapped, half, join
from noyau.timing.verdict import FEWEST_PAIRS, Verdict

SLOWER = 1.08  # the second place, as a process whose memory lies badly


class Machine:
    """A clock that only calls move, by times that stray a little."""

    def __init__(self):
        self.now_s, self.rng = 0.0, np.random.default_rng(0)

    def clock(self):
        return self.now_s

    def places(self, before_s, after_s):
        """The sides, each in its own place or in the other's."""

        def made(swapped):
            slow = (SLOWER, 1.0) if swapped else (1.0, SLOWER)
            return RotatingSide(self, before_s * slow[0]), RotatingSide(self, after_s * slow[1])

        return made


@dataclass
class RotatingSide:
    machine: Machine
    time_s: float

    def lasts(self, calls):
        took_s = calls * self.time_s * self.machine.rng.lognormal(0, 0.01)
        self.machine.now_s += took_s
        return took_s


@pytest.mark.parametrize(
    ("after_s", "verdict"), [(1e-3, Verdict.SAME), (0.93e-3, Verdict.FASTER), (1.07e-3, Verdict.SLOWER)]
)
def test_a_place_is_taken_out(after_s, verdict):
    machine = Machine()
    found = compare_swapped(machine.places(1e-3, after_s), clock=machine.clock)
    assert found.verdict is verdict
    assert found.speedup == pytest.approx(1e-3 / after_s, rel=0.01)
    assert machine.now_s < 1.5


def test_in_one_place_alone_it_is_not():
    machine = Machine()
    found = half(*machine.places(1e-3, 1e-3)(False), budget_s=1.0, clock=machine.clock)
    assert found.verdict is Verdict.SLOWER
    assert machine.now_s < 0.75  # half of the time


def test_halves_are_joined_pair_by_pair_and_slow_sides_get_the_fewest():
    machine = Machine()
    first, second = (half(*machine.places(9.0, 8.0)(swapped), budget_s=1e-3, clock=machine.clock) for swapped in (0, 1))
    both = join((first, second))
    assert first.pairs == second.pairs == FEWEST_PAIRS // 2
    assert both.before_s == first.before_s + second.before_s
    assert both.after_s == first.after_s + second.after_s
    assert both.verdict is Verdict.FASTER
    assert join((both, both)).openings == (first.pairs,) * 4
