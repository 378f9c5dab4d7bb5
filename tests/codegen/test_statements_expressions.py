"""What languages share of the texts of expressions: each says what it needs for them."""

from __future__ import annotations

import pytest

from noyau.codegen.c import expressions as c_expressions
from noyau.codegen.identifiers import Scopes
from noyau.codegen.numba import expressions as numba_expressions
from noyau.codegen.numba.spellings import NumbaNames
from noyau.codegen.statements import is_variable
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.loops import Alloc, Fold, Space, Var
from tests.nests import ONE, ROW, N, call, kernel, load
from tests.nodes import BF16, F32, I8

MADE = kernel(inputs=(("x", F32, ["n"]), ("b", BF16, ["n"])), outputs=(("y", BF16, ["n"]),))
X, F8 = load("x", ROW), DType.F8E4M3FN


@pytest.fixture(params=["c", "numba"])
def said(request):
    """Expressions of a kernel in a loop over its one size."""
    made = (
        c_expressions.CExpressions(MADE, Scopes(MADE))
        if request.param == "c"
        else numba_expressions.NumbaExpressions(MADE, NumbaNames(MADE))
    )
    assert made.language == request.param
    made.extents["#i"] = N
    made.names.bind("#i", "i")
    made.names.bind("value", "value")
    return made


def test_halves_are_read_and_stored_through_their_conversions(said):
    assert said.top(call("exp", load("b", ROW))) == "noyau_exp_f32(noyau_bf16_to_f32(b[i]))"
    assert said.cell_text("y", X) == "noyau_f32_to_bf16(x[i])"
    assert said.cell_text("x", X) == "x[i]"
    assert said.functions == {"noyau_exp_f32", "noyau_bf16_to_f32", "noyau_f32_to_bf16"}


def test_float8_is_cast_by_way_of_float32(said):
    there = call("cast", Var("value", DType.F64), dtype=F8)
    assert said.top(there).startswith("noyau_f32_to_f8e4m3fn(")
    assert said.top(call("cast", Var("value", F8), dtype=F32)) == "noyau_f8e4m3fn_to_f32(value)"
    assert said.functions == {"noyau_f32_to_f8e4m3fn", "noyau_f8e4m3fn_to_f32"}


def test_integers_call_functions_of_their_own(said):
    small = Var("value", I8)
    assert said.top(call("maximum", small, small, dtype=I8)) == "noyau_maximum_i8(value, value)"
    assert said.integers == {("maximum", "i8")} and not said.functions


def test_memory_of_one_cell_is_a_variable():
    assert is_variable(Alloc("value", F32, (Dim.of(1),), Space.REGISTER))
    assert not is_variable(Alloc("value", F32, (Dim.of(2),), Space.REGISTER))
    assert not is_variable(Alloc("value", F32, (Dim.of(1),), Space.THREAD))
    assert not is_variable(MADE["x"])


def test_what_no_language_spells_is_refused_by_its_name(said):
    with pytest.raises(UnsupportedError, match=f"^{said.language} has no word for a fold: expand_folds comes before"):
        said.top(Fold("sum", (("#r", Dim.of(2)),), (), ONE, F32))
    with pytest.raises(UnsupportedError, match=f"^{said.language} has no spelling of gamma for f32"):
        said.top(call("gamma", X))
    with pytest.raises(UnsupportedError, match=f"^{said.language} has no integer for 9223372036854775808"):
        said.dim(N * 2**63)
