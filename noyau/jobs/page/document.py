"""The document of a page: sections of a few kinds, which one script draws, and the sources that they lead to.

It is plain data, built from the records of jobs, and lies in the page as JSON; docs/report.md names the kinds. Numbers
stay numbers: the script spells them by the unit in the name of their column (`after_s`, `bytes`, `error`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noyau.codegen.plan import PlannedKernel, describe
from noyau.ir.operators import OPERATORS
from noyau.jobs.command_line import make_folder
from noyau.jobs.machine.render import levels
from noyau.jobs.page import html
from noyau.jobs.report.text import write_text
from noyau.text import as_json
from noyau.timing.rates import recall_rates
from noyau.verify.certificate import Certificate
from noyau.version import __version__

FORMAT = 1  # of the document: the script draws no other
TEXT_MOST = 1_000_000  # letters of all sources together: a page stays below 2 MB
LEFT_OUT = "(left out, for the page would be too large: noyau show --kernel prints it)"

MOST = 1_500  # nodes of a drawing: what a browser lays out in seconds
_COLOURS = "A colour is a kernel. A dashed edge is a cut between two: choose one of its ends to read why."

Section = dict[str, Any]
Node = dict[str, Any]  # of a drawing: lines; and as wanted name, group, tone, facts, source


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, the command that made it, its sections in order, and by name the sources they lead to."""

    title: str
    command: str
    sections: Sequence[Section]
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        head = {"format": FORMAT, "version": __version__, "title": self.title, "command": self.command}
        left, sources, first = TEXT_MOST, {}, dict[str, str]()
        for name, source in self.sources.items():
            same = first.setdefault(source["text"], name)  # kernels of one file have one text
            left -= len(source["text"]) * (same == name)
            text = "" if same != name else source["text"] if left >= 0 else LEFT_OUT
            sources[name] = {**source, "text": text, "same": same}
        return as_json({**head, "sections": list(self.sections), "sources": sources})  # type: ignore[no-any-return]

    def html(self) -> str:
        """The page as one text."""
        return html.html_of(self.to_json(), f"{self.title} - noyau {self.command}")

    def save(self, path: Path) -> None:
        """Write the page, whole or not at all; its folder is made. OutputError where that cannot be."""
        make_folder(path.parent)
        write_text(self.html(), path)

    def notebook(self) -> str:
        """The page as the output of a cell, in a frame of its own."""
        return html.frame_page(self.html())


def summary(headline: str, state: str, lines: Iterable[str] = (), facts: Mapping[str, str] | None = None) -> Section:
    """The answer in one line, and lines and facts on it; `state`: good, bad, doubt or plain."""
    head = {"kind": "summary", "title": "Summary", "headline": headline, "state": state}
    return {**head, "lines": list(lines), "facts": facts or {}}


def table(title: str, rows: Iterable[Mapping[str, Any]], note: str = "") -> Section:
    """A table that a click sorts. A row has a cell for each column: a text, texts, a number, or a number with the ends
    of its interval; a text that names a source opens it. Columns that are empty in every row are left out."""
    every = list(rows)
    names = dict.fromkeys(name for row in every for name in row)
    columns = [name for name in names if any(row.get(name) not in (None, "", [], ()) for row in every)]
    cells = {"columns": columns, "rows": [[row.get(name) for name in columns] for row in every]}
    return {"kind": "table", "title": title, **cells, "note": note}


def graphs(title: str, drawings: Sequence[Section], note: str = _COLOURS) -> Section:
    """Drawings side by side; a node that is chosen in one shows its group in all."""
    return {"kind": "graphs", "title": title, "drawings": drawings, "note": note}


def lines(title: str, texts: Iterable[str]) -> Section:
    return {"kind": "lines", "title": title, "lines": list(texts)}


@dataclass(frozen=True, slots=True)
class SizedTime:
    """A time at a size, with its interval, and what moved and was computed meanwhile, where that is known."""

    size: float
    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    bytes_moved: float | None = None
    flops: float | None = None


def sweeps(title: str, size: str, times: Mapping[str, Sequence[SizedTime]]) -> Section:
    """Plots of times by the name of what was timed: against `size`, as rates below those of this machine, and in its
    roofline. The ceilings are those that `noyau machine` has measured with one thread: copies and reads by bytes, and
    of all scalar functions the one with the most flops a second, as kernels count them."""
    known, machine = recall_rates(), None
    if known is not None:
        rates = {name.rpartition("_")[0]: rate for name, rate in known.rates.items() if name.endswith("_f32")}
        flops = {name: rate * OPERATORS[name].flops for name, rate in rates.items() if name in OPERATORS}
        copy, read, best = known.copy[1], known.read[1], max(flops, key=lambda name: flops[name])
        ladder = {level: copy[bytes_moved] for level, bytes_moved in levels(known.caches, tuple(copy)).items()}
        curves = {"copy": list(copy.items()), "read": list(read.items())}
        machine = {"caches": known.caches, **curves, "levels": ladder, "arithmetic": [best, flops[best]]}
    return {"kind": "sweeps", "title": title, "size": size, "times": list(times.items()), "machine": machine}


def source_of(planned: PlannedKernel, evidence: str, certificate: Certificate | None = None) -> Mapping[str, Any]:
    """The text of a kernel, what it replaces, and its certificate or why there is none."""
    return {"text": planned.text, "evidence": evidence, "about": describe(planned), "certificate": certificate}
