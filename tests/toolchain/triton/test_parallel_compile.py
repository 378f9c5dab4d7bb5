"""Launches that another process compiles; that process is here one that compiles nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from triton.runtime.jit import JITFunction

from noyau.toolchain.triton import parallel_compile
from noyau.toolchain.triton.parallel_compile import CompileTask, ParallelCompiler

PROGRAM = """
from noyau.toolchain.triton.parallel_compile import serve
does = {"": lambda: None, "sleep": lambda: __import__("time").sleep(600)}
serve(channel, 2, lambda task: does[task.function]())
"""
ENDS = "channel.receive()"
SLEEPS = "import time; time.sleep(600)"


def task(function="", path=""):
    return CompileTask(path, "", function, {}, {}, {}, {}, ())


def waited(events, time_s=60):
    """Whether the events of launches that are begun come to be."""
    assert None not in events, "not begun"
    return all(event.wait(time_s) for event in events)


@pytest.fixture
def compiler(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(parallel_compile, "find_spec", lambda name: name)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(parallel_compile, "task_of", lambda *_: task())
    made = ParallelCompiler()
    yield made
    made.end()


def test_each_launch_is_told_when_it_is_compiled(compiler):
    compiler.start()
    process = compiler.process
    compiler.start()
    assert compiler.process is process
    assert waited([compiler.begin(None, (), {}) for _ in range(3)])


def test_a_task_that_is_longer_than_a_pipe_is_taken(compiler, monkeypatch):
    monkeypatch.setattr(parallel_compile, "SEND_S", 300)
    compiler.start()
    assert waited([compiler.send(pickle.dumps(task(path="x" * 1_000_000))), compiler.send(pickle.dumps(task()))])


def test_nobody_waits_for_a_process_that_takes_nothing(compiler, monkeypatch):
    monkeypatch.setattr(parallel_compile, "SEND_S", 0.05)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", SLEEPS)
    compiler.start()
    given = compiler.send(pickle.dumps(task()))
    assert compiler.send(bytes(1_000_000)) is None
    assert waited([given])
    process = compiler.process
    compiler.start()
    assert compiler.process is process
    assert compiler.send(pickle.dumps(task())) is None


def test_a_process_that_compiles_nothing_is_waited_for_once(compiler, monkeypatch):
    monkeypatch.setattr(parallel_compile, "PATIENCE_S", 0.05)
    monkeypatch.setattr(parallel_compile, "_PROGRAM", SLEEPS)
    compiler.start()
    process = compiler.process
    given = [compiler.send(pickle.dumps(task())) for _ in range(2)]
    compiler.wait(given)
    assert waited(given)
    assert process.wait(60) == -9
    compiler.start()
    assert compiler.process is None
    compiler.wait(given)
    assert compiler.send(pickle.dumps(task())) is None


def test_a_launch_is_waited_for_as_long_as_others_are_compiled(compiler, monkeypatch):
    now, asked = [100.0], []

    def wait(patience_s):
        """Another launch is compiled shortly before patience ends, twice."""
        asked.append(patience_s)
        now[0] += patience_s
        if len(asked) < 3:
            compiler.last_reply_s = now[0] - 10
        return len(asked) == 4

    monkeypatch.setattr(parallel_compile, "time", SimpleNamespace(monotonic=lambda: now[0]))
    compiler.wait([SimpleNamespace(wait=wait)])
    assert asked == [30, 20, 20]
    assert compiler.stuck


def test_a_task_that_is_given_in_part_ends_the_process(compiler, monkeypatch):
    def interrupted(task, patience_s):
        compiler.channel.end.send(task[:9])
        raise KeyboardInterrupt

    compiler.start()
    monkeypatch.setattr(compiler.channel, "send", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiler.send(pickle.dumps(task()))
    assert compiler.process.wait(60) == -9


def test_those_that_compile_end_with_the_process(compiler):
    compiler.start()
    slow = compiler.send(pickle.dumps(task("sleep")))
    assert waited([compiler.send(pickle.dumps(task()))])
    assert not slow.is_set()
    compiler.end()
    assert waited([slow], 30)  # its pipe is closed when the last process that holds it has ended


def test_nobody_waits_for_a_process_that_ends(compiler, monkeypatch):
    monkeypatch.setattr(parallel_compile, "_PROGRAM", ENDS)
    compiler.start()
    process = compiler.process
    assert waited([compiler.begin(None, (), {})])
    assert process.returncode is not None  # it is no zombie
    assert compiler.channel.fileno() == -1
    assert compiler.begin(None, (), {}) is None


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
def test_where_nothing_compiles_nothing_is_begun(compiler, monkeypatch, where, name, value):
    assert compiler.begin(None, (), {}) is None
    monkeypatch.setitem(where, name, value)
    compiler.start()
    assert compiler.process is None
    assert compiler.begin(None, (), {}) is None


def test_another_triton_compiles_here(compiler, monkeypatch):
    def task_of(*_):
        raise AttributeError("_pack_args")

    compiler.start()
    monkeypatch.setattr(parallel_compile, "task_of", task_of)
    assert compiler.begin(None, (), {}) is None


FOUND = """
import sys
from pathlib import Path

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from noyau.toolchain.triton.parallel_compile import ParallelCompiler
from noyau.ir.loops import Kernel, Launch
from noyau.hosts.torch.cuda.launch_records import foretell, function_of


class Driver:
    get_current_device = lambda self: 0
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_stream = lambda self, device: 0


driver.set_active(Driver())
text = Path(sys.argv[1]).read_text("ascii")
launches = foretell(function_of(text, Kernel("full_sum", (), (), (Launch(()), Launch(())))), [torch.empty(512, 256)])
compiler = ParallelCompiler()
compiler.start()
events = [compiler.begin(*launch) for launch in launches]
assert None not in events, "not begun"
assert all(event.wait(300) for event in events)
hits = []
knobs.compilation.listener = lambda **told: hits.append(told["cache_hit"])
for function, arguments, options in launches:
    function.warmup(*arguments, grid=(1,), **options)
compiler.end()
print(hits)
"""


@pytest.mark.skipif(
    not hasattr(JITFunction, "_pack_args"), reason="Triton before 3.5 compiles a launch where it is called"
)
def test_triton_finds_what_was_compiled_beside(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "XDG_CACHE_HOME": str(tmp_path)}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    text = Path(__file__).parents[2] / "golden" / "triton" / "full_sum.py"
    command = [sys.executable, "-c", FOUND, str(text)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.stdout.strip() == "[True, True]", told.stderr
