"""The process that compiles for another one; what it does here with a task is not Triton's."""

from __future__ import annotations

import subprocess
import sys

from noyau.builders.triton_forking import Task, Unread, told

PROGRAM = """
import os, sys, time
sys.path[:] = sys.argv[1:]
from noyau.builders.triton_forking import serve
def work(task):
    does = {"slow": lambda: time.sleep(0.2), "bad": lambda: 1 / 0, "crash": os.abort, "fast": lambda: None}
    does[task.function]()
serve(os.fdopen(0, "rb", buffering=0), os.fdopen(1, "wb", buffering=0), work)
"""


def task(function):
    return Task("kernel.py", "kernel", function, {"x": "*fp32"}, {(1,): 4}, {}, {"num_warps": 4}, ("cuda", 90, 32))


def answers(process, count):
    found = (process.stdout.readline().split() for _ in range(count))
    return [(int(number), int(status)) for number, status in found]


def test_tasks_are_done_side_by_side_and_what_fails_is_told():
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *sys.path], stdin=-1, stdout=-1, bufsize=0) as process:
        process.stdin.write(b"".join(map(told, map(task, ("slow", "fast", "bad", "crash")))))
        first = dict(answers(process, 3))
        assert first[1] == 0
        assert first[2] != 0
        assert first[3] != 0
        assert answers(process, 1) == [(0, 0)]
        process.stdin.close()
        assert process.wait(10) == 0


def test_what_stands_for_torch_has_every_name_but_those_of_python_s_own():
    torch = Unread("torch")
    assert torch.cuda.empty is not None
    assert not hasattr(torch, "__wrapped__")
