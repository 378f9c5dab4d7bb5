"""The programs of a launch that are watched, where all of them would make too many accesses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from noyau.sanitizer.triton import run
from noyau.sanitizer.triton.interpreter_hooks import LaunchSample


def chosen(grid, accesses_of, most, width=31, is_ordered=False):
    """The programs of a grid that a sample takes; `accesses_of`: those of a program."""
    sample, accesses = LaunchSample(most), 0
    sample.grid, sample.is_ordered = grid, is_ordered
    for first in range(0, sample.total, width):
        programs = range(first, min(first + width, sample.total))
        if sample.has(programs, accesses):
            accesses += sum(map(accesses_of, programs))
        sample.end_if_full(accesses)
    return sample, [number for number, is_in in sample.chosen.items() if is_in]


@pytest.mark.parametrize("accesses_of", [lambda number: 100, lambda number: 20 * (number < 500)])
def test_all_are_watched_where_there_is_room(accesses_of):
    sample, numbers = chosen((1000, 1, 1), accesses_of, 100_000)
    assert (numbers, sample.is_partial) == (list(range(1000)), False)


def test_a_part_lies_all_over_the_grid_and_has_its_corners():
    sample, numbers = chosen((40, 50, 10), lambda number: 100, 300_000)
    assert (sample.is_partial, sample.watched, sample.total) == (True, len(numbers), 20_000)
    assert 2_900 < len(numbers) < 3_500
    assert min(np.histogram(numbers, 10, (0, 20_000))[0]) > 20
    corners = {(x, y, z) for x in (0, 1, 38, 39) for y in (0, 1, 48, 49) for z in (0, 1, 8, 9)}
    assert corners <= set(map(sample.place, numbers))
    assert numbers == chosen((40, 50, 10), lambda number: 100, 300_000)[1]  # the same in every run


def test_where_programs_wait_for_others_what_is_watched_has_no_gaps():
    _, numbers = chosen((1000, 1, 1), lambda number: 100, 31_000, is_ordered=True)
    assert numbers == list(range(len(numbers)))
    assert 300 < len(numbers) < 400


def test_a_program_that_makes_too_many_alone_ends_it():
    sample, numbers = chosen((4, 1, 1), lambda number: 1000, 200, width=1)
    assert sample.is_over
    assert numbers
    assert not sample.has([numbers[0]], 0)


@triton.jit
def shifted(x, out, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at + SHIFT, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize(
    ("shift", "limit", "most"),
    [(0, "MOST", 20_000), (1, "MOST", 20_000), (1, "memory_bytes", lambda: 2 * run._SHADOW * 20_000)],
)
def test_what_is_not_watched_runs_as_well_and_a_part_is_not_verified(monkeypatch, shift, limit, most):
    monkeypatch.setattr(run, limit, most)
    x, out = torch.arange(40_000, dtype=torch.float32), torch.zeros(40_000)
    watched = run.watch_call(shifted, (x, out, 40_000, shift, 16), (2500,), "", "op")
    assert torch.equal(out[shift:], 2 * x[: 40_000 - shift])
    assert watched.is_cut
    assert watched.accesses < 80_000
    (note,) = [note for note in watched.notes if note.startswith("watched: ")]
    assert note.endswith(" of 2500 programs")
    assert [each.kind for each in watched.findings] == (["out-of-bounds"] if shift else [])
    assert all("program 2499" in each.message for each in watched.findings)
