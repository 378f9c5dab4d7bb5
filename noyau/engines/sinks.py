"""Sinks: each holds, whatever ends the work, whole pieces in their order, and goes on from there. `has(piece)`: it need
not be computed again; `write(piece, content)`, of None at the end of a part; `finish()`."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from noyau.engines.reading import Chunk
from noyau.engines.reduction import Reduction
from noyau.errors import InputError, OutputError

Piece = tuple[int, int]  # the number of a part of the source, and that of a chunk in it
END = 1 << 60  # the number of a piece that stands for the end of its part
PAUSE_S = 2.0  # between two records of a state


def flattened(columns: Chunk) -> dict[str, np.ndarray]:
    """The columns of a table: those of a matrix are called x_0, x_1..."""
    flat: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        rows = column.reshape(len(column), -1)
        flat |= {name: column} if column.ndim == 1 else {f"{name}_{at}": each for at, each in enumerate(rows.T)}
    return flat


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
        self.path = sink.with_name(f"{sink.name}.progress")
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
    """The state of a reduction, merged in the order of the rows; with `progress`, written down now and then."""

    def __init__(self, reduction: Reduction, progress: Progress | None) -> None:
        self.reduction, self.progress = reduction, progress
        text = progress.state.get("state") if progress else None
        self.state = reduction.zero() if text is None else reduction.unpack(base64.b64decode(text))
        self.noted_s = time.monotonic()

    def has(self, piece: Piece) -> bool:
        return self.progress is not None and self.progress.has(piece)

    def write(self, piece: Piece, content: Any) -> None:
        """Take in the state of a piece, or its columns where these go through the steps in order."""
        one = self.reduction
        if content is not None:
            self.state = one.step(self.state, *content) if one.sequential else one.merge(self.state, content)
        if self.progress is not None and time.monotonic() - self.noted_s > PAUSE_S:
            self.progress.note(piece, state=base64.b64encode(one.pack(self.state)).decode())
            self.noted_s = time.monotonic()

    def finish(self) -> None:
        if self.progress is not None:
            self.progress.path.unlink(missing_ok=True)
