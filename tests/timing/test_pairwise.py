from __future__ import annotations

import itertools
import json
import time
from collections import Counter

import numpy as np
import pytest

from noyau.errors import CheckError, InputError
from noyau.timing import pairwise
from noyau.timing.comparison import Comparison, Verdict
from noyau.timing.conditions import Conditions
from noyau.timing.output_checks import by_reference
from noyau.timing.pairwise import VERIFIED, Contender, PairwiseResult, RotatingSide, trial
from noyau.workers import tamper_detection

CALM = Conditions(2000.0, 1e-4, 0.1, 0.0)


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch):
    monkeypatch.setattr(pairwise, "last_level_bytes", lambda: 1 << 18)


def draws(cells: int = 500) -> list[list[np.ndarray]]:
    return [[np.random.default_rng(k).standard_normal(cells).astype(np.float32)] for k in range(3)]


def ticking():
    ticks = itertools.count()
    return lambda: 1e-4 * next(ticks)


def made(hot: float, cold: float, note: str = "") -> PairwiseResult:
    found = [Comparison((each,) * 8, (1.0,) * 8) for each in (hot, cold)]
    return PairwiseResult(("a", "b"), *found, (1.0, 2.0), (10, 20), (CALM, CALM), ("float32[3]",), 8, note)


def test_the_record_has_everything():
    found = trial(
        Contender("a", np.exp), Contender("b", np.exp), draws(), by_reference(np.exp), budget_s=0.1, clock=ticking()
    )
    told = json.loads(json.dumps(found.to_json()))
    assert told["names"] == ["a", "b"]
    assert told["inputs"] == ["float32[500]"]
    assert told["verified"] == 4 * VERIFIED
    for kind in ("hot", "cold"):
        assert len(told[kind]["before_s"]) == found.hot.pairs if kind == "hot" else found.cold.pairs
        assert told[kind]["before_p10_p90_s"][0] <= told[kind]["before_median_s"] <= told[kind]["before_p10_p90_s"][1]
    assert [each["pulse_s"] > 0 for each in told["conditions"]] == [True, True]
    assert all(peak >= 2000 for peak in told["peak_bytes"])


def test_what_compiles_in_the_first_call_is_told_apart():
    first = [True]

    def late(x: np.ndarray) -> np.ndarray:
        if first:
            first.clear()
            time.sleep(0.2)
        return np.exp(x)

    found = trial(Contender("a", np.exp), Contender("b", late), draws(), by_reference(np.exp), budget_s=0.1)
    assert found.compile_s[1] >= 0.2
    assert found.compile_s[1] > 10 * max(found.hot.after_s)


def test_memory_that_is_taken_beside_the_outputs_is_told():
    def wasteful(x: np.ndarray) -> np.ndarray:
        return (np.zeros((100, x.size), x.dtype) + x)[0] * 1

    found = trial(
        Contender("a", np.copy),
        Contender("b", wasteful),
        draws(),
        by_reference(np.copy),
        budget_s=0.05,
        clock=ticking(),
    )
    assert found.peak_bytes[1] > 50 * 2000 > found.peak_bytes[0]


@pytest.mark.parametrize(
    ("hot", "cold", "verdict"),
    [
        (1.5, 1.5, Verdict.FASTER),
        (1.5, 1.0, Verdict.SAME),
        (1.0, 0.5, Verdict.SLOWER),
        (1.5, float("nan"), Verdict.FASTER),
    ],
)
def test_the_cold_verdict_goes_before_the_hot_one(hot, cold, verdict):
    assert made(hot, cold).verdict is verdict


def test_what_to_do_where_it_is_too_noisy():
    found = made(float("nan"), float("nan"), "4.0 processes wanted to run on 2 cores")
    assert found.verdict is Verdict.AMBIGUOUS
    assert found.advice == "the clock saw no time pass: time larger inputs; 4.0 processes wanted to run on 2 cores"
    assert made(1.5, 1.5).advice == ""


def test_each_sample_has_as_many_calls_as_are_asked_for_however_long_the_rotation_is():
    seen: Counter[int] = Counter()

    def look(x: np.ndarray) -> np.ndarray:
        seen[id(x)] += 1
        return np.exp(x)

    rotation = pairwise.Rotation(draws(), 7, np.random.default_rng(0))
    side = RotatingSide(Contender("a", look), rotation, [], np.random.default_rng(0), ticking())
    for calls in (1, 3, 7, 8, 50):
        side.lasts(calls)
    assert sum(seen.values()) == side.calls == 69
    assert max(seen.values()) - min(seen.values()) <= 1


def test_any_call_of_a_sample_can_be_the_one_that_is_looked_at():
    rotation = pairwise.Rotation(draws(), 4, np.random.default_rng(0))
    numbers = itertools.count()

    def number(x: np.ndarray) -> np.ndarray:
        return np.array([next(numbers) % 4])

    side = RotatingSide(Contender("a", number), rotation, [], np.random.default_rng(0), ticking())
    found = Counter()
    for _ in range(300):
        side.lasts(4)
        found.update(int(snapshot.outputs[0][0]) for snapshot in side.snapshots)
    assert len(side.snapshots) == VERIFIED
    assert set(found) == {0, 1, 2, 3}


def test_what_a_candidate_raises_is_told_by_its_name():
    with pytest.raises(CheckError, match=r"b does not run on float32\[500\]: ZeroDivisionError"):
        trial(Contender("a", np.exp), Contender("b", lambda x: 1 / 0), draws(), by_reference(np.exp))


def test_one_draw_is_not_enough():
    with pytest.raises(InputError, match="same input every time"):
        trial(Contender("a", np.exp), Contender("b", np.exp), draws()[:1], by_reference(np.exp))


@pytest.mark.parametrize("into", [False, True])
def test_what_makes_inputs_new_is_not_in_the_time(into, monkeypatch):
    """As a flush of the caches must not be: making inputs takes a second here, and looking at outputs another one."""
    machine = {"now": 0.0}

    def slow(original):
        def call(*given, **named):
            machine["now"] += 1.0
            return original(*given, **named)

        return call

    for name in ("_change", "take"):
        monkeypatch.setattr(pairwise.Rotation, name, slow(getattr(pairwise.Rotation, name)))
    for name in ("keep", "settle"):
        monkeypatch.setattr(tamper_detection.Snapshot, name, slow(getattr(tamper_detection.Snapshot, name)))

    def work(x, out=None):
        machine["now"] += 1e-3
        return np.add(x, 1, out=out[0] if out else None)

    rng = np.random.default_rng(0)
    candidate = Contender("it", work, into=into)
    rotation = pairwise.Rotation([[np.ones(5, np.float32)], [np.zeros(5, np.float32)]], 3, rng)
    side = RotatingSide(candidate, rotation, [np.ones(5, np.float32)], rng, lambda: machine["now"])
    for calls in (1, 2, 7):
        assert side.lasts(calls) == pytest.approx(calls * 1e-3)
    assert machine["now"] > 3.0 and len(side.snapshots) == 3
