"""Text for terminals of any width: hanging paragraphs, tables, records that print themselves; atomic file writes."""

import contextlib
import io
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from noyau.errors import output_errors
from noyau.jobs.command_line import is_stream, make_folder
from noyau.jobs.command_line import plain as plain_line
from noyau.text import TextRecord, fields_json, printable

Show = Callable[[str], str]
_CONSOLE = Console(file=io.StringIO(), color_system=None)
_SOURCE = re.compile(r"\s*(\d+ \||-->)")  # a line of a source, or its place
_GAP = 2
_LONGEST_NAME, _SHORTEST_NAME = 36, 16
Cell = str | Text
_PLAIN_WIDTH = 100
WIDE = 1_000_000  # columns: no line is broken


def hanging(text: str | Text, width: int, first: str = "", rest: str | None = None, style: str = "") -> Iterator[Text]:
    """The lines of a paragraph of `width` columns, with the prefix `first` on the first line and `rest` on the others
    (default: as many spaces). Words longer than a line are cut. Prefixes are not styled."""
    rest = " " * cell_len(first) if rest is None else rest
    room = max(width - max(cell_len(first), cell_len(rest)), 8)
    body = text if isinstance(text, Text) else Text(text, style=style)
    for number, line in enumerate(body.wrap(_CONSOLE, room, overflow="fold")):
        line.rstrip()
        if line or not number:
            yield Text(rest if number else first) + line


def list_lines(title: str, texts: Sequence[str], width: int) -> Iterator[Text]:
    """An empty line, a title, and texts below it; nothing without texts."""
    if texts:
        yield Text()
        yield Text(title, style="bold")
    for text in texts:
        yield from hanging(text, width, "    ", "      ")


def show_of(*, ascii_only: bool) -> Show:
    """A function that makes names printable; with `ascii_only`, for a terminal limited to ASCII."""
    if not ascii_only:
        return printable
    return lambda name: printable(name).encode("ascii", "backslashreplace").decode("ascii")


def spell_bytes(size: int, digits: int = 3) -> str:
    """Bytes as text: `1.2 MiB`."""
    counts = ((size / (1 << power), unit) for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)))
    texts = (f"{count:.{digits if count < 1000 else 4}g} {unit}" for count, unit in counts if count >= 1)
    return next(texts, f"{size} B")


def print_record(record: TextRecord, *, quiet: bool = False) -> None:
    """Print a record for a terminal; `quiet`: only its verdict."""
    if quiet:
        print_lines("\n".join(plain_line(line) for line in record.headline().splitlines()))
    else:
        Console().print(record, crop=False)


def print_lines(text: str) -> None:
    """Print a report on stdout, with unprintable characters replaced; long lines are wrapped, except source lines."""
    console = Console(soft_wrap=True)
    lines = plain_lines(text).splitlines()
    if console.is_terminal:
        lines = [each for line in lines for each in _fold(line, console.width)]
    console.print("\n".join(lines), markup=False, highlight=False)


def _fold(line: str, width: int) -> Iterator[str]:
    """The line, wrapped at words if it is too long; continuation lines are indented further."""
    if cell_len(line) <= width or _SOURCE.match(line):
        yield line
    else:
        body = line.lstrip()
        indent = line[: len(line) - len(body)]
        yield from (each.plain for each in hanging(body, width, indent, f"{indent}    "))


def plain_lines(text: str) -> str:
    """The lines of a text with unprintable characters replaced; spaces are kept."""
    lines = "\n".join(line.expandtabs(4) for line in text.splitlines())
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in lines)


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table: a name, the cells beside it, and a remark below it."""

    name: str
    cells: tuple[Cell, ...]
    remark: str = ""


def table(
    title: str,
    headings: Sequence[str],
    rows: Sequence[TableRow],
    width: int,
    optional: Sequence[str] = (),
    shortest: int = _SHORTEST_NAME,
) -> Iterator[Text]:
    """The lines of a table with a heading for each column; nothing without rows. Empty columns are omitted, then
    `optional` ones, one after the other, until each row fits a line. If that does not suffice, names are cut in the
    middle, to `shortest` letters at least; and finally the cells of a row are printed below its name."""
    if not rows:
        return
    longest = max(cell_len(text) for text in (title, *(row.name for row in rows)))
    empty = [name for at, name in enumerate(headings) if not any(str(row.cells[at]) for row in rows)]
    for heading in (*empty, *optional):
        if heading not in empty and _has_room(title, longest, headings, rows, width, shortest):
            break
        kept = [at for at, name in enumerate(headings) if name != heading]
        headings = [headings[at] for at in kept]
        rows = [replace(row, cells=tuple(row.cells[at] for at in kept)) for row in rows]
    widths, is_wide = _widths(headings, rows), _has_room(title, longest, headings, rows, width, _SHORTEST_NAME)
    beside = min(width - sum(each + _GAP for each in widths), longest, max(_LONGEST_NAME, cell_len(title)))
    head = Text(title.ljust(beside), style="bold") + _align(headings, widths, "dim")
    head.rstrip()
    yield head if is_wide else Text(title, style="bold")
    for row in rows:
        if is_wide:
            name = shorten(row.name, beside)
            line = Text(name + " " * (beside - cell_len(name))) + _align(row.cells, widths)
            line.rstrip()
            yield line
        else:
            cells = [" ".join(str(cell).split()) for cell in row.cells]
            lines = [f"{heading} {cell}".strip() for heading, cell in zip(headings, cells, strict=True) if cell]
            yield Text(shorten(row.name, max(width, 8)))
            yield from hanging(", ".join(lines), width, "    ")
        yield from hanging(row.remark, width, "    ", "      ", "dim") if row.remark else ()


def _has_room(
    title: str, longest: int, headings: Sequence[str], rows: Sequence[TableRow], width: int, shortest: int
) -> bool:
    """Whether each row fits a line of `width` columns, with names of at least `shortest` letters."""
    room = width - sum(each + _GAP for each in _widths(headings, rows))
    return room >= min(shortest, longest) and room >= cell_len(title)


def _widths(headings: Sequence[str], rows: Sequence[TableRow]) -> list[int]:
    columns = zip(headings, *(row.cells for row in rows), strict=True)
    return [max(cell_len(str(cell)) for cell in column) for column in columns]


def _align(cells: Sequence[Cell], widths: Sequence[int], style: str = "") -> Text:
    line = Text()
    for cell, width in zip(cells, widths, strict=True):
        line.append(" " * (width - cell_len(str(cell)) + _GAP))
        line.append(cell if isinstance(cell, Text) else Text(cell, style))
    return line


def beginnings(names: Sequence[str], longest: int) -> list[str]:
    """A unique prefix for each name, which commands accept for it: if possible without the part after the last
    underscore, and of at most `longest` letters."""

    def is_own(text: str) -> bool:
        return text != "" and sum(name.startswith(text) for name in names) == 1

    stems = (name.rpartition("_")[0] for name in names)
    choices = ((stem[:longest], name[:longest], stem, name) for stem, name in zip(stems, names, strict=True))
    return [next(filter(is_own, each), each[-1]) for each in choices]


def shorten(name: str, longest: int) -> str:
    """The name, with its middle cut out if it exceeds `longest`."""
    head = (longest - 2) // 2
    return name if cell_len(name) <= longest else f"{name[:head]}..{name[head + 2 - longest :]}"


def _render_of(record: object) -> Any:
    """The module that prints and draws a record: `render` in the folder of the record's own module."""
    return import_module(f"{type(record).__module__.rpartition('.')[0]}.render")


class PageRecord:
    """Base of records that have a page for a browser, by the function `page` of the module `render`."""

    __slots__ = ()

    def _page(self) -> Any:
        return _render_of(self).page(self)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as one HTML page that needs no network, and create its folder. OutputError where that fails."""
        self._page().save(Path(path))

    def _repr_html_(self) -> str:
        return str(self._page().notebook())


class Record(TextRecord):
    """Base of records that print themselves, as wide as the terminal, and convert to plain data."""

    __slots__ = ()
    schema_version: ClassVar[int] = 1

    def to_json(self) -> dict[str, Any]:
        """The record as plain data in a fixed order; unknown and non-finite numbers are None."""
        return {"schema_version": self.schema_version, **fields_json(self)}

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        """The printed lines, of at most `width` columns, by `render` of the module `render`."""
        return iter(_render_of(self).render(self, width, ascii_only=ascii_only))

    def headline(self) -> str:
        """The verdict, by `headline` of the module `render`."""
        return str(_render_of(self).headline(self))

    def write(self, path: Path) -> None:
        """Write it as JSON, atomically; OutputError where the folder is missing, read-only or full."""
        write_json(self.to_json(), path)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        return self.renderables(options.max_width, ascii_only=options.ascii_only)

    def __str__(self) -> str:
        return plain(self)


class PagedRecord(PageRecord, Record):
    """Base of records that also have a page."""

    __slots__ = ()

    def write_where(self, record: Path | None, page: Path | None) -> None:
        """Write it as JSON and as a page, each if its path is not None. OutputError where one cannot be written."""
        if record is not None:
            self.write(record)
        if page is not None:
            self.save_html(page)


def write_json(record: Mapping[str, Any], path: Path) -> None:
    """Write a record as JSON, atomically; OutputError where the folder is missing, read-only or full."""
    write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", path)


def write_found(place: Path | None, record: Mapping[str, Any]) -> None:
    """Write the findings of a command to the path of `--json`, if it is given. OutputError where that fails."""
    if place is not None:
        make_folder(place.parent)
        write_json({"schema_version": 1, **record}, place)


def write_text(text: str, path: Path) -> None:
    """Write a text atomically, to the target of a link; into a pipe, a terminal or a device directly.
    OutputError where the folder is missing, read-only or full."""
    if is_stream(path):
        with output_errors(path):
            path.write_text(text, encoding="utf-8")
        return
    with new_file(path) as fresh, fresh.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write, which then replaces `path`, or a link's target. OutputError if that fails."""
    with output_errors(path):
        place = Path(os.path.realpath(path))
        fresh = place.parent / f".noyau-{secrets.token_hex(8)}.tmp"
        try:
            yield fresh
            fresh.replace(place)
        finally:
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)


def plain(record: object) -> str:
    """The text of a record without colours, at most as wide as a page and as stdout's terminal."""
    room = Console().width if sys.stdout is not None and sys.stdout.isatty() else _PLAIN_WIDTH
    text = io.StringIO()
    Console(file=text, width=min(room, _PLAIN_WIDTH), color_system=None, force_terminal=False).print(record, crop=False)
    return text.getvalue().rstrip("\n")
