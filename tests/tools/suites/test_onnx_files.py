from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import open_model
from tests.small_models import KINDS, plain, written
from tools.suites import onnx_judgement
from tools.suites.onnx_files import line_of, main, summary
from tools.suites.onnx_judgement import distance, judge, moved_weights, outputs_of, truth_of

ROW = {"status": 0, "clock_s": 61.0, "cpu_s": 9.0, "kernels": 2, "kept": 1, "says": "FASTER", "reason": "", "doubt": ""}
SPEED = {"n=1": {"ms": 1.0, "again": 0.98, "with": 1.5, "without": 0.9}}


def test_a_file_has_a_line_and_the_log_is_not_run_again(tmp_path, capsys):
    row = {**ROW, "right": False, "errors": {"with": 1e-3}, "speed": SPEED}
    (tmp_path / "a.onnx").write_bytes(b"")
    (tmp_path / "fused").mkdir()
    (tmp_path / "fused" / "log.jsonl").write_text(json.dumps({"file": "a.onnx", **row}) + "\n")
    assert main([str(tmp_path)]) == 1
    assert (
        line_of("a.onnx", row) in (told := capsys.readouterr().out)
        and "WRONG  (with 1e-03); n=1: 1.0 ms 1.5 0.9 (itself 0.98)" in told
    )
    assert "wrong: ['a.onnx']; below 0.99: ['a.onnx']; over 60 s: ['a.onnx']" in told
    assert "1 files, 0 judged" in summary({"b.onnx": {"clock_s": 1.0, "status": 2}})


def test_errors_are_over_the_largest_value():
    truth = {"y": np.array([0.0, 4.0, np.inf]), "k": np.array([1, 2])}
    assert distance(truth, {"y": np.array([1.0, 4.0, np.inf]), "k": np.array([1, 2])}) == 0.25
    assert distance(truth, {"y": truth["y"], "k": np.array([1, 3])}) == np.inf
    assert distance(truth, {"y": np.zeros(3), "k": truth["k"]}) == np.inf


def test_the_truth_is_in_float64(tmp_path):
    original = open_model(written(plain(), tmp_path))
    (name,) = (end.name for end in original.model.graph.output)
    assert truth_of(original, {"x": np.ones((2, 6), np.float32)}, [name])[name].dtype == np.float64


def test_values_of_sequences_are_compared_each(tmp_path):
    session = open_session(written(KINDS["sequence out"], tmp_path), threads=1)
    outputs = outputs_of(session, {"x": np.ones(6, np.float32)})
    assert {name: array.shape for name, array in outputs.items()} == {"s.0": (6,), "s.1": (6,)}


def test_a_small_output_may_be_off_by_what_is_little_of_one():
    truth, other = {"y": np.array([1e-5])}, {"y": np.array([1.01e-5])}
    assert distance(truth, other) > 9e-3 and distance(truth, other, least=1.0) < 2e-7


def test_of_a_file_as_it_was_nothing_is_judged(tmp_path):
    path = written(plain(), tmp_path)
    assert judge(path, path, [])["right"]


def test_weights_are_moved_by_a_last_bit(tmp_path):
    cells = np.array([0.0, 1.0, -3.0], np.float32)
    tensors = [onnx.numpy_helper.from_array(cells, "w"), onnx.numpy_helper.from_array(np.arange(3), "k")]
    graph = onnx.helper.make_graph([], "g", [], [], tensors)
    moved = onnx.ModelProto.FromString(moved_weights(onnx.helper.make_model(graph))).graph.initializer
    cells, whole = map(onnx.numpy_helper.to_array, moved)
    assert list(cells) == [
        0.0,
        np.nextafter(np.float32(1), np.float32(2)),
        np.nextafter(np.float32(-3), np.float32(-4)),
    ]
    assert list(whole) == [0, 1, 2]


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.02, False)])
def test_what_is_as_near_to_float64_as_a_model_that_rounds_is_right(factor, right, tmp_path, monkeypatch):
    head, tail = '<ir_version: 9, opset_import: ["": 20]> g (float[n, 8] x) => (float[n, 8] y) ', "y = Sigmoid(c) }"
    rounds = head + "{ a = Cast<to = 16>(x)  b = Cast<to = 1>(a)  c = Mul(b, b)  " + tail
    exact = head + f"{{ k = Constant<value = float {{{factor}}}>()  a = Mul(x, k)  c = Mul(a, a)  {tail}"
    for name, text in (("rounds", rounds), ("exact", exact)):
        (tmp_path / f"{name}.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    monkeypatch.setattr(onnx_judgement, "speed", lambda *_: {"without": 1.0})
    found = onnx_judgement.judge(tmp_path / "rounds.onnx", tmp_path / "exact.onnx", [{"n": 64}])
    assert (found["right"], found["doubt"]) == (right, "far from float64")


@pytest.mark.parametrize(("kind", "allowed"), [("double", False), ("float", True)])
def test_a_rounding_of_float32_is_an_error_in_a_model_of_float64(kind, allowed, tmp_path, monkeypatch):
    head = f'<ir_version: 9, opset_import: ["": 20]> g ({kind}[n, 8] x) => ({kind}[n, 8] y) '
    texts = {"plain": "{ y = Add(x, x) }", "rounds": "{ a = Cast<to = 1>(x)  b = Cast<to = 11>(a)  y = Add(b, b) }"}
    texts["rounds"] = texts["rounds"] if kind == "double" else "{ a = Neg(x)  y = Sub(x, a) }"
    for name, text in texts.items():
        (tmp_path / f"{name}.onnx").write_bytes(onnx.parser.parse_model(head + text).SerializeToString())
    monkeypatch.setattr(onnx_judgement, "speed", lambda *_: {"without": 1.0})
    found = onnx_judgement.judge(tmp_path / "plain.onnx", tmp_path / "rounds.onnx", [{"n": 64}])
    assert found["right"] is allowed
    assert 1e-16 < onnx_judgement.floor_of(open_model(tmp_path / "plain.onnx")) < (1e-15 if kind == "double" else 3e-7)
