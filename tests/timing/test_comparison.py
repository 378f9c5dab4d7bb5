from __future__ import annotations

import gc
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from noyau.timing.comparison import DECIDED, NARROW, compare, compare_all, is_narrow_or_lost
from noyau.timing.verdict import FEWEST_PAIRS, Comparison, Verdict

Noise = Callable[[np.random.Generator, float], float]

# What a shared machine does to a time, at a moment; each is a factor.
NOISES: dict[str, Noise] = {
    "none": lambda rng, now: 1.0,
    "five percent": lambda rng, now: rng.lognormal(0, 0.05),
    "drift": lambda rng, now: (1 + 4 * now) * rng.lognormal(0, 0.03),
    "waves": lambda rng, now: (1.5 + math.sin(40 * now)) * rng.lognormal(0, 0.03),
    "bursts": lambda rng, now: rng.choice([1.0, 1.0, 1.0, 6.0]) * rng.lognormal(0, 0.02),
    "two speeds": lambda rng, now: (1.0, 1.7)[int(now * 9) % 2] * rng.lognormal(0, 0.02),
}


class Machine:
    """A machine of which only the noise is real: calls move its clock, and are kept in order."""

    def __init__(self, noise: Noise, seed: int = 0) -> None:
        self.now, self.noise, self.rng = 0.0, noise, np.random.default_rng(seed)
        self.called: list[str] = []

    def clock(self) -> float:
        return self.now

    def function(self, name: str, time_s: float) -> Callable[[], None]:
        def call() -> None:
            self.called.append(name)
            self.now += time_s * self.noise(self.rng, self.now)

        return call

    def compare(self, before_s: float, after_s: float, budget_s: float = 1.0, seed: int = 0) -> Comparison:
        before, after = self.function("before", before_s), self.function("after", after_s)
        return compare(before, after, budget_s=budget_s, seed=seed, clock=self.clock)


def verdicts(noise: str, before_s: float, after_s: float, runs: int) -> Counter[Verdict]:
    machines = [Machine(NOISES[noise], seed) for seed in range(runs)]
    return Counter(machine.compare(before_s, after_s, seed=k).verdict for k, machine in enumerate(machines))


@pytest.mark.parametrize("noise", NOISES)
def test_a_against_itself_is_the_same(noise):
    found = verdicts(noise, 300e-6, 300e-6, 60)
    assert found[Verdict.FASTER] == found[Verdict.SLOWER] == 0
    assert found[Verdict.SAME] >= 57


def test_a_against_itself_is_not_faster_where_nothing_can_be_told():
    machines = [Machine(lambda rng, now: rng.lognormal(0, 1.0), seed) for seed in range(100)]
    found = Counter(machine.compare(20e-3, 20e-3, seed=k).verdict for k, machine in enumerate(machines))
    assert found[Verdict.AMBIGUOUS] >= 90
    assert found[Verdict.FASTER] + found[Verdict.SLOWER] <= 8


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.06, Verdict.FASTER), (5.0, Verdict.FASTER), (0.9, Verdict.SLOWER), (0.2, Verdict.SLOWER)]
)
def test_what_differs_is_told(noise, ratio, verdict):
    found = verdicts(noise, 300e-6 * ratio, 300e-6, 20)
    assert found[verdict] >= 19


def test_the_speedup_is_near_the_truth_and_in_its_interval():
    found = Machine(NOISES["drift"]).compare(450e-6, 300e-6)
    assert found.speedup == pytest.approx(1.5, rel=0.02)
    assert found.low <= found.speedup <= found.high
    assert found.high - found.low < 0.1
    assert found.before_median_s > found.after_median_s > 300e-6


def test_the_interval_holds_the_truth_nine_times_in_ten():
    noise = NOISES["five percent"]
    runs = [Machine(noise, seed).compare(480e-6, 400e-6, budget_s=0.05, seed=seed) for seed in range(200)]
    assert sum(run.low <= 1.2 <= run.high for run in runs) >= 180


def test_the_same_samples_give_the_same_statistics():
    one, other = (Machine(NOISES["bursts"], 5).compare(310e-6, 300e-6, seed=9) for _ in range(2))
    assert one == other
    assert one.interval == other.interval
    assert Machine(NOISES["bursts"], 5).compare(310e-6, 300e-6, seed=10).before_s != one.before_s


def test_both_sides_take_turns_in_an_order_that_changes():
    machine = Machine(NOISES["five percent"])
    found = machine.compare(300e-6, 300e-6)
    assert found.calls == 1
    couples = [tuple(machine.called[k : k + 2]) for k in range(0, len(machine.called), 2)]
    assert set(couples) == {("before", "after"), ("after", "before")}
    assert min(Counter(couples).values()) > len(couples) / 4


def test_short_calls_are_repeated_alike_on_both_sides():
    machine = Machine(NOISES["five percent"])
    found = machine.compare(4e-6, 2e-6)
    assert 100 <= found.calls <= 130
    assert found.after_median_s == pytest.approx(2e-6, rel=0.05)
    last = machine.called[-2 * found.calls :]
    assert Counter(last) == {"before": found.calls, "after": found.calls}
    assert len(set(last[: found.calls])) == 1


def test_the_warm_up_calls_as_the_measured_loop_does():
    machine = Machine(NOISES["five percent"])
    found = machine.compare(50e-6, 50e-6)
    tail = machine.called[len(machine.called) % (2 * found.calls) :]
    blocks = [set(tail[k : k + found.calls]) for k in range(len(tail) // 2 % found.calls, len(tail), found.calls)]
    assert len(blocks) > 2 * found.pairs + 20
    assert all(len(block) == 1 for block in blocks[-2 * found.pairs - 20 :])


def test_a_slow_start_is_forgotten():
    machine = Machine(lambda rng, now: 10.0 if now < 0.1 else 1.0)
    found = machine.compare(300e-6, 300e-6)
    assert max(found.before_s) == pytest.approx(300e-6)


def test_the_budget_is_kept():
    machine = Machine(lambda rng, now: rng.lognormal(0, 0.8))
    found = machine.compare(1e-3, 1e-3, budget_s=0.5)
    assert 0.5 <= machine.now < 0.53
    assert found.pairs > 100


def test_a_narrow_interval_ends_it_early():
    machine = Machine(NOISES["none"])
    assert machine.compare(300e-6, 300e-6, budget_s=100.0).pairs == 20
    assert machine.now < 1


@pytest.mark.parametrize(("low", "high", "decided"), [(1.5, 1.7, True), (1.06, 1.16, False), (0.7, 0.8, True)])
def test_a_verdict_is_decided_farther_from_another_one_than_the_interval_is_wide(low, high, decided):
    found = Comparison(tuple(np.linspace(low, high, 40)), (1.0,) * 40)
    found.__dict__["interval"] = (low, high)
    assert not found.is_narrow
    assert found.is_decided is decided


@pytest.mark.parametrize(
    ("low", "high", "decided", "lost"),
    [(0.955, 0.984, True, False), (0.98, 1.009, False, False), (0.94, 0.985, False, False), (0.85, 0.9, True, True)],
)
def test_what_is_surely_no_gain_needs_no_narrower_interval(low, high, decided, lost):
    found = Comparison(tuple(np.linspace(low, high, 40)), (1.0,) * 40)
    found.__dict__["interval"] = (low, high)
    assert (found.is_decided, found.is_lost, is_narrow_or_lost(found)) == (decided, lost, lost)


def test_a_decided_verdict_ends_it_early():
    noise = NOISES["five percent"]
    until = [
        compare(*(machine.function("it", each) for each in (900e-6, 450e-6)), enough=enough, clock=machine.clock)
        for machine, enough in ((Machine(noise), NARROW), (Machine(noise), DECIDED))
    ]
    assert until[0].pairs > until[1].pairs == 20
    assert {found.verdict for found in until} == {Verdict.FASTER}


@pytest.mark.parametrize(("warmed_s", "calls"), [((3.0, 2.0), 0), ((0.1, 0.1), 1), ((0.5, 1e-3), 1)])
def test_what_ran_just_before_for_as_long_as_the_warm_up_would_take_is_warm(warmed_s, calls):
    machine = Machine(NOISES["none"])
    compare(machine.function("a", 3.0), machine.function("b", 2.0), warmed_s=warmed_s, clock=machine.clock)
    assert len(machine.called) == 2 * (FEWEST_PAIRS + calls)


def test_slow_calls_are_measured_all_the_same():
    machine = Machine(NOISES["none"])
    found = machine.compare(3.0, 2.0)
    assert found.pairs == FEWEST_PAIRS
    assert len(machine.called) == 2 * (FEWEST_PAIRS + 1)
    assert found.verdict is Verdict.FASTER


def test_what_a_callable_raises_comes_out_and_collection_goes_on():
    def fail() -> None:
        assert not gc.isenabled()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compare(fail, fail)
    assert gc.isenabled()


def test_several_sides_are_timed_in_rounds_each_with_as_many_calls_as_it_needs():
    machine = Machine(NOISES["five percent"])
    sides = [machine.function(name, time_s) for name, time_s in (("a", 400e-6), ("b", 4e-6), ("c", 200e-6))]
    found = compare_all(sides, budget_s=0.5, clock=machine.clock)
    assert found.calls[0] == 1 and 50 <= found.calls[1] <= 65 and found.calls[2] <= 2
    assert len({len(samples) for samples in found.seconds}) == 1
    assert found.comparison(0, 1).speedup == pytest.approx(100, rel=0.05)
    assert found.comparison(2, 0).verdict is Verdict.SLOWER
    assert found.median_s(1) == pytest.approx(4e-6, rel=0.05)
    last = machine.called[-sum(found.calls) :]
    assert Counter(last) == dict(zip("abc", found.calls, strict=True))


def test_a_slow_side_is_called_as_often_as_a_verdict_needs_and_no_more():
    machine = Machine(NOISES["five percent"])
    sides = [machine.function(name, time_s) for name, time_s in (("slow", 0.5), ("b", 1e-3), ("c", 1.2e-3))]
    found = compare_all(sides, budget_s=1.0, clock=machine.clock)
    assert len(found.seconds[0]) == FEWEST_PAIRS
    assert machine.called.count("slow") == FEWEST_PAIRS + 1
    assert found.comparison(0, 1).verdict is Verdict.FASTER


def test_the_clock_goes_on_for_quick_sides_beside_a_slow_one():
    machine = Machine(NOISES["five percent"])
    sides = [machine.function(name, time_s) for name, time_s in (("b", 1e-3), ("slow", 0.1), ("c", 1.2e-3))]
    found = compare_all(sides, budget_s=1.0, clock=machine.clock)
    assert len(found.seconds[0]) == len(found.seconds[2]) > 2 * FEWEST_PAIRS
    assert found.comparison(0, 1).pairs == FEWEST_PAIRS


def test_one_side_alone_has_a_time():
    machine = Machine(NOISES["none"])
    found = compare_all([machine.function("a", 300e-6)], clock=machine.clock)
    assert found.median_s(0) == pytest.approx(300e-6)
