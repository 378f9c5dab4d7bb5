"""Candidates in processes of their own: what crashes or hangs there is one clear reason here, and nothing else is lost.

A worker holds one side at a time and takes commands over a pipe, a line of JSON each: open a side, run it so many times
and say how long that took, tell of the process. While one worker runs, the others sleep.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from noyau import errors
from noyau.errors import CheckError, NoyauError

_PROGRAM = """
import os, sys
sink = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what a library prints is no answer
sys.path[:] = sys.argv[1:]
from noyau.workers.timing_server import serve
serve(sys.stdin.buffer, sink)
"""
_PIECE_BYTES = 1 << 16


class Worker:
    """A process that starts when it is first asked, and again after it has ended. Use it in a `with`.

    `patience_s`: how long an answer may take, besides the time that the runs themselves are expected to take;
    `environment`: variables that it has beside those of this process."""

    def __init__(self, name: str, patience_s: float = 60.0, environment: Mapping[str, str] | None = None) -> None:
        self.name, self.patience_s, self.environment = name, patience_s, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._told: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def is_running(self) -> bool:
        """Whether its process was started, and has not been ended since."""
        return self._process is not None

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer to a command. What noyau refuses there is raised here; CheckError where the process crashes, does
        not answer in time, or fails in another way. It is then ended, and starts anew with the next command."""
        self.begin(command, **arguments)
        return self.answer()

    def begin(self, command: str, **arguments: Any) -> None:
        """Give a command, and do not wait for its answer."""
        process = self._process or self._started()
        with self._faults():
            self._send(process, {"command": command, **arguments})

    def answer(self) -> Any:
        """The answer to the command that was given last, as of `ask`."""
        assert self._process is not None
        with self._faults():
            answer = json.loads(self._line(self._process))
        if "fault" in answer:
            raise _error(answer["kind"], f"{self.name}: {answer['fault']}")
        return answer["result"]

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """What goes wrong between the two processes as one clear error, after which there is none."""
        try:
            yield
        except TimeoutError:
            self.end()
            raise CheckError(f"{self.name} did not answer within {self.patience_s:g} s and was ended") from None
        except (OSError, EOFError, ValueError):
            raise CheckError(f"{self.name} {self._last_words()}") from None
        except BaseException:  # Ctrl-C: half an answer may lie in the pipe
            self.end()
            raise

    def start(self) -> None:
        """Start the process, if there is none, and do not wait for it."""
        if self._process is None:
            self._started()

    def end(self) -> None:
        """End the process, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, self._told):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _started(self) -> subprocess.Popen[bytes]:
        self._told = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            bufsize=0,
            env={**os.environ, **self.environment} if self.environment else None,
            start_new_session=True,  # Ctrl-C is for the parent, who then ends it
        )
        return self._process

    def _send(self, process: subprocess.Popen[bytes], command: dict[str, Any]) -> None:
        assert process.stdin is not None
        process.stdin.write(json.dumps(command).encode("ascii") + b"\n")

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        descriptor, end_s, found = process.stdout.fileno(), time.monotonic() + self.patience_s, b""
        while not found.endswith(b"\n"):
            left_s = end_s - time.monotonic()
            if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
                raise TimeoutError
            piece = os.read(descriptor, _PIECE_BYTES)
            if not piece:
                raise EOFError
            found += piece
        return found

    def _last_words(self) -> str:
        """How the process ended, and the last line that it wrote."""
        process, told = self._process, self._told
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        status = process.poll()
        told.seek(0)
        lines = [line.strip() for line in told.read()[-2000:].decode("utf-8", "replace").splitlines() if line.strip()]
        self.end()
        how = "stopped answering" if status is None else _ending(status)
        last = "".join(letter if letter.isprintable() else "?" for letter in lines[-1])[:200] if lines else ""
        return f"{how}{f': {last}' if last else ''}"


def ask_at_once(workers: Sequence[Worker], command: str, given: Sequence[Mapping[str, Any]]) -> None:
    """A command to each, all at work at the same time. The first error is raised once all have answered."""
    for worker, arguments in zip(workers, given, strict=True):
        worker.begin(command, **arguments)
    faults = []
    for worker in workers:
        try:
            worker.answer()
        except NoyauError as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


def pin(workers: Sequence[Worker], threads: int) -> None:
    """Let all of them take turns on one core where they have one thread each, else on all cores.

    Two cores of one machine differ, in a virtual one by a third and for seconds: sides that stay on different ones are
    judged by their cores."""
    for worker in workers:
        worker.start()  # all at once: it takes them a moment
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for worker in workers:
        worker.ask("pin", cores=usable[-1:] if threads == 1 else usable)


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended its process with status {status}"
    try:
        return f"crashed ({signal.Signals(-status).name})"
    except ValueError:
        return f"crashed (signal {-status})"


def _error(kind: str, message: str) -> NoyauError:
    """The error of noyau of this name; CheckError for any other."""
    found = vars(errors).get(kind, CheckError)
    made = found if isinstance(found, type) and issubclass(found, NoyauError) else CheckError
    return made(message)
