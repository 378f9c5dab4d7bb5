"""Paragraphs that hang from their first line, without spaces at the ends of lines; and lines as they are printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from noyau.text import printable

Show = Callable[[str], str]
_CONSOLE = Console(file=io.StringIO(), color_system=None)
_SOURCE = re.compile(r"\s*(\d+ \||-->)")  # a line of a text, or its place


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


def show_of(*, ascii_only: bool) -> Show:
    """The function that makes a name printable, for a terminal that may have no letters beyond ASCII."""
    return (
        (lambda name: printable(name).encode("ascii", "backslashreplace").decode("ascii")) if ascii_only else printable
    )


def print_lines(text: str) -> None:
    """Print a report on stdout, safe to print. What a terminal has no room for goes on below, but lines of source."""
    console = Console(soft_wrap=True)
    lines = plain_lines(text).splitlines()
    if console.is_terminal:
        lines = [each for line in lines for each in _fold(line, console.width)]
    console.print("\n".join(lines), markup=False, highlight=False)


def _fold(line: str, width: int) -> Iterator[str]:
    """The line, as several where it is longer, at words; those after the first lie further in."""
    if cell_len(line) <= width or _SOURCE.match(line):
        yield line
        return
    body = line.lstrip()
    indent = line[: len(line) - len(body)]
    yield from (each.plain for each in hanging(body, width, indent, f"{indent}    "))


def plain_lines(text: str) -> str:
    """The lines of a text, each safe to print, and with the spaces that it has."""
    lines = "\n".join(line.expandtabs(4) for line in text.splitlines())
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in lines)
