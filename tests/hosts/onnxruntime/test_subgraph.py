"""What lies between two ends, and which value leaks where they enclose no graph."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from noyau.errors import InputError
from noyau.hosts.onnxruntime.source_model import OUTSIDE, open_model
from noyau.hosts.onnxruntime.subgraph import cut_of, names_of, path_between
from tests.small_models import INT64, NODE, llama, model_of, twice, value, written


@pytest.fixture(scope="module")
def tiny():
    return open_model(llama("dynamo"))


def operators(original, between) -> list[str]:
    return [original.operators[position] for position in sorted(path_between(original, between).positions)]


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("embedding:mul_98", "Pow ReduceMean Add Sqrt Reciprocal Mul Mul"),
        ("linear_4,linear_5:mul_269", "Sigmoid Mul Mul"),
        ("embedding,linear_3:add_306,mul_256", "Add Pow ReduceMean Add Sqrt Reciprocal Mul Mul"),
        ("input_ids:mul_98", "Gather Pow ReduceMean Add Sqrt Reciprocal Mul Mul"),
        # The mask compares indices, which count: they go along, and leak nothing.
        (
            "attention_mask:where",
            "Range Cast Unsqueeze Unsqueeze Unsqueeze LessOrEqual And GatherND And Where",
        ),
    ],
)
def test_the_operators_that_lie_between(tiny, between, found):
    assert operators(tiny, between) == found.split()


def test_all_of_a_model_lies_between_its_inputs_and_its_output(tiny):
    whole = path_between(tiny, "input_ids,attention_mask:logits").positions
    assert {tiny.operators[position] for position in range(len(tiny.operators)) if position not in whole} <= {
        "Shape", "Concat", "Squeeze", "Max", "Unsqueeze", "Range", "Cast", "Mul", "Cos", "Sin", "Expand"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("between", "told"),
    [
        (
            "linear_4:mul_269",
            "linear_4:mul_269 encloses no graph: mul_269 reads linear_5, which comes from the input input_ids by "
            "another way; with what leaks among its ends it is linear_4,linear_5:mul_269",
        ),
        ("input_ids:logits", "add_267 reads where, which comes from the input attention_mask by another way"),
        ("mul_98:embedding", "no path leads from mul_98 to embedding"),
        ("embedding:model.model.norm.weight", "no path leads from embedding to model.model.norm.weight"),
        ("embedding,linear_4:mul_98", "linear_4 leads to mul_98 through other ends alone, if at all: leave it out"),
        ("input_ids,embedding:mul_98", "input_ids leads to mul_98 through other ends alone, if at all: leave it out"),
        ("embeding:mul_98", "the model has no value embeding; close to it are: embedding"),
    ],
)
def test_what_encloses_no_graph_is_refused(tiny, between, told):
    with pytest.raises(InputError) as error:
        path_between(tiny, between)
    assert told in str(error.value)


def test_the_advice_is_good(tiny):
    with pytest.raises(InputError) as error:
        path_between(tiny, "embedding:logits")
    path_between(tiny, str(error.value).rpartition(" it is ")[2])


def test_an_input_that_enters_beside_the_ends_leaks(tmp_path):
    nodes = [NODE("Add", ["a", "b"], ["s"]), NODE("Mul", ["s", "w"], ["y"])]
    weight = numpy_helper.from_array(np.ones(5, np.float32), "w")
    model = model_of(nodes, [value("a", (5,)), value("b", (5,))], [value("y", (5,))], [weight])
    original = open_model(written(model, tmp_path))
    with pytest.raises(InputError, match=r"s reads b, which is an input of the model; .* it is a,b:y"):
        path_between(original, "a:y")
    assert operators(original, "a,b:y") == ["Add", "Mul"]
    assert operators(original, "s:y") == ["Mul"]
    assert names_of(original) == {"a", "b", "s", "w", "y"}


def test_many_leaks_are_told_in_few_words(tmp_path):
    nodes = [NODE("Add", ["x" if k == 0 else f"s{k - 1}", f"b{k}"], [f"s{k}"]) for k in range(9)]
    inputs = [value("x"), *(value(f"b{k}") for k in range(9))]
    original = open_model(written(model_of(nodes, inputs, [value("s8")]), tmp_path))
    with pytest.raises(InputError, match=r"\(and 5 more leak\)"):
        path_between(original, "x:s8")


def test_arithmetic_on_shapes_does_not_leak(tmp_path):
    nodes = [
        NODE("Shape", ["other"], ["shape"]),
        NODE("Reshape", ["x", "shape"], ["r"]),
        NODE("Tanh", ["r"], ["y"]),
    ]
    model = model_of(nodes, [value("x", ("n", 4)), value("other", (2, "m"), INT64)], [value("y", (2, "m"))])
    assert operators(open_model(written(model, tmp_path)), "x:y") == ["Reshape", "Tanh"]


def test_hostile_names_are_only_names(tmp_path):
    names = ("a,b", "c:d", "\x1b[2J\n")
    nodes = [NODE("Tanh", [names[0]], [names[1]]), NODE("Add", [names[1], "o"], [names[2]])]
    original = open_model(written(model_of(nodes, [value(names[0]), value("o")], [value(names[2])]), tmp_path))
    assert operators(original, r"a\,b:c\:d") == ["Tanh"]
    with pytest.raises(InputError) as error:
        path_between(original, ([names[0]], [names[2]]))
    assert str(error.value).isprintable()


def test_a_cut_is_limited_to_a_path(tmp_path):
    original = open_model(written(twice(), tmp_path))
    cut = cut_of(original, (["b"], ["c"]))
    assert [group.outputs for group in cut.groups] == [("c",)]
    assert {each.producer for each in cut.cuts if each.reason == OUTSIDE} == {0, 1, 2, 3, 7, 8, 9}
    assert len(cut_of(original, None).groups) == 3
