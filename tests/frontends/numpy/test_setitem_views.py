"""What is a view and what a copy, and what is seen of a change."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.ir.graph import Select
from tests.frontends.numpy.traces import found, newer, x


def packed(a):
    """An array of its own whose cells are known to lie in C order."""
    own = np.zeros(a.shape, a.dtype)
    own[...] = a
    return own


def written(made, start=packed):
    """A function that writes into what `made` makes of an array of its own, and then into that, and gives both."""

    def function(a):
        own = start(a)
        other = made(own)
        other[:1] = 9
        own[-1] += 1
        return own, other * 1

    return function


def source_written(made):
    """A function that writes into an array of its own after `made` has made something of it, and gives both."""

    def function(a):
        own = packed(a)
        other = made(own)
        own[-1] += 1
        return own, other * 1

    return function


COPIES_AND_VIEWS = {
    "ascontiguousarray of every second": lambda t: np.ascontiguousarray(t[::2]),
    "ascontiguousarray of what is": lambda t: np.ascontiguousarray(t),
    "ascontiguousarray of the first": lambda t: np.ascontiguousarray(t[1:]),
    "ascontiguousarray of transposed": lambda t: np.ascontiguousarray(t.T),
    "ascontiguousarray turned": lambda t: np.ascontiguousarray(t[::-1]),
    "asarray": np.asarray,
    "asarray of every second": lambda t: np.asarray(t[::2]),
    "asarray in order": lambda t: np.asarray(t[::2], order="C"),
    "asarray copied": pytest.param(lambda t: np.asarray(t, copy=True), marks=newer("2.0.0")),
    "array": np.array,
    "array, not copied": lambda t: np.array(t[::2], copy=False),
    "array, copied if need be": pytest.param(lambda t: np.array(t, copy=None), marks=newer("2.0.0")),
    "array of another dtype": pytest.param(lambda t: np.array(t, np.float64, copy=None), marks=newer("2.0.0")),
    "astype": lambda t: t.astype(t.dtype),
    "astype, not copied": lambda t: t[::2].astype(t.dtype, copy=False),
    "astype in order": lambda t: t[::2].astype(t.dtype, order="C", copy=False),
    "flatten": lambda t: t.flatten(),
    "copy": lambda t: t[::2].copy(),
    "atleast_2d": lambda t: np.atleast_2d(t),
}
FLAT = {
    "reshape": lambda t: t.reshape(-1),
    "ravel": lambda t: t.ravel(),
    "ravel of a part": lambda t: t[1:].ravel(),
    "a copy flattened": lambda t: t.T.copy().ravel(),
    "what is computed of packed cells": lambda t: (t * 2 + t[:1]).reshape(-1),
    "zeros like packed cells": lambda t: np.zeros_like(t).reshape(-1),
    "in Fortran's order": lambda t: t.T.reshape(-1, order="F"),
    "copied": pytest.param(lambda t: t.reshape(-1, copy=True), marks=newer("2.1.0")),
    "a view of a view": lambda t: t[1:].reshape(-1)[::2].reshape(-1, 1),
}


@pytest.mark.parametrize("made", COPIES_AND_VIEWS.values(), ids=COPIES_AND_VIEWS)
@pytest.mark.parametrize("shape", [(6,), (5, 4), (1, 3), (1,)], ids=str)
def test_what_numpy_copies_is_a_copy_and_what_it_views_a_view(made, shape):
    found(written(made), x(*shape))
    found(source_written(made), x(*shape))


@pytest.mark.parametrize("made", FLAT.values(), ids=FLAT)
@pytest.mark.parametrize("shape", [(6,), (5, 4), (1, 3)], ids=str)
def test_what_is_new_and_packed_is_a_view_when_it_is_flattened(made, shape):
    found(source_written(made), x(*shape))


@pytest.mark.parametrize(
    "made",
    [
        lambda t: np.ascontiguousarray(t * 2),
        lambda t: np.ascontiguousarray((t * 2)[::2]),
        lambda t: np.asarray(t * 2, order="F"),
        lambda t: (t * 2).ravel(),
        lambda t: t[::2].reshape(-1),
        lambda t: t.reshape(-1, order="F"),
        lambda t: np.zeros_like(t).reshape(-1),
        lambda t: np.require(t, requirements="C"),
    ],
)
def test_where_nobody_knows_how_cells_lie_nothing_is_written(made):
    """Of an array that is computed they lie as those of what it was computed of."""
    with pytest.raises(UnsupportedError):
        found(written(made, lambda a: a * 2), x(4, 6))


@pytest.mark.parametrize("made", FLAT.values(), ids=FLAT)
@pytest.mark.parametrize("shape", [(6,), (5, 4), (1, 3), (0, 2)], ids=str)
def test_what_is_written_into_a_view_by_reshape_is_in_its_source(made, shape):
    found(written(made) if 0 not in shape else source_read(made), x(*shape))


def source_read(made):
    return lambda a: made(packed(a)) * 1


def chunks(a):
    out = a * 2
    split = out.reshape(out.shape[0], 1, out.shape[1])
    split[:, :, 1:] = 7
    split[0] += 1
    return out, split


def pieces(a):
    out = np.zeros((3, 8), a.dtype)
    out.reshape(3, 2, 4)[:, 1, ::2] = a[:3, :2]
    flat = out.reshape(-1)
    flat[[1, 5]] = 3
    flat[flat > 1] -= 1
    np.add.at(flat, [0, 0, 23], 2)
    out[1] *= 2
    return out, flat


@pytest.mark.parametrize("function", [chunks, pieces])
def test_an_axis_that_is_split_may_be_written(function):
    found(function, x(4, 6))


def looked_up_row(a):
    """NumPy's a[k] of a number k is a view, whichever array k comes from."""
    out = a.copy()
    k = np.argmax(out[0]) % 3
    row = out[k]
    row += 1
    out[k] *= 2
    out[k, 1:] -= 3
    out[:, k][1:] = 5
    seen = out[k]
    out[0] = 7
    return out, row * 1, seen * 1


def row_by_an_array(a):
    out = a.copy()
    row = out[np.argmax(out, axis=0)[:1]]
    row += 1
    seen = out[np.asarray(np.argmax(out) % 3)[...]]
    out[...] = 0
    return out, row, seen


def diagonal_seen(a):
    out = a.copy()
    seen, turned = np.diag(out), np.einsum("ij->ji", out)
    turned[0] = 4
    out[1] = 3
    return out, seen * 1, turned * 1


def scalars_flattened(a):
    one = a.sum()
    one.ravel()[0] = 5
    one.fill(3)
    return one


def kept_as_an_array(a):
    total = np.zeros(())
    other = total
    np.clip(total, -1, 1, out=total)
    np.add(total, a.sum(), out=total)
    return other if isinstance(total, np.ndarray) else total * 0


def under_a_mask_of_no_axes(a):
    out = a.copy()
    out[out.sum() > 0] = 1
    out[out[0, 0] < -9] = 2
    return out, out[out.max() > 0].sum()


@pytest.mark.parametrize(
    "function",
    [looked_up_row, row_by_an_array, diagonal_seen, scalars_flattened, kept_as_an_array, under_a_mask_of_no_axes],
)
def test_what_sees_what(function):
    found(function, x(3, 4))
    found(function, -np.abs(x(3, 4, seed=2)))


def added_in_place(a):
    a = a.astype(np.float64)
    a += 1
    return a


@pytest.mark.parametrize(
    "function",
    [
        added_in_place,
        lambda a: a if isinstance(a, np.ndarray) else -a,
        lambda a: a.copy().fill(3) or a,
    ],
)
def test_an_argument_of_no_axes_may_be_an_array_or_a_scalar(function):
    """NumPy changes the one, and makes a new one of the other."""
    with pytest.raises(UnsupportedError, match="array of no axes or one of NumPy's scalars"):
        found(function, np.array(2.0))


def test_what_is_added_through_a_view_is_written_once():
    def function(a):
        out = a * 2
        out[1:-1] += a[2:]
        out[1:] = out[:1]
        return out

    graph = found(function, x(6, 5)).graph
    assert sum(isinstance(node.kind, Select) for node in graph.nodes) == 2
