"""Compilation of Triton launches in other processes, several in parallel: a third of Triton's compiler is Python, so
that threads would wait for each other.

A separate process imports Triton once, and forks for each launch. The results go into Triton's own cache, where this
process finds them. That needs no torch: only the kernels of a text are used."""

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from noyau.workers.import_path import run_text
from noyau.workers.signals import kill_group
from noyau.workers.worker import Channel, spawn

IDLE_S = 120.0  # the idle time after which the process ends
TASK_S = 60  # the time limit of a task, which usually takes a second


@dataclass(frozen=True, slots=True)
class CompileTask:
    """A launch to compile: the function's file, module and name, and the remaining arguments of Triton's compiler."""

    path: str
    module: str
    function: str
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]
    target: tuple[Any, ...]


class Unread(ModuleType):
    """A stub for torch, of which a kernel reads nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unread(name)


def begin() -> None:
    """Import what every task needs, and initialise what Triton computes once in a process."""
    sys.modules["torch"] = Unread("torch")
    import_module("triton.backends.nvidia.compiler")
    import_module("triton.runtime.cache").triton_key()


def compile_task(task: CompileTask) -> None:
    """Compile a launch, and its launcher if that has a text of its own."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = run_text(Path(task.path).read_text("ascii"), Path(task.path), task.module)
    source = ASTSource(names[task.function], task.signature, task.constants, task.attributes)
    kernel = triton.compile(source, target=GPUTarget(*task.target), options=task.options)
    import_module("triton.backends.nvidia.driver").CudaLauncher(kernel.src, kernel.metadata)


def fork_work(work: Callable[[], None]) -> int:
    """Fork a process that does some work and ends; return its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    with contextlib.suppress(BaseException):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(TASK_S)
        work()
        status = 0
    os._exit(status)


def serve(channel: Channel, most: int, work: Callable[[CompileTask], None] = compile_task) -> None:
    """Run each task in a process of its own, `most` in parallel; reply at the end of each: its number and status."""
    read, written = os.pipe()
    os.set_blocking(written, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent may have blocked some
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it wakes select
    signal.set_wakeup_fd(written)
    running, queued, count = dict[int, int](), deque[tuple[int, CompileTask]](), 0
    while True:
        ends: list[Channel | int] = [channel, read]
        ready = select.select(ends, [], [], IDLE_S)[0]
        if not ready and not running:
            return
        if read in ready:
            os.read(read, 512)
            for child in list(running):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    channel.send(pickle.dumps((running.pop(child), status)))
        if channel in ready:
            try:
                task = pickle.loads(channel.receive())  # noqa: S301  from the process that started this one
            except EOFError:
                return
            queued.append((count, task))  # tasks are read at once, so that the sender need not wait
            count += 1
        while queued and len(running) < most:
            number, task = queued.popleft()
            running[fork_work(lambda task=task: work(task))] = number  # type: ignore[misc]  # bound early


def main(channel: Channel) -> None:
    """Serve the parent process."""
    begin()
    # Triton builds its driver interface, which is then in its cache.
    fork_work(lambda: import_module("triton.backends.nvidia.driver").CudaUtils())
    serve(channel, most=len(os.sched_getaffinity(0)))


PATIENCE_S = 30.0  # for any launch; one takes a second
SEND_S = 5.0  # for sending a task; a channel holds dozens, and the process reads them as soon as it has started
_PROGRAM = "from noyau.toolchain.triton.parallel_compile import main; main(channel)"


class ParallelCompiler:
    """A process that compiles in advance; if it fails in any way, Triton compiles when a launch is called."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: Channel
        self.lock = threading.Lock()
        self.events: dict[int, threading.Event] = {}
        self.count = 0
        self.last_reply_s = 0.0  # by the monotonic clock
        self.stuck = False  # it did not take or finish a task in time, and is never restarted

    def start(self) -> None:
        """Start the process, if there is none and Triton compiles, without waiting: its imports take seconds."""
        with self.lock, contextlib.suppress(Exception):  # no interpreter or no thread can be started...
            if self.stuck or not compiles() or (self.process is not None and self.process.poll() is None):
                return
            process, channel = spawn(_PROGRAM, subprocess.DEVNULL)
            events = dict[int, threading.Event]()
            threading.Thread(target=self._listen, args=(process, channel, events), daemon=True).start()
            self.process, self.channel, self.events, self.count = process, channel, events, 0

    def begin(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> threading.Event | None:
        """Begin to compile a launch; the event is set when it is compiled or given up. None if it is not begun."""
        if self.process is not None:
            with contextlib.suppress(Exception):  # another release of Triton has other internals
                return self.send(pickle.dumps(task_of(function, arguments, options)))
        return None

    def send(self, task: bytes) -> threading.Event | None:
        """As `begin`, for a launch as a pickled task."""
        with self.lock:
            process = self.process
            if self.stuck or process is None or process.poll() is not None:
                return None
            event = self.events[self.count] = threading.Event()  # before the reply can come
            self.count += 1
            try:
                self.channel.send(task, SEND_S)
            except BaseException as error:
                kill_group(process)  # part of a task may be in the channel
                self.stuck = isinstance(error, TimeoutError)
                if isinstance(error, OSError):  # it has ended, or does not read
                    return None
                raise
            return event

    def wait(self, events: Iterable[threading.Event]) -> None:
        """Wait until these launches are compiled. If no launch at all finishes within the patience for one, compilation
        in advance ends for good, so that nothing waits for it again."""
        begun = time.monotonic()
        for event in events:
            while not event.wait(max(0.0, max(begun, self.last_reply_s) + PATIENCE_S - time.monotonic())):
                if time.monotonic() >= max(begun, self.last_reply_s) + PATIENCE_S:
                    self.stuck = True
                    self.end()
                    return

    def end(self) -> None:
        """Kill the process and its children."""
        with self.lock:
            process, self.process = self.process, None
            if process is not None:
                kill_group(process)

    def _listen(self, process: subprocess.Popen[bytes], channel: Channel, events: dict[int, threading.Event]) -> None:
        """Set the events of tasks that end; and all events once the process is gone."""
        with contextlib.suppress(Exception):  # at the latest when the channel ends
            while True:
                number, _ = pickle.loads(channel.receive())  # noqa: S301  from a process of our own
                self.last_reply_s = time.monotonic()
                events[number].set()
        with self.lock:
            kill_group(process)
            process.wait()
            channel.close()
            for event in events.values():
                event.set()


COMPILER = ParallelCompiler()


def compiles() -> bool:
    """Whether Triton is installed and compiles, for GPUs of NVIDIA: compilation in advance is written for these."""
    version = getattr(sys.modules.get("torch"), "version", None)
    there = os.name == "posix" and not os.environ.get("TRITON_INTERPRET") and find_spec("triton") is not None
    return there and getattr(version, "hip", None) is None


def task_of(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> CompileTask:
    """A launch of a function as Triton itself would compile it; any exception if this release of Triton differs."""
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
