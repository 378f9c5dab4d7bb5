"""The document of a page: sections of a few kinds, which one script draws, and the sources that they lead to.

Jobs build it from their records; it is plain data, and as JSON it lies in the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from noyau.jobs.command_line import make_folder
from noyau.jobs.page import html
from noyau.jobs.report.text import write_text
from noyau.text import as_json
from noyau.version import __version__

FORMAT = 1  # of the document: the script draws no other
Cell: TypeAlias = "str | tuple[str, float | None] | tuple[str, float | None, float | None, float | None]"
Fact: TypeAlias = tuple[str, str]
TEXT_MOST = 1_000_000  # letters of all sources together: a page stays below 2 MB


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one line; `state`: "good", "bad", "doubt" or "plain"; lines that explain it, and facts by name."""

    headline: str
    state: str = "plain"
    lines: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    title: str = "Summary"
    kind: str = field(default="verdict", init=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how its cells are drawn: "text", "number", "verdict", "interval" or "source" (the key of one)."""

    name: str
    kind: str = "number"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that a click on a heading sorts. A cell is a text, or a text with the number that it is sorted by and, of an
    interval, its low and high end."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is drawn: its lines of text; `group`: the key of its kernel, whose colour it has; `tone`: a verdict;
    `facts`: what a click shows; `source`: the key of the text that it leads to; `holds`: the nodes that it stands for,
    where several were collapsed."""

    lines: tuple[str, ...]
    name: str = ""
    group: str = ""
    tone: str = ""
    facts: tuple[Fact, ...] = ()
    source: str = ""
    holds: int = 1


@dataclass(frozen=True, slots=True)
class Edge:
    """A value on its way between two nodes, by their positions; `reason`: why the two are not one kernel."""

    start: int
    end: int
    value: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph to be laid out; `note`: what was collapsed, and how."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs side by side; a node that is chosen in one shows its group in all."""

    title: str
    drawings: tuple[Drawing, ...]
    note: str = ""
    kind: str = field(default="graphs", init=False)


@dataclass(frozen=True, slots=True)
class Series:
    """Points with their intervals, `(x, y, low, high)`; `style`: "points", "line" or "ceiling"."""

    name: str
    points: tuple[tuple[float, float, float | None, float | None], ...]
    style: str = "points"


@dataclass(frozen=True, slots=True)
class Axis:
    """The label of an axis and the unit of its numbers ("s", "B", "B/s", "" for plain numbers); `names`: of the places
    1, 2, ... where it has no numbers; `marks`: lines across it, by name."""

    label: str
    unit: str = ""
    is_log: bool = True
    names: tuple[str, ...] = ()
    marks: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """Series over two axes."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    note: str = ""
    kind: str = field(default="plot", init=False)


@dataclass(frozen=True, slots=True)
class Note:
    """A remark under a line of a text: a finding; `tone`: "error", "warning", "add" or "remove"; `drawing`: lines that
    show who touches a cell."""

    line: int
    tone: str
    text: str
    drawing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A text with remarks under its lines; only the lines around them are unfolded."""

    title: str
    text: str
    notes: tuple[Note, ...]
    kind: str = field(default="listing", init=False)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing in SVG, and the same in words."""

    title: str
    svg: str
    text: str
    kind: str = field(default="picture", init=False)


@dataclass(frozen=True, slots=True)
class Lines:
    """Plain lines; `is_code`: each with the spaces that it has."""

    title: str
    lines: tuple[str, ...]
    is_code: bool = False
    kind: str = field(default="lines", init=False)


Section: TypeAlias = Verdict | Table | Graphs | Plot | Listing | Picture | Lines


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a kernel, with its evidence: one line, facts, and a table of the cases that it was tried on."""

    key: str
    title: str
    text: str
    evidence: str = ""
    facts: tuple[Fact, ...] = ()
    cases: Table | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: what it is about, its sections in order, and the sources that they lead to."""

    title: str
    command: str
    sections: tuple[Section, ...]
    sources: tuple[Source, ...] = ()

    def to_json(self) -> dict[str, Any]:
        left, sources = TEXT_MOST, dict[str, Any]()
        for each in self.sources:
            left -= len(each.text)
            sources[each.key] = as_json(each)
            if left < 0:
                sources[each.key]["text"] = "(left out: the page would be too large; noyau show prints it)"
        head = {"format": FORMAT, "version": __version__, "title": self.title, "command": self.command}
        return {
            **head,
            "sections": [as_json(each) for each in self.sections if not _is_empty(each)],
            "sources": sources,
        }

    def html(self) -> str:
        """The page as one text."""
        return html.html_of(self.to_json(), f"{self.title} - noyau {self.command}")

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all; its folder is made. OutputError where that cannot be."""
        make_folder(path.parent)
        write_text(self.html(), path)

    def notebook(self) -> str:
        """The page as the output of a cell, in a frame of its own."""
        return html.framed(self.html())


def _is_empty(section: Section) -> bool:
    match section:
        case Table():
            return not section.rows
        case Graphs():
            return not any(each.nodes for each in section.drawings)
        case Plot():
            return not any(each.points for each in section.series if each.style != "ceiling")
        case Lines():
            return not section.lines
        case Verdict() | Listing() | Picture():
            return False


def at(text: str, number: float | None) -> Cell:
    """A cell that is sorted by a number."""
    return (text, number)


def interval(text: str, value: float | None, low: float | None, high: float | None) -> Cell:
    """A cell with a bar from low to high; the text alone where they are not known."""
    return (text, value, low, high)


def rows_of(rows: Sequence[Sequence[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows as a table holds them."""
    return tuple(map(tuple, rows))
