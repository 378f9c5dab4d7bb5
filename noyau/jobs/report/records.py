"""Records that print themselves and are written as JSON; files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType

from noyau.errors import OutputError
from noyau.jobs.command_line import is_stream
from noyau.text import Printed

_PLAIN_WIDTH = 100


class Record(Printed, ABC):
    """A record that prints itself, as wide as a terminal or a page, and is plain data."""

    __slots__ = ()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order; a number that is not known, or not finite, is None."""

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        """The lines that are printed, of at most `width` columns, by the module `render` beside the record's own."""
        render = import_module(f"{type(self).__module__.rpartition('.')[0]}.render")
        lines: Iterator[RenderableType] = render.render(self, width, ascii_only=ascii_only)
        return lines

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all; OutputError where the folder is missing, read-only or full."""
        write_json(self.to_json(), path)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from self.renderables(options.max_width, ascii_only=options.ascii_only)

    def __str__(self) -> str:
        return plain(self)


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write a record as JSON, whole or not at all; OutputError where the folder is missing, read-only or full."""
    write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a text, whole or not at all, to where a link leads; into a pipe, a terminal or a device as it goes.
    OutputError where the folder is missing, read-only or full."""
    try:
        if is_stream(path):
            path.write_text(text, encoding="utf-8")
            return
        place = Path(os.path.realpath(path))
        fresh = place.parent / f".noyau-{secrets.token_hex(8)}.tmp"
        try:
            with fresh.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(place)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"{path} cannot be written: {reason}; give a folder that exists, with room in it") from error


def plain(record: RenderableType) -> str:
    """The text of a record without colours, as wide as a page or as the terminal that stdout is."""
    room = Console().width if sys.stdout is not None and sys.stdout.isatty() else _PLAIN_WIDTH
    width = min(room, _PLAIN_WIDTH)
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(record)
    return captured.get().rstrip("\n")
