"""The signals that end a process: raised as exceptions, or deferred; and a time limit for Python code in a thread."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType

INTERRUPTED = "it was interrupted"
GRACE_S = 5.0
REPORT_S = 10.0
_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name))


class Termination(BaseException):
    """The process received this signal to end. No Exception, so that nothing takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Termination within the block, as Ctrl-C raises KeyboardInterrupt, so that unfinished
    work is undone. A signal that is ignored or handled already stays so; outside of the main thread nothing changes."""
    plain = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL] if _in_charge() else []
    try:
        for number in plain:
            signal.signal(number, _raise)
        yield
    finally:
        for number in plain:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Defer the signals that raise exceptions to the end of the block, which must not be left half done."""
    arrived: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING} if _in_charge() else {}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: arrived.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in arrived[-1:]:
        before[number](number, None)


def wait_or_end(
    process: subprocess.Popen[bytes], time_s: float, number: int = signal.SIGTERM, report: Callable[[], object] = bool
) -> str:
    """Wait for a process, and end it after its time, or if a signal ends this one: return the reason as text.

    It first receives signal `number`, and has GRACE_S to write its results. `report` is called each REPORT_S."""
    reason, end = f"it did not end within {time_s:g} s", monotonic() + time_s
    try:
        while (left := end - monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(left, REPORT_S))
                return ""
            report()
    except (KeyboardInterrupt, Termination):
        reason = INTERRUPTED
    process.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    process.kill()
    return reason


def interrupt_once(number: int, _: FrameType | None) -> None:
    """Handler that raises KeyboardInterrupt and ignores later signals: a terminal sends one, `wait_or_end` another."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and its children, unless it is known to have ended."""
    if sys.platform == "win32":
        process.kill()
    elif process.returncode is None:  # its id is still its own
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


def _in_charge() -> bool:
    """Whether this is the main thread, in which alone Python's handlers are set and run."""
    return threading.current_thread() is threading.main_thread()


def _raise(number: int, _: FrameType | None) -> None:
    raise Termination(number)


class TimeIsUp(BaseException):
    """A time limit has passed. No Exception, so that a kernel that catches every Exception does not catch it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUp within the block after so many seconds on the clock, or never if that is more than a thread can
    wait, 292 years; a running call of C code ends first."""
    if seconds > threading.TIMEOUT_MAX:
        yield
        return
    thread = ctypes.c_ulong(threading.get_ident())
    timer = threading.Timer(seconds, ctypes.pythonapi.PyThreadState_SetAsyncExc, (thread, ctypes.py_object(TimeIsUp)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        # An exception that the timer requested a moment ago is raised while it is joined. It cannot be revoked: after
        # PyThreadState_SetAsyncExc(thread, NULL) CPython 3.11 looks for an exception for ever.
        with contextlib.suppress(TimeIsUp):
            timer.cancel()
            timer.join()
