"""Messages between two processes over a pair of sockets; between a worker and its parent, requests are functions to
run, replies are their results or their errors."""

import math
import pickle
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, assert_never

from noyau.errors import CheckError, FindingKind, NoyauError
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
