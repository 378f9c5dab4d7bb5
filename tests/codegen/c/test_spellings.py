"""Every scalar function in every dtype, every cast, every kind of constant: C gives what the table means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.codegen import cmath
from noyau.codegen.c import printer as c_printer
from noyau.codegen.c.spellings import INTEGER_FUNCTIONS, TYPES, const_text, integer_function, narrow
from noyau.codegen.tables import SCALARS
from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.operators import OPERATORS, dtype_of
from tests.batching import build_many
from tests.codegen.values import FLOAT8, NUMBERS, grid, ulps, values
from tests.jobs.check.groups import Group

MAPS = [
    (name, dtype)
    for name, operator in OPERATORS.items()
    for dtype in NUMBERS
    if name != "cast" and dtype.kind in operator.accepts
]
SMALL = Options(around_bytes=0)  # arrays that fit into a cache: the text is half as long
EITHER_ZERO = ("maximum", "minimum", "fmax", "fmin")  # of 0.0 and -0.0


def operands(name, dtype):
    """The dtypes of a function's operands."""
    arity = OPERATORS[name].arity
    return (DType.BOOL, dtype, dtype) if name == "where" else (dtype,) * arity


def mapped(name, dtype, number):
    g = Group()
    given = [g.input(f"x{k}", each, "n") for k, each in enumerate(operands(name, dtype))]
    g.map(name, *given, dtype=dtype_of(name, operands(name, dtype)))
    return replace(schedule(lower(g.graph(), "kernel"), SMALL), name=f"map_{number}")


def casts(source):
    """One kernel of the casts to every dtype."""
    g = Group()
    x = g.input("x", source, "n")
    graph = g.graph(*(g.map("cast", x, dtype=target) for target in NUMBERS))
    return replace(schedule(lower(graph, "kernel"), SMALL), name=f"casts_of_{source.value}")


@pytest.fixture(scope="module")
def native():
    """What the compiler makes of every function and every cast, quickly: what a spelling means does not depend on how
    much is optimised, and tests/codegen/test_cmath.py and tests/test_random_graphs.py are built as shipped."""
    kernels = {case: mapped(*case, number) for number, case in enumerate(MAPS)}
    kernels |= {source: casts(source) for source in NUMBERS}
    return dict(zip(kernels, build_many(list(kernels.values())), strict=True))


def test_language_c_spells_every_function_in_every_dtype_that_it_takes():
    """The first that is missing would be refused by name."""
    for number, case in enumerate(MAPS):
        assert c_printer.source(mapped(*case, number))


def tolerance(name, dtype):
    """What table and text promise, in ulp: 0.5 is rounded once."""
    stem = f"noyau_{SCALARS.get(name, name)}_{dtype.compute.value}"
    return max(0.5, OPERATORS[name].ulp, cmath.ULP.get(stem, 0.0))


@pytest.mark.parametrize("name", sorted({name for name, _ in MAPS}))
def test_a_function_means_what_the_table_says(native, name):
    for dtype in (dtype for function, dtype in MAPS if function == name):
        given = grid(*map(values, operands(name, dtype)))
        (got,) = native[name, dtype](*given)
        if not dtype.is_float or got.dtype == bool:
            np.testing.assert_array_equal(got, exactly(name, dtype, given), f"{name} {dtype.value}")
            continue
        with np.errstate(all="ignore"):
            wide = [x.astype(np.float64) if x.dtype != bool else x for x in given]
            truth = np.asarray(OPERATORS[name].evaluate(*wide))
        error = ulps(got, truth, dtype)
        if name in EITHER_ZERO:
            error[truth == 0] = 0
        if dtype.compute is not dtype:  # computed in float32, where it may overflow, and rounded once more
            error[(np.abs(truth) < 1e-37) | (np.abs(truth) > 1e38)] = 0
        worst = int(np.argmax(error))
        slack = 1.0 if dtype is DType.F64 else 0.01  # the truth is no wider
        assert error[worst] <= tolerance(name, dtype) + slack, (
            dtype,
            [x[worst] for x in given],
            got[worst],
            truth[worst],
        )


def exactly(name, dtype, given):
    """The table's own result, in the type that is computed in."""
    with np.errstate(all="ignore"):
        return OPERATORS[name].evaluate(*(x.astype(dtype.compute.numpy) if x.dtype != bool else x for x in given))


@pytest.mark.parametrize("source", NUMBERS, ids=lambda dtype: dtype.value)
def test_casts_to_every_dtype(native, source):
    """Floats truncate, integers keep their low bits, everything but 0 is true; what is undefined is left out."""
    for at, target in enumerate(NUMBERS):
        x = values(source, 200)
        if source.is_float and not target.is_float and target is not DType.BOOL:
            info = np.iinfo(target.numpy)
            wide = np.trunc(x.astype(np.float64))
            x = x[np.isfinite(wide) & (wide >= float(info.min)) & (wide < float(info.max))]
        got = native[source](x)[at]
        with np.errstate(all="ignore"):
            wanted = (x != 0) if target is DType.BOOL else x.astype(source.compute.numpy).astype(target.numpy)
        if target.is_float:
            nan = np.isnan(wanted.astype(np.float64))
            np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan, f"{source} {target}")
            got, wanted = got[~nan], wanted[~nan]
        assert got.tobytes() == wanted.tobytes(), f"{source} to {target}"


CONSTANTS = [(dtype, value) for dtype in NUMBERS for value in values(dtype, 6)]
CONSTANTS += [(DType.F32, np.float32(x)) for x in (1e-45, 3.4028235e38, 1.1754942e-38, 0.1, 1 / 3, 123456789.0, 5e20)]
CONSTANTS += [(DType.F64, np.float64(x)) for x in (5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 0.1, 1 / 3)]


def test_constants_are_spelled_to_the_bit():
    """Infinities, NaN, -0.0, denormals, the ends of every width."""
    constants = {dtype: [value for kind, value in CONSTANTS if kind is dtype] for dtype in NUMBERS}
    kernels = []
    for dtype, values_of in constants.items():
        g = Group()
        x, kept = g.input("x", dtype, "n"), g.input("kept", DType.BOOL, "n")
        graph = g.graph(*(g.map("where", kept, x, g.full(value, x)) for value in values_of))
        kernels.append(replace(schedule(lower(graph, "kernel"), SMALL), name=f"constants_{dtype.value}"))
    for (dtype, values_of), native in zip(constants.items(), build_many(kernels), strict=True):
        for value, got in zip(values_of, native(np.zeros(1, dtype.numpy), np.array([False])), strict=True):
            wanted = np.array([value], dtype.numpy)
            nan = dtype.is_float and np.isnan(wanted.astype(np.float64))[0]
            assert (nan and np.isnan(got.astype(np.float64))[0]) or got.tobytes() == wanted.tobytes(), (dtype, value)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, DType.F32, "1.0f"),
        (-0.0, DType.F32, "(-0.0f)"),
        (0.1, DType.F32, "0.1f"),
        (0.1, DType.F64, "0.1"),
        (1e30, DType.F32, "1e+30f"),
        (1e300, DType.F32, "INFINITY"),
        (float("-inf"), DType.F64, "(-INFINITY)"),
        (float("nan"), DType.F32, "NAN"),
        (2**64 - 1, DType.U64, "18446744073709551615ULL"),
        (-(2**63), DType.I64, "INT64_MIN"),
        (-(2**31), DType.I32, "(-2147483648)"),
        (True, DType.BOOL, "true"),
        (7, DType.U32, "7U"),
    ],
)
def test_literals(value, dtype, text):
    assert const_text(value, dtype) == text


def test_types_are_those_of_stdint():
    assert TYPES.keys() == {*NUMBERS, *FLOAT8}
    assert {TYPES[dtype] for dtype in (DType.F16, DType.BF16)} == {"uint16_t"}
    assert {TYPES[dtype] for dtype in FLOAT8} == {"uint8_t"}


@pytest.mark.parametrize("function", INTEGER_FUNCTIONS)
def test_integer_functions_name_their_types(function):
    for dtype in ("i8", "i64", "u8", "u64"):
        text = integer_function(function, dtype)
        kind = TYPES[DType(dtype)]
        assert text.startswith(f"static inline {kind} noyau_{function}_{dtype}({kind} a")
        assert not {" T ", "(T)", "(U)"} & {text[at : at + 3] for at in range(len(text))}


def test_a_function_without_a_spelling_is_refused_by_name(monkeypatch):
    monkeypatch.delitem(SCALARS, "erf")
    with pytest.raises(UnsupportedError, match="c has no spelling of erf for f32"):
        c_printer.source(mapped("erf", DType.F32, 0))
    monkeypatch.delitem(INTEGER_FUNCTIONS, "power")
    with pytest.raises(UnsupportedError, match="c has no spelling of power for i8"):
        c_printer.source(mapped("power", DType.I8, 0))


def test_small_integers_are_cut_back_and_others_not():
    small = [narrow("a + b", dtype) for dtype in (DType.I8, DType.U16)]
    assert small == ["((int8_t)(a + b))", "((uint16_t)(a + b))"]
    assert {narrow("a + b", dtype) for dtype in (DType.I32, DType.F32, DType.BOOL)} == {"(a + b)"}
