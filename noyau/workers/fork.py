"""A worker that is a copy of this process: what was defined here is there too, without a file to load it from."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from typing import IO, Any, NoReturn

from noyau.workers.channel import Channel, pair
from noyau.workers.serve import serve
from noyau.workers.worker import Process, Worker


class ForkedWorker(Worker):
    """A Worker that is forked from this process with its first request, and anew after it has ended.

    `state`: an object of this process that is the worker's state from the start, and need not pickle; `grace_s`: how
    long it may take to end by SIGTERM before it is killed."""

    def __init__(self, name: str, patience_s: float = 60.0, state: Any = None, grace_s: float = 0.0) -> None:
        super().__init__(name, patience_s)
        self.state, self.grace_s = state, grace_s

    def end(self) -> None:
        """End the process: by SIGTERM where it may take a while to end, then at once."""
        if self.grace_s and self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.grace_s)
        super().end()

    def kill(self) -> None:
        """Kill the process while another thread waits for its reply, which then fails."""
        process = self._process
        if process is not None:
            process.kill()

    def _launch(self) -> tuple[Process, Channel]:
        here, there = pair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else what they hold may be printed twice
        with contextlib.closing(there), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the copy does not have
            try:
                pid = os.fork()
            except BaseException:
                here.close()
                raise
            if pid == 0:
                _serve(here, there, self._output, self.state)
        return ForkedProcess(pid), here


class ForkedProcess:
    """A forked process, with what a Worker needs of a Popen. Several threads may use it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        with self.lock:
            return self._poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. subprocess.TimeoutExpired after `timeout` seconds."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            time.sleep(0.001)
        return status

    def kill(self) -> None:
        """End it, at once."""
        with self.lock:  # once it was waited for, its number may be another process's
            if self._poll() is None:
                os.kill(self.pid, signal.SIGKILL)

    def _poll(self) -> int | None:
        if self.status is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # where SIGCHLD is ignored, nobody is waited for
                ended, status = self.pid, 0
            self.status = os.waitstatus_to_exitcode(status) if ended else None
        return self.status


def _serve(parent: Channel, end: socket.socket, output: IO[bytes], state: Any) -> NoReturn:
    """Be the copy: reply to requests until there are no more, and print into `output`; run nothing of the parent's at
    the end."""
    status = 1
    try:
        os.setsid()  # Ctrl-C is for the parent, who then ends it
        for number in signal.valid_signals():  # the parent's handlers are not the copy's to run
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        faulthandler.disable()
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
        sys.stdout = sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115  for the rest of its life
        parent.close()
        limit = getattr(sys.modules.get("torch"), "set_num_threads", None)
        if limit is not None:
            limit(1)  # threads are not copied, and OpenMP would wait for them
        serve(Channel(end), state)
        status = 0
    finally:
        os._exit(status)
