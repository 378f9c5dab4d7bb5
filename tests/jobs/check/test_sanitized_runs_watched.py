from __future__ import annotations

import math
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from noyau.errors import FindingKind
from noyau.jobs.check import attempts, sanitized_runs
from noyau.jobs.check.attempts import Attempt, Budget
from noyau.jobs.check.sanitized_runs import FEWEST, SanitizedRuns, explain_findings, watch_attempts
from noyau.sanitizer.records import WatchedRun
from noyau.text import count_text
from noyau.verify.findings import Finding
from noyau.workers.worker import spent_s


def finding(kind, severity="error"):
    return Finding("op", "k", "c", FindingKind(kind), "k.c:3", "n = 1", "told", severity=severity)


def kinds(found, *observed):
    seen = SanitizedRuns(findings={each.kind: each for each in observed})
    return [each.kind for each in explain_findings([finding(kind) for kind in found], seen)]


@pytest.mark.parametrize(
    ("found", "watched", "told"),
    [
        (["wrong-value"], [], ["wrong-value"]),
        (["wrong-value", "gradient"], [finding("race")], ["race", "gradient"]),
        (["wrong-value"], [finding("negative-index", "warning")], ["negative-index", "wrong-value"]),
        (["crash"], [finding("out-of-bounds")], ["out-of-bounds"]),
        (["crash"], [finding("unwritten")], ["crash"]),
        (["crash"], [finding("crash")], ["crash"]),
        (["mutated-input"], [finding("unwritten")], ["unwritten", "mutated-input"]),
    ],
)
def test_what_is_watched_stands_in_place_of_what_comes_of_it(found, watched, told):
    assert kinds(found, *watched) == told


@pytest.mark.parametrize(("number", "told"), [(0, "0"), (9_999, "9999"), (43_210, "43 k"), (2_100_000, "2.1 M")])
def test_counts_are_short(number, told):
    assert count_text(number) == told


@pytest.mark.parametrize(
    ("shapes", "accesses", "told"),
    [(1, 1, "on 1 shape, 1 access"), (1, 7, "on 1 shape, 7 accesses"), (3, 20_000, "on 3 shapes, 20 k accesses")],
)
def test_how_much_was_seen_is_told_in_words(shapes, accesses, told):
    assert SanitizedRuns(accesses=accesses, shapes=["n = 1"] * shapes).lines == (f"no race found {told}",)


def test_a_kernel_that_touches_nothing_is_not_said_to_be_free_of_races():
    """A generated kernel in Numba that is a call of BLAS alone."""
    told = "it touches no cell itself on 2 shapes: what it calls is not watched"
    assert SanitizedRuns(shapes=["n = 1", "n = 2"]).lines == (told,)


USUAL = {"h": 5, "w": 3, "k": 7, "l": 2}
GIVEN = [
    Attempt("instance", None, None, "", {**USUAL, name: size}, None) for name in USUAL for size in (1, 33, 65, 129, 257)
]


def runs_of(monkeypatch, time_s, clock=lambda: 0.0, most=1000, elsewhere_s=0.0, built_s=0.0):
    """The sizes of the watched runs, each of which takes so long of the process, and `elsewhere_s` of one that it
    starts, the first `built_s` more; the clock is another. None has a size above `most`."""
    now_s, ran = [0.0], []

    def run(attempt, arrays, size):
        now_s[0] += time_s(attempt.sizes)
        ran.append(attempt.sizes)
        return WatchedRun((), 1)

    others_s = lambda: len(ran) * elsewhere_s + bool(ran) * built_s  # noqa: E731
    for module in (sanitized_runs, attempts):
        monkeypatch.setattr(module, "spent_s", lambda: now_s[0] + others_s())
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(sanitized_runs, "EARLY", 0)  # small ones come first
    inputs = lambda each: [np.zeros(1)] if max(each.sizes.values()) <= most else None  # noqa: E731
    seen = watch_attempts(run, GIVEN, inputs, Budget(2.0))
    assert len(seen.shapes) == len(ran)
    return ran, seen


def test_no_watched_run_takes_all_of_the_time(monkeypatch):
    """Four nested loops, of which those of 33 rounds each would take five seconds: others are run in their place."""
    ran, seen = runs_of(monkeypatch, lambda sizes: 0.001 + 4e-6 * math.prod(sizes.values()))
    assert max(math.prod(sizes.values()) for sizes in ran) <= 17**4
    assert all(given.sizes in ran for given in GIVEN)
    assert seen.lines[-1] == "not at larger sizes, where a run would take more than 2 s"


def test_what_is_not_to_be_had_is_not_said_to_take_long(monkeypatch):
    ran, seen = runs_of(monkeypatch, lambda sizes: 0.001 + 1e-3 * math.prod(sizes.values()), most=7)
    assert max(math.prod(sizes.values()) for sizes in ran) == 5**4
    assert seen.lines == (f"no race found on {len(ran)} shapes, {len(ran)} accesses",)


@pytest.mark.parametrize("slow", [1, 12], ids=["what is compiled first", "a pause"])
def test_one_long_run_leaves_nothing_out(monkeypatch, slow):
    number = count(1)
    ran, seen = runs_of(monkeypatch, lambda sizes: 0.1 if next(number) == slow else 1e-4)
    assert {sizes["h"] for sizes in ran} >= {0, 1, 2, 3, 4, 5, 8, 9, 17, 33, 65, 129, 257}
    assert seen.lines == ("no race found on 31 shapes, 31 accesses",)


def test_the_largest_sizes_are_watched_on_a_machine_that_is_busy(monkeypatch):
    clock = count(0, 100)
    ran, _ = runs_of(monkeypatch, lambda sizes: 0.001, lambda: next(clock))
    assert len(ran) == FEWEST + 1
    assert max(ran[-1].values()) == 257
    assert max(max(sizes.values()) for sizes in ran[:-1]) < 10


def test_what_other_processes_take_counts_and_what_is_built_for_them_does_not(monkeypatch):
    ran, _ = runs_of(monkeypatch, lambda sizes: 1e-4, elsewhere_s=0.2, built_s=60.0)
    assert 11 <= len(ran) <= 13
    assert max(ran[-1].values()) == 257


def test_a_process_that_was_started_counts_as_soon_as_it_has_ended():
    before_s = spent_s()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert spent_s() > before_s
