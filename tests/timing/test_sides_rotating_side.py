from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from noyau.timing import sides
from noyau.timing.sides import VERIFIED, Contender, RotatingSide
from noyau.workers import tamper_detection


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch):
    monkeypatch.setattr(sides, "last_level_bytes", lambda: 1 << 18)


def draws(cells: int = 500) -> list[list[np.ndarray]]:
    return [[np.random.default_rng(k).standard_normal(cells).astype(np.float32)] for k in range(3)]


def ticking():
    ticks = itertools.count()
    return lambda: 1e-4 * next(ticks)


def test_each_sample_has_as_many_calls_as_are_asked_for_however_long_the_rotation_is():
    seen: Counter[int] = Counter()

    def look(x: np.ndarray) -> np.ndarray:
        seen[id(x)] += 1
        return np.exp(x)

    rotation = sides.Rotation(draws(), 7, np.random.default_rng(0))
    side = RotatingSide(Contender("a", look), rotation, [], np.random.default_rng(0), ticking())
    for calls in (1, 3, 7, 8, 50):
        side.lasts(calls)
    assert sum(seen.values()) == 69
    assert max(seen.values()) - min(seen.values()) <= 1


def test_any_call_of_a_sample_can_be_the_one_that_is_looked_at():
    rotation = sides.Rotation(draws(), 4, np.random.default_rng(0))
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
        monkeypatch.setattr(sides.Rotation, name, slow(getattr(sides.Rotation, name)))
    for name in ("keep", "settle"):
        monkeypatch.setattr(tamper_detection.Snapshot, name, slow(getattr(tamper_detection.Snapshot, name)))

    def work(x, out=None):
        machine["now"] += 1e-3
        return np.add(x, 1, out=out[0] if out else None)

    rng = np.random.default_rng(0)
    candidate = Contender("it", work, into=into)
    rotation = sides.Rotation([[np.ones(5, np.float32)], [np.zeros(5, np.float32)]], 3, rng)
    side = RotatingSide(candidate, rotation, [np.ones(5, np.float32)], rng, lambda: machine["now"])
    for calls in (1, 2, 7):
        assert side.lasts(calls) == pytest.approx(calls * 1e-3)
    assert machine["now"] > 3.0 and len(side.snapshots) == 3
