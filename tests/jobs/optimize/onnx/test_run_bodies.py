"""The main job on a model whose work is in the bodies of its nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from noyau.frontends.onnx_messages import every_node
from noyau.hosts.onnxruntime import runs, sessions
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from noyau.jobs.show.model import show
from tests.control_flow import arrays, control_flow
from tests.small_models import written

pytestmark = pytest.mark.usefixtures("lasting_workers")


def test_bodies_are_fused_timed_and_shown_by_their_names(tmp_path):
    path = written(control_flow(), tmp_path)
    np.savez(tmp_path / "inputs.npz", **arrays(4, True, 4))
    places = ("If_1/then_branch/a", "If_1/else_branch/a", "Loop_4/body/If_5/then_branch/a")
    wishes = OptimizeOptions(keep="all", budget_s=0.01, inputs=tmp_path / "inputs.npz", only=places)
    result = optimize(path, wishes)
    kernels = {kernel.replaces: kernel for kernel in result.report.kernels}
    assert kernels.keys() < {kernel.replaces for kernel in show(path).plan.kernels}
    idle = kernels.pop(("If_1/else_branch: Mul", "Tanh"))
    assert (idle.verdict, idle.reason) == (None, "not timed: If_1/else_branch does not run with these inputs")
    assert all(kernel.verdict is not None and not kernel.reason for kernel in kernels.values())
    assert all(one.certificate is not None and one.certificate.ok for one in result.candidates)
    assert "model activations" in result.candidates[0].evidence and result.report.end_to_end.apart < 1e-5
    assert (result.report.nodes_before, result.report.nodes_after) == (30, 27)

    result.save(tmp_path / "fused.onnx")
    nodes = every_node(onnx.load(tmp_path / "fused.onnx").graph.node)
    assert sum(is_own(node.domain) for node in nodes) == 3
    feeds = arrays(7, False, 3)
    wanted = runs.run(sessions.open_session(path, optimized=False), feeds)
    for library in (tmp_path / "fused.so", None):
        found = runs.run(sessions.open_session(tmp_path / "fused.onnx", library), feeds)
        for name in wanted:
            np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-6)
