from __future__ import annotations

from contextlib import suppress

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim
from noyau.signatures.instances import USUAL_DTYPES, bind, describe, integers_of, make, unbound_names, usual_instance
from noyau.signatures.types import parse
from tests.signatures.texts import NAMES, signatures


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def f64(*shape: int) -> np.ndarray:
    return np.zeros(shape)


def bound(text: str, *arguments: object, names=None, known=None):
    return bind(parse(text, names), arguments, known or {}, "op")


def refused(text: str, *arguments: object, names=None, known=None) -> str:
    with pytest.raises(SignatureError) as told:
        bound(text, *arguments, names=names, known=known)
    return str(told.value)


def test_sizes_and_shapes_of_results_follow_from_the_arrays():
    made = bound("f32[rows, n], f32[n] -> f32[rows], y: f64[n - 2]", f32(4, 41), f32(41))
    assert made.sizes == {"rows": 4, "n": 41}
    assert made.shapes == ((4,), (39,))


def test_the_message_shows_what_the_others_bind():
    told = refused("f32[rows, n], f32[n] -> f32[rows, n]", f32(4, 41), f32(40), names=["x", "w"])
    assert told == "op: x: f32[4, 41] binds rows=4, n=41; w: f32[40] does not fit f32[n]"


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("f32[rows, n] -> f32[n]", (f32(4),), "x0: f32[4] does not fit f32[rows, n]"),
        ("f32[n, n] -> f32[n]", (f32(4, 5),), "x0: f32[4, 5] binds n=4 and does not fit f32[n, n]"),
        ("f32[2 * n] -> f32[n]", (f32(5),), "x0: f32[5] binds n=2 and does not fit f32[n * 2]"),
        ("f32[n + 2] -> f32[n]", (f32(1),), "x0: f32[1] binds n=-1 and does not fit f32[n + 2]"),
        ("f32[3] -> f32", (f32(4),), "x0: f32[4] does not fit f32[3]"),
        (
            "float[n], float[n] -> float[n]",
            (f32(4), f64(4)),
            "x0: f32[4] binds float=f32, n=4; x1: f64[4] does not fit float[n]; cast it: .astype(np.float32)",
        ),
        (
            "float[*batch, n], float[*batch] -> float",
            (f32(2, 3, 4), f32(2, 4)),
            "x0: f32[2, 3, 4] binds float=f32, batch=(2, 3), n=4; x1: f32[2, 4] does not fit float[*batch]",
        ),
        (
            "f32[..., n], f32[...] -> f32",
            (f32(2, 3, 4), f32(2)),
            "x0: f32[2, 3, 4] binds ...=(2, 3), n=4; x1: f32[2] does not fit f32[...]",
        ),
        (
            "f32[n, n // k], f32[k] -> f32[n]",
            (f32(8, 2), f32(0)),
            "x1: f32[0] binds k=0; x0: f32[8, 2] binds n=8 and does not fit f32[n, n // k]",
        ),
        ("f32[n], f32[k], f32[n // k + m] -> f32", (f32(8), f32(0), f32(3)), "a dim is divided by 0 where n=8, k=0"),
        ("int[n] -> int[n]", (f32(4),), "x0: f32[4] does not fit int[n]; cast it: .astype(np.int64)"),
        (
            "f32[n] -> f32[n]",
            (np.zeros(3, np.complex64),),
            "x0: complex64[3] does not fit f32[n]; complex numbers are not computed with: give .real and .imag",
        ),
        ("bf16[n] -> bf16[n]", (f32(4),), "x0: f32[4] does not fit bf16[n]; cast it: .astype(ml_dtypes.bfloat16)"),
        ("bool[n] -> bool[n]", (f32(4),), "x0: f32[4] does not fit bool[n]; cast it: .astype(bool)"),
        (
            "any[n] -> any[n]",
            (np.zeros(3, DType.F8E5M2.numpy),),
            "x0: f8e5m2[3] does not fit any[n]; no family has float8: declare it as f8e5m2",
        ),
        (
            "f32[n] -> f32[n]",
            (np.zeros(3, "U2"),),
            "x0: str64[3] does not fit f32[n]; what may be given are bools, integers and floats",
        ),
        (
            "f32[n] -> f32[n]",
            (np.zeros(3, ">f4"),),
            "x0: >f4[3] does not fit f32[n]; its bytes are in the other order: .astype(x.dtype.newbyteorder('='))",
        ),
        (
            "any[n] -> any[n]",
            (np.zeros(3, object),),
            "x0: object[3] does not fit any[n]; its cells are objects: .astype(np.float32) makes them numbers",
        ),
        ("f32[n] -> f32[n]", ([1.0, 2.0],), "x0: a list does not fit f32[n]; give an array: np.asarray(..., dtype)"),
        ("f32[n] -> f32[n]", (None,), "x0: a NoneType does not fit f32[n]"),
        (
            "f32[n] -> f32[n]",
            (np.ma.zeros(3, np.float32),),
            "x0: a masked array does not fit f32[n]; fill its gaps: .filled(0)",
        ),
        ("f32[] -> f32", (1.0,), "x0: 1.0 does not fit f32[]; give an array: np.asarray(..., dtype)"),
        (
            "f32[n], f32 -> f32",
            (f32(4), np.float64(1)),
            "x0: f32[4] binds n=4; x1: f64 does not fit f32; cast it: .astype(np.float32)",
        ),
        ("f32[n], f32 -> f32", (f32(4), True), "x0: f32[4] binds n=4; x1: True does not fit f32"),
        ("i8 -> i8", (200,), "x0: 200 does not fit i8"),
        ("u8 -> u8", (-1,), "x0: -1 does not fit u8"),
        ("i8 -> i8", (1.0,), "x0: 1.0 does not fit i8"),
        ("bool -> bool", (1,), "x0: 1 does not fit bool"),
        (
            "int[n], int -> int[n]",
            (np.zeros(2, np.int32), 1.5),
            "x0: i32[2] binds int=i32, n=2; x1: 1.5 does not fit int",
        ),
        ("f32[n] -> f32[n - 2]", (f32(1),), "out: f32[n - 2] has no such shape where n=1; give larger inputs"),
    ],
)
def test_what_does_not_fit(text, arguments, told):
    assert refused(text, *arguments) == f"op: {told}"


def test_an_integer_parameter_gives_a_dim():
    made = bound("f32[n], i32 -> i32[bins]", f32(9), 10, names=["x", "bins"])
    assert made.shapes == ((10,),)
    assert bound("f32[n] -> i32[bins]", f32(9), 10, names=["x", "bins"]).shapes == ((10,),)


def test_an_integer_parameter_agrees_with_the_shapes():
    text = "f32[n], i64 -> f32[n]"
    assert bound(text, f32(4), 4, names=["x", "n"]).sizes == {"n": 4}
    assert refused(text, f32(4), 5, names=["x", "n"]) == "op: x: f32[4] binds n=4; n: 5 does not fit i64"
    assert refused(text, f32(4), -4, names=["x", "n"]) == "op: n is -4, and a size is never negative"


def test_a_size_that_nothing_binds_is_known():
    assert bound("f32[n] -> i32[bins]", f32(9), known={"bins": 10}).shapes == ((10,),)
    assert bound("f32[n * bins] -> i32[n]", f32(30), known={"bins": 10}).shapes == ((3,),)


def test_python_numbers_take_the_dtype_that_arrays_of_the_family_have():
    made = bound("float[n], float, int -> float[n]", np.zeros(3, ml_dtypes.bfloat16), 0.5, 7)
    assert made.instance.dtypes == (DType.BF16, DType.BF16, DType.I64)
    assert bound("float, any -> float", 1, 2).instance.dtypes == (DType.F64, DType.I64)


def test_scalars_are_arrays_of_rank_0():
    assert [array.shape for array in bound("f32, f32[] -> f32", np.float32(2), f32()).arrays] == [(), ()]


def test_strided_and_read_only_arrays_come_in_as_they_are():
    array = np.broadcast_to(np.float32(1), (3, 4))
    assert bound("f32[n, m] -> f32[n]", array).arrays[0].strides == (0, 0)


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        (f32(2, 3), "f32[2, 3]"),
        (np.float16(1), "f16"),
        (3, "3"),
        ("text", "a str"),
        ({1: 2}, "a dict"),
        (1j, "a complex"),
    ],
)
def test_arguments_in_words(argument, told):
    assert describe(argument) == told


LINEAR = st.builds(
    lambda name, factor, rest: Dim.of(name) * factor + rest,
    st.sampled_from(NAMES),
    st.sampled_from([0, 1, 1, 1, 2]),
    st.integers(0, 2),
)


@given(signatures(LINEAR), st.data())
def test_random_signatures_bind_random_shapes(signature, data):
    known = {name: data.draw(st.integers(0, 4)) for name in unbound_names(signature, ())}
    axes = data.draw(st.integers(0, 2))
    instance = usual_instance(signature, known, USUAL_DTYPES, axes)
    names = {name for value in instance.inputs for dim in value.shape for name in dim.names}
    sizes = {name: data.draw(st.integers(0, 4)) for name in sorted(names)}
    arrays = make(instance, sizes, integers_of(signature, {}), np.random.default_rng(0))
    found = bind(signature, arrays, known, "op")
    assert found.instance == instance
    assert found.sizes == sizes
    wanted = [tuple(dim.evaluate(sizes) for dim in value.shape) for value in instance.outputs]
    assert list(found.shapes) == wanted


@given(signatures(LINEAR), st.data())
def test_a_shape_of_another_extent_is_refused_or_binds_other_sizes(signature, data):
    known = dict.fromkeys(unbound_names(signature, ()), 2)
    instance = usual_instance(signature, known)
    sizes = {name: 3 for value in instance.inputs for dim in value.shape for name in dim.names}
    arrays = list(make(instance, sizes, integers_of(signature, {}), np.random.default_rng(0)))
    places = [(k, axis) for k, array in enumerate(arrays) for axis in range(array.ndim)]
    if not places:
        return
    k, axis = data.draw(st.sampled_from(places))
    arrays[k] = np.repeat(arrays[k], 2, axis) if arrays[k].shape[axis] else np.zeros_like(arrays[k])
    if arrays[k].shape[axis] == 0:
        return
    with suppress(SignatureError):
        assert bind(signature, arrays, known, "op").sizes != sizes
