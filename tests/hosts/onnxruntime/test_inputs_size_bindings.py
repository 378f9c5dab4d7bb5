"""At which sizes a model is timed."""

from __future__ import annotations

import pytest

from noyau.errors import InputError
from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime.inputs import (
    MOST_ASKED,
    MOST_INPUT_BYTES,
    MOST_OPEN,
    bindings,
    first_of,
    images,
    leading,
    model_names,
    spell,
)
from tests.small_models import NODE, model_of, value


def model(**shapes: tuple[int | str, ...]):
    nodes = [NODE("Tanh", [name], [f"{name}_out"]) for name in shapes]
    outputs = [value(f"{name}_out", shape) for name, shape in shapes.items()]
    return import_model(model_of(nodes, [value(name, shape) for name, shape in shapes.items()], outputs))


TOKENS = model(ids=("batch", "sequence"), mask=("batch", "sequence"))


def test_each_open_size_is_small_usual_and_large_in_turn():
    found = [tuple(sizes.values()) for sizes in bindings(TOKENS, {})]
    assert found == [(1, 128), (1, 1), (1, 1024), (128, 1)]


@pytest.mark.parametrize(
    ("shape", "found"),
    [(("rows", 6), [1, 128, 1024]), (("n",), [128, 1, 1024]), ((4, "n"), [128, 1, 1024]), ((3, 4), [])],
)
def test_a_lone_size_and_none(shape, found):
    made = bindings(model(x=shape), {})
    assert [next(iter(sizes.values())) for sizes in made if sizes] == found
    assert len(made) == max(len(found), 1)


IMAGES = model(x=("n", 3, 224, 224))
OPEN_IMAGES = model(x=("n", 3, "h", "w"))
CACHED = model(ids=("batch", "s"), past=("batch", "heads", "past", 16))


def test_a_batch_of_images_is_small():
    assert bindings(IMAGES, {}) == [{"n": 1}, {"n": 4}, {"n": 16}]
    assert bindings(OPEN_IMAGES, {}) == [
        {"n": 1, "h": 128, "w": 128},
        {"n": 1, "h": 32, "w": 32},
        {"n": 1, "h": 256, "w": 256},
        {"n": 4, "h": 32, "w": 32},
        {"n": 16, "h": 32, "w": 32},
    ]
    assert images(OPEN_IMAGES) == ({"n"}, {"h", "w"})


def test_edges_may_have_one_name():
    assert bindings(model(x=("n", 3, "?", "?")), {})[:3] == [{"n": 1, "size": e} for e in (128, 32, 256)]


def test_a_cache_of_a_sequence_is_no_image():
    assert images(CACHED)[0] == set()
    assert {sizes["batch"] for sizes in bindings(CACHED, {})} == {1, 128}


def test_inputs_that_nobody_asks_for_are_bounded_by_their_bytes():
    large = model(x=("rows", 40_000))
    assert bindings(large, {}) == [{"rows": 1}, {"rows": 64}]
    assert bindings(large, {"rows": 1000}) == [{"rows": 1000}]
    assert all(4 * sizes["rows"] * 40_000 <= MOST_INPUT_BYTES for sizes in bindings(large, {}))


def test_many_sizes_are_too_many():
    assert len(bindings(model(**{name: (3, name) for name in "abcdefgh"}), {})) == MOST_OPEN


def test_sizes_asked_for_are_all_there_is_each_with_each():
    found = bindings(TOKENS, {"sequence": (1, 128), "batch": (2, 3)})
    assert [(sizes["batch"], sizes["sequence"]) for sizes in found] == [(2, 1), (3, 1), (2, 128), (3, 128)]
    assert bindings(TOKENS, {"sequence": 5}) == [{"batch": 1, "sequence": 5}]
    assert bindings(TOKENS, {"sequence": (5, 5)}) == [{"batch": 1, "sequence": 5}]
    assert first_of({"sequence": (7, 8), "batch": 3}) == {"sequence": 7, "batch": 3}


def test_sizes_that_cannot_be_asked_for():
    with pytest.raises(InputError, match="a size is given without a number"):
        bindings(TOKENS, {"sequence": ()})
    with pytest.raises(InputError, match=f"18 bindings of sizes are asked for, and {MOST_ASKED} are the most"):
        bindings(TOKENS, {"sequence": range(1, 10), "batch": (1, 2)})
    with pytest.raises(InputError, match="no size c; its sizes are: batch, sequence"):
        bindings(TOKENS, {"c": 1})
    with pytest.raises(InputError, match="cannot be -1"):
        bindings(TOKENS, {"batch": (1, -1)})


def test_sizes_go_by_the_names_of_the_model():
    strange = model(x=("my batch", "a*b"))
    (found,) = bindings(strange, {"my batch": 3, "a*b": 4})
    assert model_names(strange, found) == {"my batch": 3, "a*b": 4}
    assert spell({"my batch": 3, "a\x1bb": 4}) == "my batch=3, 'a\\x1bb'=4"


def test_the_leading_sizes():
    assert leading(model(x=("b", "n"), y=("n",), z=("k", "n", 3))) == {"b", "k"}
