"""Shapes of values that live within a kernel: who reads them instead, and what stays beside a kernel for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from noyau.codegen import plan as codegen_plan
from noyau.errors import GraphError
from noyau.hosts.onnxruntime.function_bodies import FusedNode
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.hosts.onnxruntime.write_back import installable, library, put_back, refusals, write_back
from noyau.toolchain.c import compiler as c_compiler
from tests.small_models import NODE, model_of, value, written

R = np.random.default_rng(0)
TENSORS = {"W": R.standard_normal((100, 8)), "P": R.standard_normal((64, 8))}
# Positions counted from the shape of an embedding that the kernel does not give away, and read by others too: by
# arithmetic that a body can repeat, and by some that it cannot.
REPEATED = "n = Gather (sh, one)"
FOREIGN = "b1, n1 = Split (sh, ones)  n = Squeeze (n1)"
HEADER = '<ir_version: 8, opset_import: ["" : 17]> g (int64[b, s] ids) => (float[b, s, 8] y, int64[s] q) '


def positions(counting: str) -> onnx.ModelProto:
    model = parser.parse_model(
        f"""{HEADER} {{
        zero = Constant <value_int = 0> ()  one = Constant <value_int = 1> ()  ones = Constant <value_ints = [1, 1]> ()
        first = Constant <value_ints = [0]> ()  third = Constant <value_ints = [2]> ()
        e = Gather (W, ids)  s3 = Shape (e)  sh = Slice (s3, first, third)  {counting}
        r = Range (zero, n, one)  p = Gather (P, r)  y = Add (e, p)
        sh2 = Shape (e)  n2 = Gather (sh2, one)  q = Range (zero, n2, one) }}"""
    )
    for name, array in TENSORS.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


@pytest.mark.parametrize(("counting", "beside"), [(REPEATED, 0), (FOREIGN, 1)])
def test_a_shape_that_the_kernel_itself_needs_is_not_asked_of_its_result(counting, beside, tmp_path):
    original = open_model(written(positions(counting), tmp_path))
    plan = codegen_plan.plan(original.cut().groups, original.operators, c_compiler.level())
    assert any(group.stand_ins for kernel in plan.kernels for group in kernel.groups)
    assert installable(plan, original.model, original.folder) == plan
    fused = put_back(original.model, plan.kernels, original.folder)
    onnx.checker.check_model(fused, full_check=True)
    left = [node.op_type for node in fused.graph.node]
    assert left.count("Gather") == 1 + beside  # the other one counts
    assert left.count("Shape") == 1 + beside
    feeds = {"ids": R.integers(0, 100, (2, 5))}
    wanted = onnxruntime.InferenceSession(original.model.SerializeToString()).run(None, feeds)
    built, options = library(plan.kernels, c_compiler.DEFAULTS, fused), onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(built))
    for session_options in (options, None):
        found = onnxruntime.InferenceSession(fused.SerializeToString(), session_options).run(None, feeds)
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(one, other)


def crossed() -> onnx.ModelProto:
    """Two parts, of which each needs the other: one of them has to stay out."""
    nodes = [
        NODE("Exp", ["x"], ["a"]),
        NODE("Tanh", ["x"], ["b"]),
        NODE("Neg", ["a"], ["c"]),
        NODE("Abs", ["b"], ["d"]),
    ]
    nodes += [NODE("Mul", ["c", "d"], ["y"]), NODE("Sin", ["x"], ["s"]), NODE("Cos", ["s"], ["z"])]
    return model_of(nodes, [value("x", ("n", 6))], [value("y", ("n", 6)), value("z", ("n", 6))])


PARTS = [
    FusedNode("first_1f", (0, 3, 5), ("x", "b"), ("a", "d", "s")),  # makes a, reads b
    FusedNode("other_1f", (1, 2), ("x", "a"), ("b", "c")),  # makes b, reads a
    FusedNode("third_1f", (6,), ("s",), ("z",)),
]


def test_of_two_parts_that_need_each_other_the_smaller_stays_out_and_is_named():
    assert refusals(crossed(), PARTS) == {1: "a path leaves it and comes back to it"}
    with pytest.raises(GraphError, match="'other_1f' cannot be put back into the model: a path leaves it and comes"):
        write_back(crossed(), PARTS)


def test_one_that_comes_back_to_itself_is_no_bystander():
    """The part that is named is on the cycle: not the first one behind it, nor one that is larger."""
    nodes = [NODE("Exp", ["x"], ["a"]), NODE("Neg", ["a"], ["b"]), NODE("Add", ["a", "b"], ["y"])]
    nodes += [NODE("Sin", ["y"], ["s"]), NODE("Cos", ["s"], ["z"])]
    model = model_of(nodes, [value("x", ("n", 6))], [value("z", ("n", 6))])
    behind = FusedNode("after_1f", (3, 4), ("y",), ("z",))
    guilty = FusedNode("guilty_1f", (0, 2), ("x", "b"), ("a", "y"))
    assert refusals(model, [behind, guilty]) == {1: "a path leaves it and comes back to it"}
    assert [node.op_type for node in write_back(model, [behind]).graph.node] == ["Exp", "Neg", "Add", "after_1f"]


def test_a_shape_within_and_without_is_that_of_an_input():
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (int64[b, s] ids, float[1] v) => (float[b, s] y, float[b, s] z) {
        c = Cast <to = 1> (ids)  sh = Shape (c)  w = Expand (v, sh)  y = Add (c, w)  z = ConstantOfShape (sh) }"""
    )
    fused = write_back(model, [FusedNode("sum", (0, 2, 3), ("ids", "v"), ("y",))])
    onnx.checker.check_model(fused, full_check=True)
    assert [node.op_type for node in fused.graph.node if node.op_type != "sum"] == ["Shape", "ConstantOfShape"]
    (outer,), (inner,) = ([n for n in each.node if n.op_type == "Shape"] for each in (fused.graph, fused.functions[0]))
    assert (outer.input[0], inner.input[0]) == ("ids", fused.functions[0].input[0])
    feeds = {"ids": R.integers(0, 100, (2, 5)), "v": np.ones(1, np.float32)}
    found = onnxruntime.InferenceSession(fused.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(found, [feeds["ids"] + 1, np.zeros((2, 5))])


def test_what_asks_for_the_dtype_reads_what_has_it():
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (int64[2, 2] ids, float[1] v) => (float[2, 2] y, float[2, 2] z) {
        c = Cast <to = 1> (ids)  e = Exp (c)  y = Mul (e, v)  z = EyeLike (c) }"""
    )
    fused = write_back(model, [FusedNode("product", (0, 1, 2), ("ids", "v"), ("y",), stand_ins={"c": "y"})])
    assert [list(node.input) for node in fused.graph.node if node.op_type == "EyeLike"] == [["y"]]
    feeds = {"ids": np.eye(2, dtype=np.int64), "v": np.ones(1, np.float32)}
    found = onnxruntime.InferenceSession(fused.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(found, [np.exp(np.eye(2)), np.eye(2)], rtol=1e-6)
