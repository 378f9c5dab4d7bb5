"""The wheel: pure Python, and noyau runs from it in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import numpy as np, noyau

@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x

assert twice(np.ones(3, np.float32)).tolist() == [2, 2, 2]
print(noyau.__file__)
"""


def test_noyau_runs_from_its_wheel_in_an_empty_environment(tmp_path):
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True, env=alone)
    ran = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=True, env=alone)
    assert str(tmp_path / "empty") in ran.stdout
    for words in (["doctor"], ["check", "--help"], ["bench", "--help"]):
        subprocess.run([python, "-m", "noyau", *words], check=True, capture_output=True, cwd=tmp_path, env=alone)
