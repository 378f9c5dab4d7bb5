"""NumbaNames of a Python text: none is a word, or of two types."""

from __future__ import annotations

import keyword
from dataclasses import replace

import pytest

from noyau.codegen.numba import printer as numba_printer
from noyau.codegen.numba.spellings import RESERVED, NumbaNames
from tests.codegen.kernels import GOLDEN, MORE
from tests.codegen.numba_kernels import kernel_of
from tests.codegen.words import numbered, own_words
from tests.nests import COPY, kernel
from tests.nodes import F32


def test_a_name_is_free_again_for_variables_of_its_type():
    names = NumbaNames(kernel(COPY))
    with names.block(), names.of("f32"):
        assert names.bind("a", "v") == "v"
    with names.block(), names.of("f64"):
        assert names.bind("b", "v") == "v_2"
    with names.block(), names.of("f32"):
        assert names.bind("c", "v") == "v"
        assert names.bind("d", "v") == "v_3"


def test_what_is_forgotten_may_be_of_any_type():
    names = NumbaNames(kernel(COPY))
    with names.block(), names.of("f32"):
        names.bind("a", "v")
    names.forget()
    with names.block(), names.of("f64"):
        assert names.bind("b", "v") == "v"


@pytest.mark.parametrize("word", [*sorted(RESERVED), *keyword.kwlist])
def test_no_word_of_the_text_is_a_variable(word):
    names = NumbaNames(kernel(COPY))
    assert names.bind(word, word) not in {*RESERVED, *keyword.kwlist}


def test_no_variable_has_the_name_of_a_function_of_the_kernel():
    made = kernel(COPY, inputs=(("k", F32, ["k_0"]),), outputs=(("y", F32, ["k_0"]),))
    names = NumbaNames(made)
    assert [names.value("k"), names.atom("k_0")] == ["v_k", "v_k_0"]


def test_no_variable_has_the_name_of_anything_else_in_a_text(monkeypatch):
    """Whatever the functions of a kernel name that is not a variable of it, is a name that no variable gets."""
    monkeypatch.setattr(NumbaNames, "fresh", numbered)
    texts = [numba_printer.together([replace(kernel_of(name), name="made")]) for name in (*GOLDEN, *MORE)]
    monkeypatch.undo()
    names = NumbaNames(replace(kernel(COPY), name="made"))
    words = own_words(texts)
    assert {"np", "status", "begin"} <= words
    assert {word for word in words if names.bind(word, word) == word} == set()
