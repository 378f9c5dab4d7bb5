"""Models that do not run with the usual sizes, or with none: found by trying, or judged group by group."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from noyau.errors import InputError
from noyau.hosts.onnxruntime.inputs import spell
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from noyau.jobs.optimize.onnx.options import OptimizeOptions
from noyau.jobs.optimize.onnx.run import optimize
from tests.small_models import timed_as

HEADER = '<ir_version: 8, opset_import: ["" : 17]> g '
CHAIN = "t = Tanh (x) p = Mul (t, x) q = Sigmoid (p)"
ROWS = "r = Constant <value_ints = [-1, 512]> () y = Reshape (q, r)"
WINDOW = f"{HEADER} (float[b, s] x) => (float[m, 7] y) {{ {CHAIN} {ROWS} }}"
LATER = (
    WINDOW.replace("] y)", "] z)").replace("y = Reshape", "m = MatMul (q, q) y = Reshape")[:-1]
    + "e = Exp (y) z = Neg (e) }"
)
# The Reshape fails whatever is made up: its target is an input.
NEVER = f"{HEADER} (float[b, 7] x, int64[2] r) => (float[b, 7] q, float[m, n] y) {{ {CHAIN} y = Reshape (x, r) }}"


@pytest.fixture
def model(tmp_path, monkeypatch, empty_cache):
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2))

    def written(text: str):
        proto = parser.parse_model(text)
        for end in proto.graph.output:
            end.type.tensor_type.ClearField("shape")
        onnx.save(proto, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return written


def test_sizes_that_run_are_found_and_said(model):
    made = optimize(model(WINDOW), OptimizeOptions(budget_s=0.01))
    assert [one.reason for one in made.candidates] == [""]
    (timing,) = made.candidates[0].timings
    assert timing.sizes["b"] * timing.sizes["s"] % 512 == 0
    assert any(f"{spell(timing.sizes)} were found by trying" in line for line in made.report.inputs)


def test_sizes_that_are_asked_for_are_not_replaced(model):
    with pytest.raises(InputError, match=r"does not run with its inputs of .*s=100.*: .*--dim NAME=N"):
        optimize(model(WINDOW), OptimizeOptions(dims={"s": 100, "b": 1}))


@pytest.mark.parametrize("keep", ["faster", "all"])
def test_where_nothing_runs_groups_are_judged_by_themselves(model, keep):
    made = optimize(model(NEVER), OptimizeOptions(keep=keep, budget_s=0.01))
    (one,) = made.candidates
    assert one.certificate.ok
    assert one.kept == (made.library is not None) == (keep == "all")
    assert "its open sizes are b, of which these were tried in vain: b=64; " in made.report.end_to_end.reason
    assert "whole model" in str(made.report).splitlines()[0]


def test_where_not_even_a_part_runs_that_is_an_error_unless_all_is_asked_for(model):
    gone = "i = Constant <value_ints = [100]> () g = Gather <axis = 1> (x0, i) x = MatMul (g, g)"
    path = model(f"{HEADER} (float[1, 7] x0) => (float[1, 1] q) {{ {gone} {CHAIN} }}")
    with pytest.raises(
        InputError, match=r"does not run with its inputs.*: .*; --keep all judges its groups by themselves"
    ):
        optimize(path, OptimizeOptions())
    (one,) = optimize(path, OptimizeOptions(keep="all", budget_s=0.01)).candidates
    assert one.kept and one.certificate.ok and not one.certificate.captured


def test_the_users_arrays_that_do_not_run_are_an_error(model, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.ones((2, 500), np.float32))
    with pytest.raises(InputError, match="the model does not run with its inputs"):
        optimize(model(LATER), OptimizeOptions(inputs=tmp_path / "in.npz"))
