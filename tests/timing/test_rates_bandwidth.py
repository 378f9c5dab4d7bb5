from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from noyau.errors import BuildError
from noyau.timing import rates
from noyau.timing.rates import copy_rate, measure_copy


def scripted(lasting_s: Sequence[float]) -> Callable[[], float]:
    """A clock that is read twice a sample, and sees these seconds pass in between."""
    times = itertools.chain.from_iterable((10.0 * k, 10.0 * k + each) for k, each in enumerate(lasting_s))
    return lambda: next(times)


def test_the_rate_is_of_the_fastest_copy_without_its_calls():
    copies, calls = [9e-3, *[6e-3] * 14, 5e-3], [3e-3, *[1e-3] * 15]
    moved_bytes, rounds = 1 << 20, 8
    rate = measure_copy(moved_bytes, 1, scripted([*copies, *calls]))
    assert rate == pytest.approx(moved_bytes * rounds / (5e-3 - 1e-3))


def test_small_copies_of_several_threads_stay_in_the_cache_of_each():
    copies, calls = [5e-3] * 16, [1e-3] * 16
    one = measure_copy(64 << 10, 1, scripted([*copies, *calls]))
    assert measure_copy(128 << 10, 2, scripted([*copies, *calls])) == pytest.approx(2 * one)


def test_calls_that_take_as_long_as_the_copy_give_no_infinite_rate():
    assert measure_copy(1 << 20, 1, scripted([2e-3] * 32)) == pytest.approx((8 << 20) / 0.2e-3)


def test_threads_copy_at_once_and_the_span_is_from_first_start_to_last_end():
    ticks = itertools.count()
    moved_bytes, threads = 4 << 20, 2
    rate = measure_copy(moved_bytes, threads, lambda: float(next(ticks)))
    copied = 2 * (moved_bytes // 4) * threads * 4
    assert copied / 3 <= rate <= copied / 1


@pytest.mark.parametrize(("moved_bytes", "threads"), [(1, 1), (100_000, 1), (3 << 20, 2)])
def test_a_real_copy_has_a_rate(moved_bytes, threads):
    assert 1e6 < measure_copy(moved_bytes, threads) < 1e14


@pytest.fixture
def nothing_kept(monkeypatch, empty_cache):
    monkeypatch.setattr(rates, "recall_curves", lambda: None)
    rates._measure_rate.cache_clear()
    yield
    rates._measure_rate.cache_clear()


def test_what_is_kept_of_the_machine_is_used(monkeypatch):
    monkeypatch.setattr(rates, "recall_curves", lambda: ({1: {1 << 20: 5e9}}, {1: {1 << 20: 7e9}}))
    monkeypatch.setattr(rates, "_measure_rate", lambda kind, moved_bytes, threads: 3e9)
    assert copy_rate(1 << 20, 1) == copy_rate(900_000, 1) == 5e9
    assert copy_rate(1 << 20, 2) == copy_rate(1 << 21, 1) == 3e9
    assert rates.read_rate(1 << 20, 1) == 7e9


def test_a_real_read_has_a_rate(nothing_kept):
    assert 1e6 < rates.read_rate(1 << 20, 1) < 1e14


def test_copies_around_the_caches_are_copies_too(monkeypatch, nothing_kept):
    """A kernel whose stores go around the caches is not held to those that do not."""
    assert 1e6 < rates.measure_nontemporal(1 << 20, 1) < 1e14
    monkeypatch.setattr(rates, "measure_copy", lambda *given: 1e9)
    monkeypatch.setattr(rates, "measure_nontemporal", lambda *given: 3e9)
    assert copy_rate(1 << 20, 1) == 3e9
    assert rates.mistake(1e-3, 1_500_000, 1_500_000, 1) == ""


def test_without_a_compiler_there_are_no_such_copies(monkeypatch):
    monkeypatch.setattr(rates, "memory_loops", raising(BuildError("no compiler")))
    assert rates.measure_nontemporal(1 << 20, 1) == 0


def raising(error):
    def fail():
        raise error

    return fail


def test_it_is_measured_once_for_each_size_class(monkeypatch, nothing_kept):
    measured = []
    monkeypatch.setattr(rates, "measure_copy", lambda *given: measured.append(given) or float(len(measured)))
    monkeypatch.setattr(rates, "measure_nontemporal", lambda *given: 0.5)
    assert [copy_rate(n, 1) for n in (1 << 20, (1 << 20) - 5, (1 << 19) + 1)] == [1.0] * 3
    assert copy_rate(1 << 20, 2) == copy_rate(600_000, 2) == 2.0
    assert copy_rate((1 << 20) + 1, 1) == 3.0
    assert copy_rate(0, 0) == copy_rate(1, 1) == copy_rate(8192, 1) == 4.0
    rates._measure_rate.cache_clear()  # another process reads what is kept
    assert copy_rate(1 << 20, 2) == 2.0
    assert copy_rate(1 << 40, 1) == copy_rate(256 << 20, 1) == 5.0
    assert measured == [(1 << 20, 1), (1 << 20, 2), (2 << 20, 1), (8 << 10, 1), (256 << 20, 1)]


def test_source_and_target_are_apart_and_aligned():
    source, target = rates._pair(5000)
    source[:] = np.arange(5000) % 251
    rates._copy(source, target, 1)
    assert (target == np.arange(5000) % 251).all()
    assert not np.shares_memory(source, target)
    assert source.ctypes.data % 64 == target.ctypes.data % 64 == 0
