from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.hosts.numpy.fast_calls import MISS, FastCall, in_python
from tests.hosts.numpy.kernels import fast_call_of


def both(x, y):
    return x + y, x * y


def added(x, y):
    return x + y


@pytest.fixture(scope="module", params=["c", "python"])
def one(request) -> FastCall:
    made = fast_call_of(added, "f32[m, n], f32[m, n] -> f32[m, n]")
    if request.param == "python":
        made.call = in_python(made)
    return made


@pytest.fixture(scope="module")
def two() -> FastCall:
    return fast_call_of(both, "f32[n], f32[n] -> low: f32[n], high: f32[n]")


def arguments(shape: tuple[int, ...] = (3, 4)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.random(shape, np.float32), rng.random(shape, np.float32)


def test_out_is_written_in_place_and_returned(one):
    x, y = arguments()
    out = np.full_like(x, np.nan)
    assert one((x, y), out) is out
    np.testing.assert_array_equal(out, x + y)
    assert one((x, y), None) is not out


def test_out_need_not_be_packed(one):
    x, y = arguments()
    whole = np.full((4, 12), np.nan, np.float32)
    for out in (whole[:3, :4], whole[::2, :].reshape(-1)[::2][:12].reshape(3, 4), np.asfortranarray(whole[:3, 4:8])):
        assert one((x, y), out) is out
        np.testing.assert_array_equal(out, x + y)
    assert np.isnan(whole[3]).all()


def test_out_between_the_cells_of_an_argument_is_taken(one):
    room = np.zeros((3, 8), np.float32)
    x, y = np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)
    room[:, ::2] = 5
    out = room[:, 1::2]
    assert one((x, y), out) is out
    assert (room[:, ::2] == 5).all() and (out == 2).all()


def test_several_results_go_to_a_tuple(two):
    x, y = arguments((5,))
    out = np.empty(5, np.float32), np.empty(10, np.float32)[::2]
    assert two((x, y), out) is out
    np.testing.assert_array_equal(out[0], x + y)
    np.testing.assert_array_equal(out[1], x * y)


def test_results_of_no_cells(one):
    x, y = arguments((0, 4))
    out = np.empty((0, 4), np.float32)
    assert one((x, y), out) is out
    assert one((x, y), x) is x  # no cell is shared


def test_arguments_of_another_key_miss_first(one):
    x, y = arguments()
    out = np.zeros_like(x)
    assert one((x, y.astype(np.float64)), out) is MISS
    assert not out.any()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda x: np.empty((3, 4), np.float64), r"added: out is float64\[3, 4\], and the result is float32\[3, 4\]"),
        (lambda x: np.empty((3, 5), np.float32), r"added: out is float32\[3, 5\], and the result is float32\[3, 4\]"),
        (lambda x: np.empty((3, 4), ">f4"), r"added: out is >f4\[3, 4\], and the result is float32\[3, 4\]"),
        (lambda x: [1.0], r"added: out is list, and results are written to NumPy arrays"),
        (lambda x: (x, x), r"added has 1 result, and out= has 2; give an array, or a tuple"),
        (lambda x: x, "added: out shares memory with an argument or another result; give it its own"),
        (lambda x: x[::-1], "added: out shares memory with an argument"),
        (lambda x: x.base[:12].reshape(3, 4), "added: out shares memory with an argument"),
        (lambda x: np.broadcast_to(np.float32(0), (3, 4)), "added: out may not be written; give an array that may"),
    ],
)
def test_out_that_does_not_fit_is_refused(one, make, told):
    room = np.arange(16, dtype=np.float32)
    x = room[4:].reshape(3, 4)
    y = np.ones((3, 4), np.float32)
    before = room.tobytes()
    with pytest.raises(InputError, match=told):
        one((x, y), make(x))
    assert room.tobytes() == before


def test_results_do_not_share_memory(two):
    x, y = arguments((6,))
    room = np.zeros(9, np.float32)
    with pytest.raises(InputError, match=r"both: out\[1\] shares memory with an argument or another result"):
        two((x, y), (room[:6], room[3:]))
    with pytest.raises(InputError, match=r"both: out\[0\] is float32\[5\], and the result is float32\[6\]"):
        two((x, y), (room[:5], room[3:]))
    with pytest.raises(InputError, match="both has 2 results, and out= has 1"):
        two((x, y), room[:6])
    assert not room.any()
