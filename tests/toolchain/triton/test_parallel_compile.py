"""Launches that another process compiles; that process is here one that compiles nothing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from noyau.toolchain.triton import parallel_compile
from noyau.toolchain.triton.compile_server import Task, told
from noyau.toolchain.triton.parallel_compile import Beside

PROGRAM = """
import os, sys
sys.path[:] = sys.argv[1:]
from noyau.toolchain.triton.compile_server import serve
does = {"": lambda: None, "sleep": lambda: __import__("time").sleep(600)}
serve(os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0), 2, lambda task: does[task.function]())
"""
ENDS = "import sys; sys.stdin.buffer.read(8)"
SLEEPS = "import time; time.sleep(600)"


def task(function="", path=""):
    return Task(path, "", function, {}, {}, {}, {}, ())


def waited(events, time_s=60):
    """Whether the events of launches that are begun come to be."""
    assert None not in events, "not begun"
    return all(event.wait(time_s) for event in events)


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(parallel_compile, "find_spec", lambda name: name)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(parallel_compile, "task_of", lambda *_: task())
    made = Beside()
    yield made
    made.end()


def test_each_launch_is_told_when_it_is_compiled(beside):
    beside.start()
    process = beside.process
    beside.start()
    assert beside.process is process
    assert waited([beside.begin(None, (), {}) for _ in range(3)])


def test_a_task_that_is_longer_than_a_pipe_is_taken(beside, monkeypatch):
    monkeypatch.setattr(parallel_compile, "GIVE_S", 300)
    beside.start()
    assert waited([beside.give(told(task(path="x" * 1_000_000))), beside.give(told(task()))])


def test_nobody_waits_for_a_process_that_takes_nothing(beside, monkeypatch):
    monkeypatch.setattr(parallel_compile, "GIVE_S", 0.05)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", SLEEPS)
    beside.start()
    given = beside.give(told(task()))
    assert beside.give(bytes(1_000_000)) is None
    assert waited([given])
    process = beside.process
    beside.start()
    assert beside.process is process
    assert beside.give(told(task())) is None


def test_a_process_that_compiles_nothing_is_waited_for_once(beside, monkeypatch):
    monkeypatch.setattr(parallel_compile, "PATIENCE_S", 0.05)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", SLEEPS)
    beside.start()
    process = beside.process
    given = [beside.give(told(task())) for _ in range(2)]
    beside.wait(given)
    assert waited(given)
    assert process.wait(60) == -9
    beside.start()
    assert beside.process is None
    beside.wait(given)
    assert beside.give(told(task())) is None


def test_a_launch_is_waited_for_as_long_as_others_are_compiled(beside, monkeypatch):
    now, asked = [100.0], []

    def wait(patience_s):
        """Another launch is compiled shortly before patience ends, twice."""
        asked.append(patience_s)
        now[0] += patience_s
        if len(asked) < 3:
            beside.heard = now[0] - 10
        return len(asked) == 4

    monkeypatch.setattr(parallel_compile, "time", SimpleNamespace(monotonic=lambda: now[0]))
    beside.wait([SimpleNamespace(wait=wait)])
    assert asked == [30, 20, 20]
    assert beside.stuck


def test_a_task_that_is_given_in_part_ends_the_process(beside, monkeypatch):
    def interrupted(pipe, task):
        pipe.write(task[:9])
        raise KeyboardInterrupt

    beside.start()
    monkeypatch.setattr(parallel_compile, "sent", interrupted)
    with pytest.raises(KeyboardInterrupt):
        beside.give(told(task()))
    assert beside.process.wait(60) == -9


def test_those_that_compile_end_with_the_process(beside):
    beside.start()
    slow = beside.give(told(task("sleep")))
    assert waited([beside.give(told(task()))])
    assert not slow.is_set()
    beside.end()
    assert waited([slow], 30)  # its pipe is closed when the last process that holds it has ended


def test_nobody_waits_for_a_process_that_ends(beside, monkeypatch):
    monkeypatch.setattr(parallel_compile, "_PROGRAM", ENDS)
    beside.start()
    process = beside.process
    assert waited([beside.begin(None, (), {})])
    assert process.returncode is not None  # it is no zombie
    assert process.stdin.closed
    assert process.stdout.closed
    assert beside.begin(None, (), {}) is None


def unspecified(name):
    raise ValueError(f"{name}.__spec__ is None")


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (os.environ, "TRITON_INTERPRET", "1"),
        (sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(hip="6.4"))),
        (vars(parallel_compile), "find_spec", lambda name: None),
        (vars(parallel_compile), "find_spec", unspecified),
        (vars(sys), "executable", None),
    ],
    ids=["interpreted", "ROCm", "no Triton", "no spec", "no interpreter"],
)
def test_where_nothing_compiles_nothing_is_begun(beside, monkeypatch, where, name, value):
    assert beside.begin(None, (), {}) is None
    monkeypatch.setitem(where, name, value)
    beside.start()
    assert beside.process is None
    assert beside.begin(None, (), {}) is None


def test_another_triton_compiles_here(beside, monkeypatch):
    def task_of(*_):
        raise AttributeError("_pack_args")

    beside.start()
    monkeypatch.setattr(parallel_compile, "task_of", task_of)
    assert beside.begin(None, (), {}) is None


FOUND = """
import sys
from pathlib import Path

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from noyau.toolchain.triton.parallel_compile import Beside
from noyau.ir.loops import Kernel, Launch
from noyau.hosts.torch.cuda.launch import foretold, function_of


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
assert None not in events, "not begun"
assert all(event.wait(300) for event in events)
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
    text = Path(__file__).parents[2] / "golden" / "triton" / "full_sum.py"
    command = [sys.executable, "-c", FOUND, str(text)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "[True, True]", told.stderr
