"""A worker that is a copy of this process: what was defined here is there too, without a file to load it from."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from typing import IO, Any, NoReturn, cast

from noyau.workers.timing_client import Worker
from noyau.workers.timing_server import serve


class ForkedWorker(Worker):
    """A Worker that is forked from this process when it is first asked, and anew after it has ended."""

    def _started(self) -> subprocess.Popen[bytes]:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        commands, answers = os.pipe(), os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # else what they hold may be printed twice
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads that the copy does not have
            pid = os.fork()
        if pid == 0:
            _be_served(commands, answers, self._told)
        os.close(commands[0])
        os.close(answers[1])
        child = Forked(pid, os.fdopen(commands[1], "wb", 0), os.fdopen(answers[0], "rb", 0))
        self._process = cast("subprocess.Popen[bytes]", child)
        return self._process


class Forked:
    """A forked process, with what a Worker asks of a Popen."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.status: int | None = None

    def poll(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        if self.status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if ended else None
        return self.status

    def wait(self, timeout: float | None = None) -> int:
        """How it ended. subprocess.TimeoutExpired after `timeout` seconds."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("a copy of this process", cast(float, timeout))
            time.sleep(0.001)
        return cast(int, self.status)

    def kill(self) -> None:
        """End it, at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _be_served(commands: tuple[int, int], answers: tuple[int, int], told: IO[Any]) -> NoReturn:
    """The copy: it answers commands until there are no more, and prints into `told`; nothing of the parent's is run at
    its end."""
    status = 1
    try:
        os.setsid()  # Ctrl-C is for the parent, who then ends it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        faulthandler.disable()
        for number in (1, 2):
            os.dup2(told.fileno(), number)
        sys.stdout = sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115  for the rest of its life
        os.close(commands[1])
        os.close(answers[0])
        serve(os.fdopen(commands[0], "rb"), os.fdopen(answers[1], "wb"))
        status = 0
    finally:
        os._exit(status)
