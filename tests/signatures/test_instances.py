from __future__ import annotations

import pytest

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim
from noyau.signatures.instances import instance_of, shapes_of, unbound_names
from noyau.signatures.types import parse

F32, F64 = DType.F32, DType.F64


def test_a_rest_becomes_axes_and_its_size_is_their_product():
    made = instance_of(parse("f32[*batch, n] -> f32[n, *batch]"), (F32,), (3,))
    first, second, n = (Dim.of(name) for name in ("batch_0", "batch_1", "n"))
    assert made.inputs[0].shape == (first, second, n)
    assert made.outputs[0].shape == (n, first, second)
    assert dict(made.sizes) == {"batch": first * second, "n": n}


def test_a_rest_of_no_axes_is_one_row():
    assert dict(instance_of(parse("f32[*batch, n] -> f32[n]"), (F32,), (1,)).sizes)["batch"] == Dim.of(1)


def test_axes_of_a_rest_are_named_like_no_size():
    made = instance_of(parse("f32[*batch, batch_0] -> f32[*batch]"), (F32,), (2,))
    assert made.inputs[0].shape[0] != made.inputs[0].shape[1]


def test_known_sizes_are_numbers():
    made = instance_of(parse("f32[n * bins] -> i32[bins]"), (F32,), (1,), (("bins", 10),))
    assert made.inputs[0].shape == (Dim.of("n") * 10,)
    assert made.outputs[0].shape == (Dim.of(10),)
    assert dict(made.sizes)["bins"] == Dim.of(10)


@pytest.mark.parametrize(
    ("text", "dtypes", "ranks", "told"),
    [
        ("f32[n] -> f32[n]", (F64,), (1,), r"x0: f64 of rank 1 does not fit f32\[n\] in its dtype"),
        ("float[n], float -> f32", (F64, F32), (1, 0), "x1: f32 of rank 0 does not fit float in its dtype"),
        ("f32[n] -> f32[n]", (F32,), (2,), r"x0: f32 of rank 2 does not fit f32\[n\] in its rank"),
        ("f32[*b, n] -> f32[n]", (F32,), (0,), "in its rank"),
        ("f32[*b], f32[*b] -> f32", (F32, F32), (1, 2), "x1: .* in its rank"),
    ],
)
def test_what_does_not_fit_is_named(text, dtypes, ranks, told):
    with pytest.raises(SignatureError, match=told):
        instance_of(parse(text), dtypes, ranks)


def test_a_known_size_that_leaves_a_negative_extent():
    with pytest.raises(SignatureError, match="the extent bins - 2 is -1 where bins=1"):
        instance_of(parse("f32[n] -> f32[bins - 2]"), (F32,), (1,), (("bins", 1),))


@pytest.mark.parametrize(
    ("text", "known", "unbound"),
    [
        ("f32[n] -> f32[n]", (), []),
        ("f32[n] -> i32[bins]", (), ["bins"]),
        ("f32[n] -> i32[bins]", ("bins",), []),
        ("f32[n * m] -> f32[n]", (), ["m", "n"]),
        ("f32[n * m], f32[m] -> f32[n]", (), ["n"]),  # a product of names is not solved
        ("f32[n * m] -> f32[n]", ("m",), []),
        ("f32[n // 2] -> f32[n]", (), ["n"]),
        ("f32[*batch] -> f32[*batch]", (), []),
    ],
)
def test_which_names_nothing_gives(text, known, unbound):
    assert unbound_names(parse(text), known) == unbound


def test_shapes_that_cannot_be():
    value = instance_of(parse("f32[n], f32[k] -> f32[n // k]"), (F32, F32), (1, 1)).outputs
    assert shapes_of(value, {"n": 7, "k": 2}) == [(3,)]
    with pytest.raises(SignatureError, match=r"out: f32\[n // k\] has no such shape where n=7, k=0"):
        shapes_of(value, {"n": 7, "k": 0})
