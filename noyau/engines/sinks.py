"""Sinks: whenever the work is interrupted, a sink holds complete pieces in order, and a later run resumes after them.
`has(piece)`: the piece is stored already; `write(piece, content)`: content is None at the end of a part; `finish()`;
`close()`: called however the work ends; `output`: the path or table."""

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

Piece = tuple[int, int]  # the number of a part of the source, and of a chunk in it
END = 1 << 60  # the chunk number that marks the end of a part
PAUSE_S = 2.0  # between two checkpoints of a state
CHUNKS = 16  # between two checkpoints of rows


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes to `path`. OutputError where that fails; complete pieces stay, and a later run resumes."""
    try:
        yield
    except OSError as fault:
        full = fault.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room and start it again: it goes on from where it is" if full else "name another place"
        raise OutputError(f"{path} cannot be written: {fault.strerror or fault}; {remedy}") from fault


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: at any moment, also after a crash, it is the old one or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    with writing(path):
        try:
            temporary.write_bytes(content)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


class Progress:
    """The checkpoint file beside a sink. `plan`: the digest of the work."""

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
        """Record the last written piece, and other facts that the sink needs to resume."""
        self.state |= {"piece": list(piece), **more}
        replace_file(self.path, json.dumps(self.state).encode())


class Fold:
    """Sink of a reduction: each part is folded from zero, then parts are merged in order, so that the result does not
    depend on the engine. With `progress`, the state is checkpointed every PAUSE_S."""

    def __init__(self, reduction: Reduction, progress: Progress | None) -> None:
        self.reduction, self.progress, self.output = reduction, progress, progress and progress.sink
        texts = progress.state.get("states") if progress else None
        zeros = (reduction.zero(), reduction.zero())
        self.state, self.part = (reduction.unpack(base64.b64decode(each)) for each in texts) if texts else zeros
        self.noted_s = time.monotonic()

    def has(self, piece: Piece) -> bool:
        return self.progress is not None and self.progress.has(piece)

    def write(self, piece: Piece, content: Any) -> None:
        """Take in the state of a chunk, or with END that of the whole part; or columns for a sequential reduction."""
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
    """Sink of a file of consecutive rows, under a hidden name until it is complete. `encode(columns, first)`: the bytes
    of a piece; `seal(file)`: the last change of the complete file."""

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
        if not self.progress.path.exists():  # nothing to resume from
            self.hidden.unlink(missing_ok=True)
