from __future__ import annotations

import math
import operator
import warnings

import numpy as np
import pytest

import noyau
from noyau.errors import SignatureError, UnsupportedError
from noyau.ir.monoids import MONOIDS, STEPS

NOISE = np.random.default_rng(0)
X = NOISE.normal(size=(2, 30, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_runs_as_its_reference():
    before = set(STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", noyau.ReferenceWarning)
        yield
    for name in set(STEPS) - before:
        del MONOIDS[name], STEPS[name]


def sigmoid(x, slope=1.0):
    return 1 / (1 + math.exp(-slope * x))


relu = noyau.map(lambda x: max(x, 0.0))
mul = noyau.zip(operator.mul)
total = noyau.reduce(operator.add, 0.0)


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.T,
        X[:, ::-2, 1:],
        np.broadcast_to(X[0, 0], (4, 5)),
        X.astype(np.float64),
        X[0, 0, 0],
        np.zeros((0, 3)),
        X[:1],
    ],
    ids=["packed", "permuted", "strided", "expanded", "f64", "rank 0", "empty", "extent 1"],
)
def test_map_goes_over_arrays_of_any_rank_and_layout(x):
    got = relu(x)
    assert got.dtype == x.dtype and np.array_equal(got, np.maximum(x, 0))


def test_map_of_integers_and_numbers():
    assert relu(np.arange(-3, 3)).dtype == np.float64  # as np.maximum with 0.0
    assert relu(-2.0) == 0.0 and relu(3).dtype == np.float64
    assert np.array_equal(noyau.map(lambda x: x % 3)(np.arange(7)), np.arange(7) % 3)


def test_parameters_with_defaults_are_constants():
    made = noyau.map(sigmoid)
    assert made(X) == pytest.approx(1 / (1 + np.exp(-X)), abs=1e-6)
    assert made(X, slope=3.0) == pytest.approx(1 / (1 + np.exp(-3 * X)), abs=1e-6)


def test_zip_broadcasts_permuted_and_strided_arrays():
    for a, b in ((X, X), (X, X[0]), (X[:, :, :1], X[0, 0]), (X.T, X.T[:, ::-1]), (X[0, 0], X[0, 0, 0]), (X, 2.0)):
        assert np.array_equal(mul(a, b), a * b)
    assert np.array_equal(mul(3, X), 3 * X) and mul(3, X).dtype == np.float32
    assert mul(np.arange(3), 0.5).dtype == np.float64
    assert mul(2, 3) == 6


def test_zip_of_three():
    blend = noyau.zip(lambda c, a, b: np.where(c > 0, a, b))
    assert np.array_equal(blend(X, 1.0, X[0]), np.where(X > 0, np.float32(1), X[0]))


def test_shapes_that_do_not_fit_are_refused_as_numpy_does():
    with noyau.reference(), pytest.raises(ValueError, match="shape"):
        mul(X, X[:, :2])
    warnings.simplefilter("ignore")
    with pytest.raises(ValueError, match="shape"):
        mul(X, X[:, :2])


REDUCTIONS = {
    "max": (max, -math.inf, np.max),
    "squares": (lambda a, b: a + b * b, 1.0, lambda x, **said: 1 + np.sum(x * x, **said)),
    "difference": (operator.sub, 2.0, lambda x, **said: 2 - np.sum(x, **said)),
    "logaddexp": (np.logaddexp, -math.inf, lambda x, **said: np.log(np.sum(np.exp(x), **said))),
    "hypot": (math.hypot, 0.0, lambda x, **said: np.sqrt(np.sum(x * x, **said))),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_along_axes(name):
    function, start, want = REDUCTIONS[name]
    made = noyau.reduce(function, start)
    every = [(X, {}), (X, {"axis": -1, "keepdims": True}), (X.T, {"axis": 0}), (X.T, {"axis": (0, 2)})]
    some = every if name == "hypot" else every[[*REDUCTIONS].index(name) % 2 :: 2]  # each is a kernel of its own
    for x, said in some:
        right = want(x.astype(np.float64), **{"axis": None, **said})
        assert made(x, **said) == pytest.approx(right, rel=1e-4, abs=1e-5)
        assert np.shape(made(x, **said)) == np.shape(right)


def test_a_function_that_is_not_associative_is_folded_from_left_to_right():
    made = noyau.reduce(lambda state, x: state * np.float32(0.5) - x, 1.0)
    state = np.ones(X.shape[1:], np.float32)
    for row in X:
        state = state * np.float32(0.5) - row
    assert np.array_equal(made(X, axis=0), state)
    chain = np.float32(1)
    for cell in X.T.ravel():
        chain = chain * np.float32(0.5) - cell
    assert made(X.T) == pytest.approx(chain, rel=1e-6)


def test_no_cells_give_the_start():
    assert np.array_equal(noyau.reduce(math.hypot, 3.0)(np.zeros((0, 2)), axis=0), [3.0, 3.0])
    assert noyau.reduce(max, 1.0)(np.zeros(0)) == 1.0
    assert total(np.float32(2.5)) == 2.5


def test_they_are_traced_in_other_ops():
    @noyau.op("float[*batch, n] -> float[*batch, n]")
    def softmax(x):
        e = np.exp(x - noyau_max(x, axis=-1, keepdims=True))
        return mul(e, 1 / total(e, axis=-1, keepdims=True))

    noyau_max = noyau.reduce(max, -math.inf)
    e = np.exp(X - X.max(-1, keepdims=True))
    assert softmax(X) == pytest.approx(e / e.sum(-1, keepdims=True), rel=1e-5)
    assert noyau.map(noyau.map(sigmoid))(X) == pytest.approx(1 / (1 + np.exp(-X)), rel=1e-5)


def test_text_explanation_and_inputs():
    assert "noyau_maximum" in relu.source("c") or "fmax" in relu.source("c") or "> " in relu.source("c")
    assert "def map_lambda" in relu.source("numba")
    assert relu.explain(X).kernel in ("c", "numba")
    assert mul.make(n=3)[0].shape == (5, 3)
    assert [str(form.signature) for form in total.forms][-1] == "float[m, n] -> float"
    assert (relu.name, mul.name, total.name, noyau.map(sigmoid, name="logistic").name) == (
        "map_lambda",
        "zip_mul",
        "reduce_add",
        "logistic",
    )


def test_out_is_written_to():
    out = np.empty_like(X)
    assert relu(X, out=out) is out and np.array_equal(out, np.maximum(X, 0))


def test_within_reference_they_run_as_written():
    with noyau.reference():
        assert np.array_equal(relu(X), np.maximum(X, 0))
        assert total(X, axis=0) == pytest.approx(X.sum(0))


def branches(x):
    return x if x > 0 else 0.0


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: noyau.map(branches), UnsupportedError, "branches cannot be traced at line .*choose with np.where"),
        (lambda: noyau.map(lambda x: x.sum()), UnsupportedError, "is no function of numbers"),
        (lambda: noyau.map(operator.add), SignatureError, "noyau.map takes a function of one number; add is none"),
        (lambda: noyau.zip(math.sqrt), SignatureError, "noyau.zip takes a function of two numbers; sqrt is none"),
        (
            lambda: noyau.reduce(lambda a, b, k=2: a + b, 0.0),
            SignatureError,
            "noyau.reduce takes a function of two numbers; <lambda> has",
        ),
        (lambda: noyau.reduce(max, "0"), SignatureError, "the start of noyau.reduce is a number, not '0'"),
        (lambda: noyau.reduce(max, np.zeros(2)), SignatureError, "the start of noyau.reduce is a number, not array"),
    ],
)
def test_what_cannot_be_made(make, error, told):
    with pytest.raises(error, match=told):
        make()


@pytest.mark.parametrize("axis", [3, -4, 1.0, True, (), (0, -3), "0"])
def test_axes_that_there_are_not(axis):
    warnings.simplefilter("ignore")
    with pytest.raises(SignatureError, match="reduce_add: axis="):
        total(X, axis=axis)


def test_a_check_tries_the_forms(monkeypatch):
    monkeypatch.setattr("noyau.jobs.check.candidates.languages_for", lambda *, gpu: () if gpu else ("c",))
    found = noyau.check(noyau.reduce(lambda state, x: state * 0.5 + x, 0.0, name="horner"), budget_s=0.3)
    assert found.ok, str(found)
    assert [kernel.name for kernel in found.kernels] == [
        "c: float[*batch, n] -> float[*batch]",
        "c: float[n, *batch] -> float[1, *batch]",
        "c: float[m, n] -> float",
    ]
