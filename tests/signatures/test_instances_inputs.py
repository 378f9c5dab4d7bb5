from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.signatures.instances import bind, draw_inputs, integers_of, make, maker_text, usual_instance, usual_sizes
from noyau.signatures.types import Family, parse


def made(text: str, names=None, **sizes: int):
    signature = parse(text, names)
    integers = integers_of(signature, sizes)
    instance = usual_instance(signature, integers)
    return make(instance, usual_sizes(instance, sizes), integers, np.random.default_rng(3))


def test_arrays_have_the_dtypes_and_the_shapes_of_their_terms():
    arrays = made("f32[n, 3], bf16[*batch, k], int[n], bool[2], u8 -> f32", n=4, k=6)
    assert [(str(a.dtype), a.shape) for a in arrays] == [
        ("float32", (4, 3)),
        ("bfloat16", (3, 6)),
        ("int64", (4,)),
        ("bool", (2,)),
        ("uint8", ()),
    ]


def test_the_same_seed_gives_the_same_arrays():
    assert all(
        np.array_equal(*pair) for pair in zip(made("f32[n], i8[n] -> f32"), made("f32[n], i8[n] -> f32"), strict=True)
    )


def test_an_integer_that_gives_a_dim_has_its_size():
    assert made("f32[n], i64 -> f32[bins]", ["x", "bins"], bins=10)[1] == 10


def test_families_may_be_others():
    signature = parse("float[n], any -> float[n]")
    chosen = {Family.FLOAT: DType.F64, Family.ANY: DType.BOOL}
    assert usual_instance(signature, {}, chosen).dtypes == (DType.F64, DType.BOOL)


def test_sizes_that_leave_a_negative_extent():
    with pytest.raises(SignatureError, match=r"x0: f32\[n - 5\] has no such shape where n=2"):
        made("f32[n - 5], f32[n] -> f32", n=2)


def test_a_maker_takes_sizes_and_gives_inputs_in_order_or_by_name():
    rng = np.random.default_rng(0)
    assert draw_inputs(lambda rng, n=5: (n, 2), rng, {"n": 7}, ("x", "y"), "op") == (7, 2)
    assert draw_inputs(lambda rng: {"y": 1, "x": 2}, rng, {}, ("x", "y"), "op") == (2, 1)
    assert draw_inputs(lambda rng: 4, rng, {}, ("x",), "op") == (4,)


@pytest.mark.parametrize(
    ("maker", "sizes", "told"),
    [
        (lambda rng, n=5: (n,), {"m": 3}, "inputs= of op takes no size m; it takes n"),
        (lambda rng: (1, 2, 3), {}, "inputs= of op gives 3 inputs, and it takes x, y"),
        (lambda rng: {"x": 1, "z": 2}, {}, "inputs= of op names x, z, and it takes x, y"),
    ],
)
def test_what_a_maker_may_not_give(maker, sizes, told):
    with pytest.raises(SignatureError, match=told):
        draw_inputs(maker, np.random.default_rng(0), sizes, ("x", "y"), "op")


@pytest.mark.parametrize(
    ("text", "parameters", "sizes"),
    [
        ("f32[n] -> f32[n]", "a", {"n": 5}),
        ("f32[h, w], f32[kh, kw] -> f32[h-kh+1, w-kw+1]", "ab", {"h": 11, "w": 3, "kh": 7, "kw": 2}),
        ("f32[n] -> f32[n-20]", "a", {"n": 23}),
        ("f32[n], f32[m] -> f32[n//m - 4]", "ab", {"n": 23, "m": 3}),
        ("f32[n] -> f32[n//16]", "a", {"n": 23}),  # nothing is gained on the way
        ("f32[n] -> f32[n//4096]", "a", {"n": 6143}),
        ("f32[n], f32[m] -> p: f32[n-9], q: f32[m-7]", "ab", {"n": 11, "m": 15}),  # both lack as much
        ("f32[n], f32[m] -> f32[n//16, m//8]", "ab", {"n": 23, "m": 15}),
        ("f32[n] -> f32[2-n]", "a", {"n": 5}),  # no larger one would do
        ("f32[n], f32[m] -> p: f32[n-m], q: f32[m-n]", "ab", {"n": 5, "m": 3}),
    ],
)
def test_usual_sizes_leave_a_cell_of_each_result(text, parameters, sizes):
    instance = usual_instance(parse(text, list(parameters)), {})
    assert usual_sizes(instance, {}) == sizes
    assert usual_sizes(instance, {"n": 1, "h": 1}) == {**sizes, **{name: 1 for name in ("n", "h") if name in sizes}}


@pytest.mark.parametrize(
    "text",
    [
        "f32[n] -> f32[n]",
        "f32[rows, n], i64[rows] -> f32[rows]",
        "float[*batch, n], float[n], float -> float[*batch, n]",
        "f32[..., n], bf16[2 * n], bool[n, 3] -> f32[n]",
        "i32[n], i64, u8 -> hist: i32[x1]",
        "f64, i32 -> f64",
    ],
)
def test_what_a_maker_of_inputs_is_written_as_makes_them(text):
    signature = parse(text)
    maker = eval(maker_text(signature).removeprefix("inputs="))
    made = draw_inputs(maker, np.random.default_rng(0), {}, [term.name for term in signature.inputs], "op")
    assert set(bind(signature, made, {}, "op").sizes.values()) <= {64, 3}
