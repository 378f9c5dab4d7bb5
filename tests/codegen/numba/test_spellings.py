"""Every scalar function in every dtype, every cast, every kind of constant: Numba gives what the table means."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.codegen.numba.spellings import (
    INTEGER_FUNCTIONS,
    KINDS,
    NUMPY,
    const_text,
    integer_function,
    literal_text,
    narrow,
)
from noyau.codegen.tables import SCALARS
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.operators import OPERATORS, dtype_of
from tests.codegen.c.test_spellings import CONSTANTS, EITHER_ZERO, MAPS, exactly, operands, tolerance
from tests.codegen.numba_kernels import build
from tests.codegen.values import FLOAT8, NUMBERS, grid, ulps, values
from tests.jobs.check.groups import Group

SCOPE = {"np": np, "nan": np.nan} | {name: getattr(np, kind.removeprefix("np.")) for name, kind in NUMPY.items()}


ALIKE = {DType.I16, DType.I32, DType.U8, DType.U32, DType.F16}  # as others that are as wide as no register, or half


def each_number(name):
    """A parameter of every dtype; Numba takes a second for each, and those that are like others are run by hand."""
    marked = [pytest.param(each, id=each.value, marks=pytest.mark.long if each in ALIKE else ()) for each in NUMBERS]
    return pytest.mark.parametrize(name, marked)


def names_of(dtype):
    """The functions of a dtype; a few of those of the halves, which are those of float32."""
    found = [name for name, kind in MAPS if kind is dtype]
    return found if dtype.compute is dtype else found[::6]


@cache
def everything(dtype):
    """One kernel of all functions of a dtype: Numba takes as long for each kernel as for many functions."""
    g = Group()
    given = [g.input("c", DType.BOOL, "n"), g.input("x", dtype, "n"), g.input("y", dtype, "n")]
    made = []
    for name in names_of(dtype):
        inputs = given if name == "where" else given[1 : 1 + OPERATORS[name].arity]
        made.append(g.map(name, *inputs, dtype=dtype_of(name, operands(name, dtype))))
    return build(g.graph(*made), "everything")


@each_number("dtype")
def test_functions_mean_what_the_table_says(dtype):
    given = grid(np.array([False, True]), values(dtype), values(dtype))
    for name, got in zip(names_of(dtype), everything(dtype)(*given), strict=True):
        taken = given if name == "where" else given[1 : 1 + OPERATORS[name].arity]
        if not dtype.is_float or got.dtype == bool:
            np.testing.assert_array_equal(got, exactly(name, dtype, taken), f"{name} {dtype.value}")
            continue
        worst, told = worst_of(name, dtype, taken, got)
        assert worst <= tolerance(name, dtype) + (1.0 if dtype is DType.F64 else 0.01), told


@np.errstate(all="ignore")
def worst_of(name, dtype, given, got):
    """The greatest error in ulp, and where it is."""
    wide = [x.astype(np.float64) if x.dtype != bool else x for x in given]
    truth = np.asarray(OPERATORS[name].evaluate(*wide))
    error = ulps(got, truth, dtype)
    if name in EITHER_ZERO:
        error[truth == 0] = 0
    if dtype.compute is not dtype:  # computed in float32, where it may overflow, and rounded once more
        error[(np.abs(truth) < 1e-37) | (np.abs(truth) > 1e38)] = 0
    worst = int(np.argmax(error))
    return error[worst], (name, [x[worst] for x in given], got[worst], truth[worst])


@each_number("source")
def test_casts_to_every_dtype(source):
    """Floats truncate, integers keep their low bits, everything but 0 is true; what is undefined is left out."""
    g = Group()
    x = g.input("x", source, "n")
    made = build(g.graph(*(g.map("cast", x, dtype=target) for target in NUMBERS)), "casts")
    given = values(source, 200)
    for target, got in zip(NUMBERS, made(given), strict=True):
        with np.errstate(all="ignore"):
            wanted = (given != 0) if target is DType.BOOL else given.astype(source.compute.numpy).astype(target.numpy)
            kept = defined(given, source, target) & ~(got.astype(np.float64) != got.astype(np.float64))
            nan = np.isnan(wanted.astype(np.float64)) if target.is_float else np.zeros(given.shape, bool)
        assert (kept == (defined(given, source, target) & ~nan)).all(), f"{source} to {target}"
        assert got[kept].tobytes() == wanted[kept].tobytes(), f"{source} to {target}"


def defined(x, source, target):
    """Where a cast means anything."""
    if not source.is_float or target.is_float or target is DType.BOOL:
        return np.ones(x.shape, bool)
    info, wide = np.iinfo(target.numpy), np.trunc(x.astype(np.float64))
    return np.isfinite(wide) & (wide >= float(info.min)) & (wide < float(info.max))


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.value)
def test_constants_are_spelled_to_the_bit(dtype):
    """Infinities, NaN, -0.0, denormals, the ends of every width: as Python reads them."""
    for value in (value for kind, value in CONSTANTS if kind is dtype):
        number = value.item() if not dtype.is_float else float(value)
        wanted = np.array([value]).astype(dtype.compute.numpy)
        got = np.array([eval(const_text(number, dtype), dict(SCOPE))])
        assert got.dtype in (wanted.dtype, np.dtype(np.int64), np.dtype(np.float64))
        got = got.astype(wanted.dtype)
        assert got.tobytes() == wanted.tobytes() or (np.isnan(got) & np.isnan(wanted)).all(), (dtype, value)


@pytest.mark.parametrize("dtype", [DType.I64, DType.U64, DType.F32], ids=lambda dtype: dtype.value)
def test_constants_are_compiled_to_the_bit(dtype):
    kept = [value for kind, value in CONSTANTS if kind is dtype and value == value]
    g = Group()
    x, taken = g.input("x", dtype, "n"), g.input("taken", DType.BOOL, "n")
    made = build(g.graph(*(g.map("where", taken, x, g.full(value, x)) for value in kept)), "constants")
    for value, got in zip(kept, made(np.zeros(1, dtype.numpy), np.array([False])), strict=True):
        assert got.tobytes() == np.array([value], dtype.numpy).tobytes()


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, DType.F32, "f32(1.0)"),
        (-0.0, DType.F32, "f32(-0.0)"),
        (0.1, DType.F32, "f32(0.1)"),
        (0.1, DType.BF16, "f32(0.1)"),
        (-0.1, DType.F64, "(-0.1)"),
        (1e300, DType.F32, "f32(np.inf)"),
        (float("-inf"), DType.F64, "(-np.inf)"),
        (float("nan"), DType.F32, "f32(np.nan)"),
        (2**64 - 1, DType.U64, "u64(18446744073709551615)"),
        (-(2**63), DType.I64, "(-9223372036854775808)"),
        (True, DType.BOOL, "True"),
        (7, DType.U32, "u32(7)"),
    ],
)
def test_literals(value, dtype, text):
    assert const_text(value, dtype) == text


def test_every_dtype_has_a_type():
    assert KINDS.keys() == {*NUMBERS, *FLOAT8}
    assert {KINDS[dtype] for dtype in (DType.F16, DType.BF16)} == {"u16"}
    assert set(KINDS.values()) - {"bool"} == NUMPY.keys()


def test_small_integers_are_cut_back():
    assert narrow("a + b", DType.I8) == "i8(a + b)"
    assert narrow("a + b", DType.F32) == "(a + b)"


@pytest.mark.parametrize("function", INTEGER_FUNCTIONS)
def test_integer_functions_name_their_types(function):
    for dtype in ("i8", "i64", "u8", "u64"):
        text = integer_function(function, dtype)
        assert text.startswith(f"@scalar\ndef noyau_{function}_{dtype}(a")
        assert "T(" not in text


def test_a_function_without_a_spelling_is_refused_by_name(monkeypatch):
    def mapped(name, dtype):
        g = Group()
        g.map(name, *(g.input(f"x{k}", dtype, "n") for k in range(OPERATORS[name].arity)), dtype=dtype)
        return schedule(lower(g.graph(), "kernel"), numba_printer.SCHEDULE)

    monkeypatch.delitem(SCALARS, "erf")
    with pytest.raises(UnsupportedError, match="numba has no spelling of erf for f32"):
        numba_printer.together([mapped("erf", DType.F32)])
    monkeypatch.delitem(INTEGER_FUNCTIONS, "power")
    with pytest.raises(UnsupportedError, match="numba has no spelling of power for i8"):
        numba_printer.together([mapped("power", DType.I8)])


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(0.1, "f32", "f32(0.1)"), (16777217.0, "f32", "f32(16777216.0)"), (3, "i64", "3"), (1, "bool", "True")],
)
def test_numbers(value, kind, text):
    assert literal_text(value, kind) == text
