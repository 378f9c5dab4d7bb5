"""CUDA's libdevice on NumPy: every name that Numba and Triton have, values beside those of Python, roundings exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.toolchain.libdevice import function_of

FLOATS = st.floats(min_value=2.0**-50, max_value=2.0**50, width=32)


def test_every_name_of_numba_is_known():
    from numba.cuda.libdevicefuncs import functions

    assert len(functions) > 300
    assert [name for name in functions if function_of(name.removeprefix("__nv_")) is None] == []


def test_every_name_of_triton_is_known():
    from triton.language.extra import libdevice

    names = [name for name, each in vars(libdevice).items() if callable(each) and each.__module__ == libdevice.__name__]
    assert len(names) > 150
    assert [name for name in names if function_of(name) is None] == []


def test_a_name_that_libdevice_does_not_have():
    assert function_of("fast_integral") is None


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("tanhf", (0.5,), math.tanh(0.5)),
        ("fast_expf", (1.5,), math.exp(1.5)),
        ("fast_fdividef", (1.0, 4.0), 0.25),
        ("rsqrt", (16.0,), 0.25),
        ("tgamma", (5.0,), 24.0),
        ("lgammaf", (10.0,), math.lgamma(10)),
        ("erfc", (2.0,), math.erfc(2)),
        ("erfinv", (math.erf(0.3),), 0.3),
        ("erfinv", (math.erf(1e-9),), 1e-9),
        ("erfcinvf", (math.erfc(0.3),), 0.3),
        ("erfcx", (30.0,), 0.018795888861416751),
        ("normcdf", (1.959963984540054,), 0.975),
        ("normcdfinv", (0.975,), 1.959963984540054),
        ("j0", (1.0,), 0.7651976865579666),
        ("jn", (2, 1.0), 0.1149034849319005),
        ("cyl_bessel_i0", (1.0,), 1.2660658777520084),
        ("cyl_bessel_i1", (1.0,), 0.5651591039924851),
        ("exp10f", (3.0,), 1000.0),
        ("sinpi", (0.5,), 1.0),
        ("cospif", (7.0,), -1.0),
        ("norm3d", (2.0, 3.0, 6.0), 7.0),
        ("rhypot", (3.0, 4.0), 0.2),
        ("fdim", (5.0, 3.0), 2.0),
        ("remainder", (5.0, 3.0), -1.0),
        ("ilogb", (10.0,), 3),
        ("round", (-2.5,), -3.0),
        ("round", (0.49999999999999994,), 0.0),
        ("llrint", (2.5,), 2),
        ("saturatef", (1.5,), 1.0),
        ("saturatef", (math.nan,), 0.0),
        ("popc", (np.int32(-1),), 32),
        ("popcll", (np.int64(-1),), 64),
        ("clz", (np.int32(1),), 31),
        ("clzll", (np.int64(1),), 63),
        ("ffs", (np.int32(8),), 4),
        ("brev", (np.uint32(1),), 1 << 31),
        ("mulhi", (np.int32(1 << 30), np.int32(8)), 2),
        ("mul24", (np.int32(-3), np.int32(5)), -15),
        ("hadd", (np.int32(2**31 - 1), np.int32(2**31 - 1)), 2**31 - 1),
        ("sad", (np.int32(1), np.int32(5), np.int32(2)), 6),
        ("byte_perm", (0x33221100, 0x77665544, 0x5410), 0x55441100),
        ("hiloint2double", (1072693248, 0), 1.0),
        ("double2hiint", (1.0,), 1072693248),
        ("float_as_int", (np.float32(1),), 0x3F800000),
        ("float2int_rz", (np.float32(-2.7),), -2),
        ("float2int_ru", (np.float32(2.1),), 3),
        ("float2int_rn", (np.float32(math.nan),), 0),
        ("double2int_rd", (3e10,), 2**31 - 1),
        ("double2ull_rz", (-1.0,), 0),
        ("half2float", (np.float16(0.5),), 0.5),
    ],
)
def test_values(name, operands, expected):
    function = function_of(name)
    assert function is not None
    with np.errstate(all="ignore"):
        assert float(function(*operands)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("name", "expected"), [("sincosf", (0.0, 1.0)), ("frexp", (0.0, 0)), ("modf", (0.0, 0.0)), ("sincospi", (0.0, 1.0))]
)
def test_functions_of_two_results(name, expected):
    function = function_of(name)
    assert function is not None
    assert tuple(float(part) for part in function(0.0)) == expected


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


@settings(deadline=None)
@given(st.sampled_from(sorted(EXACT)), FLOATS, FLOATS)
def test_directed_roundings_enclose_the_exact_value(operation, x, y):
    exact = EXACT[operation](Fraction(x), Fraction(y))
    down, up, near, zero = (
        float(function_of(f"f{operation}_r{direction}")(np.float32(x), np.float32(y))) for direction in "dunz"
    )
    assert down <= exact <= up
    assert np.nextafter(np.float32(down), np.float32(np.inf)) >= up
    assert near in (down, up)
    assert abs(near - exact) <= min(abs(down - exact), abs(up - exact))
    assert zero == (down if exact > 0 else up)


def test_roots_are_rounded_as_they_say():
    down, up = float(function_of("dsqrt_rd")(2.0)), float(function_of("dsqrt_ru")(2.0))
    assert (Fraction(down) ** 2 < 2 < Fraction(up) ** 2, np.nextafter(down, 2)) == (True, up)
    with np.errstate(all="ignore"):
        assert math.isnan(float(function_of("fsqrt_rn")(np.float32(-1))))
        assert float(function_of("frcp_rn")(np.float32(0))) == math.inf


@settings(deadline=None)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False))
def test_narrowing_is_directed(x):
    with np.errstate(all="ignore"):
        down, up = (function_of(f"double2float_r{direction}")(x) for direction in "du")
    assert (down.dtype, up.dtype) == (np.float32, np.float32)
    assert float(down) <= x <= float(up)
