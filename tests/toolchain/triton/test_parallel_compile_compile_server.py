"""The process that compiles for another one; what it does here with a task is not Triton's."""

from __future__ import annotations

import contextlib
import pickle
import subprocess

from noyau.toolchain.triton.parallel_compile import CompileTask, Unread
from noyau.workers.worker import spawn

PROGRAM = """
import os, signal, time
most, file = {0!r}, {1!r}
from noyau.toolchain.triton.parallel_compile import serve

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
    does = {{"slow": slow, "alone": alone, "late": late, "bad": lambda: 1 / 0, "crash": crash, "fast": lambda: None}}
    does[task.function]()

signal.signal(signal.SIGALRM, signal.SIG_IGN)  # as whoever starts it may have it
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGALRM, signal.SIGCHLD}})
serve(channel, most, work)
"""


def task(function):
    return CompileTask(
        "kernel.py", "kernel", function, {"x": "*fp32"}, {(1,): 4}, {}, {"num_warps": 4}, ("cuda", 90, 32)
    )


def replies(channel, count):
    return [pickle.loads(channel.receive(60)) for _ in range(count)]


@contextlib.contextmanager
def started(most, file):
    process, channel = spawn(PROGRAM.format(most, str(file)), subprocess.DEVNULL)
    with process, contextlib.closing(channel):
        yield process, channel


def send(channel, *functions):
    for function in functions:
        channel.send(pickle.dumps(task(function)))


def test_tasks_are_done_side_by_side_and_what_fails_or_takes_too_long_is_told(tmp_path):
    with started(2, tmp_path / "go on") as (process, channel):
        send(channel, "slow", "fast", "bad", "crash", "late")
        assert dict(replies(channel, 4)) == {1: 0, 2: 1 << 8, 3: 9, 4: 14}
        (tmp_path / "go on").touch()
        assert replies(channel, 1) == [(0, 0)]
        channel.close()
        assert process.wait(60) == 0


def test_no_more_than_so_many_are_done_at_once(tmp_path):
    with started(1, tmp_path / "one") as (_, channel):
        send(channel, *("alone",) * 3)
        assert replies(channel, 3) == [(0, 0), (1, 0), (2, 0)]


def test_a_task_that_is_cut_off_is_none(tmp_path):
    with started(1, tmp_path / "one") as (process, channel):
        send(channel, "fast")
        assert replies(channel, 1) == [(0, 0)]
        channel.end.send((100).to_bytes(8, "big") + b"a part")
        channel.close()
        assert process.wait(60) == 0


def test_what_stands_for_torch_has_every_name_but_those_of_python_s_own():
    torch = Unread("torch")
    assert torch.cuda.empty is not None
    assert not hasattr(torch, "__wrapped__")
