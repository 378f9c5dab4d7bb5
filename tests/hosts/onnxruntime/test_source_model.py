from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from noyau.errors import ModelError
from noyau.hosts.onnxruntime import source_model
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.source_model import external_bytes, foreign_operators, fused_operators, open_model
from noyau.ir.graph_interpreter import evaluate
from tests.large_model import write_large_model
from tests.small_models import (
    KINDS,
    NODE,
    chain,
    model_of,
    plain,
    twice,
    value,
    with_branches,
    with_strange_operator,
    written,
)


def test_a_model_is_opened(tmp_path):
    opened = open_model(written(twice(), tmp_path))
    assert (opened.name, opened.folder, opened.prepacked) == ("model.onnx", tmp_path, True)
    assert opened.operators[:4] == ("Tanh", "Mul", "Sigmoid", "MatMul")
    assert [group.positions for group in opened.cut().groups] == [(0, 1, 2), (4, 5, 6), (8, 9)]
    with pytest.raises(ModelError, match="cannot be read"):
        open_model(tmp_path / "missing.onnx")


def test_its_session_runs_it(tmp_path):
    opened = open_model(written(plain(), tmp_path))
    x = np.ones((2, 6), np.float32)
    found = run(opened.session(opened.model, threads=1), {"x": x})["y"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.tanh(x))), rtol=1e-6)


def test_weights_that_are_large_are_not_copied(tmp_path, monkeypatch):
    large = write_large_model(tmp_path, hidden=8, intermediate=16)
    opened = open_model(large.path)
    assert external_bytes(opened.model) == large.total_bytes == 3 * 4 * 8 * 16
    assert external_bytes(twice()) == 0
    monkeypatch.setattr(source_model, "LARGE", large.total_bytes + 1)
    assert opened.prepacked
    monkeypatch.setattr(source_model, "LARGE", large.total_bytes)
    assert not opened.prepacked


def test_operators_that_only_a_library_of_the_user_has():
    assert foreign_operators(with_strange_operator()) == {3: "com.example::Strange"}
    for model in (twice(), with_branches(), KINDS["function"], KINDS["loop"]):
        assert foreign_operators(model) == {}


TABLE = """<ir_version: 7, opset_import: ["": 15, "ai.onnx.ml": 2]> g ({dtype}[n, 3] x) => ({result} y) {{ {nodes} }}"""
SCALER = "y = ai.onnx.ml.Scaler <offset = [{}], scale = [2.5, 0.3, 7.1]> ({})"
IMPUTER = "ai.onnx.ml.Imputer <imputed_value_floats = [{}], replaced_value_float = {}> (x)"
ONE_HOT = "y = ai.onnx.ml.OneHotEncoder <cats_int64s = [4, 1, 7], zeros = {}> (x)"


@pytest.mark.parametrize(
    ("dtype", "result", "nodes"),
    [
        ("float", "float[n, 3]", f"m = {IMPUTER.format('0.1, 0.2, 0.3', 'nan')} {SCALER.format('0.1, 2.0, 3.0', 'm')}"),
        ("float", "float[n, 3]", f"y = {IMPUTER.format('0.1', '4.0')}"),
        ("double", "float[n, 3]", SCALER.format("0.1, 2.0, 3.0", "x")),
        ("int64", "float[n, 3]", SCALER.format("0.1, 2.0, 3.0", "x")),
        ("int64", "float[n, 3, 3]", ONE_HOT.format(1)),
    ],
)
def test_kernels_have_the_numbers_of_the_columns_of_tables_as_tensors(dtype, result, nodes, tmp_path):
    model = onnx.parser.parse_model(TABLE.format(dtype=dtype, result=result, nodes=nodes.replace("nan", "1.0")))
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "replaced_value_float" and "nan" in nodes:  # no text says NaN
            attribute.f = np.nan
    original = open_model(written(model, tmp_path))
    assert not original.imported.opaque and original.before == model
    assert [node.op_type for node in original.model.graph.node] == [node.op_type for node in model.graph.node]
    x = np.array([[4, 1, 7], [2**24 + 1, 0, 4], [-4, 4, 5]]).astype(dtype.replace("float", "float32"))
    if "nan" in nodes:
        x[0, 1] = x[2, 0] = np.nan
    want = run(original.session(model, threads=1), {"x": x})["y"]
    np.testing.assert_array_equal(run(original.session(original.model, threads=1), {"x": x})["y"], want)
    stored = {name: original.imported.load_initializer(name) for name in original.imported.initializers}
    np.testing.assert_array_equal(evaluate(original.imported.graph, {"x": x, **stored})["y"], want)


@pytest.mark.parametrize(("dtype", "nodes"), [("int64", ONE_HOT.format(0)), ("float", SCALER.format("1.0, 2.0", "x"))])
def test_tables_with_cells_or_columns_that_are_refused_stay_with_onnxruntime(dtype, nodes, tmp_path):
    model = onnx.parser.parse_model(TABLE.format(dtype=dtype, result="float", nodes=nodes))
    original = open_model(written(model, tmp_path))
    assert len(original.imported.opaque) == 1
    assert [node.domain for node in original.model.graph.node] == ["ai.onnx.ml"]


def test_operators_that_onnxruntime_has_made():
    assert fused_operators(twice()) == {}
    nodes = [
        NODE("FusedMatMul", ["x", "x"], ["a"], domain="com.microsoft", transB=1),
        NODE("SimplifiedLayerNormalization", ["a", "g"], ["b"]),
        NODE("QuickGelu", ["b"], ["c"], domain="com.microsoft"),
        NODE("QuickGelu", ["c"], ["d"], domain="com.microsoft"),
        NODE("Tanh", ["d"], ["y"]),
    ]
    model = model_of(nodes, [value("x", ("n", 6)), value("g", ("n",))], [value("y", ("n", "n"))])
    assert fused_operators(model) == {"FusedMatMul": 1, "SimplifiedLayerNormalization": 1, "QuickGelu": 2}


@pytest.mark.parametrize(
    ("domain", "found"),
    [
        ("ai.onnx.ml", False),
        ("com.microsoft.nchwc", False),
        ("com.ms.internal.nhwc", False),
        ("noyau", False),
        ("com.microsoftish", True),
        ("ai", True),
        ("com.example", True),
    ],
)
def test_domains_that_onnxruntime_brings(domain, found):
    model = model_of([NODE("Strange", ["x"], ["y"], domain=domain)], [value("x")], [value("y")])
    assert bool(foreign_operators(model)) == found


def test_they_are_found_in_branches_too():
    inner = helper.make_graph([NODE("Strange", ["x"], ["a"], domain="com.example")], "inner", [], [value("a")])
    other = helper.make_graph(chain("x", "b"), "other", [], [value("b")])
    nodes = [*chain("x", "w"), NODE("If", ["c"], ["y"], then_branch=other, else_branch=inner)]
    model = model_of(nodes, [value("x"), value("c", (), onnx.TensorProto.BOOL)], [value("y")])
    assert foreign_operators(model) == {3: "com.example::Strange"}


def test_what_surrounds_library_calls_in_functions_is_fused(tmp_path):
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "o": 1]>
        g (float[n, 8] x, float[8, 8] w) => (float[n, 8] y) { y = o.Block(x, w) }
        <opset_import: ["": 17], domain: "o"> Gate (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }
        <opset_import: ["": 17, "o": 1], domain: "o"> Act (x, w) => (y) { h = MatMul(x, w) g = o.Gate(h) y = Add(g, h) }
        <opset_import: ["": 17, "o": 1], domain: "o"> Block (x, w) => (y) { a = o.Act(x, w) y = Tanh(a) }""")
    opened = open_model(written(proto, tmp_path))
    assert opened.operators == ("MatMul", "Gate", "Add", "Tanh")  # a body without library calls stays one operator
    assert [group.positions for group in opened.cut().groups] == [(1, 2, 3)]
    assert opened.before == proto
    feeds = {"x": np.ones((2, 8), np.float32), "w": np.eye(8, dtype=np.float32)}
    found, wanted = (run(opened.session(model, threads=1), feeds)["y"] for model in (opened.model, proto))
    np.testing.assert_array_equal(found, wanted)


def test_a_model_without_operators_of_tables_is_not_copied(monkeypatch):
    monkeypatch.setattr(source_model, "deepcopy", None)
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Normalizer", ["y"], ["z"], domain="ai.onnx.ml")]
    model = helper.make_model(helper.make_graph(nodes, "graph", [], []))
    assert source_model.with_columns(model) is model
