"""Launches of Triton compiled beside this process, several at once: its compiler is Python's for a third of the time,
so that threads would wait for each other."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from noyau.toolchain.triton.compile_server import CompileTask
from noyau.workers.channel import Channel
from noyau.workers.worker import spawn

PATIENCE_S = 30.0  # for a launch, any; one takes a second
SEND_S = 5.0  # for a task to be taken; a channel holds dozens, and the process reads them as soon as it has begun
_PROGRAM = "from noyau.toolchain.triton.compile_server import main; main(channel)"


class ParallelCompiler:
    """A process that compiles in advance; where anything is wrong with it, Triton does it when a launch is called."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Channel
        self.lock = threading.Lock()
        self.events: dict[int, threading.Event] = {}
        self.count = 0
        self.last_reply_s = 0.0  # by the monotonic clock
        self.stuck = False  # it has not taken a task, or not done one, and none is started again

    def start(self) -> None:
        """Start the process, where there is none and Triton compiles, and do not wait: its imports take seconds."""
        with self.lock, contextlib.suppress(Exception):  # no interpreter to start, no thread to be had...
            if self.stuck or not compiles() or (self.process is not None and self.process.poll() is None):
                return
            process, channel = spawn(_PROGRAM, subprocess.DEVNULL)
            events = dict[int, threading.Event]()
            threading.Thread(target=self._listen, args=(process, channel, events), daemon=True).start()
            self.process, self.channel, self.events, self.count = process, channel, events, 0

    def begin(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> threading.Event | None:
        """Begin with a launch; the event is set when it is compiled, or was given up. None where it is not begun."""
        if self.process is not None:
            with contextlib.suppress(Exception):  # Triton's insides are other ones
                return self.send(pickle.dumps(task_of(function, arguments, options)))
        return None

    def send(self, task: bytes) -> threading.Event | None:
        """As `begin`, of a launch that is a pickled task."""
        with self.lock:
            process = self.process
            if self.stuck or process is None or process.poll() is not None:
                return None
            event = self.events[self.count] = threading.Event()  # before the reply can come
            self.count += 1
            try:
                self.channel.send(task, SEND_S)
            except BaseException as error:
                _kill(process)  # part of a task may be in the channel
                self.stuck = isinstance(error, TimeoutError)
                if isinstance(error, OSError):  # it has ended, or takes nothing
                    return None
                raise
            return event

    def wait(self, events: Iterable[threading.Event]) -> None:
        """Until these launches are compiled. Where no launch at all was for as long as one is waited for, nothing is
        compiled beside any more, so that nobody waits for that again."""
        begun = time.monotonic()
        for event in events:
            while not event.wait(max(0.0, max(begun, self.last_reply_s) + PATIENCE_S - time.monotonic())):
                if time.monotonic() >= max(begun, self.last_reply_s) + PATIENCE_S:
                    self.stuck = True
                    self.end()
                    return

    def end(self) -> None:
        """End the process, and those that it has started."""
        with self.lock:
            process, self.process = self.process, None
            if process is not None:
                _kill(process)

    def _listen(self, process: subprocess.Popen[bytes], channel: Channel, events: dict[int, threading.Event]) -> None:
        """Set the events of the tasks that end; at last, when nothing is left of the process, all of them."""
        with contextlib.suppress(Exception):  # at the latest where the channel ends
            while True:
                number, _ = pickle.loads(channel.receive())  # noqa: S301  from a process of our own
                self.last_reply_s = time.monotonic()
                events[number].set()
        with self.lock:
            _kill(process)
            process.wait()
            channel.close()
            for event in events.values():
                event.set()


COMPILER = ParallelCompiler()


def compiles() -> bool:
    """Whether Triton is there and compiles, for GPUs of NVIDIA: what is done beside is written for these."""
    version = getattr(sys.modules.get("torch"), "version", None)
    there = os.name == "posix" and not os.environ.get("TRITON_INTERPRET") and find_spec("triton") is not None
    return there and getattr(version, "hip", None) is None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process, unless that is known to have ended, and those that it has started."""
    if process.returncode is None:  # its number is still its own
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def task_of(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> CompileTask:
    """A launch of a function as Triton itself would compile it; any error where it is another Triton than these."""
    from triton import knobs
    from triton.runtime import driver

    settings = {**options, "debug": options.get("debug", function.debug) or knobs.runtime.debug}
    if hasattr(knobs.compilation, "instrumentation_mode"):
        settings["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    _, _, target, backend, binder = function.device_caches[driver.active.get_current_device()]
    bound, specialised, more = binder(*arguments, **settings)
    launch, signature, constants, attributes = function._pack_args(backend, settings, bound, specialised, more)
    place = function.fn.__code__.co_filename, function.fn.__module__, function.fn.__name__
    machine = target.backend, target.arch, target.warp_size
    return CompileTask(*place, signature, constants, attributes, dict(vars(launch)), machine)
