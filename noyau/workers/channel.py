"""Messages between two processes over a pair of sockets: a length of eight bytes, then so many bytes."""

from __future__ import annotations

import math
import select
import socket
import time

_HEAD_BYTES = 8
_PIECE_BYTES = 1 << 20


class Channel:
    """An end of a pair. One thread may send while another one receives.

    A deadline holds for a whole message, so that a process that stops in the midst of one is noticed; after a
    TimeoutError or an EOFError the channel is of no more use."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end

    def send(self, message: bytes, patience_s: float = math.inf) -> None:
        """Send a message. TimeoutError where it is not taken in time, OSError where the other end is closed."""
        deadline_s = time.monotonic() + patience_s
        for part in (len(message).to_bytes(_HEAD_BYTES, "big"), message):
            rest = memoryview(part)
            while rest:
                self._wait(select.POLLOUT, deadline_s)
                rest = rest[self.end.send(rest) :]

    def receive(self, patience_s: float = math.inf) -> bytes:
        """Return the next message. TimeoutError where it is not whole in time, EOFError where the other end closes."""
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
        poll = select.poll()  # select has no room for a high number
        poll.register(self.end, event)
        left_s = deadline_s - time.monotonic()
        if not poll.poll(None if left_s == math.inf else max(0.0, 1000 * left_s)):
            raise TimeoutError


def pair() -> tuple[Channel, socket.socket]:
    """Return this process's end of a new channel, and the other end for a process that is started."""
    here, there = socket.socketpair()
    return Channel(here), there
