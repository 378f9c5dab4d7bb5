"""How much memory the main job takes on a model whose weights lie in another file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks import large_model
from tests.large_model import write_large_model

ROOT = Path(__file__).resolve().parents[4]
BIT = 2**20
# Weights are held to be large from a megabyte on.
PROGRAM = """
import sys
import noyau
from noyau.hosts.onnxruntime import source_model as original
original.LARGE = 2**20
noyau.optimize(sys.argv[1], keep="all", dims={"sequence": 4}, budget_s=0.01).save(sys.argv[2])
"""


def held(bytes_: int) -> list[str]:
    return [sys.executable, "-c", f"import time; x = b'x' * {bytes_}; time.sleep(1)"]


def test_memory_is_measured_of_children_too():
    alone = large_model.watched(held(200 * BIT))
    assert alone.status == 0
    assert 200 * BIT < alone.anonymous < 300 * BIT
    program = f"import subprocess; subprocess.run({held(200 * BIT)!r})"
    assert 200 * BIT < large_model.watched([sys.executable, "-c", program]).anonymous < 300 * BIT


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_weights_in_another_file_are_never_loaded_whole(tmp_path, monkeypatch):
    """384 MiB in three weights: with all processes together, less than they take is allocated."""
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(ROOT))
    model = write_large_model(tmp_path, hidden=1024, intermediate=32768)
    assert model.total_bytes == 384 * BIT
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "f.onnx"
    peaks = large_model.watched([sys.executable, "-c", PROGRAM, str(model.path), str(output)])
    assert peaks.status == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["f.onnx", "f.so", "large.data"]
    # Python, NumPy, onnx and onnxruntime in three processes take 200 MiB; a copy of the weights would be beyond this.
    assert peaks.anonymous < 384 * BIT
    assert peaks.mapped > model.largest_bytes
