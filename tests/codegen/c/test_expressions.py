"""CExpressions as C text: what each node becomes, and that indices mean in C what they mean as Dims."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.identifiers import Scopes
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, maximum
from noyau.ir.loops import Alloc, Axis, Const, Fold, Index, Space, Var
from tests.batching import build_many
from tests.nests import ONE, ROW, N, call, kernel, less, load, loop, store
from tests.nodes import BF16, BOOL, F16, F32, F64, I8, I32, I64

INPUTS = (("x", F32, ["n"]), ("h", F16, ["n"]), ("b", BF16, ["n"]), ("p", BOOL, ["n"]), ("k", I8, ["n"]))
MADE = kernel(inputs=INPUTS, outputs=(("y", F16, ["n"]),))
X = load("x", ROW)


@pytest.fixture
def said():
    """CExpressions of a kernel in a loop over its one size."""
    names = Scopes(MADE)
    made = CExpressions(MADE, names)
    made.extents["#i"] = N
    names.bind("#i", "i")
    names.bind("value", "value")
    return made


VALUE, SMALL = Var("value", F32), Var("value", I8)
P = load("p", ROW, dtype=BOOL)
TEXTS = [
    (Const(1.5, F32), "1.5f"),
    (VALUE, "value"),
    (Index(N + 1), "n + 1"),
    (Index(N * (2**63 - 1)), "n * 9223372036854775807"),
    (X, "x[i]"),
    (load("x", ROW * 2 + 1), "x[i * 2 + 1]"),
    (load("h", ROW), "noyau_f16_to_f32(h[i])"),
    (load("b", ROW), "noyau_bf16_to_f32(b[i])"),
    (call("cast", call("cast", VALUE, dtype=F16), dtype=F32), "noyau_f32_to_f16_to_f32(value)"),
    (load("x", ROW, where=P, other=Const(0.0, F32)), "p[i] ? x[i] : 0.0f"),
    (load("x", ROW, where=less(ROW, 3), other=ONE), "i < 3 ? x[i] : 1.0f"),
    (call("add", X, VALUE), "x[i] + value"),
    (call("multiply", call("add", X, X), VALUE), "(x[i] + x[i]) * value"),
    (call("negative", call("negative", X)), "-(-x[i])"),
    (call("where", P, X, VALUE), "p[i] ? x[i] : value"),
    (call("where", call("where", P, P, P, dtype=BOOL), X, VALUE), "(p[i] ? p[i] : p[i]) ? x[i] : value"),
    (call("is_nan", X, dtype=BOOL), "x[i] != x[i]"),
    (call("identity", X), "x[i]"),
    (call("exp", call("add", X, X)), "noyau_exp_f32(x[i] + x[i])"),
    (call("power", X, VALUE), "noyau_pow_f32(x[i], value)"),
    (call("add", SMALL, SMALL, dtype=I8), "(int8_t)(value + value)"),
    (call("negative", SMALL, dtype=I8), "(int8_t)(-value)"),
    (call("bitwise_not", SMALL, dtype=I8), "(int8_t)(~value)"),
    (call("maximum", SMALL, SMALL, dtype=I8), "noyau_maximum_i8(value, value)"),
    (call("less", SMALL, SMALL, dtype=BOOL), "value < value"),
    (call("logical_not", P, dtype=BOOL), "!p[i]"),
    (call("logical_and", P, call("logical_not", P, dtype=BOOL), dtype=BOOL), "p[i] & (!p[i])"),
    (call("cast", X, dtype=BOOL), "x[i] != 0"),
    (call("cast", X, dtype=I32), "(int32_t)x[i]"),
    (call("cast", call("add", X, X), dtype=F64), "(double)(x[i] + x[i])"),
    (call("divide", Var("value", I64), Var("value", I64), dtype=I64), "noyau_divide_i64(value, value)"),
]


@pytest.mark.parametrize(("expr", "text"), TEXTS)
def test_an_expression_s_text(said, expr, text):
    assert said.top(expr) == text


def test_what_a_text_calls_is_noted(said):
    said.top(call("exp", load("h", ROW)))
    said.top(call("maximum", SMALL, SMALL, dtype=I8))
    said.top(Index(maximum(N, 3)))
    assert said.functions == {"noyau_exp_f32", "noyau_f16_to_f32"}
    assert said.integers == {("maximum", "i8"), ("maximum", "i64")}


def test_a_half_is_stored_through_its_conversion(said):
    assert said.cell_text("y", VALUE) == "noyau_f32_to_f16(value)"
    assert said.cell_text("y", Var("value", F64)) == "noyau_f64_to_f16(value)"
    assert said.cell_text("x", call("add", X, X)) == "x[i] + x[i]"


def test_memory_of_one_cell_is_a_variable(said):
    said.memory["value"] = Alloc("value", F32, (Dim.of(1),), Space.REGISTER)
    assert said.top(load("value", 0)) == "value"


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        (Fold("sum", (("#r", Dim.of(2)),), (), ONE, F32), "c has no word for a fold: expand_folds comes before it pri"),
        (load("x", ROW, ROW), "c has no 2 indices of x: flatten comes before it prints"),
        (load("x"), "c has no 0 indices of x: flatten comes before it prints"),
        (
            Index(N * 2**63),
            r"c has no integer for 9223372036854775808\*n: more than 64 bits; no array has so many cells",
        ),
        (load("x", ROW * 10**30), "c has no integer for 1000000000000000000000000000000"),
        (call("gamma", X), "c has no spelling of gamma for f32"),
        (call("erf", SMALL, dtype=I8), "c has no spelling of erf for i8"),
        (call("shift_left", VALUE, VALUE), "c has no spelling of shift_left for f32"),
    ],
)
def test_what_has_no_spelling_is_refused(said, expr, message):
    with pytest.raises(UnsupportedError, match=message):
        said.top(expr)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (ROW // 4, "i / 4"),
        (ROW % 4, "i % 4"),
        ((ROW + 7) // 4 + 1, "((i + 3) / 4) + 2"),
        ((ROW - 1) % 4, "(i + 3) % 4"),
        ((ROW - 1) % N, "noyau_floor_mod_i64(i - 1, n)"),
        ((N - 1 - ROW) // (N * N + 1), "(n - i - 1) / (n * n + 1)"),
        ((N - 2 - ROW) // (N * N + 1), "noyau_floor_divide_i64(n - i - 2, n * n + 1)"),
        ((ROW - N) // 4, "((n * 3 + i) / 4) - n"),
        (ROW // N, "i / n"),
        (ROW // (N - 1), "noyau_floor_divide_i64(i, n - 1)"),
        (ROW % maximum(N - 5, 1), "i % noyau_maximum_i64(1, n - 5)"),
        (-maximum(-N, -4), "noyau_minimum_i64(4, n)"),
    ],
)
def test_divisions_are_those_of_c_where_nothing_can_be_negative(said, dim, text):
    assert said.dim(dim) == text


def test_what_is_left_of_a_length_is_natural_within_its_tiles(said):
    """n - 16 t, in a loop over (n + 15) // 16 tiles."""
    tile = Dim.of("#t")
    said.names.bind("#t", "t")
    said.extents["#t"] = (N + 15) // 16
    assert said.is_natural(N - tile * 16)
    assert not said.is_natural(N - tile * 17)
    assert said.is_natural(N - tile * 16 - 1)  # the last tile has a cell
    assert not said.is_natural(N - tile * 16 - 2)
    assert said.is_natural(-maximum(-16, tile * 16 - N))


def test_a_size_may_be_0_where_its_loop_is_not_open(said):
    del said.extents["#i"]
    assert said.dim(N // 2) == "n / 2"
    assert said.dim(Dim.of(7) // N) == "noyau_floor_divide_i64(7, n)"


def test_sizes_that_may_overflow_never_divide_alone(said):
    assert said.dim(Dim.of(7) % (N + 2)) == "7 % (n + 2)"
    said.absurd = True
    assert said.dim(Dim.of(7) % (N + 2)) == "noyau_floor_mod_i64(7, n + 2)"
    assert said.dim(N // maximum(N, 1)) == "n / noyau_maximum_i64(1, n)"


def drawn(choose: Random, depth: int) -> Dim:
    """A Dim of sizes and of the index of a loop."""
    if depth == 0:
        return Dim.of(choose.choice(["a", "b", "#i", choose.randint(-4, 6)]))
    left, right = drawn(choose, depth - 1), drawn(choose, choose.randint(0, depth - 1))
    return choose.choice([left + right, left - right, left * right, left // right, left % right, maximum(left, right)])


def test_indices_mean_in_c_what_they_mean_as_dims():
    """200 of them, in a loop: of whatever sizes, negative, divided by zero (which no trap may meet) or not."""
    choose = Random(3)
    dims = [drawn(choose, choose.randint(1, 3)) for _ in range(200)]
    stores = [store("y", Index(dim), Dim.of(at) * "a" + ROW) for at, dim in enumerate(dims)]
    made = kernel(
        loop("#i", "a", *stores, axis=Axis.THREADS),
        inputs=(("x", F32, ["a"]), ("z", F32, ["b"])),
        outputs=(("y", I64, [Dim.of("a") * len(dims)]),),
    )
    (native,) = build_many([made])
    told = 0
    for a, b in product(range(4), range(5)):
        (got,) = native(np.zeros(a, np.float32), np.zeros(b, np.float32))
        for at, i in product(range(len(dims)), range(a)):
            try:
                wanted = dims[at].evaluate({"a": a, "b": b, "#i": i})
            except ZeroDivisionError:
                continue
            told += 1
            assert got[at * a + i] == wanted, (str(dims[at]), a, b, i)
    assert told > 4000


def test_every_dtype_can_be_loaded_and_stored():
    numbers = [dtype for dtype in DType if dtype is not DType.OTHER]
    kernels = []
    for number, dtype in enumerate(numbers):
        inside = loop("#i", "n", store("y", load("x", ROW, dtype=dtype.compute), ROW), axis=Axis.THREADS)
        made = kernel(inside, inputs=(("x", dtype, ["n"]),), outputs=(("y", dtype, ["n"]),))
        kernels.append(type(made)(f"copy_{number}", made.buffers, made.binding, made.launches))
    for dtype, native in zip(numbers, build_many(kernels), strict=True):
        given = np.arange(2 if dtype is DType.BOOL else 7).astype(dtype.numpy)
        assert native(given)[0].tobytes() == given.tobytes()
