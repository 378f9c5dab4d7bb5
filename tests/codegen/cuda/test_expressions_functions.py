"""Scalar functions in CUDA C++: one instruction on a GPU that has it, the function of language `c` elsewhere."""

from __future__ import annotations

import pytest

from noyau.codegen.cuda.expressions import PTX, functions_of


@pytest.mark.parametrize("name", PTX)
def test_both_ways_stand_in_the_text(name):
    text = functions_of({name})
    function = text[text.index(f" {name}(") :]
    own, other = function[: function.index("\n}")].split("#else")
    assert "asm(" in own
    assert "NOYAU_WATCHED" in own
    assert "return" in other


def test_others_are_those_of_c_without_attributes_of_its_compilers():
    text = functions_of({"noyau_share_f32"})
    assert "asm(" not in text
    assert "__attribute__" not in text
