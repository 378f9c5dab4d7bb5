"""Names of sizes: identifiers, one for each name of the model, whatever it calls them."""

from __future__ import annotations

import re

import pytest

from noyau.frontends.onnx.sizes import SizeNames
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
    assert SizeNames().dim_of("batch_size") == Dim.of("batch_size")


def test_equal_names_are_one_size_and_others_another():
    sizes = SizeNames()
    assert sizes.dim_of("a b") == sizes.dim_of("a b")
    assert [str(sizes.dim_of(name)) for name in ("a b", "a-b", "a_b", "a*b")] == ["a_b", "a_b_2", "a_b_3", "a_b_4"]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_becomes_an_identifier(name):
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", str(SizeNames().dim_of(name)))


def test_what_the_model_calls_each_is_kept():
    sizes = SizeNames()
    for name in HOSTILE:
        sizes.dim_of(name)
    assert sorted(sizes.originals.values()) == sorted(HOSTILE)


def test_fresh_names_are_nobodys():
    sizes = SizeNames()
    sizes.dim_of("d1")
    assert [str(sizes.fresh()) for _ in range(3)] == ["d0", "d2", "d3"]
    assert str(sizes.dim_of("d0")) == "d0_2"
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
    sizes = SizeNames()
    sizes.dim_of("past"), sizes.dim_of("sequence")
    assert sizes.dim_of(text) == meaning


@pytest.mark.parametrize("text", ["other + 1", "past ** 2", "past // 0", "past / 2", "f(past)", "-past", "past +"])
def test_anything_else_is_a_name(text):
    sizes = SizeNames()
    sizes.dim_of("past")
    size = sizes.dim_of(text)
    assert size.names == {str(size)}
    assert size != Dim.of("past")
