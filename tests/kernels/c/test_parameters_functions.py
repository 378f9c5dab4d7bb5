from __future__ import annotations

from pathlib import Path

import pytest

from noyau.errors import InputError, SignatureError
from noyau.kernels.c.parameters import TextFunction, is_named, text_function


def test_names_of_functions():
    assert is_named("a/b.cu::add<float>")
    assert not any(map(is_named, ["a.py::f", "a.c", 3]))
    with pytest.raises(
        InputError, match=r"^none\.c cannot be read: No such file or directory; give FILE\.c::FUNCTION$"
    ):
        text_function("none.c::f")


def test_what_a_function_takes():
    text = "// k\ntemplate <class T>\n__global__ void k(const T *x, int n) { x[0]; }\n"
    made = TextFunction(Path("a.cu"), "k<float>", text)
    assert (made.name, made.language, made.line) == ("k", "cuda", 3)
    assert [each.name for each in made.prototype().parameters] == ["x", "n"]
    with pytest.raises(SignatureError, match=r"a\.cu defines no function f; those it defines: k"):
        TextFunction(Path("a.cu"), "f", text).prototype()
