"""Names of sizes: identifiers, one for each name of the model, whatever it calls them."""

from __future__ import annotations

import re

import pytest

from noyau.frontends.onnx.size_names import Sizes
from noyau.ir.dims import Dim

HOSTILE = [
    "*/",
    "#0",
    "a b",
    "'; rm -rf /",
    "1st",
    "",
    "\n",
    "\u00e9",
    "x" * 500,
    "__",
    "a..b",
    "((((",
    "0",
    "$(id)",
    "a+",
    "**",
]


def test_a_plain_name_is_kept():
    assert Sizes().named("batch_size") == Dim.of("batch_size")


def test_equal_names_are_one_size_and_others_another():
    sizes = Sizes()
    assert sizes.named("a b") == sizes.named("a b")
    assert [str(sizes.named(name)) for name in ("a b", "a-b", "a_b", "a*b")] == ["a_b", "a_b_2", "a_b_3", "a_b_4"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_becomes_an_identifier(name):
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", str(Sizes().named(name)))


def test_what_the_model_calls_each_is_kept():
    sizes = Sizes()
    for name in HOSTILE:
        sizes.named(name)
    assert sorted(sizes.originals.values()) == sorted(HOSTILE)


def test_fresh_names_are_nobodys():
    sizes = Sizes()
    sizes.named("d1")
    assert [str(sizes.fresh()) for _ in range(3)] == ["d0", "d2", "d3"]
    assert str(sizes.named("d0")) == "d0_2"
    assert "d0" not in sizes.originals


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("past + 1", Dim.of("past") + 1),
        ("2*past - sequence", Dim.of("past") * 2 - Dim.of("sequence")),
        ("(past + sequence)//2", (Dim.of("past") + "sequence") // 2),
    ],
)
def test_a_formula_of_known_names_is_that_formula(text, meaning):
    sizes = Sizes()
    sizes.named("past"), sizes.named("sequence")
    assert sizes.named(text) == meaning


@pytest.mark.parametrize("text", ["other + 1", "past ** 2", "past // 0", "past / 2", "f(past)", "-past", "past +"])
def test_anything_else_is_a_name(text):
    sizes = Sizes()
    sizes.named("past")
    size = sizes.named(text)
    assert size.names == {str(size)}
    assert size != Dim.of("past")
