"""The C of the scalar functions in Python: precedence, the types of numbers, the conversions that C makes."""

from __future__ import annotations

import ast
import re

import pytest

from noyau.codegen import cmath
from noyau.codegen.numba.printer import FILE
from noyau.errors import UnsupportedError
from tools.numba_functions import Number, Translation, document, expression, function, is_inlined, parsed, python

KINDS = {"x": "f32", "y": "f32", "w": "f64", "i": "i32", "u": "u32", "h": "u16", "v": "u64", "b": "bool"}


def signature(name):
    return {"noyau_f": (("f32", "u32"), "f64")}[name]


def parse(text):
    """The expression that a statement of C is."""
    body = parsed(f"void f() {{ {text}; }}").children[0].child_by_field_name("body")
    return expression(body.named_children[0].named_children[0])


def said(text, kind=None):
    translation = Translation(KINDS, signature)
    node = parse(text)
    return translation.text(node) if kind is None else translation.text_as(node, kind)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("x + 1", "x + f32(1.0)"),
        ("x + 1.5", "f64(x) + 1.5"),
        ("x * y + w", "f64(x * y) + w"),
        ("(x + y) * x", "(x + y) * x"),
        ("x - (y - x)", "x - (y - x)"),
        ("x - y - x", "x - y - x"),
        ("-x * y", "-x * y"),
        ("0x1.8p1f * x", "f32(3.0) * x"),
        ("x > 0 ? 1 : -x", "f32(1.0) if x > f32(0.0) else (-x)"),
        ("x < INFINITY", "x < f32(np.inf)"),
        ("w == -INFINITY", "w == -np.inf"),
        ("!b", "not b"),
        ("(x > y) | (x != x)", "(x > y) | (x != x)"),
        ("w - ((w != 0) & b)", "w - f64((w != 0.0) & b)"),
        ("u >> 1", "u32(u >> u32(1))"),
        ("u + i", "u32(u + u32(i))"),
        ("h << 13", "i32(i32(h) << i32(13))"),
        ("i + 0x7fff", "i32(i + i32(32767))"),
        ("v & 0xffffffffff", "v & u64(1099511627775)"),
        ("-v", "u64(u64(0) - v)"),
        ("~u", "u32(~u)"),
        ("(float)w", "f32(w)"),
        ("(int32_t)u >> 23", "i32(i32(u) >> i32(23))"),
        ("fabsf(x)", "abs(x)"),
        ("sqrt(w)", "math.sqrt(w)"),
        ("rintf(x)", "np.rint(x)"),
        ("noyau_f(w, i)", "noyau_f(f32(w), u32(i))"),
        ("noyau_f(x, u, &w) * 2", "noyau_f(x, u) * 2.0"),
        ("*w + 1", "w + 1.0"),
    ],
)
def test_an_expression(text, made):
    assert said(text) == made


@pytest.mark.parametrize(
    ("text", "kind", "made"),
    [
        ("x > y", "f64", "f64(x > y)"),
        ("b ? 1 : x", "f64", "1.0 if b else f64(x)"),
        ("u | (uint32_t)(h & 0x8000) << 16", "u16", "u16(u32(u | u32(u32(i32(i32(h) & i32(32768))) << u32(16))))"),
        ("b ? x : b ? y : 1", "f32", "x if b else y if b else f32(1.0)"),
    ],
)
def test_an_expression_in_another_type(text, kind, made):
    assert said(text, kind) == made


def test_the_committed_functions_are_the_generated_ones():
    assert FILE.read_text("ascii") == document(), "python tools/numba_functions.py"


def test_assignments():
    first, second, _, last = function("noyau_exp_parts_f64").assignments[:4]
    assert (first.name, first.kind) != (second.name, "")
    assert last.value is not None
    bits = function("noyau_scale_f32").assignments
    assert [(each.name, each.kind) for each in bits] == [("bits", "u32"), ("half", "u32"), ("", "")]


def test_a_comment_is_of_its_statement():
    tails = {each.name: each.tail for each in function("noyau_exp_f32").assignments}
    assert tails["r"] == "  # log(2) in two parts"
    assert tails["n"] == ""


def test_a_number_has_its_sign_and_its_type():
    assert parse("-1.5f") == Number(-1.5, "f32")
    assert parse("-INFINITY") == Number(float("-inf"), "f32")
    assert parse("0xffffffff") == Number(2**32 - 1, "u32")


def test_what_cannot_be_read_is_told():
    with pytest.raises(UnsupportedError, match=r"numba cannot read the C text 'x\[0\]'"):
        parse("x[0]")
    with pytest.raises(UnsupportedError, match="numba has no spelling of the C function lgamma"):
        said("lgamma(w)")


def test_every_function_is_python_with_its_comment():
    for name in sorted(cmath.NAMES):
        text = python(name)
        assert isinstance(ast.parse(text).body[0], ast.FunctionDef)
        assert text.startswith("# ")
        assert max(map(len, text.splitlines())) <= 160


def test_what_a_function_calls_is_among_its_own_statements():
    """But what gives two results; a call apart takes Numba as long as ten statements."""
    for name in sorted(cmath.NAMES):
        called = set(re.findall(r"\bnoyau_\w+(?=\()", python(name))) - {name}
        assert not any(is_inlined(each) for each in called), name
    text = python("noyau_floor_mod_f32")
    assert "# The rest of x / y with the sign of x, by long division" in text
    assert "    rest = math.copysign(f32(rest_2), x)\n" in text  # what would have one name has two


def test_what_a_pointer_gives_is_returned():
    assert "    high, low, shifted = noyau_exp_parts_f64(x)\n" in python("noyau_exp_f64")
    assert python("noyau_exp_parts_f64").endswith("    return high, low, shifted")
