from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime.inputs import CELLS, inputs_at, largest_bytes, model_inputs, small_sizes
from noyau.ir.dims import Dim
from noyau.ir.graph import Graph, Input, Map, Node
from tests.small_models import BARE, FLOAT, INT64, KINDS, NODE, model_of, overridable, value


def imported(shapes: dict[str, tuple[int | str, ...]]):
    nodes = [NODE("Tanh", [name], [f"{name}_out"]) for name in shapes]
    outputs = [value(f"{name}_out", shape) for name, shape in shapes.items()]
    return import_model(model_of(nodes, [value(name, shape) for name, shape in shapes.items()], outputs))


def graph(*shape: int | str) -> Graph:
    """sin(x) of this shape."""
    dims = tuple(map(Dim.of, shape))
    return Graph((Node("x", Input(), (), DType.F32, dims), Node("y", Map("sin"), ("x",), DType.F32, dims)), ("y",))


def sizes(feeds) -> tuple[dict[str, int], dict[str, int]]:
    return dict(feeds.small.sizes), dict(feeds.full.sizes)


def test_a_leading_size_is_1_and_others_are_128():
    model = imported({"x": ("batch", "length", 6), "mask": ("batch", "all"), "bias": ("length",)})
    found = sizes(model_inputs(model, [graph(1)], {}, None, 0))
    assert found[1] == {"batch": 1, "length": 128, "all": 128}
    assert found[0] == {"batch": 1, "length": 64, "all": 64}


def test_sizes_go_by_the_names_of_the_model():
    model = imported({"x": ("my batch", "a*b")})
    feeds = model_inputs(model, [graph(1)], {"my batch": 3, "a*b": 5}, None, 0)
    assert feeds.full.arrays["x"].shape == feeds.small.arrays["x"].shape == (3, 5)
    with pytest.raises(InputError, match=r"no size c; its sizes are: a\*b, my batch"):
        model_inputs(model, [graph(1)], {"c": 3}, None, 0)
    with pytest.raises(InputError, match="cannot be -1"):
        model_inputs(model, [graph(1)], {"a*b": -1}, None, 0)


def test_small_sizes_are_smaller_where_a_kernel_has_large_values():
    asked = {"n": 1024, "m": 3}
    assert small_sizes(asked, []) == {"n": 64, "m": 3}
    assert small_sizes(asked, [graph("n", "n", "m")]) == {"n": 64, "m": 3}
    assert small_sizes(asked, [graph("n", CELLS // 10)]) == {"n": 8, "m": 3}
    assert small_sizes(asked, [graph("n", 2 * CELLS)]) == {"n": 1, "m": 1}
    assert small_sizes(asked, [graph("n", 2 * CELLS, "not known")]) == {"n": 64, "m": 3}
    assert small_sizes(asked, [graph(2 * CELLS)]) == {"n": 64, "m": 3}  # smaller sizes do not make weights smaller


def test_made_up_inputs_are_the_same_each_time():
    model = imported({"x": ("n",)})
    one, other = (model_inputs(model, [graph(1)], {}, None, 7) for _ in "ab")
    assert one.made_up
    assert one.full.arrays["x"].tobytes() == other.full.arrays["x"].tobytes()
    assert model_inputs(model, [graph(1)], {}, None, 8).full.arrays["x"].tobytes() != one.full.arrays["x"].tobytes()


def test_a_file_gives_the_arrays_of_both(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(300, np.float32))
    feeds = model_inputs(imported({"x": ("n",)}), [graph(1)], {}, str(tmp_path / "a.npz"), 0)
    assert feeds.small is feeds.full
    assert (feeds.made_up, dict(feeds.full.sizes), feeds.full.arrays["x"].shape) == (False, {"n": 300}, (300,))
    with pytest.raises(InputError, match="leave out --dim n=N, or the arrays"):
        model_inputs(imported({"x": ("n",)}), [], {"n": 3}, tmp_path / "a.npz", 0)


def test_initializers_keep_their_values():
    feeds = model_inputs(import_model(overridable()), [graph(1)], {}, None, 0)
    assert list(feeds.full.arrays) == ["x"]


def test_without_kernels_nothing_is_made():
    for model in BARE.values():
        feeds = model_inputs(import_model(model), [], {}, None, 0)
        assert (dict(feeds.full.arrays), feeds.full.notes, feeds.missing) == ({}, (), ())


def test_what_cannot_be_made_up_is_missing():
    feeds = model_inputs(import_model(KINDS["strings"]), [graph(1)], {}, None, 0)
    assert (list(feeds.full.arrays), feeds.missing) == (["x"], ("s",))


def test_integers_and_floats():
    nodes = [NODE("Gather", ["table", "ids"], ["y"])]
    model = model_of(nodes, [value("table", (7, 2)), value("ids", ("n",), INT64)], [value("y", ("n", 2), FLOAT)])
    arrays = model_inputs(import_model(model), [graph(1)], {}, None, 0).full.arrays
    assert 0 <= arrays["ids"].min() <= arrays["ids"].max() < 7


def test_inputs_are_made_up_for_sizes():
    tokens = imported({"ids": ("batch", "sequence"), "mask": ("batch", "sequence")})
    assert inputs_at(tokens, {"batch": 2, "sequence": 3}, ["mask"], 0).arrays["ids"].shape == (2, 3)


def test_the_largest_value_is_told_before_anything_runs():
    made = imported({"x": ("n", "n", 4)})
    assert largest_bytes(made.graph, {"n": 1000}) == 16_000_000
    assert largest_bytes(made.graph, {}) == 0
