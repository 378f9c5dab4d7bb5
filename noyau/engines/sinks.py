"""Sinks: each holds, whatever ends the work, whole pieces in their order, and goes on from there. `has(piece)`: it need
not be computed again; `write(piece, content)`, of None at the end of a part; `finish()`; `close()`, whatever ends the
work. `output`: the place where it goes."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from noyau.engines.reading import Chunk
from noyau.engines.reduction import Reduction
from noyau.errors import InputError, OutputError

Piece = tuple[int, int]  # the number of a part of the source, and that of a chunk in it
END = 1 << 60  # the number of a piece that stands for the end of its part
PAUSE_S = 2.0  # between two records of a state
CHUNKS = 16  # between two records of rows


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes to `path`. OutputError where it cannot; what is whole so far stays, and is gone on with."""
    try:
        yield
    except OSError as fault:
        full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room and start it again: it goes on from where it is" if full else "name another place"
        raise OutputError(f"{path} cannot be written: {fault.strerror or fault}; {remedy}") from fault


def replace_file(path: Path, content: bytes) -> None:
    """Write a file at once: whoever looks, also after an end at any moment, sees the old one or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with writing(path):
        temporary.write_bytes(content)
        os.replace(temporary, path)


class Progress:
    """The record beside a sink of how far it has come. `plan`: the digest of the work that it is of."""

    def __init__(self, sink: Path, plan: str, *, resume: bool) -> None:
        self.sink, self.path = sink, sink.with_name(f"{sink.name}.progress")
        self.state: dict[str, Any] = {"plan": plan, "piece": [-1, -1]}
        if resume and self.path.exists():
            try:
                self.state = json.loads(self.path.read_bytes())
                fault = "" if self.state["plan"] == plan else "is of other work, by its op, source or options"
            except (ValueError, KeyError):
                fault = "is torn"
            if fault:
                raise InputError(f"{self.path} {fault}: name another sink, or say resume=False to start anew")

    def has(self, piece: Piece) -> bool:
        return piece <= tuple(self.state["piece"])

    def note(self, piece: Piece, **more: Any) -> None:
        """Note the last piece that is written, and what else the sink must know to go on."""
        self.state |= {"piece": list(piece), **more}
        replace_file(self.path, json.dumps(self.state).encode())


class Fold:
    """The state of a reduction: each part is folded from zero, then merged, in their order, so that it depends on no
    engine; with `progress`, written down now and then."""

    def __init__(self, reduction: Reduction, progress: Progress | None) -> None:
        self.reduction, self.progress, self.output = reduction, progress, progress and progress.sink
        texts = progress.state.get("states") if progress else None
        zeros = (reduction.zero(), reduction.zero())
        self.state, self.part = (reduction.unpack(base64.b64decode(each)) for each in texts) if texts else zeros
        self.noted_s = time.monotonic()

    def has(self, piece: Piece) -> bool:
        return self.progress is not None and self.progress.has(piece)

    def write(self, piece: Piece, content: Any) -> None:
        """Take in the state of a piece, at an end of the whole part, or columns that go through the steps in order."""
        one = self.reduction
        if content is not None and one.sequential:
            self.state = one.step(self.state, *content)
        elif content is not None:
            self.part = content if piece[1] == END else one.merge(self.part, content)
        if piece[1] == END and not one.sequential:
            self.state, self.part = one.merge(self.state, self.part), one.zero()
        if self.progress is not None and time.monotonic() - self.noted_s > PAUSE_S:
            states = [base64.b64encode(one.pack(each)).decode() for each in (self.state, self.part)]
            self.progress.note(piece, states=states)
            self.noted_s = time.monotonic()

    def finish(self) -> None:
        if self.progress is not None:
            self.progress.path.unlink(missing_ok=True)

    def close(self) -> None:
        pass


class RowFile:
    """A file of rows one behind the other, under a hidden name until it is whole. `encode(columns, first)`: the bytes
    of a piece; `seal(file)`: what is left to do in the whole one."""

    def __init__(
        self,
        progress: Progress,
        encode: Callable[[Chunk, bool], bytes],
        seal: Callable[[Any], object] = lambda file: None,
    ) -> None:
        self.progress, self.has, self.encode, self.seal = progress, progress.has, encode, seal
        self.output = progress.sink
        self.hidden = self.output.with_name(f".{self.output.name}.part")
        end = progress.state.get("bytes", 0)
        with writing(self.output):
            self.file = open(self.hidden, "r+b" if end else "w+b")  # noqa: SIM115  until close()
            self.file.truncate(end)
            self.file.seek(end)

    def write(self, piece: Piece, content: Any) -> None:
        with writing(self.output):
            if content is not None:
                self.file.write(self.encode(content, not self.file.tell()))
            if content is None or piece[1] % CHUNKS == CHUNKS - 1:
                self.file.flush()
                self.progress.note(piece, bytes=self.file.tell())

    def finish(self) -> None:
        with writing(self.output):
            self.seal(self.file)
            self.file.close()
            os.replace(self.hidden, self.output)
        self.progress.path.unlink(missing_ok=True)

    def close(self) -> None:
        self.file.close()
