from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import CheckError, FindingKind
from noyau.toolchain.guard_zones import (
    GUARD_BYTES,
    PLAIN,
    SCRATCH_POISONS,
    GuardedArray,
    changed_input,
    poison_of,
    refuse_unwritten,
)

DTYPES = [dtype for dtype in DType if dtype is not DType.OTHER]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_poisons_of_a_type_have_its_size_and_differ(dtype):
    poisons = [poison_of(dtype, which) for which in (0, 1, PLAIN)]
    assert {len(poison) for poison in poisons} == {dtype.bytes}
    assert len(set(poisons)) == 3


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.is_float], ids=lambda dtype: dtype.value)
def test_poisons_of_floats_are_nan(dtype):
    for which in (0, 1):
        assert np.isnan(np.frombuffer(poison_of(dtype, which), dtype.numpy).astype(np.float64)).all()
    assert np.isfinite(np.frombuffer(poison_of(dtype, PLAIN), dtype.numpy).astype(np.float64)).all()
    assert np.isnan(np.frombuffer(SCRATCH_POISONS[0] * dtype.bytes, dtype.numpy).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_an_array_is_poisoned_aligned_and_guarded(dtype):
    for shape in [(), (0,), (3,), (2, 0, 5), (7, 3)]:
        made = GuardedArray.allocate("it", shape, dtype, poison_of(dtype, 0))
        assert made.array.shape == shape
        assert made.array.dtype == dtype.numpy
        assert made.array.ctypes.data % 64 == 0
        assert made.array.flags.carray
        assert made.still_poisoned().shape == shape
        assert made.still_poisoned().all()
        made.refuse_writes("k")
        assert len(made.around) == made.array.nbytes + 2 * GUARD_BYTES


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("cells", [1, 2, 17])
def test_each_side_is_watched_to_its_end(dtype, cells):
    for side, at in (("before its start", GUARD_BYTES - cells * dtype.bytes), ("after its end", -GUARD_BYTES)):
        made = GuardedArray.allocate("output 0", (5,), dtype, poison_of(dtype, 0))
        where = at if side.startswith("before") else at + (cells - 1) * dtype.bytes
        made.around[len(made.around) + where if where < 0 else where] ^= 1
        with pytest.raises(CheckError, match=f"^k wrote outside output 0, {cells} cells {side}$") as caught:
            made.refuse_writes("k")
        assert caught.value.kind == ("negative-index" if side.startswith("before") else "out-of-bounds")


def test_the_last_byte_of_a_guard_counts():
    for where in (0, -1):
        made = GuardedArray.allocate("x", (5,), DType.F32, poison_of(DType.F32, 0))
        made.around[where] ^= 1
        with pytest.raises(CheckError, match="k wrote outside x"):
            made.refuse_writes("k")


def test_a_written_cell_is_no_longer_poisoned():
    made = GuardedArray.allocate("x", (2, 3), DType.F32, poison_of(DType.F32, 0))
    made.array[1, 2] = np.nan
    assert np.argwhere(~made.still_poisoned()).tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.value)
def test_a_copy_keeps_every_bit(dtype):
    bits = np.random.default_rng(0).integers(0, 2 if dtype is DType.BOOL else 256, 24 * dtype.bytes, np.uint8)
    array = bits.view(dtype.numpy).reshape(4, 6)
    made = GuardedArray.holding("input 0", array, dtype)
    assert made.array.tobytes() == array.tobytes()
    assert not np.shares_memory(made.array, array)
    made.refuse_writes("k")


@pytest.mark.parametrize("axes", [(slice(None, None, 2), slice(1, 3)), (slice(None, None, -1), slice(None, None, -2))])
def test_a_copy_may_lie_as_the_array_does(axes):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)[axes]
    made = GuardedArray.alike("input 0", array, DType.F32)
    assert made.array.strides == array.strides
    assert made.array.tolist() == array.tolist()
    made.refuse_writes("k")
    assert made.gaps is not None
    assert made.gaps.sum() + array.size == len(made.gaps)
    between = int(np.flatnonzero(made.gaps)[0])
    made.around[GUARD_BYTES + 4 * between] ^= 1
    with pytest.raises(CheckError, match=r"^k wrote outside input 0, between its cells$") as caught:
        made.refuse_writes("k")
    assert caught.value.kind == "out-of-bounds"


def test_a_copy_of_cells_that_are_one_has_no_gaps():
    array = np.broadcast_to(np.float32([[1], [2]]), (2, 5))
    made = GuardedArray.alike("input 0", array, DType.F32)
    assert made.array.tolist() == array.tolist()
    assert (made.array.strides, len(made.around)) == (array.strides, 2 * 4 + 2 * GUARD_BYTES)


@pytest.mark.parametrize(
    "array", [np.zeros((3, 0), np.float32)[::2], np.zeros((2, 3), np.float32), np.float32(1).reshape(())]
)
def test_what_is_packed_or_empty_is_copied_packed(array):
    made = GuardedArray.alike("input 0", array, DType.F32)
    assert (made.gaps, made.array.shape) == (None, array.shape)
    made.refuse_writes("k")


@pytest.mark.parametrize(
    ("kind", "verb"),
    [(FindingKind.UNWRITTEN, "never wrote"), (FindingKind.UNINITIALISED, "reads before it writes")],
)
def test_missed_cells_are_counted_and_the_first_is_named(kind, verb):
    refuse_unwritten("k", "output 0", np.zeros((2, 3), bool))
    with pytest.raises(CheckError, match=rf"^k {verb} 2 cells of output 0; the first is \[1, 1\]$") as caught:
        refuse_unwritten("k", "output 0", np.array([[False] * 3, [False, True, True]]), kind)
    assert caught.value.kind is kind


def test_a_changed_input_is_an_error_of_its_kind():
    error = changed_input("k", 1)
    assert (str(error), error.kind) == ("k changed its input 1", "mutated-input")
