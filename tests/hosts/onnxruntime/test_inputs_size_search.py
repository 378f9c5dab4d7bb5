"""Sizes that are found by trying where the usual ones do not fit, and listed where none do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime.inputs import MOST_TRIES, NUMBERS, ModelInputs, first_that_runs, model_inputs, other_sizes
from tests.small_models import NODE, chain, model_of, value

IMPORTED = import_model(model_of(chain("x", "y"), [value("x", ("my batch", "s"))], [value("y", ("my batch", "s"))]))
PAIR = import_model(
    model_of(
        [NODE("Tanh", ["x"], ["y"]), NODE("Tanh", ["u"], ["v"])],
        [value("x", (3, "a")), value("u", (3, "b"))],
        [value("y", (3, "a")), value("v", (3, "b"))],
    )
)


def made(sizes):
    return model_inputs(IMPORTED, [IMPORTED.graph], sizes, None, 0)


def only(*fitting: int):
    def run(feeds: ModelInputs) -> tuple[int, ...]:
        shape = feeds.full.arrays["x"].shape
        if shape[1] not in fitting:
            raise InputError("it does not fit")
        return shape

    return run


def test_the_usual_sizes_are_taken_where_they_run():
    feeds = made({})
    assert first_that_runs(IMPORTED, feeds, None, only(128)) == (feeds, (1, 128))


@pytest.mark.parametrize("window", [512, 48, 1536, 1])
def test_another_size_is_found(window):
    feeds, shape = first_that_runs(IMPORTED, made({}), made, only(window))
    assert shape == (1, window) == feeds.full.arrays["x"].shape


def test_where_none_does_they_are_listed_by_the_models_names():
    with pytest.raises(
        InputError,
        match=re.escape(
            "it does not fit; its open sizes are my batch, s, of which these were tried in vain: my batch=1, s=64; "
        ),
    ) as told:
        first_that_runs(IMPORTED, made({}), made, only())
    assert str(told.value).endswith(" more")


def test_a_size_that_is_asked_for_stays():
    found = list(other_sizes(IMPORTED, made({"s": 7}).full.sizes, ["s"]))
    assert {sizes["s"] for sizes in found} == {7}
    with pytest.raises(InputError, match="it does not fit"):
        first_that_runs(IMPORTED, made({"s": 7}), made, only(64), ["s"])


def test_sizes_are_tried_together_then_each_alone():
    found = [(sizes["a"], sizes["b"]) for sizes in other_sizes(PAIR, {"a": 128, "b": 128})]
    assert found[0] == (NUMBERS[0], NUMBERS[0]) and (NUMBERS[0], 128) in found and (128, NUMBERS[0]) in found
    assert len(set(found)) == len(found) and len(found) <= MOST_TRIES
    assert np.shape(found)[1] == 2


def test_a_size_may_be_the_sum_of_two_as_of_a_mask_for_a_cache_and_new_tokens():
    ends = {"mask": (1, "total"), "cache": (2, "past"), "tokens": (2, "new")}
    nodes = [NODE("Tanh", [name], [f"{name}_y"]) for name in ends]
    outputs = [value(f"{name}_y", shape) for name, shape in ends.items()]
    several = import_model(model_of(nodes, [value(*end) for end in ends.items()], outputs))
    found = next(s for s in other_sizes(several, {"total": 128, "past": 128, "new": 128}) if s["total"] == 256)
    assert found == {"total": 256, "past": 128, "new": 128}


def test_what_a_user_gave_is_not_replaced():
    inputs = made({}).full
    with pytest.raises(InputError, match=r"^it does not fit$"):
        first_that_runs(IMPORTED, ModelInputs(inputs, inputs, made_up=False), made, only(64))
