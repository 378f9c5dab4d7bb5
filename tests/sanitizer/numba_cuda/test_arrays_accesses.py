from __future__ import annotations

import gc
import weakref
from collections import deque

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.sanitizer.numba_cuda.arrays import ROWS, DeviceArray, LaunchRecorder, _place, layout_of
from noyau.sanitizer.recording_array import TooManyError

DTYPES = ("b", "B", "h", "H", "i", "I", "q", "Q", "?", "e", "f", "d", "F", "D")
VALUES = (0, 3, -1, 300, 2**40, 2.5, np.float32(0.1), np.float64(1e300), np.int32(7), True)


def array_of(data):
    recorder = LaunchRecorder()
    recorder.region(serial=False)
    recorder.enter(0, 0, 0)
    return recorder, recorder.array(data, "x")


def alike(left, right):
    return type(left) is type(right) and (left == right or (left != left and right != right))


@pytest.mark.filterwarnings("ignore")  # NumPy's, of casts that a device makes
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cell_is_read_and_written_in_c_as_in_python(dtype):
    for key, view in ((2, slice(None)), (np.int32(2), slice(None)), (np.int64(1), slice(4, None, -2))):
        for value in VALUES:
            data = [np.arange(5).astype(dtype)[view] for _ in range(2)]
            (recorder, fast), (other, slow) = map(array_of, data)
            try:
                slow[key] = value
            except (TypeError, ValueError) as fault:
                with pytest.raises(type(fault)):
                    recorder.store(value, fast, key, 0)
                continue
            recorder.store(value, fast, key, 0)
            assert alike(recorder.load(fast, key, 0), slow[key])
            np.testing.assert_array_equal(*data)
            recorder.play(), other.play()
            assert recorder.shadow.accesses == other.shadow.accesses == 2 * fast.width


def test_keys_of_several_axes_and_what_is_no_cell():
    recorder, x = array_of(np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1))
    assert recorder.load(x, (3, 1, 2), 0) == 23
    assert isinstance(recorder.load(x, 3, 0), DeviceArray)  # a row
    assert recorder.load(x, (4, 0, 0), 0) == 0  # outside
    assert recorder.load(x, (2**70, 0, 0), 0) == 0
    assert recorder.load((5, 6), 1, 0) == 6
    with pytest.raises(IndexError):
        recorder.load((5, 6), 2, 0)
    seven = np.zeros((1,) * 7)
    recorder.store(2.0, recorder.array(seven, "y"), (0,) * 7, 0)  # of more axes than C knows
    assert seven.item() == 2
    assert {each.kind for each in recorder.shadow.observations()} == {"out-of-bounds"}


def test_what_may_not_be_written_is_not():
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    recorder, x = array_of(fixed)
    with pytest.raises(ValueError, match="read-only"):
        recorder.store(1.0, x, 0, 0)


def test_same_values_are_no_change_and_owners_are_those_that_entered():
    recorder, x = array_of(np.ones(2))
    for owner in (0, 1):
        recorder.enter(owner, owner, 0)
        recorder.store(1.0, x, 0, 0)
    recorder.play()
    (twice,) = recorder.shadow.observations()
    assert (twice.kind, twice.owner, twice.other_owner) == ("written-twice", 1, 0)


def test_who_touches_nothing_is_counted():
    recorder, x = array_of(np.ones(2))  # one has entered
    recorder.load(x, 0, 0)
    recorder.enter(1, 0, 0)
    recorder.enter(2, 0, 0)
    recorder.touch_all(x.memory, np.array([0, 1]), 0, 0)
    recorder.enter(3, 0, 0)
    assert recorder.queue.idle == 2


def test_a_full_queue_is_handed_on_and_the_limit_ends_a_run():
    recorder = LaunchRecorder(most=ROWS)
    x = recorder.array(np.ones(2), "x")
    for _ in range(ROWS):
        recorder.load(x, 0, 0)
    with pytest.raises(TooManyError):
        deque((recorder.load(x, 0, 0) for _ in range(ROWS)), maxlen=0)
    assert recorder.shadow.accesses == 2 * ROWS


def test_a_queue_is_gone_with_its_recorder():
    recorder, _ = array_of(np.ones(2))
    gone = weakref.ref(recorder.queue)
    del recorder, _
    gc.collect()
    assert gone() is None


def test_layouts():
    assert layout_of(np.zeros(3, ">f4"), 0, 0, (1,), 1) is None
    assert layout_of(np.zeros(3, "i4,f4"), 0, 0, (1,), 1) is None
    words = layout_of(np.zeros((2, 3), np.int16), 7, 1, (3, 1), 1)
    assert words[1:].tolist() == [
        7,
        1,
        2,
        1,
        1,
        2,
        1,
        2,
        3,
        6,
        3,
        1,
        2,
    ]
    with pytest.raises(UnsupportedError, match=r"lays its objects out .*; use CPython"):
        _place(type("Plain", (), {}), "data")
