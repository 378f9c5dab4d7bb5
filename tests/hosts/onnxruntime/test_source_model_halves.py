from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from noyau.dtypes import DType
from noyau.errors import ModelError
from noyau.hosts.onnxruntime import source_model
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import open_model
from tests.small_models import twice, written

HEAD = '<ir_version: 8, opset_import: ["": 18{}]>'
TEXTS = {
    "layers": """g (float16[n, 8] x) => (float16[n, 8] y)
        <float16[8, 8] w> { a = MatMul(x, w)  b = Tanh(a)  c = MatMul(b, w)  d = Add(c, x)  y = Softmax(d) }""",
    "floats at the ends": """g (float[n, 8] x) => (float[n, 8] y)
        <float16[8, 8] w> { h = Cast<to = 10>(x)  a = MatMul(h, w)  b = Sigmoid(a)  c = Mul(a, b)  y = Cast<to = 1>(c) }
        """,
    "a cache": """g (float16[n, 8] x, float16[p, 8] past) => (float16[q, 8] present, float16[n, 8] y)
        <float16[8, 8] w> { k = MatMul(x, w)  present = Concat<axis = 0>(past, k)  t = Transpose(present)
        s = MatMul(k, t)  y = MatMul(s, present) }""",
    "a cache of two results": """g (float16[n, 8] x, float16[p, 8] past) => (float16[q, 8] present, float16[n, 8] k)
        { k = Exp(x)  m = Exp(k)  present = Concat<axis = 0>(past, k, m, k) }""",
    "a result that is read": """g (float16[n, 8] x) => (float16[n, 8] a, float16[n, 8] y)
        { a = Exp(x)  y = Tanh(a) }""",
    "a table": """g (int64[n] x) => (float16[n, 8] y)
        <float16[8, 8] w> { e = Gather(w, x)  a = MatMul(e, w)  y = Relu(a) }""",
    "numbers in attributes": """g (float16[n, 8] x) => (float16[n, 8] y)
        { s = Shape(x)  c = ConstantOfShape<value = float16[1] {14336}>(s)  b = Add(c, x)
        k = Constant<value = float16 {16384}>()  y = Mul(b, k) }""",
    "a branch": """g (float16[n, 8] x, bool p) => (float16[n, 8] y)
        { a = Exp(x)  b = Neg(a)
        c = If (p) <then_branch = g1 () => (float16[n, 8] u) { v = Sin(a)  u = Cos(v) },
                    else_branch = g2 () => (float16[n, 8] u) { u = Sqrt(a) }>
        y = Add(b, c) }""",
    "functions": """g (float16[n, 8] x) => (float16[n, 8] y) { a = own.twice(x)  y = Sin(a) }
        <opset_import: ["": 18], domain: "own"> twice (a) => (b) { k = Constant<value = float16 {16384}>()
        c = Mul(a, k)  d = Cast<to = 10>(c)  b = Exp(d) }""",
    "sums": """g (float16[n, 8] x, float16[8] z) => (float16[8] y)
        { n = Constant<value = int64 {5}>()  t = Constant<value = bool {1}>()
        y = Loop (n, t, z) <body = g1 (int64 j, bool c, float16[8] s) => (bool d, float16[8] u)
            { d = Identity(c)  v = Gather(x, j)  w = Mul(v, v)  u = Add(s, w) }> }""",
    "a rounding": """g (float[n, 8] x, bool p) => (float[n, 8] y)
        { h = Cast<to = 10>(x)  a = Cast<to = 1>(h)  c = Sub(x, a)
        b = If (p) <then_branch = g1 () => (float[n, 8] u) { v = Sin(x)  w = Cast<to = 10>(v)  u = Cast<to = 1>(w) },
                    else_branch = g2 () => (float[n, 8] u) { v = Cast<to = 10>(x)  w = Exp(v)  u = Cast<to = 1>(w) }>
        y = Add(b, c) }""",
    "a rounding that is asked for NaN": """g (float[n, 8] x) => (bool[n, 8] y)
        { a = Exp(x)  b = Pow(a, x)  c = Cast<to = 10>(b)  d = Cast<to = 10>(b)  e = Cast<to = 1>(d)  f = Sub(e, e)
        g = IsNaN(f)  h = IsNaN(c)  y = Or(g, h) }""",
    "a function named as an operator": """g (float16[n, 8] x) => (float16[n, 8] y) { a = own.Expand(x)  y = Sin(a) }
        <opset_import: ["": 18], domain: "own"> Expand (a) => (b) { k = Constant<value = float16 {16384}>()
        b = Mul(a, k) }""",
    "sequences": """g (float16[n, 8] x) => (float16[m, 8] y)
        { n = Constant<value = int64 {3}>()  t = Constant<value = bool {1}>()  z = SequenceEmpty<dtype = 10>()
        s = Loop (n, t, z) <body = g1 (int64 j, bool c, seq(float16[n, 8]) s) => (bool d, seq(float16[n, 8]) u)
            { d = Identity(c)  v = Exp(x)  u = SequenceInsert(s, v) }>
        y = ConcatFromSequence<axis = 0>(s) }""",
    "bits": """g (float16[n, 8] x) => (int64[n, 8] y)
        { a = Exp(x)  b = Greater(a, x)  c = ArgMax<axis = 1>(a)  d = Cast<to = 7>(b)  y = Add(c, d) }""",
}


def model_of(text: str, opsets: str = "") -> onnx.ModelProto:
    """A model by its text, whose weights are drawn."""
    opsets += ', "own": 1' if "own." in text else ""
    model = parser.parse_model(HEAD.format(opsets) + text)
    random = np.random.default_rng(0)
    for value in model.graph.value_info:
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        cells = random.standard_normal(shape).astype(np.float16)
        model.graph.initializer.append(numpy_helper.from_array(cells, value.name))
    del model.graph.value_info[:]
    return model


def arrays_of(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    random, arrays = np.random.default_rng(seed), {}
    for value in model.graph.input:
        shape = [dim.dim_value or 5 for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        arrays[value.name] = (3 * random.random(shape)).astype(dtype)
    return arrays


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_float16_is_computed_in_float32(text, tmp_path):
    path = written(model_of(text), tmp_path)
    opened = open_model(path, wide=True)
    assert opened.wide and opened.before == onnx.load(path) and "computed in float32" in opened.conversion
    ends = [[value.SerializeToString() for value in (*graph.input, *graph.output)]
            for graph in (opened.model.graph, opened.before.graph)]  # fmt: skip
    assert ends[0] == ends[1]
    onnx.checker.check_model(opened.model, full_check=True)
    arrays = arrays_of(opened.model)
    sessions = (open_session(path), open_session(opened.model.SerializeToString()))
    first, second = (run(session, arrays) for session in sessions)
    for name, array in first.items():
        rounding = 2e-6 if array.dtype == np.float32 else 4e-3
        np.testing.assert_allclose(second[name].astype(float), array.astype(float), rtol=rounding, atol=rounding)


def test_nothing_is_rounded_between_nodes(tmp_path):
    opened = open_model(written(model_of(TEXTS["layers"]), tmp_path), wide=True)
    assert [tensor.data_type for tensor in opened.model.graph.initializer] == [TensorProto.FLOAT16]  # the file is small
    nodes = [node for node in opened.imported.graph.nodes if node.output not in opened.imported.initializers]
    assert [node.output for node in nodes if node.dtype is DType.F16] == ["x", "y"]
    ends = {end.output: end.dtype for group in opened.cut().groups for end in group.graph.inputs}
    assert {name for name, dtype in ends.items() if dtype is DType.F16} <= {"x"}


def test_what_is_cast_by_the_model_itself_is_cast_once(tmp_path):
    text = "g (float16[n, 8] x) => (float[n, 8] y) { a = Cast<to = 1>(x)  y = Exp(a) }"
    assert open_model(written(model_of(text), tmp_path), wide=True).operators == ("Cast", "Exp")


def test_what_onnxruntime_writes_out_in_float16_is_written_out(tmp_path):
    text = "g (float16[n, 8] x) => (float16[n, 8] y) { a = Softplus(x)  b = Mish(a)  y = Neg(b) }"
    path = written(model_of(text), tmp_path)
    operators = open_model(path, wide=True).operators
    assert not {"Mish", "Softplus"} & {*operators} and operators.count("Log") == 2
    assert open_model(path).operators == ("Softplus", "Mish", "Neg")


def test_what_is_moved_alone_stays_float16(tmp_path):
    for name, moved in (("a cache", "present"), ("a table", "e")):
        graph = open_model(written(model_of(TEXTS[name]), tmp_path), wide=True).imported.graph
        assert graph[moved].dtype is DType.F16


def test_numbers_are_written_in_float32(tmp_path):
    opened = open_model(written(model_of(TEXTS["numbers in attributes"]), tmp_path), wide=True)
    assert [node.op_type for node in opened.model.graph.node].count("Cast") == 2  # of what enters, and what leaves
    (group,) = opened.cut().groups
    assert not any(node.dtype is DType.F16 for node in group.graph.nodes if node.output not in ("x", "y"))


def test_the_types_of_sequences_between_nodes_are_widened(tmp_path):
    text = "g (float16[n, 8] x) => (float16[m, 8] y) { a = Exp(x)  s = SequenceConstruct(a, x)  y = {}(s) }"
    model = model_of(text.replace("{}", "ConcatFromSequence<axis = 0>"))
    model.graph.value_info.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT16, None))
    opened = open_model(written(model, tmp_path), wide=True)
    assert opened.wide and open_session(opened.model.SerializeToString())


def test_a_tensor_with_fewer_cells_than_its_shape_says_is_refused(tmp_path):
    model = model_of(
        "g (float16[4] x) => (float16[4] y) { c = Constant<value = float16[4] {1, 2, 3, 4}>()  y = Add(x, c) }"
    )
    model.graph.node[0].attribute[0].t.CopyFrom(TensorProto(dims=[4], data_type=TensorProto.FLOAT16, raw_data=b"ab"))
    with pytest.raises(ModelError, match="of shape \\[4\\] holds 1 elements"):
        open_model(written(model, tmp_path), wide=True)


def test_a_model_is_as_it_came_otherwise(tmp_path, monkeypatch):
    path = written(model_of(TEXTS["layers"]), tmp_path)
    assert not open_model(path).wide and not open_model(written(twice(), tmp_path), wide=True).wide
    sparse = model_of("g (float16[n, 8] x) => (float16[n, 8] y) { y = MatMul(x, w) }")
    cells, places = numpy_helper.from_array(np.ones(1, np.float16), "w"), numpy_helper.from_array(np.zeros(1, np.int64))
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(cells, places, [8, 8]))
    assert not open_model(written(sparse, tmp_path), wide=True).wide
    path = written(model_of(TEXTS["layers"]), tmp_path, "halves.onnx")
    monkeypatch.setattr(source_model.platform, "machine", lambda: "aarch64")  # onnxruntime computes in float16 there
    assert not open_model(path, wide=True).wide
    monkeypatch.undo()
    strange = "g (float16[n] x) => (float16[n] y) { a = Exp(x)  y = com.example.Strange(a) }"  # may have it alone
    assert not open_model(written(model_of(strange, ', "com.example": 1'), tmp_path), wide=True).wide
    bits = "g (float16[n] x) => (int16[n] y) { a = Exp(x)  y = BitCast<to = 5>(a) }"
    assert not open_model(written(model_of(bits), tmp_path), wide=True).wide
    asked = """g (float[n] x, float16[n] z) => (float16[n] y) { a = own.like<kind = 10>(x, z)  y = Exp(a) }
        <opset_import: ["": 18], domain: "own">
        like <kind> (a, c) => (b) { d = Cast<to: int = @kind>(a)  b = Mul(d, c) }"""
    assert not open_model(written(model_of(asked), tmp_path), wide=True).wide
    monkeypatch.setattr(source_model, "LARGE", 0)  # its weights would be copied
    assert not open_model(path, wide=True).wide


def test_bfloat16_stays(tmp_path):
    model = parser.parse_model(HEAD.format("") + "g (bfloat16[n, 8] x) => (bfloat16[n, 8] y) { y = Identity(x) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, ml_dtypes.bfloat16), "w"))
    assert not open_model(written(model, tmp_path), wide=True).wide


@pytest.mark.parametrize("text", ["a cache", "a cache of two results"])
def test_a_cache_stays_float16(text, tmp_path):
    nodes = open_model(written(model_of(TEXTS[text]), tmp_path), wide=True).model.graph.node
    (joined,) = (node for node in nodes if node.op_type == "Concat")
    assert joined.input[0] == "past" and joined.output[0] == "present"
    assert not any(node.op_type == "Cast" and "past" in node.input for node in nodes)
