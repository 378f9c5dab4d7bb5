"""The command `noyau demo`."""

from __future__ import annotations

import resource

import pytest

from noyau.jobs.cli import main
from noyau.jobs.optimize import command
from noyau.jobs.optimize.onnx.kernel_timing import OnnxBench
from tests.small_models import timed_as, twice, written


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Every kernel is twice as fast as what it replaces."""
    monkeypatch.setattr(OnnxBench, "compare", timed_as(2.0))


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_demo_leaves_nothing_unless_it_is_asked_to(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "files", lambda _: tmp_path / "models")
    (tmp_path / "models").mkdir()
    for exporter in ("dynamo", "torchscript"):
        written(twice(), tmp_path / "models", f"llama_tiny_{exporter}.onnx")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    assert "llama_tiny.onnx: 10 nodes before, 5 after; 2 of 2 kernels kept" in told
    assert "Wrote" not in told and "\nNext:\n  noyau demo --folder F\n" in told and "\n  noyau check FILE.py\n" in told
    assert files(tmp_path / "temporary") == []
    assert main(["demo", "--folder", str(tmp_path / "new" / "kept"), "--exporter", "torchscript"]) == 0
    told, kept = capsys.readouterr().out, tmp_path / "new" / "kept"
    assert "Wrote" in told and f"\nNext:\n  open {kept / 'llama_tiny.html'} in a browser\n" in told
    left = ["llama_tiny.fused.onnx", "llama_tiny.fused.so", "llama_tiny.html", "llama_tiny.onnx"]
    assert files(kept) == left
    assert main(["demo", "--folder", str(kept), "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == [" ".join(told.partition("\nFusing")[0].split())]
    assert main(["demo", "--folder", str(tmp_path / "new" / "kept" / "llama_tiny.onnx" / "deeper")]) == 2
    assert "is no folder and cannot be made one" in capsys.readouterr().err


def test_a_folder_that_is_full_keeps_the_demo_s_model_out(tmp_path, monkeypatch, capsys):
    (tmp_path / "llama_tiny.onnx").write_bytes(b"what was there")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert main(["demo", "--folder", str(tmp_path)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "llama_tiny.onnx cannot be written: File too large" in capsys.readouterr().err
    assert files(tmp_path) == ["llama_tiny.onnx"]
    assert (tmp_path / "llama_tiny.onnx").read_bytes() == b"what was there"
