"""A process that compiles launches of Triton for another one, several at once: it imports Triton once, and forks.

What is compiled goes into Triton's own cache, where the other process finds it. torch is not needed for that: of a text
nothing but the kernels is looked at."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from noyau.workers.channel import Channel
from noyau.workers.import_path import run_text

IDLE_S = 120.0  # without a task, after which the process ends
TASK_S = 60  # for one task, after which it is ended; it takes a second


@dataclass(frozen=True, slots=True)
class CompileTask:
    """A launch to compile: the function's file, module and name, and what Triton calls the rest."""

    path: str
    module: str
    function: str
    signature: dict[str, Any]
    constants: dict[Any, Any]
    attributes: dict[Any, Any]
    options: dict[str, Any]
    target: tuple[Any, ...]


class Unread(ModuleType):
    """Stands for torch, of which a kernel reads nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unread(name)


def begin() -> None:
    """Import what every task needs, and find out what Triton asks once in a process."""
    sys.modules["torch"] = Unread("torch")
    import_module("triton.backends.nvidia.compiler")
    import_module("triton.runtime.cache").triton_key()


def compile_task(task: CompileTask) -> None:
    """Compile a launch, and what launches it where that has a text of its own."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = run_text(Path(task.path).read_text("ascii"), Path(task.path), task.module)
    source = ASTSource(names[task.function], task.signature, task.constants, task.attributes)
    kernel = triton.compile(source, target=GPUTarget(*task.target), options=task.options)
    import_module("triton.backends.nvidia.driver").CudaLauncher(kernel.src, kernel.metadata)


def fork_work(work: Callable[[], None]) -> int:
    """The number of a process that does some work and ends."""
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
    """Do each task in a process of its own, `most` at once; reply to each, at its end, with number and status."""
    read, written = os.pipe()
    os.set_blocking(written, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # who has started this process may have held some back
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it wakes who waits
    signal.set_wakeup_fd(written)
    running, queued, count = dict[int, int](), deque[tuple[int, CompileTask]](), 0
    while True:
        ends: list[Channel | int] = [channel, read]
        ready = select.select(ends, [], [], IDLE_S)[0]
        if not ready and not running:
            return
        if read in ready:
            os.read(read, 512)
            for child, status in _ended_children(list(running)):
                channel.send(pickle.dumps((running.pop(child), status)))
        if channel in ready:
            try:
                task = pickle.loads(channel.receive())  # noqa: S301  from the process that started this one
            except EOFError:
                return
            queued.append((count, task))  # tasks are read at once, so that who sends them need not wait
            count += 1
        while queued and len(running) < most:
            number, task = queued.popleft()
            running[fork_work(lambda task=task: work(task))] = number  # type: ignore[misc]  # as it is now


def _ended_children(children: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The processes that have ended, each with its status."""
    for child in children:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            yield child, status


def main(channel: Channel) -> None:
    """Serve the process that has started this one."""
    begin()
    # Triton builds what calls the driver, which lies in its cache then.
    fork_work(lambda: import_module("triton.backends.nvidia.driver").CudaUtils())
    serve(channel, most=len(os.sched_getaffinity(0)))
