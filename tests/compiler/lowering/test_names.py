from __future__ import annotations

import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.compiler.lowering.names import Names, identifier


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("x", "x"),
        ("/model/layers.0/Add_output_0", "model_layers_0_Add_output_0"),
        ("double", "v_double"),
        ("for", "v_for"),
        ("lambda", "v_lambda"),
        ("i", "v_i"),
        ("noyau_call", "v_noyau_call"),
        ("2x", "v_2x"),
        ("", "v"),
        ("*/", "v"),
        ('a"; system("rm -rf ~"); //', "a_system_rm_rf"),
        ("\u00e9tat", "tat"),
        ("a\nb", "a_b"),
        ("__hidden__", "hidden"),
        ("x" * 60, "x" * 40),
        ("/model/layers.11/self_attn/rotary_emb/Unsqueeze_output_0", "self_attn_rotary_emb_Unsqueeze_output_0"),
    ],
)
def test_identifiers(name, made):
    assert identifier(name) == made


@given(st.text(max_size=80))
def test_any_name_becomes_a_word_of_c_and_of_python(name):
    made = identifier(name)
    assert made.isidentifier()
    assert made.isascii()
    assert not keyword.iskeyword(made)
    assert len(made) <= 42
    assert not made.startswith("_")
    assert not made.endswith("_")
    assert identifier(name) == made


@given(st.lists(st.text("ab_/.", max_size=5), max_size=30))
def test_no_two_names_share_an_identifier(texts):
    names = Names()
    made = [names.fresh(text) for text in texts]
    assert len(set(made)) == len(made)


def test_a_name_keeps_its_identifier():
    names = Names()
    assert names.of("a/b") == names.of("a/b") == "a_b"
    assert names.of("a.b") == "a_b_2"
    assert names.fresh("a_b_2") == "a_b_2_2"
