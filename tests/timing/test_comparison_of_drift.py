"""A recording of a shared machine, replayed: how long the same work took, over its median, again and again.

drift.json was written by `benchmarks/clock.py --record` on two cores that others used as well."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from noyau.timing.comparison import compare
from noyau.timing.verdict import Comparison, Verdict

DRIFT = json.loads((Path(__file__).parent / "drift.json").read_text("ascii"))
STEP_S = 1e-3


class Replay:
    """A clock that work moves by as much as the recording says for that moment."""

    def __init__(self, start: int) -> None:
        self.now, self.start = 0.0, start

    def clock(self) -> float:
        return self.now

    def work(self, time_s: float) -> Callable[[], None]:
        def call() -> None:
            moment = (self.start + int(self.now / STEP_S)) % len(DRIFT)
            self.now += time_s * DRIFT[moment]

        return call

    def compare(self, before_s: float, after_s: float) -> Comparison:
        work = self.work(before_s), self.work(after_s)
        return compare(*work, budget_s=0.6, seed=self.start, clock=self.clock)


STARTS = range(0, len(DRIFT), 40)


def verdicts(ratio: float, time_s: float) -> Counter[Verdict]:
    return Counter(Replay(start).compare(ratio * time_s, time_s).verdict for start in STARTS)


@pytest.mark.parametrize(("time_s", "least"), [(30e-6, 60), (1.3e-3, 15)])
def test_the_same_work_is_not_called_faster_or_slower(time_s, least):
    found = verdicts(1.0, time_s)
    assert found[Verdict.FASTER] + found[Verdict.SLOWER] <= 2
    assert found[Verdict.SAME] >= least


@pytest.mark.parametrize("time_s", [30e-6, 1.3e-3])
def test_a_tenth_is_told(time_s):
    found = verdicts(1.1, time_s)
    assert found[Verdict.FASTER] >= 70
    assert found[Verdict.SLOWER] == 0


def test_one_side_after_the_other_would_be_misled():
    """The recording is a hard one: medians of two stretches of it, each as long as a side is timed, are far apart."""
    stretches = np.median(np.reshape(DRIFT, (-1, 200)), axis=1)
    apart = np.abs(np.log(stretches[1:] / stretches[:-1]))
    assert (apart > np.log(1.05)).sum() >= 4
    assert np.quantile(DRIFT, 0.95) > 4
