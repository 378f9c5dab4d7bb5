from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.timing import sides
from noyau.timing.sides import Rotation, cold_sets, hot_sets, packed_sets


def draws(count: int = 3) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(1)
    return [[rng.standard_normal((5, 7)).astype(np.float32), rng.integers(0, 9, 11)] for _ in range(count)]


def rotation(sets: int = 6) -> Rotation:
    return Rotation(draws(), sets, np.random.default_rng(0))


def test_sets_have_the_shapes_and_the_dtypes_of_the_draws():
    for one, other in rotation().sets:
        assert (one.shape, one.dtype, other.shape, other.dtype) == ((5, 7), np.float32, (11,), np.int64)
        assert one.ctypes.data % 64 == other.ctypes.data % 64 == 0
        assert one.flags.c_contiguous
        assert one.flags.writeable


def test_every_cell_is_a_draw_s_in_its_place():
    made, source = rotation(), draws()
    for _ in range(20):
        made.take(6)
    for arrays in made.sets:
        for k, array in enumerate(arrays):
            assert np.any([array == draw[k] for draw in source], axis=0).all()


def test_sets_change_before_they_come_again_and_stay_where_they_are():
    made = rotation(2)
    for _ in range(50):
        before = [[array.copy() for array in arrays] for arrays in made.sets]
        places = [[array.ctypes.data for array in arrays] for arrays in made.sets]
        taken = made.take(2)
        assert [[array.ctypes.data for array in arrays] for arrays in taken] == places
        for arrays, old in zip(taken, before, strict=True):
            assert (arrays[0] != old[0]).any()


def test_sets_differ_and_so_do_two_rotations():
    rng = np.random.default_rng(0)
    one, other = (Rotation(draws(), 6, rng) for _ in range(2))
    assert len({arrays[0].tobytes() for made in (one, other) for arrays in made.sets}) == 12


def test_turns_end_at_the_last_set():
    made = rotation(5)
    assert [len(made.take(count)) for count in (3, 4, 1, 9, 9)] == [3, 2, 1, 4, 5]


def test_few_cells_or_many_are_changed():
    made = Rotation([[np.random.default_rng(k).random(1000)] for k in range(3)], 1, np.random.default_rng(0))
    counts = []
    for _ in range(100):
        before = made.sets[0][0].copy()
        made.take(1)
        counts.append(int((made.sets[0][0] != before).sum()))
    assert min(counts) >= 1
    assert sum(count <= 3 for count in counts) > 50
    assert sum(count > 50 for count in counts) > 10


def test_a_draw_without_cells():
    made = Rotation([[np.empty((0, 3))], [np.empty((0, 3))]], 2, np.random.default_rng(0))
    assert made.take(2)[0][0].shape == (0, 3)


def test_cold_sets_are_twice_the_last_cache_and_hot_ones_within_a_core_s_own(monkeypatch):
    monkeypatch.setattr(sides, "last_level_bytes", lambda: 1 << 25)
    for size in (1 << 14, 1 << 20, 1 << 24, 10**7):
        assert cold_sets(size) * size >= 2 << 25
    assert cold_sets(1 << 30) == 3
    assert cold_sets(0) == sides.MOST_SETS
    assert [hot_sets(size) for size in (1 << 10, 1 << 16, 1 << 17, 1 << 30)] == [256, 4, 2, 2]


@pytest.mark.parametrize(
    "wrong", [[], [[np.zeros(3)]], *([[np.zeros(3)], each] for each in ([np.zeros(4)], [np.zeros(3, "f4")], []))]
)
def test_draws_that_are_too_few_or_unlike_are_refused(wrong):
    with pytest.raises(InputError):
        Rotation(wrong, 2, np.random.default_rng(0))


def test_the_draw_that_is_unlike_the_first_is_named():
    draws_of_zeros = [[np.zeros(3)], [np.zeros(3)], [np.zeros(4)]]
    with pytest.raises(InputError, match=r"differ: \[\(\(3,\), .*\)\] and \[\(\(4,\), "):
        Rotation(draws_of_zeros, 2, np.random.default_rng(0))


def test_packed_sets_are_apart():
    made = packed_sets(3, [np.zeros(5, np.float32), np.zeros((), np.int8)])
    assert [array.shape for array in made[0]] == [(5,), ()]
    assert not any(np.shares_memory(one, other) for one in made[0] for other in made[1])


def test_one_draw_is_not_enough():
    with pytest.raises(InputError, match="same input every time"):
        Rotation(draws(count=1), 2, np.random.default_rng(0))
