from __future__ import annotations

import pytest

from noyau.timing.queue_clock import EMPTY_PAIRS, FIRST_CYCLES, MOST_CYCLES, Around, BlockedClock, Hold
from tests.timing.simulated import CYCLE_S, SimulatedQueue


def clock_on(queue):
    return BlockedClock(queue, queue.clock)


def call_of(queue, device_s, host_s=20e-6):
    def call():
        queue.host(host_s)
        queue.work(device_s)

    return call


@pytest.mark.parametrize("cold", [True, False])
def test_neither_the_launch_nor_the_flush_nor_the_marks_are_measured(cold):
    queue = SimulatedQueue(pair_s=1.5e-6)
    clock = clock_on(queue)
    assert clock.overhead_s == pytest.approx(1.5e-6)
    sample = clock.sample(call_of(queue, 8e-6, host_s=100e-6), cold=cold)
    assert sample.took_s == pytest.approx(8e-6)
    assert sample.host_s == pytest.approx(100e-6)
    assert sample.blocked


def test_what_takes_long_to_launch_is_held_for_longer():
    queue = SimulatedQueue()
    clock, slow = clock_on(queue), call_of(queue, 8e-6, host_s=5e-3)
    hold = Hold()
    found = [clock.sample(slow, hold=hold) for _ in range(6)]
    assert not found[0].blocked
    assert found[0].took_s > 1e-3
    assert found[-1].blocked
    assert found[-1].took_s == pytest.approx(8e-6)
    assert hold.cycles * CYCLE_S > 5e-3
    assert clock.usual.cycles == FIRST_CYCLES


def test_what_was_slow_once_is_not_held_for_ever():
    queue = SimulatedQueue()
    clock, hold = clock_on(queue), Hold()
    for host_s in (5e-3,) * 5 + (20e-6,) * 3:
        last = clock.sample(call_of(queue, 8e-6, host_s), hold=hold)
    assert last.blocked
    assert hold.cycles == FIRST_CYCLES


def test_a_call_that_waits_for_the_device_is_never_taken_for_blocked():
    queue = SimulatedQueue()
    clock = clock_on(queue)

    def call():
        queue.work(8e-6)
        queue.settle()

    assert [clock.sample(call).blocked for _ in range(8)] == [False] * 8
    assert clock.usual.cycles == MOST_CYCLES


def test_the_flush_and_the_changes_come_before_the_first_mark():
    queue = SimulatedQueue()
    clock = clock_on(queue)
    queue.told.clear()
    around = Around(*(lambda *_, word=word: queue.told.append(word) for word in ("first", "before", "after")))
    clock.sample(lambda: queue.told.append("call"), around=around)
    assert queue.told == ["first", "settle", "overwrite", "hold", "before", "mark", "call", "mark", "after"]


def test_an_empty_pair_that_was_held_up_does_not_count():
    queue = SimulatedQueue(pair_s=1e-6)
    marks = []

    def mark():
        marks.append(1)
        queue.pair_s = 50e-6 if len(marks) == 6 else 1e-6
        return SimulatedQueue.mark(queue)

    queue.mark = mark
    assert clock_on(queue).overhead_s == pytest.approx(1e-6)
    assert len(marks) == 2 * EMPTY_PAIRS
    assert FIRST_CYCLES < MOST_CYCLES
