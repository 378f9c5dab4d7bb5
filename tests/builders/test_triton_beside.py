"""Launches that another process compiles; that process is here one that compiles nothing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noyau.builders import triton_beside
from noyau.builders.triton_beside import Beside
from noyau.builders.triton_forking import Task

PROGRAM = """
import os, sys
sys.path[:] = sys.argv[1:]
from noyau.builders.triton_forking import serve
serve(os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0), lambda task: None)
"""
ENDS = "import sys; sys.stdin.buffer.read(8)"


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(triton_beside, "find_spec", lambda name: name)
    monkeypatch.setattr(triton_beside, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(triton_beside, "task_of", lambda *_: Task("", "", "", {}, {}, {}, {}, ()))
    made = Beside()
    yield made
    made.end()


def test_each_launch_is_told_when_it_is_compiled(beside):
    beside.start()
    process = beside.process
    beside.start()
    assert beside.process is process
    events = [beside.begin(None, (), {}) for _ in range(3)]
    assert all(event.wait(10) for event in events)


def test_nobody_waits_for_a_process_that_ends(beside, monkeypatch):
    monkeypatch.setattr(triton_beside, "_PROGRAM", ENDS)
    beside.start()
    event = beside.begin(None, (), {})
    assert event.wait(10)
    beside.process.wait(10)
    assert beside.begin(None, (), {}) is None


def test_where_nothing_compiles_nothing_is_begun(beside, monkeypatch):
    assert beside.begin(None, (), {}) is None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    beside.start()
    assert beside.process is None


def test_another_triton_compiles_here(beside, monkeypatch):
    def task_of(*_):
        raise AttributeError("_pack_args")

    beside.start()
    monkeypatch.setattr(triton_beside, "task_of", task_of)
    assert beside.begin(None, (), {}) is None


FOUND = """
import sys
from pathlib import Path

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from noyau.builders.triton_beside import Beside
from noyau.ir.loops import Kernel, Launch
from noyau.runtimes.torch.triton_launching import foretold, function_of


class Driver:
    get_current_device = lambda self: 0
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_stream = lambda self, device: 0


driver.set_active(Driver())
text = Path(sys.argv[1]).read_text("ascii")
launches = foretold(function_of(text, Kernel("full_sum", (), (), (Launch(()), Launch(())))), [torch.empty(512, 256)])
beside = Beside()
beside.start()
events = [beside.begin(*launch) for launch in launches]
assert all(event.wait(60) for event in events)
hits = []
knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
for function, arguments, options in launches:
    function.warmup(*arguments, grid=(1,), **options)
beside.end()
print(hits)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_triton_finds_what_was_compiled_beside(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "XDG_CACHE_HOME": str(tmp_path)}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    text = Path(__file__).parents[1] / "golden" / "triton" / "full_sum.py"
    command = [sys.executable, "-c", FOUND, str(text)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "[True, True]", told.stderr
