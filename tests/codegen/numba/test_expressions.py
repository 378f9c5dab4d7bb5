"""NumbaExpressions as Python text for Numba: what each node becomes, and that indices mean what they mean as Dims."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from noyau.codegen.numba.expressions import NumbaExpressions
from noyau.codegen.numba.spellings import NumbaNames
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, maximum
from noyau.ir.loops import Alloc, Axis, Const, Fold, Index, Space, Var
from tests.codegen.c.test_expressions import drawn
from tests.codegen.numba_kernels import of
from tests.nests import COL, ONE, ROW, N, call, kernel, less, load, loop, store
from tests.nodes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8

INPUTS = (("x", F32, ["n"]), ("h", F16, ["n"]), ("p", BOOL, ["n"]), ("t", F32, ["m", "n"]), ("z", F32, []))
MADE = kernel(inputs=INPUTS, outputs=(("y", BF16, ["n"]),))
X = load("x", ROW)


@pytest.fixture
def said():
    """NumbaExpressions of a kernel in a loop over its one size."""
    names = NumbaNames(MADE)
    made = NumbaExpressions(MADE, names)
    made.extents |= {"#i": N, "#j": N}
    for name in ("#i", "#j", "value"):
        names.bind(name, name.removeprefix("#"))
    return made


VALUE, SMALL = Var("value", F32), Var("value", I8)
P = load("p", ROW, dtype=BOOL)
TEXTS = [
    (Const(1.5, F32), "f32(1.5)"),
    (Const(-1.5, F64), "-1.5"),
    (VALUE, "value"),
    (Index(N + 1), "n + 1"),
    (Index((ROW - 1) % N), "(i - 1) % n"),
    (Index(maximum(ROW // 2, 3)), "max(i // 2, 3)"),
    (Index(-maximum(-N, -4)), "min(4, n)"),
    (X, "x[i]"),
    (load("x", ROW * 2 + 1), "x[i * 2 + 1]"),
    (load("x", N - ROW - 1), "x[u64(n - i - 1)]"),
    (load("t", ROW * N + COL), "t[i, j]"),
    (load("t", ROW * N + N - 1 - COL), "t[i, u64(n - j - 1)]"),
    (load("z", 0), "z"),
    (load("h", ROW), "noyau_f16_to_f32(h[i])"),
    (load("x", ROW, where=P, other=Const(0.0, F32)), "x[i] if p[i] else f32(0.0)"),
    (load("x", ROW, where=less(ROW, 3), other=ONE), "x[i] if i < 3 else f32(1.0)"),
    (call("add", X, VALUE), "x[i] + value"),
    (call("multiply", call("add", X, X), VALUE), "(x[i] + x[i]) * value"),
    (call("negative", call("negative", X)), "-(-x[i])"),
    (call("where", P, X, VALUE), "x[i] if p[i] else value"),
    (call("is_nan", X, dtype=BOOL), "x[i] != x[i]"),
    (call("is_inf", X, dtype=BOOL), "abs(x[i]) == f32(np.inf)"),
    (call("exp", call("add", X, X)), "noyau_exp_f32(x[i] + x[i])"),
    (call("add", SMALL, SMALL, dtype=I8), "i8(value + value)"),
    (call("bitwise_not", Var("value", U8), dtype=U8), "u8(~value)"),
    (call("maximum", SMALL, SMALL, dtype=I8), "noyau_maximum_i8(value, value)"),
    (call("maximum", P, P, dtype=BOOL), "p[i] | p[i]"),
    (call("logical_not", P, dtype=BOOL), "not p[i]"),
    (call("cast", X, dtype=BOOL), "x[i] != f32(0.0)"),
    (call("cast", X, dtype=I32), "i32(x[i])"),
    (call("cast", X), "x[i]"),
    (call("cast", call("add", X, X), dtype=F64), "f64(x[i] + x[i])"),
    (call("divide", Var("value", I64), Var("value", I64), dtype=I64), "noyau_divide_i64(value, value)"),
]


@pytest.mark.parametrize(("expr", "text"), TEXTS)
def test_an_expression_s_text(said, expr, text):
    assert said.top(expr) == text


def test_a_buffer_is_flat_where_an_index_is_none_along_its_axes(said):
    assert said.top(load("t", ROW)) == "t[0, i]"
    assert said.flat == set()
    said.extents["#i"] = N * Dim.of("m")
    said.top(load("t", ROW))
    assert said.flat == {"t"}


def test_the_variable_of_a_loop_on_threads_may_be_of_any_sign(said):
    said.threads = frozenset({"#i"})
    assert said.top(X) == "x[u64(i)]"
    assert said.top(load("t", ROW * N + COL)) == "t[i, j]"


def test_what_a_text_calls_is_noted(said):
    said.top(call("exp", load("h", ROW)))
    said.top(call("maximum", SMALL, SMALL, dtype=I8))
    assert said.functions == {"noyau_exp_f32", "noyau_f16_to_f32"}
    assert said.integers == {("maximum", "i8")}


def test_a_half_is_stored_through_its_conversion(said):
    assert said.cell_text("y", VALUE) == "noyau_f32_to_bf16(value)"
    assert said.cell_text("x", call("add", X, X)) == "x[i] + x[i]"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Fold("sum", (("#r", Dim.of(2)),), (), ONE, F32), "numba has no word for a fold: expand_folds comes before it"),
        (load("t", ROW, ROW), "numba has no 2 indices of t: flatten comes before it prints"),
        (load("tile", ROW, ROW), "numba has no 2 indices of tile: flatten comes before it prints"),
        (Index(N * 2**63), r"numba has no integer for 9223372036854775808\*n: more than 64 bits"),
        (call("gamma", X), "numba has no spelling of gamma for f32"),
        (call("erf", SMALL, dtype=I8), "numba has no spelling of erf for i8"),
    ],
)
def test_what_has_no_spelling_is_refused(said, expr, message):
    said.memory["tile"] = Alloc("tile", F32, (Dim.of(2), Dim.of(2)), Space.THREAD)
    with pytest.raises(UnsupportedError, match=message):
        said.top(expr)


def test_indices_mean_in_python_what_they_mean_as_dims():
    """60 of them, in a loop: of whatever sizes, negative or not."""
    choose = Random(3)
    dims = [drawn(choose, choose.randint(1, 3)) for _ in range(60)]
    stores = [store("y", Index(dim), Dim.of(at) * "a" + ROW) for at, dim in enumerate(dims)]
    ends = {"inputs": (("x", F32, ["a"]), ("z", F32, ["b"])), "outputs": (("y", I64, [Dim.of("a") * len(dims)]),)}
    made = of(kernel(loop("#i", "a", *stores, axis=Axis.THREADS), **ends))
    told = 0
    for a, b in product(range(4), range(5)):
        (got,) = made(np.zeros(a, np.float32), np.zeros(b, np.float32))
        for at, i in product(range(len(dims)), range(a)):
            try:
                wanted = dims[at].evaluate({"a": a, "b": b, "#i": i})
            except ZeroDivisionError:
                continue
            told += 1
            assert got[at * a + i] == wanted, (str(dims[at]), a, b, i)
    assert told > 1000
