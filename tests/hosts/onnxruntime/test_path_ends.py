"""The ends of a path as users write them, of names as models have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.errors import InputError
from noyau.hosts.onnxruntime.path_ends import Ends, closest, ends_of, no_value

KNOWN = ("x", "y", "/model/layers.0/Mul_output_0", "onnx::MatMul_470", "a,b", "a", "b", "c\\d", "a:b", "\u00e9t\u00e9")


@pytest.mark.parametrize(
    ("text", "sources", "results"),
    [
        ("x:y", ["x"], ["y"]),
        ("x,a:y,b", ["x", "a"], ["y", "b"]),
        ("onnx::MatMul_470,x:y", ["onnx::MatMul_470", "x"], ["y"]),
        ("x:onnx::MatMul_470", ["x"], ["onnx::MatMul_470"]),
        ("/model/layers.0/Mul_output_0:\u00e9t\u00e9", ["/model/layers.0/Mul_output_0"], ["\u00e9t\u00e9"]),
        (r"a\,b:x", ["a,b"], ["x"]),
        (r"a\:b:x", ["a:b"], ["x"]),
        (r"c\d:x", ["c\\d"], ["x"]),
        (r"c\\d:x", ["c\\d"], ["x"]),
    ],
)
def test_a_text_is_split_where_names_are_known(text, sources, results):
    assert ends_of(text, KNOWN) == Ends(tuple(sources), tuple(results))


def test_where_two_ways_would_do_it_says_which():
    with pytest.raises(InputError, match=r"a,b:x can be read as a\\,b:x and as a,b:x: give one of these"):
        ends_of("a,b:x", KNOWN)


def test_two_lists_of_names_need_no_text():
    assert (
        ends_of((["a,b", "x"], ["y"]), KNOWN)
        == ends_of(r"a\,b,x:y", KNOWN)
        == ends_of(Ends(("a,b", "x"), ("y",)), KNOWN)
    )


@pytest.mark.parametrize(
    ("between", "told"),
    [
        ("x", "--between x has no colon: the ends of a path are A,B:C"),
        (":y", "a path needs a value that it begins at and one that it leads to"),
        ("x:", "a path needs a value that it begins at and one that it leads to"),
        ("x,:y", "a path needs"),
        (([], ["y"]), "a path needs"),
        (("x", "y"), r"between=\('x', 'y'\) is not \(\[\"A\", \"B\"\], \[\"C\"\]\)"),
        (3, "between=3 is not"),
        ("x:x", "x is there twice: each end of a path is named once"),
        ("x,x:y", "x is there twice"),
        (
            "x:/model/layers.1/Mul_output_0",
            "no value /model/layers.1/Mul_output_0; close to it are: /model/layers.0/Mul_",
        ),
        (r"a\,c:x", "the model has no value a,c; close to it are: a,b"),
        ("\x1b[2J:x", r"no value '\\x1b\[2J'"),
        ("x," * 9000 + ":y", "--between has 18002 letters, more than 16384"),
    ],
)
def test_what_is_no_pair_of_ends_is_refused(between, told):
    with pytest.raises(InputError, match=told):
        ends_of(between, KNOWN)


@given(st.lists(st.text(min_size=1, max_size=5, alphabet="ab,:\\x"), min_size=2, max_size=5, unique=True))
def test_what_is_printed_is_read_again(names):
    ends = Ends(tuple(names[1:]), (names[0],))
    assert ends_of(str(ends), names) == ends


def test_many_names_and_long_ones_are_searched_quickly():
    many = [f"value_{k}" for k in range(50_000)]
    assert closest("VALUE_4999", many)[0].startswith("value_4999")
    assert "close to it" not in str(no_value("x" * 10_000, [*many, "y" * 10_000]))


def test_names_that_are_not_like_it_are_not_suggested():
    assert str(no_value("foo", ["y", "x", "w"])) == "the model has no value foo"
    assert closest("layer", ["/encoder/layer.3/attention/MatMul_output_0", "y"])[0].startswith("/encoder/layer.3")
    assert closest("y", ["/layer/y_of_the_whole"]) == []
