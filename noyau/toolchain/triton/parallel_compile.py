"""Launches of Triton compiled beside this process, several at once: its compiler is Python's for a third of the time,
so that threads would wait for each other."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import IO, Any

from noyau.toolchain.triton.compile_server import Task, told

PATIENCE_S = 30.0  # for a launch, any; one takes a second
GIVE_S = 5.0  # for a task to be taken; a pipe holds dozens, and the process reads them as soon as it has begun
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from noyau.toolchain.triton.compile_server import main; main()"


class Beside:
    """A process that compiles. Where it is not there, or anything goes wrong with it, nothing is compiled beside:
    Triton does it when a launch is first called."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        self.waiting: dict[int, threading.Event] = {}
        self.count = 0
        self.heard = 0.0  # when a task was last told to be done, by the monotonic clock
        self.stuck = False  # it has not taken a task, or not done one, and none is started again

    def start(self) -> None:
        """Start the process, where there is none and Triton compiles, and do not wait for it: it takes it a second or
        two to import what it needs."""
        with self.lock, contextlib.suppress(Exception):  # no interpreter to start, no thread to be had...
            if self.stuck or not compiles() or (self.process is not None and self.process.poll() is None):
                return
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for this process
            )
            assert process.stdin is not None
            os.set_blocking(process.stdin.fileno(), False)
            waiting = dict[int, threading.Event]()
            threading.Thread(target=self._listen, args=(process, waiting), daemon=True).start()
            self.process, self.waiting, self.count = process, waiting, 0

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
            if self.stuck or process is None or process.stdin is None or process.poll() is not None:
                return None
            made = self.waiting[self.count] = threading.Event()  # before the answer can come
            self.count += 1
            taken = False
            try:
                taken = sent(process.stdin, task)
                self.stuck = not taken
            except OSError:  # it has ended
                return None
            finally:
                if not taken:  # what is in the pipe may end within a task
                    _kill(process)
            return made if taken else None

    def wait(self, events: Iterable[threading.Event]) -> None:
        """Until these launches are compiled. Where no launch at all was for as long as one is waited for, nothing is
        compiled beside any more, so that nobody waits for that again."""
        begun = time.monotonic()
        for event in events:
            while not event.wait(max(0.0, max(begun, self.heard) + PATIENCE_S - time.monotonic())):
                if time.monotonic() >= max(begun, self.heard) + PATIENCE_S:
                    self.stuck = True
                    self.end()
                    return

    def end(self) -> None:
        """End the process, and those that it has started."""
        with self.lock:
            process, self.process = self.process, None
            if process is not None:
                _kill(process)

    def _listen(self, process: subprocess.Popen[bytes], waiting: Mapping[int, threading.Event]) -> None:
        """Set the events of the tasks that end; at last, when nothing is left of the process, all of them."""
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError, ValueError, KeyError):
            for line in process.stdout:
                self.heard = time.monotonic()
                waiting[int(line.split()[0])].set()
        with self.lock:
            _kill(process)
            process.wait()
            process.stdin.close()
            process.stdout.close()
            for event in waiting.values():
                event.set()


BESIDE = Beside()


def compiles() -> bool:
    """Whether Triton is there and compiles, for GPUs of NVIDIA: what is done beside is written for these."""
    version = getattr(sys.modules.get("torch"), "version", None)
    there = os.name == "posix" and not os.environ.get("TRITON_INTERPRET") and find_spec("triton") is not None
    return there and getattr(version, "hip", None) is None


def sent(pipe: IO[bytes], task: bytes) -> bool:
    """Write a task to a pipe that does not block; whether all of it was taken in time."""
    left, until = memoryview(task), time.monotonic() + GIVE_S
    poll = select.poll()  # select has no room for a high number
    poll.register(pipe.fileno(), select.POLLOUT)
    while left:
        if not poll.poll(1000 * max(0.0, until - time.monotonic())):
            return False
        left = left[pipe.write(left) or 0 :]  # some of it, or none
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process, unless that is known to have ended, and those that it has started."""
    if process.returncode is None:  # its number is still its own
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


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
