"""The process that compiles for another one; what it does here with a task is not Triton's."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import pytest

from noyau.toolchain.triton.compile_server import Task, Unread, tasks, told

PROGRAM = """
import os, signal, sys, time
most, file, *sys.path[:] = sys.argv[1:]
from noyau.toolchain.triton.compile_server import serve

def slow():
    while not os.path.exists(file):
        time.sleep(0.01)

def alone():
    os.mkdir(file)
    time.sleep(0.05)
    os.rmdir(file)

def late():
    if signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        os.kill(os.getpid(), signal.SIGALRM)

def work(task):
    crash = lambda: os.kill(os.getpid(), signal.SIGKILL)
    does = {"slow": slow, "alone": alone, "late": late, "bad": lambda: 1 / 0, "crash": crash, "fast": lambda: None}
    does[task.function]()

signal.signal(signal.SIGALRM, signal.SIG_IGN)  # as whoever starts it may have it
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGCHLD})
serve(os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0), int(most), work)
"""


def task(function):
    return Task("kernel.py", "kernel", function, {"x": "*fp32"}, {(1,): 4}, {}, {"num_warps": 4}, ("cuda", 90, 32))


def answers(process, count):
    found = (process.stdout.readline().split() for _ in range(count))
    return [(int(number), int(status)) for number, status in found]


def started(most, file):
    command = [sys.executable, "-c", PROGRAM, str(most), str(file), *sys.path]
    return subprocess.Popen(command, stdin=-1, stdout=-1, bufsize=0)


def test_tasks_are_done_side_by_side_and_what_fails_or_takes_too_long_is_told(tmp_path):
    with started(2, tmp_path / "go on") as process:
        process.stdin.write(b"".join(map(told, map(task, ("slow", "fast", "bad", "crash", "late")))))
        first = dict(answers(process, 4))
        assert first == {1: 0, 2: 1 << 8, 3: 9, 4: 14}
        (tmp_path / "go on").touch()
        assert answers(process, 1) == [(0, 0)]
        process.stdin.close()
        assert process.wait(60) == 0


def test_no_more_than_so_many_are_done_at_once(tmp_path):
    with started(1, tmp_path / "one") as process:
        process.stdin.write(b"".join(map(told, map(task, ("alone",) * 3))))
        assert answers(process, 3) == [(0, 0), (1, 0), (2, 0)]
        process.stdin.close()


class Trickle(io.BytesIO):
    """A stream that gives less than it is asked for, as a pipe does."""

    def read(self, count=-1):
        return super().read(min(count, 5))


def test_a_task_may_come_in_pieces():
    given = [task("first"), replace(task("second"), path="x" * 1000)]
    assert list(tasks(Trickle(b"".join(map(told, given))))) == given


@pytest.mark.parametrize("kept", [0, 3, 8, 20, -1])
def test_a_task_that_is_cut_off_ends_the_stream(kept):
    assert list(tasks(io.BytesIO(told(task("whole")) + told(task("cut"))[:kept]))) == [task("whole")]


def test_what_stands_for_torch_has_every_name_but_those_of_python_s_own():
    torch = Unread("torch")
    assert torch.cuda.empty is not None
    assert not hasattr(torch, "__wrapped__")
