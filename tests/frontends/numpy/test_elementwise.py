from __future__ import annotations

import copy

import numpy as np
import pytest

from noyau.errors import InputError, UnsupportedError
from noyau.ir.graph_interpreter import evaluate
from tests.frontends.numpy.traces import agrees, found, traced, traced_only, x

DTYPES = ("bool", "int8", "int32", "uint8", "float16", "float32", "float64")


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"])
def test_reductions_as_functions_and_as_methods(name, axis):
    for dtype in DTYPES:
        if name in ("var", "std") and dtype == "float16":
            continue  # NumPy's own is less exact than what is allowed here
        array = x(2, 3, 4, dtype=dtype) if name != "prod" else np.abs(x(2, 3, 4)).astype(dtype)
        agrees(lambda a: getattr(np, name)(a, axis), array)
        agrees(lambda a: getattr(a, name)(axis=axis, keepdims=True), array)


def test_reductions_with_more_to_say():
    agrees(lambda a: a.var(-1, ddof=1), x(3, 5))
    agrees(lambda a: a.sum(0, dtype=np.float64), x(3, 5))
    agrees(lambda a: np.mean(a, axis=1, dtype=np.float64), x(3, 5, dtype=np.int8))
    agrees(lambda a: np.add.reduce(a, -1) + np.maximum.reduce(a, axis=1), x(3, 5))
    agrees(lambda a: np.amax(a), x(3, 5))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(name):
    agrees(lambda a: getattr(a, name)(-1), x(3, 5))
    agrees(lambda a: getattr(np, name)(a, 0, keepdims=True), x(3, 5, dtype=np.int32))
    agrees(lambda a: getattr(np, name)(a), x(3, 5))
    agrees(lambda a: getattr(a, name)(1), x(3, 5, dtype=bool))


def test_running_sums():
    agrees(lambda a: np.cumsum(a, axis=1), x(3, 5))
    agrees(lambda a: a.cumsum(), x(3, 5, dtype=np.int8))
    agrees(lambda a: np.cumprod(a, 0), x(3, 5))


def test_nothing_has_no_largest():
    graph, _ = traced(lambda a: a.max(-1), x(2, 3))
    with pytest.raises(InputError, match="1 <= s3 does not hold where s2=2, s3=0"):
        evaluate(graph, {"x0": x(2, 0)})


def test_choices():
    agrees(lambda a, b: np.where(a > b, a, 0), x(2, 3), x(3))
    agrees(lambda a: np.where(a > 0, a, np.float64(1)), x(2, 3))
    agrees(lambda a: np.where(a, 1.5, a), x(2, 3, dtype=np.int32))
    agrees(lambda a: np.clip(a, -1, 1) + a.clip(0) + np.clip(a, None, 0.5), x(2, 3))
    agrees(lambda a: a.clip(min=0, max=3), x(2, 3, dtype=np.int8))
    agrees(lambda a, b: np.clip(a, b, None) + a.clip(-1, b) + np.clip(2.5, a, b), x(2, 3), np.abs(x(3)))


def test_shapes():
    agrees(lambda a: a.reshape(-1), x(2, 3, 4))
    agrees(lambda a: a.reshape(a.shape[0], -1).T, x(2, 3, 4))
    agrees(lambda a: np.reshape(a, (a.shape[0] * a.shape[1], a.shape[2])), x(2, 3, 4))
    agrees(lambda a: a.transpose(2, 0, 1) + np.transpose(a, (2, 0, 1)), x(2, 3, 4))
    agrees(lambda a: np.swapaxes(a, 0, -1) + a.T, x(2, 3, 4))
    agrees(lambda a: np.moveaxis(a, -1, 0), x(2, 3, 4))
    agrees(lambda a: np.expand_dims(a, (0, -1)) * np.expand_dims(a, 1).squeeze(1)[None, ..., None], x(2, 3))
    agrees(lambda a: np.squeeze(a), x(2, 1, 3, 1))
    agrees(lambda a: np.broadcast_to(a, (5, *a.shape)), x(2, 4))
    agrees(lambda a: np.flip(a) + np.flip(a, 0)[:, ::-1], x(2, 4))
    agrees(lambda a: a.ravel() + a.flatten(), x(2, 4))


def test_pieces_side_by_side():
    agrees(lambda a, b: np.concatenate([a, b * 2, a], axis=-1), x(2, 3), x(2, 4))
    agrees(lambda a, b: np.concatenate((a, b)), x(2, 3, dtype=np.float16), x(5, 3))
    agrees(lambda a: np.concatenate([a, a], axis=None), x(2, 3))
    agrees(lambda a, b: np.stack([a, b], axis=1), x(2, 3), x(2, 3, seed=1))


def test_dtypes_and_copies():
    agrees(lambda a: a.astype(np.int32).astype("float16").copy(), x(2, 3))
    agrees(lambda a: np.zeros_like(a) + np.ones_like(a, dtype=np.float64) + np.full_like(a, 3), x(2, 3))
    agrees(lambda a: a.shape[0] * np.ndim(a) * a, x(2, 3))
    agrees(lambda a: a * a.size, x(2, 3))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a: np.median(a), "np.median is not among the functions that are traced"),
        (lambda a: a.sort(), "the method .sort changes an array in place: it sorts"),
        (lambda a: a.sum(0, out=a), "it writes into the argument x0"),
        (lambda a: a.max(0, where=a > 0), "np.max with where= needs initial=, as in NumPy"),
        (lambda a: a.argmax(0, out=a), "it writes into the argument x0"),
        (lambda a: a.sum(2), "the axis 2 is outside of 2 axes"),
        (lambda a: a.sum(0, out=np.zeros((1, a.shape[1]))), "out= of 2 axes takes no result of 1"),
        (lambda a: np.add(a[:1, :1], 1, out=np.zeros(3)), "out= of 1 axes takes no result of 2"),
        (lambda a: a[:1].sum(1, out=np.zeros(3)), "shapes do not fit|extent"),
        (lambda a: np.tril(a[0, 0]), "np.tril and np.triu take an array of one axis or more"),
        (lambda a: np.linalg.norm(a, axis=()), "np.linalg.norm takes a vector or matrices"),
        (lambda a: np.where(a > 0), "np.where of a condition alone has a result of unknown shape"),
        (lambda a: a.reshape(2, 3, order="A"), "np.reshape is traced in the orders C and F, not 'A'"),
        (lambda a: a.reshape(-1, -1), "np.reshape can infer one extent only"),
        (lambda a: a.ravel("K"), "np.ravel is traced in the orders C and F, not 'K', as the memory lies"),
        (lambda a: a.transpose(0, 0), r"\(0, 0\) does not permute 2 axes"),
        (lambda a: np.concatenate([a, a[0]]), "np.concatenate takes arrays of one rank, and not of none"),
        (lambda a: a.astype(complex), "there is no dtype for"),
        (lambda a: np.concatenate([a[:, :2], a[:, :3]], 0), "shapes do not fit: an extent is 2 and 3 at once"),
        (lambda a: a.squeeze(0)[0:1], "y0 is|shapes"),
    ],
)  # fmt: skip
def test_what_is_not_traced(function, told):
    with pytest.raises(UnsupportedError, match=told):
        traced_only(function, x(2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda k, a: np.choose(k % 3, [a, 2 * a, 7]),
        lambda k, a: np.round(k * 13, -1),
        lambda k, a: np.array_equiv(k, k[:1]),
        lambda k, a: np.array_equiv(a, a),
        lambda k, a: np.asfortranarray(a) + np.flip(a),
        lambda k, a: copy.copy(a) + copy.deepcopy(k),
    ],
)
def test_choices_tens_and_copies(function):
    found(function, x(3, 4, dtype=np.int32), x(3, 4))


@pytest.mark.parametrize("options", [{}, {"indexing": "ij"}, {"sparse": True}, {"copy": False, "indexing": "xy"}])
def test_grids_of_vectors(options):
    for arrays in ((x(3), x(4)), (x(3), x(4), x(5)), (x(3, 2), x(4, dtype=np.int32))):
        agrees(lambda *all_of: tuple(np.meshgrid(*all_of, **options)), *arrays)
    agrees(lambda a: tuple(np.meshgrid(a, 2.0, **options)), x(3))


def test_a_choice_that_is_not_there_is_an_error():
    graph = found(lambda k: np.choose(k, [1, 2]), np.array([0, 1])).graph
    with pytest.raises(InputError, match="outside"):
        evaluate(graph, {"x0": np.array([0, 2])})


def test_what_is_copied_is_not_changed_with_its_source():
    def function(a):
        own = a * 2
        other = copy.copy(own)
        own += 1
        return own, other

    found(function, x(3))
