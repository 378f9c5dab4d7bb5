from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from noyau.errors import DeviceError, OutputError
from noyau.hosts.onnxruntime import sessions
from noyau.hosts.onnxruntime.sessions import beside_its_data, missing_provider, one_line, open_session
from tests.small_models import NODE, chain, model_of, value

WEIGHT = np.arange(12, dtype=np.float32).reshape(2, 6)


def content(location: str) -> bytes:
    """x times a weight of 2 x 6 that lies in another file."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2, 6])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    nodes = [NODE("Mul", ["x", "w"], ["a"]), *chain("a", "y")]
    return model_of(nodes, [value("x", (2, 6))], [value("y", (2, 6))], [weight]).SerializeToString()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "temporary").mkdir()
    for name in ("w.data", "sub/w.data", "other"):
        (tmp_path / "model" / name).write_bytes(WEIGHT.tobytes())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "model"


@pytest.mark.parametrize("location", ["w.data", "sub/w.data", "./sub/../w.data"])
def test_a_file_stands_beside_links_to_its_data_alone(location: str, folder: Path) -> None:
    with beside_its_data(content(location), folder) as path:
        assert isinstance(path, Path)
        assert path.read_bytes() == content(location)
        assert (path.parent / location).read_bytes() == WEIGHT.tobytes()
        assert not (path.parent / "other").exists()
    assert os.listdir(tempfile.gettempdir()) == []
    assert len(list(folder.rglob("*.data"))) == 2


def test_a_model_without_external_data_stays_in_memory(folder: Path) -> None:
    model = model_of(chain("x", "y"), [value("x")], [value("y")]).SerializeToString()
    with beside_its_data(model, folder) as same:
        assert same is model


def test_what_cannot_be_written_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    with pytest.raises(OutputError, match="copy of the model for onnxruntime cannot be written: No such file"):
        beside_its_data(content("w.data"), folder).__enter__()


@pytest.mark.parametrize("release", ["1.17.0", "1.21.1", "1.22.0", "2.0", "1.31.1+cpu", "odd"])
def test_only_an_old_onnxruntime_is_given_a_file(release: str, folder: Path) -> None:
    with sessions._with_data(content("w.data"), folder, release) as given:
        assert isinstance(given, Path) == (release in ("1.17.0", "1.21.1"))
    with sessions._with_data(folder / "a.onnx", None, release) as given:
        assert given == folder / "a.onnx"


def test_without_the_provider_of_cuda_there_is_one_clear_error() -> None:
    if not (lacks := missing_provider("cuda")):
        pytest.skip("this onnxruntime has it")
    release = sessions.load_onnxruntime().__version__
    assert lacks == f"onnxruntime {release} has no CUDA provider: install onnxruntime-gpu in its place"
    with pytest.raises(DeviceError, match="has no CUDA provider"):
        open_session(model_of(chain("x", "y"), [value("x")], [value("y")]).SerializeToString(), device="cuda")
    assert missing_provider("cpu") == ""


def test_ctrl_c_while_onnxruntime_is_loaded_is_no_fault_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("builtins.__import__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sessions.load_onnxruntime()


def test_a_provider_that_does_not_start_is_no_session_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime warns, and takes the CPU."""
    monkeypatch.setattr(sessions, "missing_provider", lambda device: "")
    monkeypatch.setitem(sessions._PROVIDERS, "cuda", ["AzureExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(sessions, "_providers_of", lambda device: ["CPUExecutionProvider"])
    with pytest.raises(DeviceError, match=r"^onnxruntime's CUDA provider does not start: it needs a GPU, its driver"):
        open_session(model_of(chain("x", "y"), [value("x")], [value("y")]).SerializeToString(), device="cuda")


def test_an_error_of_onnxruntime_names_no_place_in_cpp():
    shape = onnx.numpy_helper.from_array(np.array([7, -1]), "s")
    model = model_of([NODE("Reshape", ["x", "s"], ["y"])], [value("x")], [value("y", None)], [shape])
    with pytest.raises(Exception, match="ONNXRuntimeError") as caught:
        open_session(model.SerializeToString()).run(None, {"x": np.ones(5, np.float32)})
    told = one_line(caught.value)
    assert told.startswith("Reshape node. ") and "The input tensor cannot be reshaped" in told
    assert "::" not in told and "/core/" not in told and "was false" not in told
