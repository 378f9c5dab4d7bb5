from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import GraphError
from noyau.ir.operators import OPERATORS, dtype_of

REAL = [dtype for dtype in DType if dtype is not DType.OTHER and not dtype.is_float8]
NAN, INF = math.nan, math.inf


def apply(name, *operands, dtype=DType.F64):
    """The function over lists, in a dtype; a where's first operand is bool."""
    arrays = [
        np.array(x, bool if name == "where" and at == 0 else dtype.compute.numpy) for at, x in enumerate(operands)
    ]
    with np.errstate(all="ignore"):
        return OPERATORS[name].evaluate(*arrays)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "cast"])
def test_dtypes(name):
    operator = OPERATORS[name]
    for dtype in REAL:
        operands = (dtype,) * operator.arity if name != "where" else (DType.BOOL, dtype, dtype)
        if dtype.kind in operator.accepts:
            gives(operator, dtype, operands)
            continue
        with pytest.raises(GraphError, match=rf"^{name} cannot take .*: cast them first$"):
            dtype_of(name, operands)


def gives(operator, dtype, operands):
    """The dtype that the table promises is the one that comes out."""
    said = dtype_of(operator.name, operands)
    assert said is (DType.BOOL if operator.result == "bool" else dtype)
    cells = [np.array([1, 0], kind.compute.numpy) for kind in operands]
    with np.errstate(all="ignore"):
        got = np.asarray(operator.evaluate(*cells))
    assert got.dtype == said.compute.numpy
    assert got.shape == (2,)


def test_operands_must_fit():
    with pytest.raises(GraphError, match="add takes 2 operands, not 1"):
        dtype_of("add", (DType.F32,))
    with pytest.raises(GraphError, match="add cannot take f32, f64: cast them first"):
        dtype_of("add", (DType.F32, DType.F64))
    with pytest.raises(GraphError, match="where needs a bool condition, not i32"):
        dtype_of("where", (DType.I32, DType.F32, DType.F32))


def reference(name):
    """The meaning of a function in Python's own numbers."""
    return {
        "negative": lambda a: -a,
        "abs": abs,
        "sign": lambda a: (a > 0) - (a < 0),
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "divide": lambda a, b: a / b,
        "floor_divide": lambda a, b: math.floor(a / b),
        "floor_mod": lambda a, b: a % b,
        "fmod": math.fmod,
        "power": lambda a, b: a**b,
        "exp": math.exp,
        "exp2": lambda a: 2.0**a,
        "expm1": math.expm1,
        "log": math.log,
        "log2": math.log2,
        "log10": math.log10,
        "log1p": math.log1p,
        "sqrt": math.sqrt,
        "rsqrt": lambda a: 1 / math.sqrt(a),
        "reciprocal": lambda a: 1 / a,
        "sin": math.sin,
        "cos": math.cos,
        "tan": math.tan,
        "asin": math.asin,
        "acos": math.acos,
        "atan": math.atan,
        "atan2": math.atan2,
        "sinh": math.sinh,
        "cosh": math.cosh,
        "tanh": math.tanh,
        "asinh": math.asinh,
        "acosh": math.acosh,
        "atanh": math.atanh,
        "cbrt": lambda a: math.copysign(abs(a) ** (1 / 3), a),
        "erf": math.erf,
        "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
        "softplus": lambda a: math.log1p(math.exp(a)),
        "floor": math.floor,
        "ceil": math.ceil,
        "truncate": math.trunc,
        "round_even": round,
        "maximum": max,
        "minimum": min,
        "fmax": max,
        "fmin": min,
        "equal": lambda a, b: a == b,
        "not_equal": lambda a, b: a != b,
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
        "is_nan": math.isnan,
        "is_inf": math.isinf,
        "identity": lambda a: a,
        "rounded": lambda a: a,
    }[name]


FLOAT = [
    name
    for name, operator in OPERATORS.items()
    if "float" in operator.accepts and name not in ("where", "cast", "silu", "gelu")
]
POINTS = [-3.5, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.75]


@pytest.mark.parametrize("name", FLOAT)
def test_the_meaning_of_floats_is_python_s(name):
    function, met = reference(name), 0
    for cells in itertools.product(POINTS, repeat=OPERATORS[name].arity):
        try:
            want = function(*cells)
        except (ValueError, ZeroDivisionError):
            continue
        if isinstance(want, complex):
            continue
        met += 1
        got = apply(name, *cells)
        assert got == pytest.approx(want, rel=1e-14), cells
    assert met > 4


INTEGER_MEANING = {
    "divide": lambda a, b: math.trunc(a / b),
    "floor_divide": lambda a, b: a // b,
    "floor_mod": lambda a, b: a % b,
    "fmod": lambda a, b: int(math.fmod(a, b)),
    "power": lambda a, b: a**b if b >= 0 else math.trunc(float(a) ** b),
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
    "maximum": max,
    "minimum": min,
    "sign": lambda a: (a > 0) - (a < 0),
    "abs": abs,
    "bitwise_not": lambda a: ~a,
    "negative": lambda a: -a,
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
}


@pytest.mark.parametrize("name", INTEGER_MEANING)
@pytest.mark.parametrize("dtype", [DType.I8, DType.I32, DType.I64, DType.U8, DType.U32], ids=lambda dtype: dtype.value)
def test_integers_wrap_around(name, dtype):
    info, bits = np.iinfo(dtype.numpy), dtype.bytes * 8
    points = [0, 1, 2, 3, 5, 7, int(info.max), int(info.max) - 1, *([-1, -2, -7, int(info.min)] if info.min else [])]
    for cells in itertools.product(points, repeat=OPERATORS[name].arity):
        counts = cells[1:] if name in ("power", "shift_left", "shift_right") else ()
        trap = name in ("divide", "floor_divide", "floor_mod", "fmod") and (cells[1] == 0 or cells[0] == info.min)
        if (
            trap
            or any(not (-3 if name == "power" else 0) <= count < 8 for count in counts)
            or (counts and not cells[0])
        ):
            continue
        if name in ("divide", "fmod") and max(map(abs, cells)) > 1 << 50:
            continue  # the meaning above goes through double
        want = (INTEGER_MEANING[name](*cells)) & ((1 << bits) - 1)
        got = apply(name, *cells, dtype=dtype)
        assert np.asarray(got).dtype == dtype.numpy
        assert int(got) & ((1 << bits) - 1) == want, cells


def test_division_by_zero_and_wide_shifts_do_not_trap():
    for name in ("divide", "floor_divide", "floor_mod", "fmod"):
        apply(name, [3, -3], [0, 0], dtype=DType.I32)
    assert list(apply("shift_left", [1, 1, 1], [31, 32, -1], dtype=DType.I32)) == [-(2**31), 0, 0]
    assert list(apply("shift_right", [-8, -8, 8, -8], [1, 40, 40, -1], dtype=DType.I32)) == [-4, -1, 0, -1]


@pytest.mark.parametrize(
    ("name", "operands", "want"),
    [
        ("maximum", ([NAN, 1, NAN, -0.0], [1, NAN, NAN, 2]), [NAN, NAN, NAN, 2]),
        ("minimum", ([NAN, 1, INF], [1, NAN, 3]), [NAN, NAN, 3]),
        ("fmax", ([NAN, 1, NAN], [1, NAN, NAN]), [1, 1, NAN]),
        ("fmin", ([NAN, 1, -INF], [1, NAN, NAN]), [1, 1, -INF]),
        ("sign", ([NAN, -INF, -0.0, 5],), [NAN, -1, 0, 1]),
        ("equal", ([NAN, INF, -0.0], [NAN, INF, 0.0]), [False, True, True]),
        ("not_equal", ([NAN, 1], [NAN, 1]), [True, False]),
        ("less", ([NAN, -INF], [1, INF]), [False, True]),
        ("is_nan", ([NAN, INF, 1],), [True, False, False]),
        ("is_inf", ([NAN, -INF, 1],), [False, True, False]),
        ("round_even", ([0.5, 1.5, 2.5, -0.5, -1.5, INF],), [0, 2, 2, 0, -2, INF]),
        ("truncate", ([1.9, -1.9, -INF],), [1, -1, -INF]),
        ("floor_mod", ([5, -5, 5, -5], [3, 3, -3, -3]), [2, 1, -1, -2]),
        ("fmod", ([5, -5, 5, -5], [3, 3, -3, -3]), [2, -2, 2, -2]),
        ("sigmoid", ([-INF, INF, -800, 800, NAN],), [0, 1, 0, 1, NAN]),
        ("softplus", ([-INF, INF, 800, -800, NAN],), [0, INF, 800, 0, NAN]),
        ("exp", ([-INF, INF, 1000, NAN],), [0, INF, INF, NAN]),
        ("log", ([0, -1, INF],), [-INF, NAN, INF]),
        ("sqrt", ([-1, INF, 0],), [NAN, INF, 0]),
        ("rsqrt", ([0, INF, -1],), [INF, 0, NAN]),
        ("reciprocal", ([0.0, -0.0, INF],), [INF, -INF, 0]),
        ("erf", ([-INF, INF, NAN],), [-1, 1, NAN]),
        ("tanh", ([-INF, INF, NAN],), [-1, 1, NAN]),
        ("power", ([0, -8, INF, NAN, 2], [0, 1 / 3, 0, 0, -INF]), [1, NAN, 1, 1, 0]),
        ("divide", ([1, -1, 0, INF], [0, 0, 0, INF]), [INF, -INF, NAN, NAN]),
        ("where", ([True, False], [1, NAN], [NAN, 2]), [1, 2]),
    ],
)
def test_special_values(name, operands, want):
    got = apply(name, *operands)
    assert np.array_equal(np.asarray(got, float), np.array(want, float), equal_nan=True)


def test_signs_of_zero_are_kept():
    for name in ("negative", "identity", "sqrt", "sin", "tanh", "truncate", "round_even", "floor"):
        zero = apply(name, -0.0 if name != "negative" else 0.0)
        assert zero == 0
        assert np.signbit(zero), name


def test_denormals_are_kept():
    tiny = np.float32(1e-45)
    assert OPERATORS["multiply"].evaluate(tiny, np.float32(1)) == tiny
    assert OPERATORS["sigmoid"].evaluate(np.asarray(np.float32(-103.0))) > 0


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_half_types_compute_in_float32(dtype):
    assert dtype.compute is DType.F32
    assert dtype_of("add", (dtype, dtype)) is dtype
    assert dtype_of("less", (dtype, dtype)) is DType.BOOL
    assert ml_dtypes.finfo(dtype.numpy).bits == 16


def test_every_entry_says_what_it_costs():
    for name, operator in OPERATORS.items():
        assert operator.name == name
        assert operator.flops >= (0 if name == "identity" else 1)
        assert 0 <= operator.ulp <= 4
        assert operator.accepts <= {"float", "float8", "int", "uint", "bool"}
