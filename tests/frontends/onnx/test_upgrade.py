"""Models of old IRs and opsets, and with extents of -1, as what noyau reads; onnxruntime says what they mean."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from noyau.errors import ModelError
from noyau.frontends.onnx import conversion, inline_functions, read, upgrade
from noyau.frontends.onnx_messages import every_node
from tests.frontends.onnx.models import model

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
W = np.arange(4, dtype=np.float32)
# What opset 13 spells otherwise: attributes that became inputs, an axis that means something else, an operator gone.
SPELLINGS = {
    "squeeze": (
        11,
        "(float[a, b, c] x) => (float[d, b] y) { s = ReduceSum <axes=[2]> (x) y = Squeeze <axes=[2]> (s) }",
    ),
    "softmax": (11, "(float[a, b, c] x) => (float[a, b, c] y) { y = Softmax (x) }"),
    "clip": (9, "(float[a, b, c] x) => (float[a, b, c] y) { y = Clip <min=0.0, max=0.5> (x) }"),
    "pad": (9, "(float[a, b, c] x) => (float[a, b, d] y) { y = Pad <pads=[0, 0, 1, 0, 0, 1]> (x) }"),
    "slice": (9, "(float[a, b, c] x) => (float[a, d, c] y) { y = Slice <axes=[1], starts=[0], ends=[2]> (x) }"),
    "hardmax": (11, "(float[a, b, c] x) => (float[a, b, c] y) { y = Hardmax (x) }"),
    "softmax of turned rows": (
        11,
        "(float[a, b, c] x) => (float[a, c, b] y) "
        "{ s = Softmax <axis=1> (x) t = Transpose <perm=[0, 2, 1]> (s) y = LogSoftmax <axis=2> (t) }",
    ),
    "hardmax of rows": (11, "(float[a, b, c] x) => (float[a, b, c] y) { y = Hardmax <axis=-1> (x) }"),
    "batch": (7, "(float[a, 3, c] x) => (float[a, 3, c] y) { y = Dropout <ratio=0.5> (x) }"),
}


def run(proto: onnx.ModelProto, x: np.ndarray = X) -> np.ndarray:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def listed(ir_version: int = 3, opset: int = 13) -> onnx.ModelProto:
    """An initializer that is listed as an input, as every one is before IR 4."""
    proto = model("(float[a, b, 4] x, float[4] w) => (float[a, b, 4] y) { y = Mul (x, w) }", opset)
    proto.graph.initializer.append(numpy_helper.from_array(W, "w"))
    proto.ir_version = ir_version
    return proto


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_model_of_an_old_opset_gives_what_it_gave(name, tmp_path):
    opset, text = SPELLINGS[name]
    old = model(text, opset)
    old.ir_version = 4
    onnx.save(old, tmp_path / "old.onnx")
    new = read(tmp_path / "old.onnx")
    assert new.opset_import[0].version == 13
    np.testing.assert_array_equal(run(new), run(old))
    assert conversion(old) == f"the model has opset {opset}: it is read as onnx converts it to opset 13"
    assert conversion(new) == ""


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("operator", "opset", "scale"), [("Upsample", 9, 1.3), ("Resize", 10, 1.3), ("Resize", 10, 0.6)]
)
def test_positions_in_an_image_are_those_of_its_opset(operator, opset, scale, mode):
    text = f"(float[1, a, b, c] x, float[4] s) => (float[1, d, e, f] y) {{ y = {operator} <mode='{mode}'> (x, s) }}"
    old = model(text.replace("'", '"'), opset)
    old.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "s"))
    old.ir_version = 3  # an initializer that is listed cannot be overridden
    new = upgrade(old)
    old.ir_version = 4
    del old.graph.input[1]
    np.testing.assert_array_equal(run(new, X[None]), run(old, X[None]))


def test_a_resize_that_may_grow_or_shrink_has_no_new_spelling():
    old = model("(float[1, a, b, c] x, float[4] s) => (float[1, d, e, f] y) { y = Resize (x, s) }", 10)
    with pytest.raises(
        ModelError, match="a Resize that is not known to grow, or to shrink, has no spelling from opset"
    ):
        upgrade(old)
    old.graph.node[0].attribute.add(name="mode", s=b"linear", type=onnx.AttributeProto.STRING)
    assert [each.s for each in upgrade(old).graph.node[-1].attribute][1:] == [b"asymmetric", b"floor"]


@pytest.mark.parametrize("opset", [7, 13])
def test_what_no_caller_could_override_is_a_constant(opset):
    old = listed(opset=opset)
    new = upgrade(old)
    assert [value.name for value in new.graph.input] == ["x"] and new.ir_version >= 4
    assert [value.name for value in old.graph.input] == ["x", "w"]  # the user's own is as it was
    np.testing.assert_array_equal(run(new), X * W)


def test_what_a_caller_may_override_stays_an_input():
    old = listed(ir_version=4)
    assert upgrade(old) is old


def test_an_extent_of_minus_one_is_open():
    old = model("(float[a, 3, 4] x) => (float[a, 3, 4] y) { y = Abs (x) }")
    for value in (*old.graph.input, *old.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -1
    new = upgrade(old)
    assert not any(value.type.tensor_type.shape.dim[0].HasField("dim_value") for value in new.graph.input)
    np.testing.assert_array_equal(run(new), run(old))


def test_what_onnx_does_not_convert_is_one_line():
    old = model("(float[a, b, c] x) => (float[a, b, c] y) { y = NoSuch (x) }", 11)
    with pytest.raises(
        ModelError, match="the model has opset 11, and onnx does not convert it to 13, the oldest"
    ) as told:
        upgrade(old)
    assert "\n" not in str(told.value)


def test_a_sequence_map_is_the_loop_that_runs():
    old = model(
        """(float[a, b, c] x) => (float[d, b, c] y) { one = Constant <value_int = 1> () s = SplitToSequence (x, one)
        r = SequenceMap <body = g (float[e, b, c] v) => (float[e, b, c] o) { t = Exp (v) o = Mul (t, v) }> (s)
        y = ConcatFromSequence <axis = 0> (r) }""",
        17,
    )
    new = upgrade(old)
    assert [node.op_type for node in new.graph.node].count("Loop") == 1
    assert all(node.op_type != "SequenceMap" for node in new.graph.node)
    np.testing.assert_array_equal(run(new), run(old))


def test_nothing_is_said_of_values_that_the_file_does_not_say():
    """onnx infers shapes as it converts; onnxruntime has its own, and lays out memory by those that a file has."""
    old = model("(float[n,6] x) => (float[n,6] y) { a = Tanh(x) b = Abs(a) y = Neg(b) }", opset=11)
    old.graph.value_info.add().CopyFrom(old.graph.input[0])
    old.graph.value_info[0].name = "a"
    assert [value.name for value in upgrade(old).graph.value_info] == ["a"]


FUNCTIONS = """<ir_version: 8, opset_import: ["": 17, "o": 1]>
g (float[n, 8] x, bool p) => (float[n, 8] y) {
    a = o.Block<alpha = 0.5>(x)
    y = If(p) <
        then_branch = t () => (float[n, 8] u) { u = o.Block(a) },
        else_branch = e () => (float[n, 8] v) { v = o.Gate(a) }
    >
}
<opset_import: ["": 17, "o": 1], domain: "o"> Block <alpha: float = 2.0> (x) => (y) {
    c = Constant<value_float: float = @alpha>()
    h = Mul(x, c)
    y = o.Gate(h)
}
<opset_import: ["": 17], domain: "o"> Gate (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }"""


def test_bodies_of_functions_take_the_place_of_their_calls():
    proto = onnx.parser.parse_model(FUNCTIONS)
    inner = inline_functions(proto, [("o", "Block"), ("o", "Other")])
    assert [node.op_type for node in inner.graph.node] == ["Constant", "Mul", "Gate", "If"]
    both = inline_functions(proto, [("o", "Block"), ("o", "Gate")])
    assert {node.domain for node in every_node(both.graph.node)} == {""}
    sessions = [onnxruntime.InferenceSession(each.SerializeToString()) for each in (proto, inner, both)]
    for p in (np.array(True), np.array(False)):
        wanted, *found = (session.run(None, {"x": X.reshape(-1, 8), "p": p})[0] for session in sessions)
        for values in found:
            np.testing.assert_allclose(values, wanted, rtol=1e-6)


def test_a_call_leaves_out_what_its_function_has_a_default_for():
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "o": 1]>
        g (float[n] x) => (float[n] y) { a = o.Add<by = 8.0>(x) b = o.Twice(a) y = o.Twice<by = 1.0>(b) }
        <opset_import: ["": 17, "o": 1], domain: "o"> Twice <by> (x) => (y) {
            h = o.Add<by: float = @by>(x)
            y = o.Add(h)
        }
        <opset_import: ["": 17], domain: "o"> Add <by: float = 2.0> (x) => (y) {
            c = Constant<value_float: float = @by>()
            y = Add(x, c)
        }""")
    whole = inline_functions(proto, [("o", "Add"), ("o", "Twice")])
    assert [node.op_type for node in whole.graph.node] == ["Constant", "Add"] * 5
    np.testing.assert_array_equal(run(whole, np.zeros(2, np.float32)), [15, 15])


def test_calls_in_a_circle_and_large_bodies_stay():
    circle = onnx.parser.parse_model(FUNCTIONS.replace("y = Mul(x, s)", "y = o.Block(s)"))
    assert inline_functions(circle, [("o", "Block"), ("o", "Gate")]) is circle
    doubled = onnx.parser.parse_model(FUNCTIONS)
    for level in range(60):  # each calls the one before twice
        function = doubled.functions.add(domain="o", name=f"F{level}", input=["x"], output=["y"])
        function.opset_import.extend(doubled.functions[0].opset_import)
        below = f"F{level - 1}" if level else "Gate"
        for ends in (("x", "h"), ("h", "y")):
            function.node.add(domain="o", op_type=below, input=ends[:1], output=ends[1:])
    assert inline_functions(doubled, [("o", "F59")]) is doubled
    doubled.graph.node[0].op_type = "F9"
    assert len(inline_functions(doubled, [("o", f"F{level}") for level in range(60)]).graph.node) == 1025


def test_an_overload_of_a_function_has_a_name_of_its_own():
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 17, "o": 1]>
        g (float[n] x) => (float[n] y) { a = o.F(x) b = o.F(a) y = o.F(b) }
        <opset_import: ["": 17], domain: "o"> F (x) => (y) { y = Sin(x) }
        <opset_import: ["": 17], domain: "o"> F (x) => (y) { y = Exp(x) }
        <opset_import: ["": 17], domain: "o"> F_b (x) => (y) { y = Tanh(x) }""")
    for each in (proto.functions[1], proto.graph.node[1]):
        each.overload = "b"
    proto.graph.node[2].op_type = "F_b"
    renamed = upgrade(proto)
    assert len({function.name for function in renamed.functions}) == 3
    assert proto.functions[1].overload == "b"
    x = np.array([0.5], np.float32)
    for each in (proto, renamed):
        np.testing.assert_allclose(run(each, x), np.tanh(np.exp(np.sin(x))), rtol=1e-6)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
def test_rows_of_a_transpose_need_no_matrix(operator):
    """Exporters turn an axis to the end; of its rank onnx knows nothing if what is turned has unknown extents."""
    turned = "s = Reshape (x, i) t = Transpose <perm=[0, 2, 1]> (s)"
    text = f"(float[a, b, c] x, int64[r] i) => (float[d, e, f] y) {{ {turned} y = {operator} <axis=2> (t) }}"
    old = model(text, 12)
    old.graph.output[0].type.tensor_type.ClearField("shape")
    assert [node.op_type for node in upgrade(old).graph.node] == ["Reshape", "Transpose", operator]
