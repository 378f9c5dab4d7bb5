"""Tables of names and numbers for terminals of any width: where a line is too short for a row, the row has two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from noyau.jobs.report.text import hanging

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
