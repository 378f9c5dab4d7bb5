"""The README's examples of ops run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
SAID = {
    "A NumPy function as an op": ("", "numpy"),
    "Ops that models are made of": ("LlamaRMSNorm", "transformers"),
    "Functions of numbers over arrays": ("", "numpy"),
}


def example(section: str) -> str:
    """The first block of Python under a heading."""
    found = re.search(rf"^## {section}\n.*?```python\n(.*?)```", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, section
    return found[1]


@pytest.mark.long
@pytest.mark.parametrize("section", SAID)
def test_an_example_runs(section, tmp_path):
    said, needed = SAID[section]
    pytest.importorskip(needed)
    script = tmp_path / "example.py"
    script.write_text(example(section), "utf-8")
    found = {**os.environ, "PYTHONPATH": str(README.parent)}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=found, check=False)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


def test_what_an_example_calls_is_there():
    import noyau

    called = {name for section in SAID for name in re.findall(r"noyau\.(\w+)", example(section))}
    assert called >= {"map", "zip", "reduce", "patch", "unpatch", "check", "bench"}
    assert [name for name in called if not hasattr(noyau, name)] == []
