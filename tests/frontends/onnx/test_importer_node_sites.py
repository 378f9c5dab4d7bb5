"""The operators of a model as the partition sees them."""

from __future__ import annotations

from noyau.frontends.onnx import partition_model
from noyau.ir.dims import Dim
from noyau.ir.sizes import Demand
from tests.frontends.onnx.models import imported, model
from tests.small_models import with_branches, with_loop


def model_of(source, opset=18):
    proto = model(source, opset) if isinstance(source, str) else source
    return partition_model(proto, imported(proto))


def test_each_node_is_a_place_with_what_it_reads_and_makes():
    found = model_of("(float[n] x) => (float[n] y) { a = Exp(x) y = Mul(a, x) }")
    assert [(place.position, place.operator, place.inputs, place.outputs) for place in found.places] == [
        (0, "Exp", ("x",), ("a",)),
        (1, "Mul", ("a", "x"), ("y",)),
    ]
    assert found.made_at == {"a": 0, "y": 1}
    assert found.graph.outputs == ("y",)


def test_outputs_that_nobody_wants_have_no_name():
    found = model_of("(float[n, 4] x) => (float[n, 2] y) <int64[1] k = {2}> { y, = TopK(x, k) }")
    assert found.places[0].outputs == ("y",)
    assert found.opaque.keys() == {0}


def test_what_a_branch_takes_from_outside_is_read():
    found = model_of(with_branches())
    place = next(place for place in found.places if place.operator == "If")
    assert {"c", "x"} <= set(place.inputs)
    assert found.opaque[place.position] == "If is control flow"


def test_what_a_loop_takes_from_outside_is_read():
    found = model_of(with_loop())
    place = next(place for place in found.places if place.operator == "Loop")
    assert {"w", "x", "trips"} <= set(place.inputs)
    assert not {"state", "q", "go", "next"} & set(place.inputs)


def test_shape_arithmetic_is_told_apart():
    found = model_of(
        "(float[n, 4] x) => (float y) <int64[1] k = {-1}> "
        "{ s = Shape<end = 1>(x) t = Concat<axis = 0>(s, k) e = Exp(x) y = Reshape(e, t) }"
    )
    assert found.arithmetic == {0, 1}


def test_what_must_hold_stands_by_its_operator():
    found = model_of("(float[a] x, float[b] v, float[c] w) => (float y) { s = Add(x, v) t = Exp(s) y = Mul(t, w) }")
    a, b, c = map(Dim.of, "abc")
    assert found.demands.keys() == {0, 2}
    assert list(found.demands[0]) == [Demand(a, b, "broadcast")]
    assert {demand.relation for demand in found.demands[2]} == {"broadcast"}
    assert all(c in (demand.left, demand.right) for demand in found.demands[2])


def test_what_is_computed_once_stays_with_the_model():
    found = model_of(
        "(float[n, 2] x) => (float[n, 2] y) <float[2] w = {1.0, 2.0}> { a = Exp(w) b = Add(x, a) y = Tanh(b) }"
    )
    assert found.opaque.keys() == {0}
    assert found.opaque[0].startswith("onnxruntime computes it once")
