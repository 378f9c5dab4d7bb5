from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.ir.dims import Dim
from noyau.signatures.types import Family, Rest, Term, parse
from tests.signatures.texts import signatures


def test_several_inputs_scalars_and_a_named_result():
    made = parse("f32[n], f32, f32 -> hist: i32[bins]", ["x", "xmin", "xmax"])
    assert made.inputs == (
        Term("x", DType.F32, (Dim.of("n"),)),
        Term("xmin", DType.F32, None),
        Term("xmax", DType.F32, None),
    )
    assert made.outputs == (Term("hist", DType.I32, (Dim.of("bins"),)),)
    assert made.sizes == ("n", "bins")


def test_several_results_are_named_and_an_unnamed_one_is_out():
    assert [term.name for term in parse("f32[n] -> low: f32[n], high: f32[n]").outputs] == ["low", "high"]
    assert [term.name for term in parse("f32[n] -> f32[n]").outputs] == ["out"]
    assert [term.name for term in parse("f32[n] -> f32[n], low: f32[n]").outputs] == ["out", "low"]


@pytest.mark.parametrize(
    ("short", "long"), [("f32", "float32"), ("i8", "int8"), ("u64", "uint64"), ("bf16", "bfloat16")]
)
def test_a_dtype_has_a_short_and_a_long_name(short, long):
    assert parse(f"{short}[n] -> {long}") == parse(f"{long}[n] -> {short}")


def test_families_dots_stars_and_arithmetic():
    made = parse("float[*batch, n], any[..., 2], int[] -> float[*batch, n - 2], y: any[...]")
    assert [term.element for term in made.inputs] == [Family.FLOAT, Family.ANY, Family.INT]
    assert made.inputs[0].dims == (Rest("batch"), Dim.of("n"))
    assert made.inputs[1].dims == (Rest("..."), Dim.of(2))
    assert made.inputs[2].dims == ()
    assert made.outputs[0].dims == (Rest("batch"), Dim.of("n") - 2)


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("n-2", Dim.of("n") - 2),
        ("2 * n + 1", Dim.of("n") * 2 + 1),
        ("(n + 1) // 2 * m", (Dim.of("n") + 1) // 2 * Dim.of("m")),
        ("n // (m + 1)", Dim.of("n") // (Dim.of("m") + 1)),
        ("-3 + n", Dim.of("n") - 3),
        ("n + 0 * m", Dim.of("n")),
    ],
)
def test_a_dim_is_arithmetic_over_names(text, dim):
    assert parse(f"f32[n], f32[m] -> f32[{text}]").outputs[0].dims == (dim,)


def test_a_parameter_named_like_a_dim_needs_no_term():
    made = parse("f32[n] -> i32[bins]", ["x", "bins"])
    assert made.inputs[1] == Term("bins", DType.I64, None)
    assert made.integers == ("bins",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f32[n, -> f32[n]", r"column 8, '->': a dim is expected"),
        ("f32[n]", "at its end: '->' is expected between inputs and results"),
        ("", "at its end: a dtype such as f32 is expected"),
        ("f32[n] -> ", "at its end: a dtype such as f32 is expected"),
        ("f32[n] f32 -> f32", "column 8, 'f32': '->' is expected"),
        ("f32[n] -> f32[n] f32", "column 18, 'f32': nothing may follow"),
        ("f32[n] -> f33[n]", "column 11, 'f33': this is no dtype"),
        ("f32[n]; -> f32[n]", "column 7, ';': no signature has this character"),
        ("x: f32[n] -> f32[n]", "column 1, 'x': inputs take their names from the function's parameters"),
        ("f32[n] -> i8: f32[n]", "column 11, 'i8': a dtype cannot be the name of a result"),
        ("f32[f32] -> f32", "column 5, 'f32': a dtype cannot be the name of a dim"),
        ("f32[*a, *b] -> f32", r"column 9, '\*': a term has at most one \* or \.\.\."),
        ("f32[..., *b] -> f32", r"a term has at most one"),
        ("f32[n, 1 - 2] -> f32", "column 8, '1': an extent cannot be negative"),
        ("f32[n // 0] -> f32", "column 10, '0': a dim is divided by 0"),
        ("f32[n // (1 - 2)] -> f32", r"column 10, '\(': a dim is divided by what is not positive"),
        ("f32[(n] -> f32", r"column 7, '\]': '\)' is expected after the dim"),
        ("f32[n -> f32", r"column 7, '->': '\]' is expected after the dims"),
        ("f32[99999999999999999999] -> f32", "this integer does not fit 64 bits"),
        (f"f32[{'(' * 40}n{')' * 40}] -> f32", "too many parentheses"),
        ("f32[n] -> float[n]", "no input says which dtype the float of out is; give a dtype such as f32"),
        ("f32[n] -> f32[*batch]", r"no input has the \*batch of out"),
        ("f32[n] -> f32[n], f32[n]", "two things named out: a result without a name is called out; name it"),
        ("f32[n] -> n: f32[n]", "two things named n: a result and a dim; each needs a name of its own"),
        ("f32[n, *n] -> f32[n]", "two things named n: a dim and several dims"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, reason):
    with pytest.raises(SignatureError, match=reason):
        parse(text)


@pytest.mark.parametrize(
    ("text", "parameters", "reason"),
    [
        ("f32[n] -> f32[n]", ["x", "y"], "has 1 inputs, but the function takes 2: x, y"),
        ("f32[n], f32 -> f32[n]", ["x"], "has 2 inputs, but the function takes 1: x"),
        ("f32[n] -> f32[n]", [], "has 1 inputs, but the function takes none"),
        ("f32[n], f32[m] -> f32[n]", ["x", "n"], "two things named n: an input and a dim"),
        ("f32[n] -> f32[n]", ["out"], "two things named out"),
    ],
)
def test_parameters_fit_the_text(text, parameters, reason):
    with pytest.raises(SignatureError, match=reason):
        parse(text, parameters)


def test_a_signature_error_is_a_type_error():
    with pytest.raises(TypeError):
        parse("nonsense")


@given(signatures())
def test_what_is_printed_is_parsed_back(signature):
    assert parse(str(signature)) == signature


@given(st.text(alphabet="f32[]n,->*.:()+/ -x", max_size=40))
def test_any_text_is_parsed_or_refused(text):
    try:
        made = parse(text)
    except SignatureError:
        return
    assert parse(str(made)) == made
