"""Launches of Triton compiled beside this process, several at once: its compiler is Python's for a third of the time,
so that threads would wait for each other."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from noyau.builders.triton_forking import Task, told

PATIENCE_S = 30.0  # for one launch; it takes a second
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from noyau.builders.triton_forking import main; main()"


class Beside:
    """A process that compiles. Where it is not there, or anything goes wrong with it, nothing is compiled beside:
    Triton does it when a launch is first called."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        self.waiting: dict[int, threading.Event] = {}
        self.count = 0

    def start(self) -> None:
        """Start the process, where there is none and Triton compiles, and do not wait for it: it takes it a second or
        two to import what it needs."""
        with self.lock, contextlib.suppress(OSError):
            compiles = os.name == "posix" and not os.environ.get("TRITON_INTERPRET") and find_spec("triton") is not None
            if not compiles or (self.process is not None and self.process.poll() is None):
                return
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process
            )
            self.waiting, self.count = {}, 0
            threading.Thread(target=_listened, args=(self.process, self.waiting), daemon=True).start()

    def begin(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> threading.Event | None:
        """Begin with a launch; the event is set when it is compiled, or was given up. None where it is not begun."""
        if self.process is not None:
            with contextlib.suppress(Exception):  # Triton's insides are other ones
                return self.give(told(task_of(function, arguments, options)))
        return None

    def give(self, task: bytes) -> threading.Event | None:
        """As `begin`, of a launch that is spelt as a task."""
        with self.lock:
            process = self.process
            if process is None or process.stdin is None or process.poll() is not None:
                return None
            with contextlib.suppress(OSError):  # it has ended
                made = self.waiting[self.count] = threading.Event()  # before the answer can come
                self.count += 1
                process.stdin.write(task)
                return made
        return None

    def end(self) -> None:
        """End the process."""
        with self.lock:
            process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


BESIDE = Beside()


def _listened(process: subprocess.Popen[bytes], waiting: Mapping[int, threading.Event]) -> None:
    """Set the events of the tasks that end; at last, all of them."""
    assert process.stdout is not None
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in process.stdout:
            waiting[int(line.split()[0])].set()
    for event in list(waiting.values()):
        event.set()


def stand_in(capability: int) -> None:
    """Let Triton compile for a GPU of this compute capability, which this process does not ask."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget("cuda", capability, 32)
    driver.set_active(SimpleNamespace(get_current_device=lambda: 0, get_current_target=lambda: target))


def task_of(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Task:
    """A launch of a function of Triton's as that itself would compile it; any error where it is not the Triton that
    this was written for."""
    from triton import knobs
    from triton.runtime import driver

    named = {**options, "debug": options.get("debug", function.debug) or knobs.runtime.debug}
    if hasattr(knobs.compilation, "instrumentation_mode"):
        named["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    _, _, target, backend, binder = function.device_caches[driver.active.get_current_device()]
    bound, specialised, more = binder(*arguments, **named)
    found, signature, constants, attributes = function._pack_args(backend, named, bound, specialised, more)
    return Task(
        function.fn.__code__.co_filename,
        function.fn.__module__,
        function.fn.__name__,
        signature,
        constants,
        attributes,
        dict(vars(found)),
        (target.backend, target.arch, target.warp_size),
    )
