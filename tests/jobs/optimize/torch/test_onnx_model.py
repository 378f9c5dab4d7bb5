"""Whole ONNX models on torch."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest
import torch

import noyau
from noyau.errors import InputError, UnsupportedError
from noyau.jobs.cli import main
from noyau.jobs.optimize.torch import onnx_model
from noyau.jobs.optimize.torch.onnx_model import host_model, optimize_model

MODELS = sorted(
    path for path in Path(str(files("noyau") / "jobs" / "demo" / "models")).iterdir() if path.suffix == ".onnx"
)
CPU = torch.device("cpu")


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_model_gives_what_onnxruntime_gives(path):
    host, feeds = host_model(path, CPU, {"batch": 2, "sequence": 5}, None, 0)
    given = host.in_order((), feeds.full.arrays, CPU)
    got = host.module(given)(*given)
    want = onnxruntime.InferenceSession(str(path)).run(None, dict(feeds.full.arrays))
    for mine, right in zip(got, want, strict=True):
        assert np.abs(mine.numpy() - right).max() < 2e-6 * np.abs(right).max()


@pytest.fixture
def small(tmp_path):
    """A norm and a product of rows, of sizes that have names."""
    made = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 18]>
        m (float[rows, 8] x) => (float[rows, 4] y)
        <float[8, 4] w = {WEIGHTS}, int64[1] last = {-1}> {
            square = Mul(x, x)
            mean = ReduceMean<keepdims = 1>(square, last)
            root = Sqrt(mean)
            part = Div(x, root)
            flat = MatMul(part, w)
            y = Tanh(flat)
        }""".replace("WEIGHTS", ", ".join(str(0.01 * at) for at in range(32)))
    )
    onnx.save(made, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def test_it_is_optimised_called_and_saved(small, capsys):
    written, told = small.parent / "m.noyau", small.parent / "m.json"
    places = ("-o", str(written), "--json", str(told))
    assert main(["optimize", str(small), "--device", "cpu", "--dim", "rows=5", "--keep", "all", *places]) == 0
    assert "noyau.load(" in capsys.readouterr().out
    report = json.loads(told.read_text())
    assert [one["kept"] for one in report["kernels"]] == [True]
    x = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(str(small)).run(None, {"x": x})
    (got, *_) = noyau.load(written)(torch.from_numpy(x))
    assert np.abs(got.numpy() - want).max() < 1e-6


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--device", "gpu"), "device=gpu is no device of torch's"),
        (("--device", "cpu", "--dim", "sequence=4,8"), "sequence has 2 numbers, and here a size has one"),
        (("--device", "cpu", "--only", "x"), "--only is for models in onnxruntime"),
        *(
            (("--device", "cpu", *option.split()), f"{option.split()[0]} is for models in onnxruntime")
            for option in (
                "--within 60",
                "--tune",
                "--fresh",
                "--threads 0",
                "--target sm_90",
                "--budget 1e-2",
                f"--calibration {MODELS[0]}",
                "--weights auto",
            )
        ),
        (("--device", "gpu", "--weights", "none", "--no-tune"), "device=gpu is no device of torch's"),
    ],
)
def test_the_command_names_what_does_not_fit(arguments, told, tmp_path, capsys):
    assert main(["optimize", str(MODELS[0]), *arguments, "-o", str(tmp_path / "m.noyau")]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_what_does_not_fit_is_named():
    host, feeds = host_model(MODELS[0], CPU, {"batch": 1, "sequence": 4}, None, 0)
    with pytest.raises(InputError, match=r"has the inputs .*, and nothing is missing or unknown"):
        host.in_order((), {**feeds.full.arrays, "nothing": 1}, CPU)
    with pytest.raises(InputError, match="and 9 are given"):
        host.in_order([1] * 9, {}, CPU)
    with pytest.raises(InputError, match="is no device of torch's"):
        optimize_model(MODELS[0], "gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="device=cuda: "):
            optimize_model(MODELS[0], "cuda")


def of_text(folder, body, before=""):
    head = '<ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]> m (float[2] x) => (float[n] y)'
    onnx.save(onnx.parser.parse_model(f"{head} {before} {{ {body} }}"), folder / "m.onnx")
    return host_model(folder / "m.onnx", CPU, {}, None, 0)[0]


def test_a_constant_of_floats_is_what_is_padded_with(tmp_path):
    host = of_text(tmp_path, "y = Pad(x, pads, value)", "<int64[2] pads = {1, 0}, float value = {2.5}>")
    (made,) = host.module([torch.ones(2)])(torch.ones(2))
    assert made.tolist() == [2.5, 1, 1]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("z = com.microsoft.Softmax(x) y = Neg(z)", "com.microsoft::Softmax has no function of torch"),
        ("r = RandomNormal<shape = [2]>() y = Add(x, r)", "RandomNormal has no function of torch"),
        ("z, mask = Dropout(x) c = Cast<to = 1>(mask) y = Add(z, c)", "mask, a result of Dropout, is not made"),
        ("y = Pad(x, pads, v)", "Pad has a number that only a run tells"),
    ],
)
def test_nodes_that_torch_has_nothing_for(body, told, tmp_path):
    body = body.replace("v)", "z)").replace("y = Pad", "at = Constant<value_ints = [0]>() z = Gather(x, at) y = Pad")
    with pytest.raises(UnsupportedError, match=told):
        of_text(tmp_path, body, "<int64[2] pads = {1, 0}>").module([torch.ones(2)])


def test_shapes_that_were_used_last_are_kept_from_several_threads_too(monkeypatch):
    class Host:
        def module(self, given):
            return given[0].shape[0]

    made = []
    monkeypatch.setattr(onnx_model, "optimize", lambda size, *_: made.append(size) or size)
    monkeypatch.setattr(onnx_model, "MOST_SHAPES", 3)
    model = onnx_model.HostedModel(Host(), CPU, {}, ())
    for size in (1, 2, 3, 2, 4):
        assert model.of([torch.empty(size)]) == size
    assert list(model.modules.values()) == [1, 2, 4]
    assert made == [1, 2, 3, 4]
    with ThreadPoolExecutor(4) as pool:
        sizes = [1 + at % 7 for at in range(400)]
        assert list(pool.map(lambda size: model.of([torch.empty(size)]), sizes)) == sizes
    assert len(model.modules) == 3
    assert model.first == 1
