"""Worker processes: a crash or hang in one is one clear error here, and nothing else is lost.

A worker runs functions by request, one after the other. While one worker runs, the others sleep. A forked worker is a
copy of this process: it has all definitions of this one, without a file to load them from. Messages go over a pair of
sockets: requests are functions to run, replies their results or their errors."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import IO, Any, Concatenate, NoReturn, ParamSpec, TypeAlias, TypeVar, assert_never

from noyau import errors
from noyau.errors import CheckError, FindingKind, NoyauError, UnansweredError
from noyau.workers import resources
from noyau.workers.tamper_detection import Watch

_HEAD_BYTES = 8  # of a message: its length; the content follows
_PIECE_BYTES = 1 << 20


class Channel:
    """An end of a pair. One thread may send while another one receives.

    A deadline holds for a whole message, so that a process that stops in the middle of one is noticed; after a
    TimeoutError or an EOFError the channel is unusable."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end

    def send(self, message: bytes, patience_s: float = math.inf) -> None:
        """Send a message. TimeoutError if it is not taken in time, OSError if the other end is closed."""
        deadline_s = time.monotonic() + patience_s
        for part in (len(message).to_bytes(_HEAD_BYTES, "big"), message):
            rest = memoryview(part)
            while rest:
                self._wait(select.POLLOUT, deadline_s)
                rest = rest[self.end.send(rest) :]

    def receive(self, patience_s: float = math.inf) -> bytes:
        """Return the next message. TimeoutError if it is not complete in time, EOFError if the other end closes."""
        deadline_s = time.monotonic() + patience_s
        return self._read(int.from_bytes(self._read(_HEAD_BYTES, deadline_s), "big"), deadline_s)

    def close(self) -> None:
        self.end.close()

    def fileno(self) -> int:
        return self.end.fileno()

    def _read(self, count: int, deadline_s: float) -> bytes:
        message = bytearray()
        while len(message) < count:
            self._wait(select.POLLIN, deadline_s)
            piece = self.end.recv(min(count - len(message), _PIECE_BYTES))
            if not piece:
                raise EOFError
            message += piece
        return bytes(message)

    def _wait(self, event: int, deadline_s: float) -> None:
        poll = select.poll()  # select cannot take high descriptors
        poll.register(self.end, event)
        left_s = deadline_s - time.monotonic()
        if not poll.poll(None if left_s == math.inf else max(0.0, 1000 * left_s)):
            raise TimeoutError


def pair() -> tuple[Channel, socket.socket]:
    """Return this process's end of a new channel, and the other end for a process to be started."""
    here, there = socket.socketpair()
    return Channel(here), there


class StateUse(Enum):
    """The relation of a request to the one object that a worker keeps between requests, its state."""

    STATELESS = "stateless"  # the handler does not receive it
    OPENS = "opens"  # the handler's result becomes the state
    USES = "uses"  # the state is the handler's first argument


@dataclass(frozen=True, slots=True)
class Request:
    """A function for the worker to run. It is sent by name, its arguments as copies."""

    handler: Callable[..., Any]
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    scope: StateUse = StateUse.STATELESS


@dataclass(frozen=True, slots=True)
class Reply:
    """The result of a handler; or the class name and the message of its error, and the kind of finding if it is one."""

    result: Any = None
    error: str = ""
    message: str = ""
    kind: FindingKind | None = None


def serve(channel: Channel, state: Any = None) -> None:
    """Reply to requests until the other end is closed."""
    worker = _Handlers(state)
    with suppress(EOFError):
        while True:
            channel.send(worker.reply(channel.receive()))


class _Handlers:
    """Runs handlers, and holds the state. `is_open`: whether there is one."""

    def __init__(self, state: Any) -> None:
        self.state, self.is_open = state, state is not None
        self.watch = Watch()

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a request, both pickled."""
        try:
            return pickle.dumps(Reply(self._run(pickle.loads(content))))  # noqa: S301  from the process that started us
        except NoyauError as error:
            kind = error.kind if isinstance(error, CheckError) else None
            reply = Reply(error=type(error).__name__, message=str(error), kind=kind)
        except Exception as error:  # noqa: BLE001  the parent raises it, whatever it is
            reply = Reply(error="CheckError", message=f"failed with {type(error).__name__}: {error}")
        return pickle.dumps(reply)

    def _run(self, request: Request) -> Any:
        match request.scope:
            case StateUse.OPENS:
                self.state, self.is_open = None, False  # frees its memory first
                self.state, self.is_open = request.handler(*request.arguments, **request.options), True
                return None
            case StateUse.USES:
                if not self.is_open:
                    raise NoyauError("nothing is open yet")
                result = request.handler(self.state, *request.arguments, **request.options)
            case StateUse.STATELESS:
                result = request.handler(*request.arguments, **request.options)
            case _:
                assert_never(request.scope)
        self.watch.refuse("the candidate")
        return result


_RUNNING: list[Worker] = []  # of this process, or of the one that it is a copy of
P = ParamSpec("P")
R = TypeVar("R")
_PROGRAM = """
import sys
sys.path[:] = sys.argv[2:]
import socket
end = socket.socket(fileno=int(sys.argv[1]))
end.set_inheritable(False)
from noyau.workers.worker import Channel
channel = Channel(end)
"""
Process: TypeAlias = "subprocess.Popen[bytes] | ForkedProcess"


class Worker(contextlib.AbstractContextManager["Worker"]):
    """A spawned process that starts with its first request, and again after it has ended. Use it in a `with`.

    `patience_s`: the longest time for a reply; `environment`: additional variables."""

    def __init__(self, name: str, patience_s: float = 60.0, environment: Mapping[str, str] | None = None) -> None:
        self.name, self.patience_s, self.environment = name, patience_s, environment
        self.is_counted = True  # in the time that this process spends
        self._process: Process | None = None
        self._channel: Channel
        self._output: IO[bytes]

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def is_running(self) -> bool:
        """Whether its process was started, and has not been ended since."""
        return self._process is not None

    def ask(self, handler: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run a function of a module in the worker and return its result.

        Errors of noyau in the worker are raised here; CheckError if the process crashes, does not reply in time, or the
        function fails in another way. A process that crashed or hung is ended, and the next request starts another."""
        self.begin(Request(handler, arguments, options))
        result: R = self.reply()
        return result

    def open(self, factory: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Keep the result of a function in the worker as its state, in place of the previous one."""
        self.begin(Request(factory, arguments, options, StateUse.OPENS))
        self.reply()

    def call(self, handler: Callable[Concatenate[Any, P], R], *arguments: P.args, **options: P.kwargs) -> R:
        """Run a function on the worker's state and return its result; errors as of `ask`."""
        self.begin(Request(handler, arguments, options, StateUse.USES))
        result: R = self.reply()
        return result

    def begin(self, request: Request) -> None:
        """Send a request without waiting for the reply."""
        content = pickle.dumps(request)
        self.start()
        with self._faults():
            self._channel.send(content, self.patience_s)

    def reply(self) -> Any:
        """Return the result of the last request; errors as of `ask`."""
        assert self._process is not None
        with self._faults():
            content = self._channel.receive(self.patience_s)
            try:
                reply: Reply = pickle.loads(content)  # noqa: S301  from a process of our own
            except Exception as error:
                raise ValueError from error
        if reply.error:
            raise _error(reply, f"{self.name}: {reply.message}")
        return reply.result

    def start(self) -> None:
        """Start the process, if there is none, without waiting for it."""
        if self._process is None:
            self._output = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
            self._process, self._channel = self._launch()
            self._owner = os.getpid()
            _RUNNING.append(self)

    def end(self) -> None:
        """End the process, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ValueError):
            _RUNNING.remove(self)
        process.kill()
        process.wait()
        self._channel.close()
        self._output.close()

    @property
    def spent_s(self) -> float:
        """The processor time of its process, if it runs and is a child of this process; 0 if that is unknown."""
        if self._process is None or self._owner != os.getpid():
            return 0.0
        with contextlib.suppress(OSError):  # it has just ended, or the system has no such clock
            return time.clock_gettime(~self._process.pid << 3 | 2)  # Linux: the clock of another process, by its id
        return 0.0

    def _launch(self) -> tuple[Process, Channel]:
        return spawn("from noyau.workers.worker import serve; serve(channel)", self._output, self.environment)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn failures between the two processes into one clear error, after which there is no process."""
        try:
            yield
        except TimeoutError:
            self.end()
            raise UnansweredError(f"{self.name} did not answer within {self.patience_s:g} s and was ended") from None
        except (OSError, EOFError, ValueError):
            raise CheckError(f"{self.name} {self._last_words()}", FindingKind.CRASH) from None
        except BaseException:  # Ctrl-C: half a reply may lie in the channel
            self.end()
            raise

    def _last_words(self) -> str:
        """End the process; return how it ended, and the last line of its output."""
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        status = process.poll()
        self._output.seek(0)
        text = self._output.read()[-2000:].decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        self.end()
        ending = "stopped answering" if status is None else _ending(status)
        last = "".join(letter if letter.isprintable() else "?" for letter in lines[-1])[:200] if lines else ""
        return f"{ending}{f': {last}' if last else ''}"


def spent_s() -> float:
    """The processor time of this process, of its ended children, and of its workers."""
    return math.fsum([*os.times()[:4], *(each.spent_s for each in _RUNNING if each.is_counted)])


def spawn(
    program: str, output: IO[bytes] | int, environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start Python with a program that has the other end of a channel as `channel`, and prints into `output`."""
    here, there = pair()
    with contextlib.closing(there):
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM + program, str(there.fileno()), *sys.path],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment} if environment else None,
                pass_fds=[there.fileno()],
                start_new_session=True,  # Ctrl-C goes to the parent, which then ends it
            )
        except BaseException:
            here.close()
            raise
    return process, here


def ask_at_once(workers: Sequence[Worker], requests: Sequence[Request]) -> None:
    """Send a request to each worker, so that all work in parallel. Raise the first error once all have replied."""
    for worker, request in zip(workers, requests, strict=True):
        worker.begin(request)
    faults = []
    for worker in workers:
        try:
            worker.reply()
        except NoyauError as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


def pin(workers: Sequence[Worker], threads: int) -> None:
    """Let all of them take turns on one core if they have one thread each, else on all cores.

    Two cores of one machine differ, in a virtual one by a third for seconds: sides on two would be judged by cores."""
    for worker in workers:
        worker.start()  # in parallel, for it takes a moment
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for worker in workers:
        worker.ask(resources.pin, usable[-1:] if threads == 1 else usable)


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended its process with status {status}"
    try:
        return f"crashed ({signal.Signals(-status).name})"
    except ValueError:
        return f"crashed (signal {-status})"


def _error(reply: Reply, message: str) -> NoyauError:
    """The error of noyau that a reply names; CheckError for any other."""
    kind = vars(errors).get(reply.error, CheckError)
    error = (kind if isinstance(kind, type) and issubclass(kind, NoyauError) else CheckError)(message)
    if isinstance(error, CheckError) and reply.kind is not None:
        error.kind = reply.kind
    return error


class ForkedWorker(Worker):
    """A Worker that is forked from this process with its first request, and again after it has ended.

    `state`: an object of this process that is the worker's state from the start, and need not pickle; `grace_s`: the
    time that it has to end by SIGTERM before it is killed."""

    def __init__(self, name: str, patience_s: float = 60.0, state: Any = None, grace_s: float = 0.0) -> None:
        super().__init__(name, patience_s)
        self.state, self.grace_s = state, grace_s

    def end(self) -> None:
        """End the process: by SIGTERM first if it has time to end, then by SIGKILL."""
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
            stream.flush()  # else buffered text may be printed twice
        with contextlib.closing(there), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which are not copied
            try:
                pid = os.fork()
            except BaseException:
                here.close()
                raise
            if pid == 0:
                _serve(here, there, self._output, self.state)
        return ForkedProcess(pid), here


class ForkedProcess:
    """A forked process, with the methods of Popen that a Worker needs. Several threads may use it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.lock = threading.RLock()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        with self.lock:
            if self.status is None:
                try:
                    ended, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # if SIGCHLD is ignored, there is no status to wait for
                    ended, status = self.pid, 0
                self.status = os.waitstatus_to_exitcode(status) if ended else None
            return self.status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status. subprocess.TimeoutExpired after `timeout` seconds."""
        end_s = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if end_s is not None and time.monotonic() > end_s:
                raise subprocess.TimeoutExpired("a copy of this process", timeout or 0.0)
            time.sleep(0.001)
        return status

    def kill(self) -> None:
        """Kill it."""
        with self.lock:  # after a wait, another process may have its number
            if self.poll() is None:
                os.kill(self.pid, signal.SIGKILL)


def _serve(parent: Channel, end: socket.socket, output: IO[bytes], state: Any) -> NoReturn:
    """Run the copy: reply to requests until there are no more; print into `output`; run no code of the parent's."""
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
