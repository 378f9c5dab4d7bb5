"""Sizes that should be alike are looked at: where the model as it is gives an error, so do its kernels."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from tests.compiler.passes.fusing import Fusing


def arrays(**shapes):
    noise = np.random.default_rng(0)
    return {name: noise.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


FAULTS = (InputError, ValueError, TypeError, RuntimeError, IndexError)  # of a kernel; of the evaluator, which is NumPy

# A model; shapes of its inputs that fit; shapes that do not, for which the model as it is gives an error.
FITTING = {
    "two sizes that are added": (
        "(float[a] x, float[b] v) => (float[c] y) { s = Add(x, v) y = Tanh(s) }",
        [{"x": (3,), "v": (3,)}, {"x": (1,), "v": (3,)}, {"x": (3,), "v": (1,)}, {"x": (0,), "v": (0,)}],
        [{"x": (3,), "v": (2,)}, {"x": (2,), "v": (4,)}, {"x": (0,), "v": (2,)}],
    ),
    "three sizes that are added": (
        "(float[a] x, float[b] v, float[c] w) => (float[d] y) { s = Add(x, v) y = Add(s, w) }",
        [{"x": (1,), "v": (1,), "w": (4,)}, {"x": (1,), "v": (4,), "w": (4,)}],
        [{"x": (2,), "v": (1,), "w": (4,)}, {"x": (1,), "v": (2,), "w": (4,)}],
    ),
    "a size and a number": (
        "(float[a, 3] x, float[b] v) => (float[a, 3] y) { s = Mul(x, v) y = Tanh(s) }",
        [{"x": (2, 3), "v": (3,)}, {"x": (2, 3), "v": (1,)}],
        [{"x": (2, 3), "v": (2,)}, {"x": (2, 3), "v": (4,)}],
    ),
    "pieces side by side": (
        "(float[a, n] x, float[b, m] v) => (float[c, n] y) { s = Concat<axis = 0>(x, v) y = Tanh(s) }",
        [{"x": (2, 3), "v": (4, 3)}],
        [{"x": (2, 3), "v": (4, 2)}, {"x": (2, 2), "v": (4, 3)}],
    ),
    "a reshape to the shape of another input": (
        "(float[a, b] x, float[c, d] v) => (float[c, d] y) "
        "{ k = Shape(v) r = Reshape(x, k) s = Tanh(r) y = Add(s, v) }",
        [{"x": (2, 3), "v": (3, 2)}, {"x": (2, 3), "v": (6, 1)}],
        [{"x": (2, 3), "v": (2, 2)}, {"x": (2, 3), "v": (4, 2)}],
    ),
    "a reshape to the shape of what the kernel does not read": (
        "(float[a] x, float[b] v) => (float[b] y) { k = Shape(v) t = Tanh(x) r = Reshape(t, k) y = Exp(r) }",
        [{"x": (3,), "v": (3,)}],
        [{"x": (3,), "v": (2,)}, {"x": (3,), "v": (4,)}],
    ),
    "an axis that is dropped": (
        "(float[a, b] x) => (float[b] y) <int64[1] k = {0}> { s = Squeeze(x, k) y = Tanh(s) }",
        [{"x": (1, 3)}],
        [{"x": (2, 3)}],
    ),
    "an axis that is dropped after a slice to another input's size": (
        "(float[2, b] x, float[a] v) => (float[b] y, float[a] z) <int64[1] k = {0}> "
        "{ e = Shape(v) s = Slice(x, k, e, k) q = Squeeze(s, k) y = Tanh(q) u = Exp(v) z = Neg(u) }",
        [{"x": (2, 3), "v": (1,)}],
        [{"x": (2, 3), "v": (2,)}, {"x": (2, 3), "v": (5,)}],
    ),
    "a slice to another input's size beside a third": (
        "(float[t] x, float[p] q, float[m] v) => (float[n] y) <int64[1] k = {0}> { e = Shape(q) s = Slice(x, k, e, k) "
        "i = Unsqueeze(s, k) j = Unsqueeze(v, k) c = Concat<axis = 0>(i, j) y = Tanh(c) }",
        [{"x": (5,), "q": (3,), "v": (3,)}],
        [{"x": (5,), "q": (2,), "v": (3,)}, {"x": (5,), "q": (4,), "v": (3,)}],
    ),
    "an expansion": (
        "(float[a] x, float[b, c] v) => (float[b, c] y) { k = Shape(v) e = Expand(x, k) y = Mul(e, v) }",
        [{"x": (3,), "v": (2, 3)}, {"x": (1,), "v": (2, 3)}],
        [{"x": (2,), "v": (2, 3)}, {"x": (4,), "v": (2, 3)}],
    ),
    "a scale and a bias": (
        "(float[a, b] x, float[c] v, float[d] w) => (float[a, b] y) { n = LayerNormalization(x, v, w) y = Tanh(n) }",
        [{"x": (2, 3), "v": (3,), "w": (3,)}, {"x": (2, 1), "v": (1,), "w": (1,)}],
        [{"x": (2, 3), "v": (2,), "w": (3,)}, {"x": (2, 3), "v": (3,), "w": (4,)}],
    ),
    "an axis that is dropped for its shape alone": (
        "(float[a, a] x) => (float[b, 3] y) <int64[1] k = {1}, int64[1] t = {3}> { s = Squeeze(x, k) l = Shape(s) "
        "m = Concat<axis = 0>(l, t) e = Tanh(x) r = Expand(e, m) y = Exp(r) }",
        [{"x": (1, 1)}],
        [{"x": (2, 2)}, {"x": (3, 3)}],
    ),
    "a range as long as another input": (
        "(float[a, b] x, float[c] v) => (float[a, b] y) <int64 o = {0}, int64 i = {1}, int64[1] k = {0}> "
        "{ l = Shape(v) n = Squeeze(l, k) r = Range(o, n, i) f = Cast<to = 1>(r) y = Add(x, f) }",
        [{"x": (2, 3), "v": (3,)}, {"x": (2, 1), "v": (3,)}],
        [{"x": (2, 3), "v": (2,)}, {"x": (2, 3), "v": (4,)}],
    ),
}


@pytest.mark.parametrize("what", FITTING)
def test_sizes_that_fit_give_what_the_model_gives(what):
    text, fitting, _ = FITTING[what]
    made = Fusing(text)
    for shapes in fitting:
        made.agrees(arrays(**shapes))


@pytest.mark.parametrize("what", FITTING)
def test_sizes_that_do_not_are_an_error_as_they_are_in_the_model(what):
    text, _, others = FITTING[what]
    made = Fusing(text)
    for shapes in others:
        feeds = arrays(**shapes)
        with pytest.raises(FAULTS):
            made.want(feeds)
        with pytest.raises(FAULTS):
            made.got(feeds)


def test_what_no_input_tells_is_not_joined():
    text, _, _ = FITTING["a reshape to the shape of what the kernel does not read"]
    assert Fusing(text).positions == []


def test_a_slice_that_no_input_tells_is_left_to_the_model():
    """The kernel would give the first of the rows, however many there are."""
    made = Fusing(FITTING["an axis that is dropped after a slice to another input's size"][0])
    assert made.positions == [(2, 3), (4, 5)]
    assert made.reason(1) == "the size a of s does not follow from the shapes of the inputs"


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 0)])
def test_nothing_beside_one_is_refused(a, b):
    """It would be 0 long, which no largest size says."""
    made = Fusing("(float[a] x, float[b] v) => (float[c] y) { s = Add(x, v) y = Tanh(s) }")
    with pytest.raises(InputError):
        made.got(arrays(x=(a,), v=(b,)))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_an_extent_of_0_that_reshape_would_copy(shape):
    """A 0 in the target of a Reshape is the old extent: the kernel gives the same shape, or refuses."""
    made = Fusing(
        "(float[a, b] x, float[c] v) => (float[d, e] y) <int64[1] k = {-1}> "
        "{ s = Shape(v) t = Concat<axis = 0>(s, k) z = Tanh(x) r = Reshape(z, t) y = Exp(r) }"
    )
    for length in (0, 1, 2):
        feeds = arrays(x=shape, v=(length,))
        try:
            (got,) = made.got(feeds)
        except FAULTS:
            continue
        assert got.shape == made.want(feeds)[0].shape


def test_what_nothing_needs_tells_no_sizes():
    """Dead code goes with its neighbours, and what it alone reads is no input."""
    made = Fusing(
        "(float[a] x, float[a, 1] v) => (float[a] y) <int64 o = {0}, int64 i = {1}, int64[1] k = {0}> "
        "{ l = Shape(x) n = Squeeze(l, k) r = Range(o, n, i) y = Cast<to = 1>(r) dead = Add(v, y) deader = Exp(dead) }"
    )
    made.agrees(arrays(x=(3,), v=(3, 1)))
