"""Small ONNX models from text, and what the graph of one gives beside what ONNX's reference evaluator gives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from noyau.frontends.onnx import ImportedModel, import_model
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check


def model(text: str, opset: int = 18, imports: str = "") -> onnx.ModelProto:
    """The model of a graph in ONNX's own text: `(float[n] x) => (float[n] y) { y = Abs(x) }`."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}{imports}]>'
    return onnx.parser.parse_model(f"{header} g {text}")


def imported(source: str | onnx.ModelProto, opset: int = 18, **options: Any) -> ImportedModel:
    """A model imported, its graph checked."""
    found = import_model(model(source, opset) if isinstance(source, str) else source, **options)
    check(found.graph)
    return found


def results(found: ImportedModel, feeds: dict[str, np.ndarray], *, wide: bool = False) -> list[np.ndarray]:
    """The outputs of an imported model; initializers are loaded."""
    loaded = {name: found.load_initializer(name) for name in found.initializers}
    made = evaluate(found.graph, {**loaded, **feeds}, wide=wide)
    return [made[name] for name in found.graph.outputs]


def agree(
    source: str | onnx.ModelProto, feeds: dict[str, np.ndarray], opset: int = 18, tolerance: float = 1e-6
) -> ImportedModel:
    """The import, whose graph has no boundary and gives what the reference evaluator gives."""
    proto = model(source, opset) if isinstance(source, str) else source
    found = imported(proto)
    assert not found.opaque, found.opaque
    for got, want in zip(results(found, feeds), ReferenceEvaluator(proto).run(None, feeds), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
    return found


WORDS = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8,
    "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8, "uint16": np.uint16,
    "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
}  # fmt: skip


def run(text: str, *arrays: np.ndarray, opset: int = 22) -> np.ndarray:
    found = imported(text, opset)
    assert not found.opaque, found.opaque
    names = [node.output for node in found.graph.inputs]
    return results(found, dict(zip(names, arrays, strict=True)))[0]
