from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import noyau
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.dims import Dim
from noyau.ir.graph import Lookup, Scatter, Select
from tests.frontends.numpy.traces import found, traced_only, x


def set_at(key, dtype=None):
    """A function that sets, adds to and reads the cells at a key of an array that it makes."""

    def function(a, v):
        out = a.copy() if dtype is None else a.astype(dtype)
        out[key] = v
        out[key] += 1
        return out, out[key] * 2

    return function


KEYS = (
    np.s_[0], np.s_[-1, 2], np.s_[1:], np.s_[:, 1:-1], np.s_[::2], np.s_[:, ::-1], np.s_[::-2, 1::3], np.s_[...],
    np.s_[:, None, 2], np.s_[5:], np.s_[2:1], np.s_[-2:, -3:], np.s_[[2, 0]], np.s_[[2, 0], 1:], np.s_[[0, 1], [3, 2]],
    np.s_[np.array([[0], [2]]), [1, 3]], np.s_[:, [0, -1]], np.s_[1:2, ::2], np.s_[3:0:-1, 0],
    np.s_[np.array([True, False, True, True])], np.s_[3, ..., ::4],
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_cells_that_are_set(key):
    found(set_at(key), x(4, 5), x())
    found(set_at(key, np.int32), x(4, 5), x())


def test_values_are_broadcast_and_cast():
    def row(a, v):
        out = np.zeros(a.shape, np.int64)
        out[1:] = v * 3
        out[0] = 7.9
        return out

    found(row, x(3, 4), x(4))
    found(row, x(3, 4), x(1, 4))


def test_what_is_seen_through_views():
    def through(a):
        out = a * 2
        row, turned, inner = out[0], out.T, out[1:, 1:][:, ::-1]
        row += 1
        turned[2] *= 3
        inner[...] = a[1:, 1:]
        np.multiply(out, 2, out=out)
        other = out.copy()
        out[:] = 0
        return out, row, turned, other, inner + 1

    found(through, x(3, 4))


def test_loops_that_fill():
    def filled(a):
        out = np.empty((3, *a.shape))
        for k in range(3):
            out[k] = a * k
        out[1, :2] -= a[:2]
        return out

    found(filled, x(4, 2))


def test_places_that_are_looked_up():
    def scattered(a, k, v):
        out = np.zeros_like(a)
        out[k] = v
        out[k % 3, 1] = 5
        np.add.at(out, k, v)
        np.maximum.at(out, (k, 0), 2.5)
        return out

    found(scattered, x(5, 3), np.array([4, 0, -2, 2]), x(4, 3))


def test_rows_that_one_array_looks_up_are_merged_as_rows():
    @noyau.op("i64[n], f32[n, c] -> f32[7, c]")
    def summed(k, v):
        out = np.zeros((7, v.shape[1]), np.float32)
        np.add.at(out, k, v)
        return out

    (scatter,) = (node for node in summed.generate("c").graph.nodes if isinstance(node.kind, Scatter))
    assert scatter.kind.index == (Lookup(1, (Dim.of("#0"),)), Dim.of("#1"))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint32])
def test_values_are_taken_away_where_places_are_met_again(dtype):
    def scattered(a, k, v):
        out = a.copy()
        np.subtract.at(out, k, v)
        np.subtract.at(out, (k, 0), 2)
        return out

    found(scattered, x(5, 3, dtype=dtype), np.array([4, 0, 4, 2]), x(4, 3, dtype=np.int8).astype(np.uint8) % 7)


def test_an_array_of_no_axes_is_changed_in_another_dtype():
    def changed(a):
        made = np.where(a.sum() > 0, 1.0, 2.0).astype(np.float32)
        same = made
        made += 1
        return same, made

    found(changed, x(3))


def test_scalars_are_not_changed():
    def rebound(a):
        total = a.sum()
        before = total
        total += 1
        part = a[0, 0]
        part *= 2
        return total, before, part, a

    found(rebound, x(3, 4))


def test_fill_copyto_and_out():
    def made(a):
        out = np.empty_like(a)
        out.fill(2)
        np.copyto(out, a, where=a > 0)
        np.exp(a, out=out, where=a < -1)
        np.sum(a, axis=0, out=out[1])
        return out

    found(made, x(3, 4))


ENDS = st.one_of(st.none(), st.integers(-6, 6))
SLICES = st.builds(slice, ENDS, ENDS, st.sampled_from([None, 1, 2, -1, -2, 3]))
PARTS = st.one_of(SLICES, st.integers(-3, 2), st.none())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PARTS, SLICES), min_size=1, max_size=3), st.tuples(st.integers(3, 5), st.integers(0, 5)))
def test_random_slices_set_what_numpy_sets(keys, shape):
    def function(a):
        out = np.zeros_like(a)
        for count, key in enumerate(keys):
            out[key] = count + 1
            out[key] += out[key][..., ::-1] * 2
        return out, a[keys[0]]

    found(function, x(*shape))


PLACES = st.one_of(PARTS, st.just(...), st.lists(st.integers(-3, 2), min_size=1, max_size=3).map(np.array))


@settings(max_examples=80, deadline=None)
@given(st.lists(PLACES, min_size=1, max_size=4).map(tuple), st.sampled_from([(3, 4, 5), (3, 3, 3)]), st.integers(0, 2))
def test_random_keys_are_set_to_what_numpy_sets(key, shape, lead):
    def function(a, v):
        out = a.copy()
        out[key] = v
        more = out * 1
        more[key] += v
        return out, more

    array = x(*shape)
    try:
        part = array[key]
        function(array, value := x(*part.shape[lead:], seed=1))
    except (IndexError, ValueError):
        return
    found(function, array, value)


def change(a):
    a[0] = 1
    return a


def change_view(a):
    row = a[0]
    row += 1
    return a


def change_copy_or_view(a):
    out = a * 2
    flat = out.ravel()
    flat[0] = 1
    return out


def read_copy_or_view(a):
    out = a * 2
    flat = out.reshape(-1)
    out[0] = 1
    return flat.reshape(a.shape)


def change_expanded(a):
    out = np.broadcast_to(a * 2, (2, *a.shape))
    out[0] = 1
    return out[0]


CONSTANT = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (change, "it writes into the argument x0; make a new array: a copy, or np.where"),
        (change_view, "it writes into the argument x0"),
        (change_copy_or_view, "it writes into what is a view or a copy in NumPy, as the memory lies; write into its"),
        (read_copy_or_view, "it reads what is a view or a copy in NumPy, as the memory lies, after its source"),
        (change_expanded, "what np.broadcast_to gives is read-only"),
        (lambda a: np.add(a, 1, out=CONSTANT), "it writes into an array that was there before the call"),
        (lambda a: np.put(a, 0, 1), "it writes into the argument x0"),
        (lambda a: a.copy().__setitem__(0, np.ones((2, 3))), "a value of 2 axes does not fit into 1"),
        (lambda a: np.putmask(a.copy(), a > 0, np.ones(2)), "np.putmask is traced for one number"),
        (lambda a: np.subtract.at(a > 0, [0], True), "The numpy boolean negative"),
        (lambda a: np.add.at(CONSTANT, [0], a[0]), "np.add.at writes into an array that was there before"),
    ],
)
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


def test_a_value_does_not_make_its_target_larger():
    def larger(a):
        out = np.zeros((1, 3), np.float32)
        out[...] = a
        return out

    with pytest.raises(UnsupportedError, match="shapes do not fit: an extent is 1 and a_0 at once, here 1 and 2"):
        trace_shapes(larger, {"a": (DType.F32, (2, 3))}, {})


@pytest.mark.parametrize(
    "merged",
    [
        lambda out: np.multiply.at(out, [0, 0], 0.5),
        lambda out: np.maximum.at(out, [0], -2),
        lambda out: np.add.at(out, [0], out * 0.5),
    ],
)
def test_what_numpy_merges_in_a_wider_dtype_is_not_traced(merged):
    def function(a):
        out = a.copy()
        merged(out)
        return out

    with pytest.raises(UnsupportedError, match="which NumPy rounds after each cell"):
        traced_only(function, x(4, dtype=np.uint16))


def test_numbers_that_a_narrow_array_holds_are_merged():
    def function(a):
        out = a.copy()
        np.maximum.at(out, [0, 0], 7)
        np.add.at(out, [1, 1], -3)
        return out

    found(function, x(4, dtype=np.uint16))


@pytest.mark.parametrize("n", [1, 2, 5, 6, 9, 300])
def test_cells_some_steps_apart(n):
    for step in (2, 3):
        for start in range(min(step, n)):

            def apart(a, start=start, step=step):
                out = a * 2
                out[:, start::step] = a[:, : (a.shape[1] - start + step - 1) // step] - 1
                return out

            graph = found(apart, x(2, n)).graph
            is_cut = any(isinstance(node.kind, Select) for node in graph.nodes)
            assert not 3 < n < 256 or is_cut == (n % step > 0)
