from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.jobs.show.model import show
from tests.small_models import written

pytestmark = pytest.mark.usefixtures("lasting_workers")
QUICK = OptimizeOptions(keep="all", budget_s=0.01, dims={"n": 64})


def halves() -> onnx.ModelProto:
    """Layers in float16, as converters write them: what enters and leaves is float32."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]> g (float[n, 64] x) => (float[n, 64] y) {
        h = Cast<to = 10>(x)  a = MatMul(h, w)  b = Sigmoid(a)  c = Mul(a, b)  d = Add(c, h)
        e = MatMul(d, w)  y = Cast<to = 1>(e) }""")
    weights = np.random.default_rng(0).standard_normal((64, 64)) / 16
    model.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float16), "w"))
    return model


def test_kernels_are_as_near_as_onnxruntime(tmp_path):
    path = written(halves(), tmp_path)
    result = optimize(path, QUICK)
    assert [one.kept for one in result.candidates] == [True]
    assert any("float16 is computed in float32" in line for line in result.report.inputs)
    result.save(tmp_path / "fused.onnx")
    arrays = {"x": np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)}
    plain = run(open_session(path), arrays)["y"]
    for library in (tmp_path / "fused.so", None):
        outputs = run(open_session(tmp_path / "fused.onnx", library), arrays)["y"]
        np.testing.assert_allclose(outputs, plain, rtol=2e-6, atol=2e-6)


def test_a_path_between_named_values_stays_float16(tmp_path):
    shown = show(written(halves(), tmp_path), between="a,h:d")
    assert not shown.original.wide
    assert [{*each.groups[0].inputs} for each in shown.plan.kernels] == [{"a", "h"}]
    assert show(tmp_path / "model.onnx").original.wide
