"""Each way in which a callable looks faster than it is, and the harness that finds it. No time decides any of these."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from noyau.errors import CheckError
from noyau.timing import rates, sides
from noyau.timing.comparison import compare
from noyau.timing.sides import VERIFIED, Contender, RotatingSide, by_reference
from noyau.timing.verdict import Comparison
from noyau.workers.tamper_detection import Watch
from tests.timing.trials import trial

Function = Callable[..., object]
SHAPE = (24, 40)


def softmax(x: np.ndarray) -> np.ndarray:
    """What all candidates promise: f[rows, cols] -> f[rows, cols]; the rows of `draw` have very small cells."""
    spread = np.exp(x - x.max(1, keepdims=True))
    return spread / spread.sum(1, keepdims=True)


def draws(count: int = 3, shape: tuple[int, int] = SHAPE, seed: int = 0) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [[(8 * rng.standard_normal(shape)).astype(np.float32)] for _ in range(count)]


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch):
    """Sets of some kilobytes, so that a test takes no longer than it must."""
    monkeypatch.setattr(sides, "last_level_bytes", lambda: 1 << 14)
    monkeypatch.setattr(sides, "HOT_BYTES", 1 << 15)


def ticking() -> Callable[[], float]:
    """A clock on which nothing depends: it moves by 100 us each time that it is read."""
    ticks = itertools.count()
    return lambda: 1e-4 * next(ticks)


def tried(cheat: Function, *, into: bool = False, reference: Function = softmax) -> tuple[list[Comparison], int]:
    honest = Contender("numpy", copying(reference) if into else reference, into)
    return trial(honest, Contender("it", cheat, into), draws(), by_reference(reference), ticking())


def copying(function: Function) -> Function:
    def run(*arrays: np.ndarray, out: tuple[np.ndarray, ...] | None = None) -> object:
        if out is None:
            return function(*arrays)
        np.copyto(out[0], function(*arrays))
        return None

    return run


def is_caught(cheat: Function, reason: str, **how: object) -> None:
    with pytest.raises(CheckError, match=reason):
        tried(cheat, **how)


@pytest.mark.parametrize("into", [False, True])
def test_an_honest_candidate_is_not_suspected(into):
    comparisons, verified = tried(copying(softmax) if into else lambda x: softmax(x), into=into)
    assert verified == 4 * VERIFIED
    assert all(each.pairs >= 6 for each in comparisons)


def test_work_on_another_thread():
    def cheat(x: np.ndarray) -> np.ndarray:
        out = np.zeros_like(x)

        def work() -> None:
            time.sleep(0.002)
            out[...] = softmax(x)

        threading.Thread(target=work).start()
        return out

    is_caught(cheat, "after it had returned|wrong at")


def test_work_on_another_thread_that_is_waited_for_in_the_next_call():
    waiting: list[threading.Thread] = []

    def cheat(x: np.ndarray) -> np.ndarray:
        for thread in waiting:
            thread.join()
        out, go = np.zeros_like(x), threading.Event()
        waiting[:] = [threading.Thread(target=lambda: (go.wait(5e-4), np.copyto(out, softmax(x))))]
        waiting[0].start()
        return out

    is_caught(cheat, "after it had returned|wrong at")


def test_an_output_that_is_computed_when_it_is_looked_at():
    class Lazy:
        def __init__(self, x: np.ndarray) -> None:
            self.x = x

        def __array__(self, dtype=None, copy=None) -> np.ndarray:
            return softmax(self.x)

    is_caught(Lazy, "returned Lazy, not an array")


def test_a_subclass_of_arrays_that_computes_when_it_is_looked_at():
    class Lazy(np.ndarray):
        pass

    is_caught(lambda x: softmax(x).view(Lazy), "returned Lazy, not an array")


KEYS: dict[str, Callable[[np.ndarray], object]] = {
    "identity": id,
    "address": lambda x: x.ctypes.data,
    "shape": lambda x: x.shape,
    "first cells": lambda x: x.ravel()[:16].tobytes(),
    "cells here and there": lambda x: x.ravel()[::61].tobytes(),
    "address and some cells": lambda x: (x.ctypes.data, x.ravel()[::61].tobytes()),
    "the sum of a row": lambda x: float(x[3].sum()),
}


@pytest.mark.parametrize("key", KEYS)
def test_outputs_that_are_kept(key):
    kept: dict[object, np.ndarray] = {}
    held: list[np.ndarray] = []

    def cheat(x: np.ndarray) -> np.ndarray:
        held.append(x)  # so that no identity comes again
        return kept.setdefault(KEYS[key](x), softmax(x)).copy()

    is_caught(cheat, "wrong")


def test_the_same_values_hardly_ever_come_again():
    seen: set[bytes] = set()
    calls = itertools.count()

    def look(x: np.ndarray) -> np.ndarray:
        next(calls)
        seen.add(x.tobytes())
        return softmax(x)

    tried(look)
    assert len(seen) >= 0.995 * next(calls)  # a change may undo the one before


def test_what_the_allocator_left():
    is_caught(np.empty_like, "wrong")


def test_memory_of_outputs_that_is_left_from_the_call_before():
    is_caught(lambda x, out=None: softmax(x), "wrong", into=True)


def test_a_view_of_an_input():
    is_caught(lambda x: x, "view of an input", reference=np.array)
    is_caught(lambda x: x[::1], "view of an input", reference=np.array)


def test_inputs_that_are_written_to():
    def cheat(x: np.ndarray) -> np.ndarray:
        np.exp(x, out=x)
        return x / x.sum(1, keepdims=True)

    is_caught(cheat, "changed its input 0")


def test_inputs_that_are_written_to_once_the_timing_has_begun():
    calls = itertools.count()

    def cheat(x: np.ndarray) -> np.ndarray:
        result = softmax(x)
        if next(calls) > 10:
            x[0, 0] += 1
        return result

    is_caught(cheat, "timed: it changed its input 0")


@pytest.mark.parametrize("value", [0.0, 1 / SHAPE[1], 1e-12])
def test_a_constant_where_outputs_are_tiny(value):
    def cheat(x: np.ndarray) -> np.ndarray:
        return np.where(softmax(x) < 1e-3, np.float32(value), softmax(x))

    is_caught(cheat, "wrong at")
    is_caught(lambda x: np.full_like(x, value), "wrong at")


def test_a_narrower_accumulation():
    def cheat(x: np.ndarray) -> np.ndarray:
        spread = np.exp(x - x.max(1, keepdims=True))
        return spread / spread.sum(1, keepdims=True, dtype=np.float16).astype(np.float32)

    is_caught(cheat, "wrong at")


def test_nan_in_what_is_expected_is_no_wildcard():
    def with_nan(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, np.log(np.abs(x)), np.nan).astype(x.dtype)

    with np.errstate(all="ignore"):
        tried(lambda x: with_nan(x), reference=with_nan)
        is_caught(lambda x: np.log(np.abs(x)), "wrong at", reference=with_nan)
        is_caught(lambda x: np.full_like(x, np.nan), "wrong at", reference=with_nan)


def test_a_narrower_result():
    is_caught(lambda x: softmax(x).astype(np.float16), r"gave float16\[24, 40\], not float32")


def test_work_that_is_done_at_construction():
    made = {tuple(draw[0].ravel()[:2]): softmax(draw[0]) for draw in draws()}
    default = next(iter(made.values()))
    is_caught(lambda x: made.get(tuple(x.ravel()[:2]), default).copy(), "in a run that was timed: wrong")


@pytest.mark.parametrize("enough", [3, 40, 200])
def test_work_that_is_done_in_the_warm_up_alone(enough):
    calls, kept = itertools.count(), []

    def cheat(x: np.ndarray) -> np.ndarray:
        if next(calls) < enough:
            kept[:] = [softmax(x)]
        return kept[0].copy()

    is_caught(cheat, "in a run that was timed")


def test_every_other_call_is_skipped():
    calls, kept = itertools.count(), []

    def cheat(x: np.ndarray) -> np.ndarray:
        if not kept or next(calls) % 2:
            kept[:] = [softmax(x)]
        return kept[0].copy()

    is_caught(cheat, "in a run that was timed")


def test_memory_that_was_given_away_is_used_again():
    mine = np.empty(SHAPE, np.float32)

    def cheat(x: np.ndarray) -> np.ndarray:
        np.copyto(mine, softmax(x))
        return mine

    is_caught(cheat, "memory is used again")


def test_all_but_the_last_call_of_a_sample_is_skipped():
    """The calls of a sample are known to it; the one that is looked at is not."""
    rotation = sides.Rotation(draws(), 30, np.random.default_rng(0))
    calls = itertools.count(1)

    def cheat(x: np.ndarray) -> np.ndarray:
        return softmax(x) if next(calls) % 30 == 0 else np.zeros_like(x)

    side = RotatingSide(Contender("it", cheat), rotation, [], np.random.default_rng(1), ticking())
    for _ in range(20):
        side.lasts(30)
    with pytest.raises(CheckError, match="in a run that was timed: wrong"):
        side.refuse(by_reference(softmax))


@pytest.mark.parametrize("name", ["perf_counter", "monotonic", "perf_counter_ns"])
def test_a_clock_that_is_replaced(name, monkeypatch):
    def cheat(x: np.ndarray) -> np.ndarray:
        monkeypatch.setattr(time, name, lambda: 0)
        return softmax(x)

    is_caught(cheat, f"time.{name} was replaced")


def test_the_clock_of_the_harness_is_the_one_of_its_import(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)
    found = compare(lambda: sum(range(1000)), lambda: sum(range(1000)), budget_s=0.02)
    assert min(found.before_s) > 0


def test_a_clock_that_lags(monkeypatch):
    watch = Watch()
    watch.other_s -= 1.0
    with pytest.raises(CheckError, match="another one"):
        watch.refuse("it")


@pytest.mark.parametrize(("rate", "caught"), [(1e9, False), (0.95e9, False), (0.85e9, True), (1e8, True)])
def test_faster_than_the_memory_is_a_mistake(rate, caught, monkeypatch):
    """A thousandth of a second for a megabyte: on a machine that moves 1 GB/s it can be, on a slower one it cannot."""
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: rate)
    monkeypatch.setattr(rates, "measure_copy", lambda moved_bytes, threads: rate)
    monkeypatch.setattr(rates, "measure_nontemporal", lambda moved_bytes, threads: 0.0)
    reason = rates.mistake(1e-3, read_bytes=500_000, written_bytes=500_000, threads=1)
    assert reason.startswith("it took 0.001 s, and what it must move takes") is caught


def test_a_curve_of_a_busier_hour_accuses_nobody(monkeypatch):
    """What was kept says that copies are slow; now they are not."""
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 1e8)
    monkeypatch.setattr(rates, "measure_copy", lambda moved_bytes, threads: 1e9)
    monkeypatch.setattr(rates, "measure_nontemporal", lambda moved_bytes, threads: 0.0)
    assert rates.mistake(1e-3, 500_000, 500_000, 1) == ""
    assert rates.mistake(0.8e-3, 500_000, 500_000, 1) != ""


def test_the_measured_loop_counts_its_own_calls():
    machine = {"now": 0.0}
    call_once: list[int] = []

    def work() -> None:
        call_once.append(1)
        machine["now"] += 30e-6

    found = compare(work, work, clock=lambda: machine["now"])
    last = 2 * found.pairs * found.calls
    assert sum(found.before_s + found.after_s) * found.calls == pytest.approx(30e-6 * last)
    assert len(call_once) > last
