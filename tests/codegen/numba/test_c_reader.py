"""The C of the scalar functions in Python: what binds more, which type a number has, which conversions C makes."""

from __future__ import annotations

import pytest

from noyau.codegen.numba.c_reader import Number, Parser, Translation, spelled
from noyau.errors import UnsupportedError

KINDS = {"x": "f32", "y": "f32", "w": "f64", "i": "i32", "u": "u32", "h": "u16", "v": "u64", "b": "bool"}


def signature(name):
    return {"noyau_f": (("f32", "u32"), "f64")}[name]


def said(text, kind=None):
    translation = Translation(KINDS, signature)
    node = Parser(text).expression()
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


def test_assignments():
    found = list(Parser("a = x + 1, b, *c = noyau_f(x, u), d = 2").assignments())
    assert [name for name, _ in found] == ["a", "b", "c", "d"]
    assert found[1][1] is None
    assert found[3][1] == Number(2)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(0.1, "f32", "f32(0.1)"), (16777217.0, "f32", "f32(16777216.0)"), (3, "i64", "3"), (1, "bool", "True")],
)
def test_numbers(value, kind, text):
    assert spelled(Number(value), kind) == text


def test_what_cannot_be_read_is_told():
    with pytest.raises(UnsupportedError, match=r"numba cannot read the C text '\[0\]'"):
        Parser("x[0]").expression()
    with pytest.raises(UnsupportedError, match="numba has no spelling of the C function lgamma"):
        said("lgamma(w)")
