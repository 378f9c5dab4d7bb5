"""Text for terminals of any width: paragraphs that hang, tables, records that print themselves; files written whole."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from noyau.errors import OutputError
from noyau.jobs.command_line import is_stream, make_folder
from noyau.text import Printed, printable

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


def spell_bytes(size: int, digits: int = 3) -> str:
    """`1.2 MiB`"""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << power:
            return f"{size / (1 << power):.{digits}g} {unit}"
    return f"{size} B"


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


_GAP = 2
_LONGEST_NAME, _SHORTEST_NAME = 36, 16


@dataclass(frozen=True, slots=True)
class TableRow:
    """A name, the cells beside it, and a remark under it."""

    name: str
    cells: tuple[str, ...]
    remark: str = ""


def table(title: str, headings: Sequence[str], rows: Sequence[TableRow], width: int) -> Iterator[Text]:
    """The lines of a table with a heading for each cell; nothing where there are no rows. Names are cut in their middle
    where a line would be too long, and have a line of their own where they would be cut too much."""
    if not rows:
        return
    widths, longest = _widths(headings, rows), _longest(title, rows)
    room = width - sum(each + _GAP for each in widths)
    if not fits(title, headings, rows, width):
        yield Text(title, style="bold")
        for row in rows:
            yield from _stack(row, headings, width)
        return
    beside = min(room, longest, max(_LONGEST_NAME, cell_len(title)))
    yield Text.assemble((title.ljust(beside), "bold"), (_align(headings, widths), "dim"))
    for row in rows:
        name = shorten(row.name, beside)
        line = Text(name + " " * (beside - cell_len(name)) + _align(row.cells, widths))
        line.rstrip()
        yield line
        yield from _remark(row, width)


def fits(title: str, headings: Sequence[str], rows: Sequence[TableRow], width: int) -> bool:
    """Whether each row is a line of so many columns."""
    room = width - sum(each + _GAP for each in _widths(headings, rows))
    return room >= min(_SHORTEST_NAME, _longest(title, rows)) and room >= cell_len(title)


def _widths(headings: Sequence[str], rows: Sequence[TableRow]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(headings, *(row.cells for row in rows), strict=True)]


def _longest(title: str, rows: Sequence[TableRow]) -> int:
    return max(cell_len(text) for text in (title, *(row.name for row in rows)))


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(" " * (width - cell_len(text) + _GAP) + text for text, width in zip(cells, widths, strict=True))


def _stack(row: TableRow, headings: Sequence[str], width: int) -> Iterator[Text]:
    lines = [f"{heading} {' '.join(cell.split())}" for heading, cell in zip(headings, row.cells, strict=True) if cell]
    yield Text(shorten(row.name, max(width, 8)))
    yield from hanging(", ".join(lines), width, "    ")
    yield from _remark(row, width)


def _remark(row: TableRow, width: int) -> Iterator[Text]:
    if row.remark:
        yield from hanging(row.remark, width, "    ", "      ", "dim")


def shorten(name: str, longest: int) -> str:
    """The name, without its middle where it is longer."""
    if cell_len(name) <= longest:
        return name
    head = (longest - 2) // 2
    return f"{name[:head]}..{name[head + 2 - longest :]}"


_PLAIN_WIDTH = 100
WIDE = 1_000_000  # columns: no line is broken


class Paged:
    """A record that is a page for a browser, by the function `page` of the module `render` beside the record's own."""

    __slots__ = ()

    def _page(self) -> Any:
        return import_module(f"{type(self).__module__.rpartition('.')[0]}.render").page(self)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as one HTML page that needs no network; its folder is made. OutputError where that cannot be."""
        self._page().save(Path(path))

    def _repr_html_(self) -> str:
        html: str = self._page().notebook()
        return html


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


class PagedRecord(Paged, Record):
    """A record that is a page, too."""

    __slots__ = ()

    def write_where(self, record: Path | None, page: Path | None) -> None:
        """Write it as JSON and as a page, each where a place is given. OutputError where one cannot be written."""
        if record is not None:
            self.write(record)
        if page is not None:
            self.save_html(page)


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write a record as JSON, whole or not at all; OutputError where the folder is missing, read-only or full."""
    write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", path)


def write_found(place: Path | None, record: Mapping[str, Any]) -> None:
    """Write what a command found, where `--json` asks for it. OutputError where that cannot be."""
    if place is not None:
        make_folder(place.parent)
        write_json({"schema_version": 1, **record}, place)


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


def plain(record: object) -> str:
    """The text of a record without colours, as wide as a page or as the terminal that stdout is."""
    room = Console().width if sys.stdout is not None and sys.stdout.isatty() else _PLAIN_WIDTH
    width = min(room, _PLAIN_WIDTH)
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(record)
    return captured.get().rstrip("\n")
