"""Streams and events of a script without a GPU. Work runs at once; its order is kept as a vector clock per stream: how
much of each other stream's work precedes the next work of this stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from noyau.errors import FindingKind
from noyau.sanitizer.records import digest
from noyau.sanitizer.scripts.record import ScriptSession
from noyau.verify.findings import Finding

HOST, DEFAULT = -1, 0  # the host, which waits for streams; the default stream
MOST = 64  # accesses kept per memory
History = dict[int, int]
MENDS = {
    "triton": "let the later stream wait: second.wait_stream(first), or second.wait_event(first.record_event())",
    "numba_cuda": "let the later stream wait: event.record(first), then event.wait(second)",
}


@dataclass(frozen=True, slots=True)
class StreamWork:
    """Work of a stream or of the host: its description, and the line that starts it."""

    stream: int
    what: str
    place: str
    language: str

    def __str__(self) -> str:
        if self.stream == HOST:
            return "the host"
        return f"{self.what} in {f'stream {self.stream}' if self.stream else 'the default stream'}"


@dataclass(frozen=True, slots=True)
class StreamAccess:
    """Bytes that work touches. `number`: the index of the work in its stream."""

    work: StreamWork
    number: int
    span: tuple[int, int]
    writes: bool


@dataclass
class StreamOrder:
    """The order of a script's work. `pinned`: memories of the host that asynchronous copies access later."""

    session: ScriptSession
    seen: dict[int, History] = field(default_factory=lambda: {HOST: {}, DEFAULT: {}})
    blocking: set[int] = field(default_factory=set)  # streams that the default stream waits for, and that wait for it
    touched: dict[Hashable, list[StreamAccess]] = field(default_factory=dict)
    stack: list[int] = field(default_factory=lambda: [DEFAULT])
    pinned: set[Hashable] = field(default_factory=set)

    @property
    def current(self) -> int:
        return self.stack[-1]

    def open(self, *, blocks: bool) -> int:
        """Add a stream and return its number."""
        number = len(self.seen) - 1
        self.seen[number] = {}
        if blocks:
            self.blocking.add(number)
        return number

    def wait(self, stream: int, history: History) -> None:
        """Let a stream, or the host, wait for the work of a history."""
        own = self.seen[stream]
        own |= {other: max(number, own.get(other, 0)) for other, number in history.items()}

    def synchronize(self, stream: int | None = None) -> None:
        """Let the host wait for a stream, or for all streams."""
        for each in list(self.seen) if stream is None else [stream]:
            self.wait(HOST, self.seen[each])

    def begin(self, stream: int) -> None:
        self.wait(stream, self.seen[HOST])
        for other in self.blocking if stream == DEFAULT else {DEFAULT} if stream in self.blocking else ():
            self.wait(stream, self.seen[other])
        self.seen[stream][stream] = self.seen[stream].get(stream, 0) + 1

    def touch(self, work: StreamWork, memory: Hashable, span: tuple[int, int], name: str, *, writes: bool) -> None:
        """Record that work touches bytes of a memory named `name`, and report races with earlier accesses."""
        stream = work.stream
        seen, earlier = self.seen[stream], self.touched.setdefault(memory, [])
        access = StreamAccess(work, seen.get(stream, 0), span, writes)
        kept = []
        for other in earlier:
            theirs = other.work.stream
            is_before = theirs == stream or seen.get(theirs, 0) >= other.number
            have_common = other.span[0] < span[1] and span[0] < other.span[1]
            if have_common and (writes or other.writes) and not is_before:
                self.report(other, access, name)
            is_replaced = is_before and other.span == span and (writes or (theirs == stream and not other.writes))
            if not is_replaced:
                kept.append(other)
        if stream != HOST:  # work ordered after this access is also ordered after the accesses that it replaces
            earlier[:] = [*kept, access][-MOST:]

    def report(self, first: StreamAccess, second: StreamAccess, name: str) -> None:
        """Report a race, once per pair of lines."""
        one, other, script = first.work, second.work, self.session.script
        now, before = "writes" if second.writes else "reads", "written" if first.writes else "read"
        line = one.place.rpartition(":")[2]
        message = f"{other} {now} {name}, {before} by {one} on line {line}, and no event orders them"
        mend = "wait for the stream before the host touches it" if other.stream == HOST else MENDS[other.language]
        facts = (script, script, other.language, FindingKind.RACE, other.place, "", message)
        finding = Finding(*facts, digest=digest(FindingKind.RACE, f"{one.place} {other.place}"), mend=mend)
        self.session.advice.setdefault(finding.id, finding)


def order_of(session: ScriptSession) -> StreamOrder:
    """Return the stream order of a session, which all its packages share."""
    if FakeStream.order.session is not session:
        FakeStream.order = StreamOrder(session)
    return FakeStream.order


class FakeStream:
    """A queue whose work runs at once; `with` makes it the current stream."""

    order: ClassVar[StreamOrder] = StreamOrder(ScriptSession(""))  # until a script begins
    blocks: ClassVar[bool] = False
    cuda_stream, device_index = 0, 0
    device: Any = None

    def __init__(self, *wishes: Any, number: int | None = None, **named: Any) -> None:
        self.number = self.order.open(blocks=self.blocks) if number is None else number

    def __enter__(self) -> FakeStream:
        self.order.stack.append(self.number)
        return self

    def __exit__(self, *fault: Any) -> None:
        self.order.stack.pop()

    @classmethod
    def enter(cls, stream: FakeStream | None) -> None:
        """Replace the current stream; None leaves it."""
        cls.order.stack[-1] = cls.order.current if stream is None else stream.number

    def synchronize(self) -> None:
        self.order.synchronize(self.number)

    def wait_stream(self, stream: FakeStream) -> None:
        self.order.wait(self.number, self.order.seen[stream.number])

    def wait_event(self, event: FakeEvent) -> None:
        self.order.wait(self.number, event.history)

    def query(self) -> bool:
        self.synchronize()
        return True

    def record_event(self, event: FakeEvent | None = None) -> FakeEvent:
        recorded = event or FakeEvent()
        recorded.record(self)
        return recorded


class FakeEvent:
    """A mark in a stream. Times come from the watched run on the CPU."""

    def __init__(self, *wishes: Any, **named: Any) -> None:
        self.at_s, self.history = 0.0, History()

    def record(self, stream: Any = None) -> None:
        self.at_s, self.history = time.perf_counter(), dict(FakeStream.order.seen[stream_number(stream)])

    def wait(self, stream: Any = None) -> None:
        FakeStream.order.wait(stream_number(stream), self.history)

    def synchronize(self) -> None:
        FakeStream.order.wait(HOST, self.history)

    def query(self) -> bool:
        self.synchronize()
        return True

    def elapsed_time(self, later: FakeEvent) -> float:
        """Return the time between two events in milliseconds."""
        return 1e3 * (later.at_s - self.at_s)


def stream_number(stream: Any) -> int:
    """Return the number of a stream of the script, by default that of the current stream."""
    number = getattr(stream, "number", None)
    return FakeStream.order.current if number is None else int(number)


def calling_place(folders: tuple[str, ...]) -> str:
    """Return FILE:LINE of the innermost frame outside these folders whose code has a file."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*folders, "<")):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
