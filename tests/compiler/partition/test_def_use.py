"""What a set of a model's operators computes: its inputs and outputs, the indices it makes anew, what is measured."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.partition.def_use import DefUse
from noyau.compiler.partition.traffic import is_scalar
from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.onnx import partition_model
from noyau.ir.graph import Constant, Graph, Iota, constant
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.passes.fusing import Fusing
from tests.nodes import F32, at, given, graph, value, view


def wires(text: str) -> DefUse:
    made = Fusing(text)
    return DefUse(partition_model(made.model, made.imported))


def extracted(text: str, *positions: int) -> Graph:
    return check(wires(text).extract(frozenset(positions)))


def inputs(found: Graph) -> list[str]:
    return [node.output for node in found.inputs]


CHAIN = "(float[n] x) => (float[n] y) { a = Exp(x) b = Tanh(a) y = Mul(b, a) }"


@pytest.mark.parametrize(
    ("positions", "read", "written"),
    [((0,), ["x"], ("a",)), ((1,), ["a"], ("b",)), ((0, 1), ["x"], ("a", "b")), ((1, 2), ["a"], ("y",))],
)
def test_the_ends_of_a_set(positions, read, written):
    found = extracted(CHAIN, *positions)
    assert (inputs(found), found.outputs) == (read, written)


def test_the_whole_is_one_set():
    found = extracted(CHAIN, 0, 1, 2)
    assert (inputs(found), found.outputs) == (["x"], ("y",))
    assert np.array_equal(evaluate(found, {"x": np.zeros(2, np.float32)})["y"], np.tanh(np.ones(2, np.float32)))


def test_who_makes_what_an_operator_reads_and_who_reads_what_it_makes():
    made = wires(CHAIN)
    assert made.producers(2) == [1, 0]
    assert made.producers(0) == []
    assert sorted(made.consumers(0)) == [1, 2]
    assert list(made.consumers(2)) == []


def test_numbers_of_the_model_stay_numbers_and_arrays_are_inputs():
    found = extracted(
        "(float[n, 2] x) => (float[n, 2] y) <float e = {0.1}, float[1] f = {0.2}, float[2] w = {1.0, 2.0}> "
        "{ a = Mul(x, w) b = Add(a, e) y = Sub(b, f) }",
        0,
        1,
        2,
    )
    assert sorted(inputs(found)) == ["w", "x"]
    assert isinstance(found["e"].kind, Constant)
    assert isinstance(found["f"].kind, Constant)


RANGE = """(float[n] x, float[m] v) => (float[n] y) <int64 o = {0}, int64 i = {1}, int64[1] k = {0}>
{ l = Shape(%s) c = Squeeze(l, k) r = Range(o, c, i) f = Cast<to = 1>(r) y = Add(x, f) }"""


def test_a_range_as_long_as_an_input_is_made_anew():
    found = extracted(RANGE % "x", 3, 4)
    assert inputs(found) == ["x"]
    assert any(isinstance(node.kind, Iota) for node in found.nodes)


def test_one_whose_length_no_input_tells_is_read():
    assert "r" in inputs(extracted(RANGE % "v", 3, 4))


@pytest.mark.parametrize(("measured", "read"), [("x", ["x"]), ("v", ["b", "x"])])
def test_a_number_that_fills_an_array_is_made_anew_as_a_range_is(measured, read):
    """An array of one number went from one kernel to the next one."""
    text = """(float[n] x, float[m] v) => (float[n] y) <float e = {0.25}>
    { l = Shape(%s) b = Expand(e, l) y = Mul(x, b) }"""
    assert sorted(inputs(extracted(text % measured, 2))) == read


def test_ranges_and_shape_arithmetic_are_on_no_path():
    assert wires(RANGE % "x").free >= {0, 1, 2}


def test_a_value_of_which_the_shape_alone_is_read_has_a_stand_in():
    text = "(float[n, 4] x) => (float[n, 4] y, int64[1] k) { a = Exp(x) k = Shape<end = 1>(a) y = Tanh(a) }"
    outputs, stand_ins = wires(text).ends(frozenset({0, 2}))
    assert (outputs, stand_ins) == (("y",), {"a": "y"})


def test_one_of_another_shape_has_none_and_is_written():
    text = """(float[n, 4] x) => (float[n] y, int64[1] k) <int64[1] i = {1}>
    { a = Exp(x) k = Shape<end = 1>(a) y = ReduceSum<keepdims = 0>(a, i) }"""
    outputs, stand_ins = wires(text).ends(frozenset({0, 2}))
    assert (outputs, stand_ins) == (("y", "a"), {})


def test_what_is_measured_for_the_set_alone_goes_with_it():
    text = """(float[n, 4] x) => (float[m] y) <int64[1] k = {-1}>
    { a = Exp(x) s = Shape<end = 1>(a) t = Concat<axis = 0>(s, k) b = Reshape(a, t) y = Tanh(b) }"""
    made = wires(text)
    assert made.ends(frozenset({0, 3, 4})) == (("y",), {})
    assert not made.is_measured("a", frozenset({0, 3, 4}))
    assert made.is_measured("a", frozenset({0}))


def test_what_nothing_uses_is_no_kernel():
    made = wires("(float[n] x) => (float[n] y) { dead = Exp(x) y = Tanh(x) }")
    with pytest.raises(UnsupportedError, match=r"^nothing uses what it makes$"):
        made.extract(frozenset({0}))


def test_dead_code_in_a_set_is_left_out_with_what_it_alone_reads():
    found = extracted("(float[n] x, float[m] v) => (float[n] y) { y = Tanh(x) dead = Exp(v) }", 0, 1)
    assert (inputs(found), len(found.nodes)) == (["x"], 2)


def test_needed_drops_inputs_too_and_unused_ones_stay_for_no_one():
    made = graph("y", given("x", F32, "n"), given("u", F32, "m"), value("y", view(at(0)), "x", F32, "n"))
    assert [node.output for node in drop_unused(made, inputs_too=True).nodes] == ["x", "y"]


def test_what_must_hold_goes_along_with_the_operator_that_needs_it():
    text = "(float[a] x, float[b] v) => (float[c] y) { s = Add(x, v) y = Tanh(s) }"
    assert [str(demand) for demand in extracted(text, 0).demands] == ["a = b, or one of them 1"]
    assert extracted(text, 1).demands == ()


def test_what_others_have_seen_to_makes_sizes_one():
    """Concat has compared a and b; then a kernel that reads what it made, and x, need not."""
    text = "(float[a, n] x, float[b, m] v) => (float y) { s = Concat<axis = 0>(x, v) t = Tanh(s) y = Exp(t) }"
    found = extracted(text, 1, 2)
    assert found.demands == ()
    assert [str(dim) for dim in found["s"].shape] == ["a + b", "m"]


def test_what_must_hold_of_a_size_that_no_input_tells_is_a_reason():
    made = wires("(float[a] x, float[b] v) => (float y) { k = Shape(v) t = Tanh(x) y = Expand(t, k) }")
    with pytest.raises(
        UnsupportedError, match=r"^whether a = b, or one of them 1 does not follow from the shapes of the inputs$"
    ):
        made.extract(frozenset({1, 2}))


def test_results_of_a_boundary_with_several_are_inputs():
    text = """(float[n, 8] x) => (float[n, 3] y) <int64[1] k = {3}>
    { v, i = TopK(x, k) f = Cast<to = 1>(i) y = Mul(v, f) }"""
    found = extracted(text, 1, 2)
    assert inputs(found) == ["i", "v"]
    assert [node.dtype for node in found.inputs] == [DType.I64, DType.F32]


def test_a_scalar_is_a_constant_of_one_cell():
    assert is_scalar(constant("c", np.float32([[2]])))
    assert not is_scalar(constant("c", np.float32([1, 2])))
    assert not is_scalar(given("x", F32, 1))
