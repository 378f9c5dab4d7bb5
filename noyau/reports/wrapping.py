"""Paragraphs that hang from their first line, without spaces at the ends of lines."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

_CONSOLE = Console(file=io.StringIO(), color_system=None)


def hanging(text: str | Text, width: int, first: str = "", rest: str | None = None, style: str = "") -> Iterator[Text]:
    """The lines of a paragraph of so many columns, `first` before the first and `rest` before the others (as many
    spaces unless given). Words that no line holds are cut. Only what `text` holds is styled."""
    rest = " " * cell_len(first) if rest is None else rest
    room = max(width - max(cell_len(first), cell_len(rest)), 8)
    body = text if isinstance(text, Text) else Text(text, style=style)
    for number, line in enumerate(body.wrap(_CONSOLE, room, overflow="fold")):
        line.rstrip()
        if line or not number:
            yield Text(rest if number else first) + line
