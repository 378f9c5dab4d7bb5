from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

import noyau
from noyau.timing.machine import cpu_model, this_machine
from noyau.toolchain.c import compiler as c_compiler


def test_this_machine_is_described():
    found = this_machine()
    assert found.cpu
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.level == c_compiler.level()
    assert found.os.startswith(platform.system())
    assert found.versions["noyau"] == noyau.__version__
    assert found.versions["python"] == platform.python_version()
    assert {"numpy", "onnx", "onnxruntime"} <= found.versions.keys()


def test_a_named_target_is_the_level():
    levels = {"x86_64": "x86-64", "aarch64": "armv8-a"}
    name = levels.get(platform.machine(), "generic")
    assert this_machine(c_compiler.CompilerOptions(target=name)).level == name


def test_no_compiler_is_said_so(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert this_machine(c_compiler.CompilerOptions(compiler="nobody")).compiler == "none"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor : 0\nmodel name\t: A Processor: 9000\nflags : sse\nmodel name : B\n", "A Processor: 9000"),
        ("model name :\n", None),
        ("", None),
    ],
)
def test_the_processor_s_name_is_read(tmp_path, text, name):
    path = tmp_path / "cpuinfo"
    path.write_text(text, encoding="ascii")
    assert cpu_model(path) == (name or cpu_model(tmp_path / "missing"))


def test_the_processor_is_asked_for_its_name_once(monkeypatch):
    this_machine()
    asked, read = [], Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *args, **words: asked.append(self) or read(self, *args, **words)
    )
    this_machine()
    assert Path("/proc/cpuinfo") not in asked
