"""Rounds of calls on a simulated queue."""

from __future__ import annotations

import pytest

from noyau.timing.queue_clock import interleave
from noyau.timing.verdict import Comparison
from tests.timing.simulated import SimulatedQueue
from tests.timing.test_queue_clock import call_of, clock_on


def test_calls_take_turns_in_an_order_of_the_seed():
    queue, order = SimulatedQueue(), []
    calls = {name: (lambda name=name: order.append(name)) for name in "abc"}
    found = interleave(clock_on(queue), calls, rounds=5, cold=True, seed=1)
    rounds = ["".join(order[at : at + 3]) for at in range(9, len(order), 3)]
    assert len(rounds) == 5
    assert {"".join(sorted(each)) for each in rounds} == {"abc"}
    assert len(set(rounds)) > 1
    assert {len(each.samples_s) for each in found.values()} == {5}


def test_times_and_their_ratio():
    queue = SimulatedQueue()
    calls = {"one": call_of(queue, 30e-6), "other": call_of(queue, 10e-6)}
    found = interleave(clock_on(queue), calls, rounds=4, cold=False, seed=0)
    assert Comparison(found["one"].samples_s, found["other"].samples_s).speedup == pytest.approx(3)
    assert found["one"].median_s == pytest.approx(30e-6)
    assert found["one"].unblocked == 0
