"""From a model to a graph: names, places, boundaries with their reasons, opsets, functions, initializers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.dtypes import DType
from noyau.errors import ModelError, UnsupportedError
from noyau.frontends.onnx import import_model
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Constant, Input, Opaque, Part
from noyau.ir.sizes import Demand
from tests.frontends.onnx.models import agree, imported, model, results


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_values_keep_their_names_and_know_their_place():
    found = imported("(float[n, 4] x) => (float[n, 4] y) { m = ReduceMean<keepdims = 1>(x) y = Sub(x, m) }")
    assert {"x", "m", "y"} <= found.graph.by_name.keys()
    inner = [name for name in found.graph.by_name if "~" in name]
    assert inner
    assert {name: found.places[name] for name in inner} == {name: "my".index(name[0]) for name in inner}
    assert (found.places["m"], found.places["y"]) == (0, 1)
    assert "x" not in found.places


def test_sources_are_the_operator_its_place_and_its_name():
    proto = model("(float[n] x) => (float[n] y) { a = Abs(x) y = Exp(a) }")
    proto.graph.node[1].name = "the last"
    found = imported(proto)
    assert found.graph["a"].sources == ("Abs#0",)
    assert found.graph["y"].sources == ("Exp#1", "the last")


def test_sizes_keep_what_the_model_calls_them():
    proto = model("(float[n, m] x) => (float[n, m] y) { y = Abs(x) }")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch */ size"
    found = imported(proto)
    assert found.graph["y"].shape == shape_of(["batch_size", "m"])
    assert found.sizes == {"batch_size": "batch */ size", "m": "m"}


def test_extents_without_a_name_are_fresh_sizes():
    found = imported("(float[?, ?] x) => (float[?, ?] y) { y = Abs(x) }")
    assert found.graph["y"].shape == shape_of(["d0", "d1"])
    assert found.sizes == {}


@pytest.mark.parametrize(
    "name", ["a\nb", "x*/y", "../../etc", "'; import os; '", '"', "y~0", "#0", "\x00", "\u00e9\u4e2d"]
)
def test_hostile_names_of_values(name):
    proto = model("(float[n] x) => (float[n] y) { y = Softplus(x) }")
    for value in (proto.graph.node[0].output, proto.graph.output):
        if value is proto.graph.output:
            value[0].name = name
        else:
            value[0] = name
    found = agree(proto, {"x": f32(5)}, tolerance=1e-5)
    assert found.graph.outputs == (name,)


def test_inner_names_avoid_those_of_the_model():
    proto = model("(float[n, 4] x) => (float[n, 4] y) { y = Softmax(x) }")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "y~1"
    found = agree(proto, {"y~1": f32(3, 4)})
    assert len(found.graph.by_name) == len(found.graph.nodes)


def test_an_output_that_is_an_input_or_made_once_for_two_names():
    proto = model("(float[n] x) => (float[n] x2, float[n] x3) { x2 = Identity(x) x3 = Identity(x2) }")
    agree(proto, {"x": f32(4)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[n, 4] x, float[4, 4] w) => (float[n, 4] y) { y = MatMul(x, w) }", "MatMul is a library call"),
        ("(float[n, 4] x, float[4, 4] w) => (float[n, 4] y) { y = Gemm(x, w) }", "Gemm is a library call"),
        ("(float[n] x) => (float[n] y) { y = Foo(x) }", "no meaning for operator Foo yet"),
        ("(float[n] x) => (float[n] y) { y = RandomNormalLike(x) }", "RandomNormalLike draws random numbers"),
        (
            "(float[n, 4] x, int64[k] a) => (float[n, 4] y) { y = ReduceSum(x, a) }",
            "the axes of ReduceSum are only known when the model runs",
        ),
        ("(float[3] x, float[4] z) => (float[n] y) { y = Add(x, z) }", "the extents 3 and 4 cannot be broadcast"),
        ("(float[n] x, double[n] z) => (float[n] y) { y = Add(x, z) }", "add cannot take f32, f64: cast them first"),
        ("(string[n] x) => (string[n] y) { y = Identity(x) }", "the type or the rank of x is unknown"),
        ("(float x) => (float[n] y) { y = Softmax<axis = 3>(x) }", "in the body of Softmax"),
        ("(float[n, 4] x) => (float[n, 4] y) { y = Transpose<perm = [0, 0]>(x) }", "[0, 0] does not permute the axes"),
        ("(float[n] x) => (float[n] y) { y = Cast<to = 17>(x) }", "a cast to float8e4m3fn has no meaning here"),
        ("(float[n] x) => (float[n] y) { y = Cast<to = 999>(x) }", "a cast to type 999 has no meaning here"),
        ("(float[n] x) => (float[n] y) { y = Cast(x) }", "Cast lacks its attribute to"),
        (
            "(float[n] x) => (float[n] y) { y = Abs<alpha = 1>(x) }",
            "Abs has an attribute 'alpha' that its schema has not",
        ),
        (
            "(float[n] x) => (float[n] y) { y = Elu<alpha = 1>(x) }",
            "Elu has an attribute 'alpha' that its schema has not",
        ),
        ("(float[n] x) => (float[n] y) { y = Add(x) }", "Add has 1 inputs and 1 outputs"),
    ],
)
def test_a_boundary_says_why(text, reason):
    found = imported(text)
    assert found.opaque[0].startswith(reason)
    assert isinstance(found.graph["y"].kind, Opaque)


def test_an_unknown_domain_is_a_boundary_and_what_follows_is_not():
    proto = model("(float[n, 4] x) => (float[n, 4] y) { a = com.bar.Foo(x) y = Abs(a) }", imports=', "com.bar" : 1')
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, ["n", 4]))
    found = imported(proto)
    assert found.opaque == {0: "no meaning for operator Foo of domain com.bar"}
    assert found.graph["y"].shape == shape_of(["n", 4])


def test_without_a_declared_type_all_that_follows_is_a_boundary():
    found = imported(
        model("(float[n, 4] x) => (float[n, 4] y) { a = com.bar.Foo(x) y = Abs(a) }", imports=', "com.bar" : 1')
    )
    assert found.opaque[1] == "the type or the rank of a is unknown"
    assert found.graph["a"].dtype is DType.OTHER


def test_what_follows_a_comparison_with_a_text_of_the_model_is_known():
    proto = model("(string[n, 4] x) => (bool[n, 4] y) { a = Equal(x, k) y = Not(a) }")
    proto.graph.initializer.append(onnx.helper.make_tensor("k", onnx.TensorProto.STRING, [1], [b"a"]))
    found = imported(proto)
    assert list(found.opaque) == [0]
    assert found.graph["a"].dtype is DType.BOOL
    assert found.graph["y"].shape == shape_of(["n", 4])


def test_what_comes_out_of_a_sequence_or_an_optional_is_known():
    found = imported(
        model(
            "(float[n, 4] x) => (float[n, m] y) { s = SequenceConstruct(x, x) c = ConcatFromSequence <axis = 1> (s) "
            "o = Optional(c) g = OptionalGetElement(o) y = Abs(g) }"
        )
    )
    assert list(found.opaque) == [0, 1, 2, 3]
    assert (found.graph["y"].dtype, len(found.graph["y"].shape)) == (DType.F32, 2)


def test_an_operator_that_only_the_callable_can_run():
    proto = model("(float[n] x) => (float[n] y) { y = com.bar.Foo(x) }", imports=', "com.bar" : 1')
    feeds = {"x": f32(3)}
    with pytest.raises(UnsupportedError, match="the interpreter cannot run Foo"):
        results(imported(proto), feeds)
    asked = []

    def run(one, inputs):
        asked.append([node.op_type for node in one.graph.node])
        return [inputs["x"] * 2]

    np.testing.assert_array_equal(results(imported(proto, run=run), feeds)[0], feeds["x"] * 2)
    assert asked == [["Foo"]]


def test_a_boundary_with_several_outputs_has_parts():
    found = imported(
        "(float[n, 8] x) => (float[n, 3] v, int64[n, 3] i) { k = Constant<value_ints = [3]>() v, i = TopK(x, k) }"
    )
    whole = found.graph[found.graph["v"].inputs[0]]
    assert isinstance(whole.kind, Opaque)
    assert [found.graph[name].kind for name in "vi"] == [Part(0), Part(1)]
    assert found.graph["i"].dtype is DType.I64
    x = f32(4, 8)
    values, places = results(found, {"x": x})
    np.testing.assert_array_equal(values, -np.sort(-x, 1)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)


def test_sizes_that_only_a_boundary_knows_are_bound_when_it_has_run():
    found = imported("(float[n] x) => (float[n] y) { i = NonZero(x) f = Cast<to = 1>(i) y = Exp(f) }")
    (extent,) = found.graph["y"].shape[1].names
    assert extent == "d0"
    (got,) = results(found, {"x": np.array([0, 2, 0, 3], np.float32)})
    np.testing.assert_allclose(got, np.exp([[1, 3]]), rtol=1e-6)


def test_control_flow_stays_and_takes_what_it_captures():
    proto = model(
        "(bool c, float[n] x) => (float[n] y) { a = Abs(x) y = If(c) <then_branch = t () => (float[n] p) "
        "{ p = Neg(a) }, else_branch = e () => (float[n] q) { q = Exp(x) }> }"
    )
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("y", 1, ["n"]))
    found = imported(proto)
    assert found.opaque == {1: "If is control flow"}
    assert found.graph["y"].inputs == ("c", "a", "x")
    x = f32(5)
    np.testing.assert_array_equal(results(found, {"c": np.array(True), "x": x})[0], -np.abs(x))
    np.testing.assert_allclose(results(found, {"c": np.array(False), "x": x})[0], np.exp(x), rtol=1e-6)


FUNCTION = """<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
g (float[n, 4] x) => (float[n, 4] y) { y = local.twice<scale = 3.0>(x) }
<opset_import: ["" : 18, "local" : 1], domain: "local">
scaled <scale: float = 2.0> (a) => (b) { s = Constant<value_float: float = @scale>() b = Mul(a, s) }
<opset_import: ["" : 18, "local" : 1], domain: "local">
twice <scale: float = 5.0> (a) => (d) { c = local.scaled<scale: float = @scale>(a) d = local.scaled(c) }
"""


def test_a_function_of_the_model_is_imported_through_its_body():
    found = imported(onnx.parser.parse_model(FUNCTION))
    assert not found.opaque
    assert {found.places[node.output] for node in found.graph.nodes[1:]} == {0}
    x = f32(3, 4)
    np.testing.assert_allclose(results(found, {"x": x})[0], x * 6, rtol=1e-6)


def test_a_function_with_a_boundary_within_is_one():
    found = imported(onnx.parser.parse_model(FUNCTION.replace("b = Mul(a, s)", "b = Foo(a, s)")))
    assert found.opaque == {0: "in the body of twice: in the body of scaled: no meaning for operator Foo yet"}


def test_functions_that_call_each_other_end():
    found = imported(onnx.parser.parse_model(FUNCTION.replace("b = Mul(a, s)", "b = local.twice(a)")))
    assert "nested too deep" in found.opaque[0]


def test_functions_that_grow_without_end_are_a_boundary():
    chain = "".join(
        f'<opset_import: ["" : 18, "local" : 1], domain: "local">\n'
        f"f{k} (a) => (c) {{ b = local.f{k + 1}(a) c = local.f{k + 1}(b) }}\n"
        for k in range(14)
    )
    text = f"""<ir_version: 9, opset_import: ["" : 18, "local" : 1]>
g (float[n] x) => (float[n] y) {{ y = local.f0(x) }}
{chain}<opset_import: ["" : 18], domain: "local">
f14 (a) => (b) {{ b = Neg(a) }}"""
    found = imported(onnx.parser.parse_model(text))
    assert "is too large" in found.opaque[0]


def test_a_composite_is_one_place():
    found = agree("(float[n, 4] x) => (float[n, 4] y) { a = Abs(x) y = LogSoftmax(a) }", {"x": f32(3, 4)})
    assert {place for name, place in found.places.items() if name.startswith("y")} == {1}
    assert len(found.graph.nodes) > 6


@pytest.mark.parametrize("opset", [13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25])
def test_opsets(opset):
    axes = "k = Constant<value_ints = [1]>() m = ReduceMax(x, k)" if opset >= 18 else "m = ReduceMax<axes = [1]>(x)"
    outputs = ", num_outputs = 2" if opset >= 18 else ""
    text = f"""(float[n, 4] x) => (float[n, 2] y, float[n, 4] z)
        {{ {axes} d = Sub(x, m) y, rest = Split<axis = 1{outputs}>(d) z = Softmax<axis = 0>(x) }}"""
    agree(text, {"x": f32(3, 4)}, opset=opset)


def test_an_opset_that_nobody_knows_is_all_boundaries():
    found = imported("(float[n] x) => (float[n] y) { y = Abs(x) }", opset=99)
    assert found.opaque == {0: "opset 99 is newer than what noyau knows, 28"}


def test_axes_are_an_attribute_or_an_input_as_the_opset_says():
    found = imported("(float[n, 4] x) => (float[n, 1] y) { y = ReduceMax<axes = [1]>(x) }", opset=18)
    assert found.opaque[0] == "ReduceMax has an attribute 'axes' that its schema has not"


def test_initializers_stay_and_scalars_are_constants():
    proto = model("(float[n, 100] x) => (float[n, 100] y) { a = Mul(x, w) b = Add(a, s) y = Gather<axis = 1>(b, i) }")
    weight, scalar, order = f32(100), np.array([2.5], np.float32), np.arange(8)[::-1].copy()
    for name, array in (("w", weight), ("s", scalar), ("i", order)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    found = agree(proto, {"x": f32(2, 100)})
    assert list(found.initializers) == ["w"]
    assert found.graph["w"].kind == Input()
    assert [type(found.graph[name].kind) for name in "si"] == [Constant, Constant]
    np.testing.assert_array_equal(found.load_initializer("w"), weight)
    assert not found.load_initializer("w").flags.writeable


def test_a_large_constant_stays_in_its_node():
    proto = model("(float[n, 100] x) => (float[n, 100] y) { c = Constant<value = float[1] {1}>() y = Add(x, c) }")
    proto.graph.node[0].attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(f32(100)))
    found = agree(proto, {"x": f32(2, 100)})
    assert (list(found.initializers), found.places["c"]) == (["c"], 0)


def test_an_initializer_that_may_be_overridden_is_an_input_with_a_default():
    proto = model("(float[n] x, float[1] w) => (float[n] y) { y = Mul(x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3.0], np.float32), "w"))
    found = imported(proto)
    assert found.graph["w"].kind == Input()
    x = f32(4)
    np.testing.assert_array_equal(results(found, {"x": x})[0], x * 3)
    np.testing.assert_array_equal(results(found, {"x": x, "w": np.array([2.0], np.float32)})[0], x * 2)


def test_a_sparse_initializer_is_loaded_with_its_zeros():
    proto = model("(float[n, 6] x) => (float[n, 6] y) { y = Add(x, w) }")
    values, places = np.array([5.0, 7.0], np.float32), np.array([1, 4])
    sparse = onnx.helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(values, "w"), onnx.numpy_helper.from_array(places, "i"), [6]
    )
    proto.graph.sparse_initializer.append(sparse)
    found = imported(proto)
    np.testing.assert_array_equal(found.load_initializer("w"), [0, 5, 0, 0, 7, 0])
    np.testing.assert_array_equal(results(found, {"x": np.zeros((1, 6), np.float32)})[0], [[0, 5, 0, 0, 7, 0]])


def test_shape_arithmetic_is_named_and_its_cells_are_known():
    found = imported(
        """(float[batch, seq, 12] x) => (float[batch, 3, seq, 4] y) {
        s = Shape(x) i = Constant<value_int = 0>() j = Constant<value_ints = [1]>() b = Gather(s, i)
        z = Constant<value_ints = [0]>() b1 = Unsqueeze(b, z) k = Constant<value_ints = [2]>() t = Slice(s, j, k)
        k2 = Constant<value_ints = [3, 4]>() target = Concat<axis = 0>(b1, t, k2)
        r = Reshape(x, target) y = Transpose<perm = [0, 2, 1, 3]>(r) }"""
    )
    assert found.arithmetic == frozenset(range(10))
    assert found.graph["y"].shape == shape_of(["batch", 3, "seq", 4])
    assert found.graph["r"].kind.index == (Dim.of("#0"), Dim.of("#1"), Dim.of("#2") * 4 + "#3")
    x = f32(2, 5, 12)
    np.testing.assert_array_equal(results(found, {"x": x})[0], x.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3))


def test_sizes_can_be_used_as_numbers():
    agree(
        """(float[n, m] x) => (float[n, m] y, int64[2] s, float c) { s = Shape(x) p = ReduceProd<keepdims = 0>(s)
        c = Cast<to = 1>(p) y = Div(x, c) }""",
        {"x": f32(3, 5)},
    )


def test_demands_are_noted_where_extents_are_not_certain():
    found = imported("(float[a, 4] x, float[b, 4] z) => (float[c, 4] y) { y = Add(x, z) }")
    assert found.demands == {0: (Demand(Dim.of("a"), Dim.of("b"), "broadcast"),)}
    for rows, others in ((3, 3), (3, 1), (1, 3), (1, 1)):
        x, z = f32(rows, 4), f32(others, 4)
        np.testing.assert_array_equal(results(found, {"x": x, "z": z})[0], x + z)


def test_a_dtype_that_noyau_has_not_is_other():
    found = imported("(float8e5m2[n] x) => (float[n] y) { y = Cast<to = 1>(x) }", opset=21)
    assert found.graph["x"].dtype is DType.OTHER
    assert found.opaque == {0: "the type or the rank of x is unknown"}
    assert found.graph["y"].dtype is DType.F32


def test_a_missing_folder_for_external_data():
    proto = model("(float[n] x) => (float[n] y) { y = Add(x, w) }")
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[100])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    found = import_model(proto)
    with pytest.raises(ModelError, match="the folder of the model is not given"):
        found.load_initializer("w")


def test_a_sum_of_sizes_may_stand_before_its_parts():
    """As exporters of models with a cache write it: the mask comes before the past."""
    proto = model("(float[n, m] mask, float[n, p] past) => (float y) { y = Concat<axis = 1>(mask, past) }")
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "past + sequence"
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "past"
    proto.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["sequence"]))
    found = imported(proto)
    assert found.graph["mask"].shape[1] == Dim.of("past") + "sequence"
    assert set(found.sizes.values()) == {"n", "past", "sequence"}
