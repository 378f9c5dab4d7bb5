from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.dtypes import DType
from noyau.errors import InputError, UnsupportedError
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.graph import Gather, Lookup
from noyau.ir.graph_interpreter import evaluate
from tests.frontends.numpy.traces import agrees, found, traced, traced_only, x


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a[0], lambda a: a[-1, ..., 1], lambda a: a[:, None, 1:], lambda a: a[..., None],
        lambda a: a[..., :-1], lambda a: a[:, 1:-1], lambda a: a[::-1, ::2], lambda a: a[:, ::-2],
        lambda a: a[:, 3:0:-1], lambda a: a[1:2, 1:4:2, 0], lambda a: a[..., a.shape[-1] // 2 :],
        lambda a: a[..., : a.shape[-1] // 2], lambda a: a[..., -(a.shape[-1] // 2) :], lambda a: a[...],
        lambda a: a[np.int64(1)], lambda a: a[:, a.shape[1] - 1],
    ],
)  # fmt: skip
def test_slices(function):
    agrees(function, x(2, 5, 6))


def test_halves_that_turn():
    def rotate(a):
        half = a.shape[-1] // 2
        return np.concatenate([-a[..., half:], a[..., :half]], axis=-1)

    agrees(rotate, x(3, 8))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_arrays_of_indices(dtype):
    table, at = x(7, 4), np.array([[0, 6, 3], [2, 2, 1]]).astype(dtype)
    agrees(lambda a, k: a[k], table, at)
    agrees(lambda a, k: a[1:, k], table, at % 4)
    agrees(lambda a, k: np.take(a, k, axis=1) + a.take(k, axis=-1), table, at % 4)
    agrees(lambda a, k: np.take(a, k), table, at)
    agrees(lambda a: a[[0, -1]] + a[np.array([1, 1])], table)


def test_indices_below_0_count_from_the_end():
    agrees(lambda a, k: a[k], x(7, 4), np.array([-1, -7, 3]))


def test_indices_outside_are_refused():
    graph, _ = traced(lambda a, k: a[k], x(7, 4), np.array([1, 2, 3]))
    for at in ([1, 2, 7], [1, 2, -8]):
        with pytest.raises(InputError, match="outside"):
            evaluate(graph, {"x0": x(7, 4), "x1": np.array(at)})


def test_a_slice_beyond_its_axis_is_refused_when_it_runs():
    graph, _ = traced(lambda a: a[:, 1:3], x(2, 5))
    with pytest.raises(InputError, match="3 <= s5 does not hold where s2=2, s5=2"):
        evaluate(graph, {"x0": x(2, 2)})


def test_an_end_that_would_be_below_0_is_refused_when_it_runs():
    graph, _ = traced(lambda a: a[:, : a.shape[1] - a.shape[0]], x(2, 5))
    with pytest.raises(InputError, match="does not hold where s2=6, s5=5"):
        evaluate(graph, {"x0": x(6, 5)})


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: a[a > 0], "what a mask of bools picks has an unknown shape; reduce it, write it back"),
        (lambda a: a[a], "an array of f32 is no index"),
        (lambda a: a[0, a[0] > 0], "a mask of bools beside other indices has a result of unknown shape"),
        (lambda a: a[0, 0, 0], "3 indices are given for an array of 2 axes"),
        (lambda a: a[..., ..., 0], "1 indices are given for an array of 2 axes"),
        (lambda a: a[:: a.shape[0]], "s2 is asked for its number, and it has none yet"),
        (lambda a: a["x"], "'x' is no index that is traced"),
        (lambda a: a[True], "True is no index that is traced"),
        (lambda a: a[1.5:], "an end of a slice is 1.5; it is an integer or a size"),
        (lambda a: np.take(a, [0], out=a), "it writes into the argument x0"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


PARTS = st.one_of(
    st.builds(
        slice,
        *[st.one_of(st.none(), st.integers(-7, 7))] * 2,
        st.sampled_from([None, 1, 2, -1, -3]),
    ),
    st.integers(-3, 2),
    st.none(),
    st.just(Ellipsis),
    st.lists(st.integers(-3, 2), min_size=1, max_size=3).map(np.array),
    st.just(np.array([[0, 1], [2, -1]])),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=5).map(tuple), st.sampled_from([(3, 4, 5), (3, 3, 3), (3, 5, 4)]))
def test_random_keys_name_what_numpy_names(key, shape):
    array = x(*shape)
    try:
        array[key]
    except IndexError:
        return
    found(lambda a: a[key], array)
    found(lambda a, k: a[key][..., None] * k, array, x(2))


@pytest.mark.parametrize("extent", [0, 1, 2, 3, 5, 9])
def test_slices_are_clamped(extent):
    keys = [slice(5), slice(-5, None), slice(2, 4), slice(-2, 5), slice(None, 1, -1), slice(4, -3), slice(7, 2, -2)]
    found(lambda a: tuple(a[key] for key in keys), x(extent, 2))
    found(lambda a: a[: a.shape[0] - 3] if a.shape[0] > 3 else a[a.shape[0] - 3 :], x(extent))


def test_places_that_are_looked_up_together():
    rows, columns = np.array([0, 2, 1]), np.array([3, -1, 0])
    agrees(lambda a, i, j: a[i, j] + a[i[:, None], j][0] + a[np.arange(3), j], x(3, 4), rows, columns)
    agrees(lambda a, i: a[:, i, :, 0] + a[0, i][..., 0, None], x(3, 4, 3, 5)[:, :3], rows)
    agrees(lambda a, i: a[i, :, i] + a[0, :, i] + a[1, None, 2, i][:, :1], x(3, 4, 4)[:, :, :3], rows)
    agrees(lambda a: a[np.argmax(a, 0), np.arange(a.shape[1])] + a[np.argmax(a) % 3, 0], x(3, 4))
    agrees(lambda a, i: np.take_along_axis(a, i[:, None], 1) + np.take(a, [[0, 1]], axis=1)[:, 0, :1], x(3, 4), rows)
    agrees(lambda a, i: np.take(a, i * 5, mode="wrap") + np.take(a, i * 50 - 9, mode="clip"), x(3, 4), rows)
    agrees(lambda a: a[np.ix_([2, 0], [1, 3, 3])], x(3, 4))


def test_places_that_count_need_no_memory():
    picked = found(lambda a, t: -a[np.arange(a.shape[0]), t], x(3, 4), np.array([3, 0, -1]))
    gathers = [node.kind for node in picked.graph.nodes if isinstance(node.kind, Gather)]
    assert [sum(isinstance(each, Lookup) for each in kind.index) for kind in gathers] == [1]
    found(lambda a: a[np.arange(a.shape[0]), np.arange(1, a.shape[0] + 1)] * a[0, np.arange(4, 0, -2)][:1], x(3, 5))
    found(lambda a: a[np.arange(2)[:, None] + 1, np.arange(a.shape[1])] + a[:2, np.arange(a.shape[1]) - 1], x(3, 5))
    found(lambda a: a[np.arange(a.shape[1])[:, None], np.arange(3)] + a[np.arange(-3, 0)].T[:, :3], x(3, 3))
    found(lambda a: a[np.arange(a.shape[0] - a.shape[0] // 1)], x(3, 5))

    def changed(a):
        out = a.copy()
        part = out[np.arange(a.shape[0])]
        part += 1
        out[np.arange(a.shape[0]), np.arange(a.shape[0])] = 7
        return out, part

    found(changed, x(3, 4))


def test_places_that_count_too_far_are_refused_when_it_runs():
    made = trace_shapes(lambda a: a[np.arange(a.shape[1])], {"a": (DType.F32, (3, 5))}, {})
    with pytest.raises(InputError, match="an index is outside"):
        evaluate(made.graph, {"a": x(3, 5)})


def test_places_of_no_axes():
    found(lambda a: (np.take(a, 0, axis=1), a.take(2), a[np.array(-1)], a[np.array(0)] + a[np.array([0])]), x(3, 4))


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda a: a[:, [2, 0]], ["3 <= x0_1"]),
        (lambda a: a[:, np.array([-4, 1])], ["4 <= x0_1"]),
        (lambda a: a[[1, 0], [3, -1]], ["2 <= x0_0", "4 <= x0_1"]),
        (lambda a: np.take(a, [2, 1], 1), ["3 <= x0_1"]),
        (lambda a: np.take(a, [9, 1], 1, mode="clip"), []),
    ],
)
def test_an_axis_must_have_the_places_that_are_known(function, wanted):
    """NumPy refuses them also where nothing is looked up."""
    assert [str(each) for each in found(function, x(3, 4)).graph.demands] == wanted


@pytest.mark.parametrize(
    ("function", "extents"),
    [
        (lambda a: a[np.array([True, False, True])], {"x0_0": 3}),
        (lambda a: a[..., [True, False, False, True]], {"x0_1": 4}),
        (lambda a: a[np.eye(3, 4, dtype=bool)], {"x0_0": 3, "x0_1": 4}),
        (lambda a: a[None, :, np.arange(4) > 1], {"x0_1": 4}),
    ],
)
def test_an_array_must_have_the_extents_of_a_known_mask(function, extents):
    assert found(function, x(3, 4)).specialised == extents


def test_what_is_written_under_known_masks_and_places_must_be_there():
    def written(a):
        out = a.copy()
        out[np.array([True, False, True])] = 2
        np.add.at(out, [1, 1], 5)
        out[:, [3, 0]] = 1
        return out

    made = found(written, x(3, 4))
    assert (made.specialised, [str(each) for each in made.graph.demands]) == ({"x0_0": 3}, ["4 <= x0_1"])
