"""The files that onnxruntime writes for a profile: read whole, without room an error, and weights thrown away."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import TYPE_CHECKING

from noyau.errors import OutputError

if TYPE_CHECKING:
    import onnx


def parse(kind: type[onnx.ModelProto], path: Path) -> onnx.ModelProto:
    """The model of a file that onnxruntime wrote; OutputError where it is not whole."""
    try:
        return kind.FromString(path.read_bytes())
    except Exception as error:
        raise OutputError(
            f"onnxruntime did not write its optimized model to {path.parent}: is there room for it? "
            "TMPDIR=FOLDER names another place"
        ) from error


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """OutputError where files for the profile cannot be written."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"files for the profile cannot be written to {tempfile.gettempdir()}: {error.strerror}; "
            "TMPDIR=FOLDER names another place"
        ) from error


@contextlib.contextmanager
def discard(path: Path) -> Iterator[None]:
    """A pipe in place of a file: what is written to it goes nowhere and takes no room, be it gigabytes of weights."""
    if not hasattr(os, "mkfifo"):
        yield
        return
    os.mkfifo(path)
    end, source = Signal(), os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    thread = Thread(target=_drain, args=(source, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        os.close(source)
        path.unlink(missing_ok=True)


def _drain(source: int, end: Signal) -> None:
    while not end.is_set():
        if select.select([source], [], [], 0.1)[0] and not os.read(source, 1 << 20):
            end.wait(0.05)  # nobody writes to it now
