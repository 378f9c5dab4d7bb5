"""`noyau check` in forks of one process that has loaded packages: a case takes what it does itself, where a process of
its own takes three seconds of a processor before it begins. Each case still has a process for the command and one for
its script, so that a case that crashes, or changes what it imports, touches no other."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_LOCK = threading.Lock()
TELLS_S = 10.0  # for what was interrupted to say what it found
_OWN = ("noyau.jobs.cli", "noyau.jobs.check.script_run", "noyau.sanitizer.scripts.numba_hooks")


@cache
def _forks(modules: tuple[str, ...]) -> Any:
    """What forks: a server that has imported these modules, and those that `noyau check` needs itself."""
    from noyau.sanitizer.triton.kernel import ONE_THREAD

    os.environ.update({name: value for name, value in ONE_THREAD.items() if name not in os.environ})
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_OWN, *modules, __name__])
    return context


def run_check(
    words: Sequence[str], folder: Path, time_s: float, modules: tuple[str, ...], environment: dict[str, str]
) -> tuple[int | None, bytes]:
    """The exit status of `noyau check WORDS` in a folder, None where it is past its time, and what it printed."""
    printed = Path(words[-1]).with_name("printed")
    with _LOCK:  # one server is started, whoever comes first
        process = _forks(modules).Process(target=_check, args=(list(words), str(folder), str(printed), environment))
        process.start()
    process.join(time_s)
    status: int | None = process.exitcode
    if status is None:
        _end(process.pid, signal.SIGINT, process)
    process.join()
    return status, printed.read_bytes() if printed.is_file() else b""


def _end(pid: int, number: int, process: BaseProcess) -> None:
    """Ask a process to end, then end it and what it began."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    process.join(TELLS_S)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _check(words: list[str], folder: str, printed: str, environment: dict[str, str]) -> None:
    """The command in this process, whose output goes to a file."""
    from noyau.jobs import cli
    from noyau.jobs.check import script_run

    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep) if environment.get("PYTHONPATH") else []
    output = os.open(printed, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    script_run._end_reason = _ended
    sys.exit(cli.main(["check", *words]))


def _ended(wish: str, time_s: float, report: Callable[[], object]) -> tuple[str, str]:
    """As that of `script_run`, the script in a fork of this process."""
    from noyau.workers.signals import wait_or_end

    process = multiprocessing.get_context("fork").Process(target=_script, args=(wish,))
    process.start()
    cut = wait_or_end(_Fork(process), time_s, signal.SIGINT, report)  # type: ignore[arg-type]
    process.join()
    status = process.exitcode or 0
    if status < 0:
        return cut, f"it crashed (signal {-status})"
    return cut, f"it ended with status {status}" if status else ""


def _script(wish: str) -> None:
    from noyau.jobs.check import script_run

    os.environ["NOYAU_SCRIPT"] = wish
    sys.path.insert(0, "")  # which it takes off again
    sys.exit(script_run.main())


class _Fork:
    """A fork, to be waited for and ended as what subprocess starts."""

    def __init__(self, process: BaseProcess) -> None:
        self.process, self.kill = process, process.kill

    def wait(self, time_s: float) -> None:
        self.process.join(time_s)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("a fork", time_s)

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)
