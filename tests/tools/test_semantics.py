from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from noyau.codegen import cmath
from noyau.dtypes import DType
from noyau.frontends.onnx import import_model
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, UNDEFINED
from tools.semantics import DIFFERENCES, document

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "semantics.md"


def rows(title: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = document().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_committed_document_is_the_generated_one():
    again = "run: python tools/semantics.py"
    assert COMMITTED.read_text(encoding="utf-8") == document(), again


def test_every_function_is_there_with_a_meaning():
    found = {row[0].strip("`").partition("(")[0]: row for row in rows("Scalar functions")}
    assert list(found) == list(OPERATORS)
    assert all(row[3] for row in found.values())
    assert [len(row) for row in found.values()] == [8] * len(found)


def test_every_monoid_is_there_with_a_meaning():
    found = {row[0].strip("`"): row for row in rows("Monoids")}
    assert list(found) == [name for name in MONOIDS if not name.startswith("fold_")]  # those of users are of no table
    assert all(row[3] for row in found.values())
    assert all(
        len(row[4].split(", ")) == len(MONOIDS[name].states(DType.F32))
        for name, row in found.items()
        if "float" in row[1]
    )


def test_every_dtype_and_every_undefined_case_is_there():
    assert [row[0] for row in rows("Element types")] == [dtype.value for dtype in DType]
    assert all(f"\n- {case}\n" in document() for case in UNDEFINED)


def test_c_promises_no_less_than_the_table():
    promised = {row[0].strip("`").partition("(")[0]: (float(row[5]), row[6]) for row in rows("Scalar functions")}
    assert promised["exp"][1] == f"{cmath.ULP['noyau_exp_f32']:g}, {cmath.ULP['noyau_exp_f64']:g}"
    for name, (ulp, in_c) in promised.items():
        assert all(float(each) <= max(ulp, 0.5) for each in in_c.split(", ") if each), name


def both(op_type: str, values: list[float], **attributes: object) -> tuple[list[float], list[float]]:
    """What onnxruntime gives, and what the tables say."""
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [3]), ("y", None))]
    graph = helper.make_graph([node], "it", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    arrays = {"x": np.array(values, np.float32)}
    theirs = run(open_session(model.SerializeToString(), threads=1), arrays)["y"]
    ours = evaluate(import_model(onnx.shape_inference.infer_shapes(model)).graph, arrays)["y"]
    return np.ravel(theirs).tolist(), np.ravel(ours).tolist()


@pytest.mark.parametrize(("op_type", "theirs"), [("ReduceMax", 3), ("ReduceMin", 1)])
def test_onnxruntime_passes_over_nan(op_type, theirs):
    found = both(op_type, [1, np.nan, 3], keepdims=0)
    assert found[0] == [theirs]
    assert np.isnan(found[1]).all()


def test_onnxruntime_flushes_sigmoid():
    theirs, ours = both("Sigmoid", [-100, -90, -89])
    assert theirs == [0, 0, 0]
    assert all(0 < each < 1e-37 for each in ours)


def test_onnxruntime_keeps_the_sign_of_zero_in_relu():
    theirs, ours = both("Relu", [-0.0, -1, 2])
    assert np.signbit(theirs).tolist() == [True, False, False]
    assert ours == [0, 0, 2]


def test_each_difference_is_tested_here():
    assert {what.replace(",", " ").partition("(")[0].split()[0] for what, _, _ in DIFFERENCES} == {
        "ReduceMax",
        "Sigmoid",
        "Relu",
    }
