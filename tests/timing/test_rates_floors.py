"""Floors of kernels, and times below them."""

from __future__ import annotations

import pytest

from noyau.errors import BuildError
from noyau.timing import rates


def test_the_floor_is_of_copies_and_of_reads(monkeypatch):
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 10e9 * threads)
    monkeypatch.setattr(rates, "read_rate", lambda moved_bytes, threads: 20e9 * threads)
    assert rates.floor_s(1_000_000, 1_000_000, 1) == pytest.approx(0.2e-3)
    assert rates.floor_s(3_000_000, 1_000_000, 1) == pytest.approx(0.3e-3)
    assert rates.floor_s(2_000_000, 0, 2) == pytest.approx(0.05e-3)
    assert rates.floor_s(0, 1_000_000, 1) == pytest.approx(0.1e-3)
    assert rates.floor_s(0, 0, 1) == 0


def test_without_a_compiler_the_floor_is_that_of_a_copy(monkeypatch):
    def missing(*_: object) -> float:
        raise BuildError("no compiler")

    monkeypatch.setattr(rates, "read_rate", missing)
    monkeypatch.setattr(rates, "copy_rate", lambda moved, threads: 1e9 * threads)
    assert rates.floor_s(3000, 1000, 2) == pytest.approx(2e-6)


@pytest.fixture
def curves(monkeypatch):
    """A machine that copies 1 GB/s and reads 2 GB/s, by what is kept and by what is measured."""
    names = ("copy_rate", "measure_copy", "measure_nontemporal", "read_rate", "measure_read")
    for name, rate in zip(names, (1e9, 1e9, 1e9, 2e9, 2e9), strict=True):
        monkeypatch.setattr(rates, name, lambda moved_bytes, threads, rate=rate: rate)


@pytest.mark.parametrize(
    ("read", "written", "least_s"), [(5e5, 5e5, 1e-3), (1e6, 0, 0.5e-3), (0, 1e6, 1e-3), (1.5e6, 0.5e6, 1.5e-3)]
)
def test_the_curve_of_a_mistake_is_that_of_its_traffic(curves, read, written, least_s):
    """A kernel that only reads is held to the reads, one that also writes to copies."""
    assert rates.mistake(0.91 * least_s, int(read), int(written), 1) == ""
    assert "what it must move takes this machine" in rates.mistake(0.89 * least_s, int(read), int(written), 1)


@pytest.fixture
def moments(monkeypatch, curves):
    """A machine that others use more or less: what it copies now is a part of 1 GB/s, another one each time."""

    def through(*parts):
        left = list(parts)
        now = {"part": 1.0}

        def measured(moved_bytes, threads):
            now["part"] = left.pop(0) if left else now["part"]
            return 1e9 * now["part"]

        monkeypatch.setattr(rates, "measure_copy", measured)
        return now

    return through


def test_a_floor_of_a_busier_moment_accuses_nobody(monkeypatch, moments):
    """A right kernel was timed while nobody else used the memory, and the floor is measured while somebody does."""
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 0.6e9)
    now = moments(0.6, 0.7, 0.65, 0.6)
    asked = []

    def again():
        asked.append(now["part"])
        return 1.1e-3 / now["part"]

    assert rates.mistake(1.1e-3, 500_000, 500_000, 1, again) == ""
    assert len(asked) == 4  # in turn with the floor


def test_the_best_of_the_floors_counts(monkeypatch, moments):
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 0.6e9)
    moments(0.6, 1.0, 0.6, 0.6)
    assert rates.mistake(1.1e-3, 500_000, 500_000, 1) == ""


@pytest.mark.parametrize("parts", [(1.0, 1.0, 1.0, 1.0), (0.6, 0.7, 0.65, 0.6)])
def test_who_does_half_of_the_work_is_found_out_in_any_moment(parts, monkeypatch, moments):
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 0.6e9)
    now = moments(*parts)
    told = rates.mistake(0.5e-3, 500_000, 500_000, 1, lambda: 0.5e-3 / now["part"])
    assert "the clock or the kernel is wrong" in told


def test_what_lies_between_two_sizes_may_be_in_the_faster_cache(curves, monkeypatch):
    monkeypatch.setattr(rates, "copy_rate", lambda moved_bytes, threads: 3e9 if moved_bytes <= 600_000 else 1e9)
    assert rates.mistake(0.5e-3, 500_000, 500_000, 1) == ""
    assert rates.mistake(0.2e-3, 500_000, 500_000, 1) != ""
