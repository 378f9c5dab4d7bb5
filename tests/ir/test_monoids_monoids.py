from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph_interpreter import Numeric
from noyau.ir.loops import Call, Const, Index, Var
from noyau.ir.monoids import MONOIDS, highest, lowest

ALGEBRA = Numeric()
DTYPES = {"float": DType.F64, "int": DType.I32, "uint": DType.U8, "bool": DType.BOOL}
CASES = [(name, DTYPES[kind]) for name, monoid in MONOIDS.items() for kind in sorted(monoid.accepts)]
FLOATS = st.one_of(st.floats(-1e3, 1e3, width=16), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0]))
VALUES = {
    "float": FLOATS,
    "int": st.integers(-(2**31), 2**31 - 1),
    "uint": st.integers(0, 255),
    "bool": st.booleans(),
}

REFERENCES = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "logsumexp": lambda x: np.log(np.sum(np.exp(x - np.max(x)))) + np.max(x),
    "variance": np.var,
}


def lists(dtype, least=1, most=9):
    return st.lists(VALUES[dtype.kind], min_size=least, max_size=most)


def empty(monoid, dtype):
    states = zip(monoid.states(dtype), monoid.init(dtype), strict=True)
    return tuple(np.asarray(value, state.numpy) for state, value in states)


def lifted(monoid, dtype, values):
    return [
        monoid.lift(ALGEBRA, np.asarray(value, dtype.numpy), np.asarray(position, np.int64))
        for position, value in enumerate(values)
    ]


def merged(monoid, dtype, states):
    with np.errstate(all="ignore"):
        return reduce(lambda a, b: monoid.merge(ALGEBRA, a, b), states, empty(monoid, dtype))


def finish(monoid, state):
    with np.errstate(all="ignore"):
        return monoid.finish(ALGEBRA, state)


def same(got, want, exact, scale=1.0):
    got, want = np.asarray(got, float), np.asarray(want, float)
    if exact or not np.isfinite(want).all():
        return np.array_equal(got, want, equal_nan=True)
    return np.allclose(got, want, rtol=1e-12, atol=1e-12 * (1 + scale))


def spread(dtype, values):
    finite = [abs(float(value)) for value in values if math.isfinite(value)]
    return max(finite, default=0.0) ** 2 if dtype.is_float else 0.0


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda case: getattr(case, "value", case))
def test_reductions_are_numpy_s(name, dtype):
    monoid = MONOIDS[name]

    @settings(max_examples=25, deadline=None)
    @given(lists(dtype))
    def check(values):
        array = np.array(values, dtype.numpy)
        with np.errstate(all="ignore"):
            want = REFERENCES[name.removesuffix("_apart")](array)
        if name in ("sum", "prod") and not dtype.is_float:
            want = np.asarray(want).astype(dtype.numpy)  # wraps in its own dtype
        if name == "logsumexp" and np.isinf(array.max()):
            want = array.max()
        got = finish(monoid, merged(monoid, dtype, lifted(monoid, dtype, values)))
        exact = monoid.exact or not dtype.is_float
        assert same(got, want, exact, spread(dtype, values)) or (name == "prod" and same(got, want, False, abs(want)))
        assert np.asarray(got).dtype == monoid.result(dtype).numpy

    check()


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda case: getattr(case, "value", case))
def test_merging_is_associative(name, dtype):
    monoid = MONOIDS[name]

    @settings(max_examples=25, deadline=None)
    @given(lists(dtype, 0, 6), st.integers(0, 6), st.integers(0, 6))
    def check(values, first, second):
        low, high = sorted((min(first, len(values)), min(second, len(values))))
        states = lifted(monoid, dtype, values)
        parts = [merged(monoid, dtype, part) for part in (states[:low], states[low:high], states[high:])]
        with np.errstate(all="ignore"):
            left = monoid.merge(ALGEBRA, monoid.merge(ALGEBRA, parts[0], parts[1]), parts[2])
            right = monoid.merge(ALGEBRA, parts[0], monoid.merge(ALGEBRA, parts[1], parts[2]))
        exact = monoid.exact or not dtype.is_float
        if not np.isfinite(np.array(values, float)).all() and not exact:
            return  # inf - inf: both are NaN or infinite, not always the same
        one, other = finish(monoid, left), finish(monoid, right)
        assert same(one, other, exact, spread(dtype, values)) or same(one, other, False, abs(float(other)))

    check()


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda case: getattr(case, "value", case))
def test_the_empty_state_is_neutral(name, dtype):
    monoid = MONOIDS[name]

    @settings(max_examples=20, deadline=None)
    @given(lists(dtype, 1, 5))
    def check(values):
        state = merged(monoid, dtype, lifted(monoid, dtype, values))
        with np.errstate(all="ignore"):
            before = monoid.merge(ALGEBRA, empty(monoid, dtype), state)
            after = monoid.merge(ALGEBRA, state, empty(monoid, dtype))
        assert same(finish(monoid, before), finish(monoid, state), True)
        assert same(finish(monoid, after), finish(monoid, state), True)

    check()


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda case: getattr(case, "value", case))
def test_exact_and_commutative_are_what_they_say(name, dtype):
    monoid = MONOIDS[name]

    @settings(max_examples=20, deadline=None)
    @given(lists(dtype, 1, 7), st.randoms())
    def check(values, random):
        states = lifted(monoid, dtype, values)
        shuffled = random.sample(states, len(states))
        got, want = (finish(monoid, merged(monoid, dtype, order)) for order in (shuffled, states))
        if monoid.exact:
            assert same(got, want, True)

    check()


def test_the_first_of_ties_and_of_nans_wins():
    for name, values, want in [
        ("argmax", [1, 3, 3, 2], 1),
        ("argmin", [1, 3, 1, 2], 0),
        ("argmax", [1, math.nan, 5, math.nan], 1),
        ("argmin", [1, math.nan, -5, math.nan], 1),
        ("argmax", [-math.inf, -math.inf], 0),
        ("argmin", [math.inf], 0),
    ]:
        monoid = MONOIDS[name]
        for turn in range(len(values)):
            states = lifted(monoid, DType.F64, values)
            assert finish(monoid, merged(monoid, DType.F64, states[turn:] + states[:turn])) == want


@pytest.mark.parametrize(
    ("name", "dtype", "want"),
    [
        ("sum", DType.F32, 0),
        ("prod", DType.I32, 1),
        ("max", DType.F32, -math.inf),
        ("max", DType.I8, -128),
        ("min", DType.U8, 255),
        ("max", DType.BOOL, False),
        ("any", DType.BOOL, False),
        ("all", DType.BOOL, True),
        ("argmax", DType.F32, 2**63 - 1),
        ("logsumexp", DType.F32, -math.inf),
        ("variance", DType.F32, math.nan),
    ],
)
def test_nothing_reduced(name, dtype, want):
    got = finish(MONOIDS[name], empty(MONOIDS[name], dtype))
    assert same(got, want, True)


def test_logsumexp_does_not_overflow():
    monoid = MONOIDS["logsumexp"]
    got = finish(monoid, merged(monoid, DType.F64, lifted(monoid, DType.F64, [1000.0, 1000.0])))
    assert got == pytest.approx(1000 + math.log(2))


def test_the_variance_of_large_values_keeps_its_digits():
    monoid, values = MONOIDS["variance"], np.float32([1e4, 1e4 + 1, 1e4 + 2])
    got = finish(monoid, merged(monoid, DType.F32, lifted(monoid, DType.F32, values)))
    assert got == pytest.approx(2 / 3, rel=1e-6)


def test_states_of_halves_are_float32():
    for monoid in MONOIDS.values():
        if "float" in monoid.accepts:
            assert DType.F16 not in monoid.states(DType.F16)
            assert monoid.result(DType.F16) in (DType.F16, DType.I64)


def test_monoids_write_expressions():
    from noyau.ir.monoids import Symbolic

    value = Var("x", DType.F32)
    for name, monoid in MONOIDS.items():
        if "float" in monoid.accepts:
            state = monoid.lift(Symbolic(), value, Index(Dim.of("#0")))
            merged_state = monoid.merge(Symbolic(), state, state)
            assert [part.dtype for part in merged_state] == list(monoid.states(DType.F32)), name
            assert monoid.finish(Symbolic(), merged_state).dtype is monoid.result(DType.F32)
    assert MONOIDS["sum"].merge(Symbolic(), (value,), (Const(1.0, DType.F32),)) == (
        Call("add", (value, Const(1.0, DType.F32)), DType.F32),
    )


def test_ends_of_dtypes():
    assert (lowest(DType.I8), highest(DType.I8)) == (-128, 127)
    assert (lowest(DType.F16), highest(DType.BF16)) == (-math.inf, math.inf)
    assert (lowest(DType.BOOL), highest(DType.BOOL)) == (False, True)
