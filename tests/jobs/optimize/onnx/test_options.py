"""Tests of the typed keyword arguments: they are the fields of the options, with their types."""

from dataclasses import fields
from typing import get_type_hints

import pytest

import noyau
from noyau.errors import InputError
from noyau.jobs.optimize.onnx.options import ModelKeywords, OptimizeOptions
from noyau.jobs.optimize.torch.options import CompileKeywords, CompileOptions


@pytest.mark.parametrize(
    ("keywords", "options"),
    [(ModelKeywords, OptimizeOptions), (CompileKeywords, CompileOptions)],
)
def test_keywords_are_the_fields_of_options(keywords, options):
    types, own = get_type_hints(options), ("inputs", "device")  # those that noyau.optimize itself names
    assert get_type_hints(keywords) == {each.name: types[each.name] for each in fields(options) if each.name not in own}


def test_an_unknown_runtime_is_named(tmp_path):
    with pytest.raises(InputError, match=r"^runtime='tensorrt' is none of torch, onnxruntime$"):
        noyau.optimize(tmp_path / "model.onnx", device="cuda", runtime="tensorrt")


def test_an_unknown_keyword_names_itself(tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'thread'"):
        noyau.optimize(tmp_path / "model.onnx", thread=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tops'"):
        noyau.profile(tmp_path / "model.onnx", tops=2)
    with pytest.raises(InputError, match="noyau has no option keeps; its options are: rest, against"):
        noyau.optimize(lambda x: x, (), keeps="all")
