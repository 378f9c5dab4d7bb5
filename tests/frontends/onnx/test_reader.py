"""Reading a model file: what is refused, in one line, and what stays on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from noyau.errors import ModelError
from noyau.frontends.onnx import import_model, read
from tests.frontends.onnx.models import model, results

ADD = "(float[n] x) => (float[n] y) { y = Add(x, x) }"


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def with_external(location: str, *, offset: str = "0", length: str | None = None, rows: int = 50) -> onnx.ModelProto:
    """A model whose one weight, f32[rows, 2], lies in another file."""
    proto = model("(float[2] x) => (float[rows, 2] y) { y = Add(x, w) }")
    weight = proto.graph.initializer.add(name="w", data_type=1, dims=[rows, 2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    entries = {"location": location, "offset": offset, **({"length": length} if length is not None else {})}
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    return proto


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_model_is_read(tmp_path):
    assert read(saved(tmp_path, model(ADD))).graph.node[0].op_type == "Add"


def test_a_missing_file(tmp_path):
    assert "cannot be read: No such file" in refusal(tmp_path / "none.onnx")


def test_a_folder(tmp_path):
    assert "cannot be read" in refusal(tmp_path)


def test_an_empty_file(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    assert refusal(tmp_path / "model.onnx").endswith("is empty")


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip", b"\x7fELF" + bytes(100), b"{}", b"\x00" * 64, b"x = 1\n"])
def test_no_onnx_at_all(tmp_path, content):
    (tmp_path / "model.onnx").write_bytes(content)
    assert "is no ONNX model" in refusal(tmp_path / "model.onnx")


def test_every_truncation_is_refused_or_whole(tmp_path):
    content = model(ADD).SerializeToString()
    path, refused = tmp_path / "model.onnx", 0
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        try:
            read(path)
        except ModelError:
            refused += 1
    assert refused > 0.8 * len(content)


def test_another_protobuf_has_no_graph(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx.OperatorSetIdProto(version=3).SerializeToString())
    assert "no graph or no opset" in refusal(path)


def test_a_model_of_an_old_opset_is_read_as_one_of_a_newer(tmp_path):
    assert read(saved(tmp_path, model(ADD, opset=11))).opset_import[0].version == 13


def test_external_data_is_found(tmp_path):
    weight = np.arange(100, dtype=np.float32).reshape(50, 2)
    (tmp_path / "w.bin").write_bytes(b"head" + weight.tobytes())
    found = import_model(read(saved(tmp_path, with_external("w.bin", offset="4"))), tmp_path)
    np.testing.assert_array_equal(found.load_initializer("w"), weight)
    np.testing.assert_array_equal(results(found, {"x": np.ones(2, np.float32)})[0], weight + 1)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("none.bin", "is missing"),
        ("", "names no file"),
        ("a\0b", "names no file"),
        ("/etc/passwd", "absolute path"),
        ("C:\\secret", "absolute path"),
        ("~/secret", "absolute path"),
        ("../secret", "points outside the folder"),
        ("inner/../../secret", "points outside the folder"),
        ("..\\secret", "points outside the folder"),
        ("link", "leaves the folder of the model through the link"),
        ("linked/secret", "leaves the folder of the model through the link"),
        (".", "is missing"),
    ],
)
def test_external_data_outside_the_folder(tmp_path, location, message):
    folder, outside = tmp_path / "models", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(bytes(400))
    (tmp_path / "secret").write_bytes(bytes(400))
    (folder / "link").symlink_to(outside / "secret")
    (folder / "linked").symlink_to(outside)
    assert message in refusal(saved(folder, with_external(location)))


@pytest.mark.parametrize(
    ("offset", "length", "message"),
    [
        ("0", "800", "has 400: is the file cut off?"),
        ("300", None, "has 400: is the file cut off?"),
        ("-4", None, "no valid offset"),
        ("1e3", None, "no valid offset"),
        ("0", "9" * 30, "no valid offset or length"),
    ],
)
def test_external_data_that_is_cut_off(tmp_path, offset, length, message):
    (tmp_path / "w.bin").write_bytes(bytes(400))
    assert message in refusal(saved(tmp_path, with_external("w.bin", offset=offset, length=length)))


def test_external_data_of_another_length(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(400))
    found = import_model(read(saved(tmp_path, with_external("w.bin", length="396"))), tmp_path)
    with pytest.raises(ModelError, match="has 396 external bytes, not 400"):
        found.load_initializer("w")


def test_external_data_within_a_subgraph_is_checked(tmp_path):
    proto = model(
        "(bool c) => (float[1] y) { y = If(c) <then_branch = t () => (float[1] a) { a = Constant<value = "
        "float[1] {1}>() }, else_branch = e () => (float[1] b) { b = Constant<value = float[1] {1}>() }> }"
    )
    tensor = proto.graph.node[0].attribute[0].g.node[0].attribute[0].t
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    assert "points outside" in refusal(saved(tmp_path, proto))


LAZY = """
import resource, sys
from pathlib import Path
from noyau.frontends.onnx import import_model, read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = Path(sys.argv[1])
found = import_model(read(path), path.parent)
assert list(found.initializers) == ["w"], list(found.initializers)
row = found.load_initializer("w")[400_000_000]
assert row.tolist() == [0.0, 0.0], row
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_three_gigabytes_of_external_data_stay_on_disk(tmp_path):
    rows = 402_653_184  # of 8 bytes: 3 GiB
    with (tmp_path / "w.bin").open("wb") as sparse:
        sparse.truncate(rows * 8)
    path = saved(tmp_path, with_external("w.bin", rows=rows))
    run = subprocess.run(
        [sys.executable, "-c", LAZY, os.fspath(path)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert int(run.stdout) < 100, f"{run.stdout} MiB"
