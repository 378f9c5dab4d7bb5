"""The document of a page: sections of a few kinds, which one script draws, and the kernel sources that they link to.

It is plain data, built from the records of jobs, and embedded in the page as JSON; docs/report.md lists the kinds.
Numbers stay numbers: the script formats them by the unit in the name of their column (`after_s`, `bytes`, `error`)."""

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

FORMAT = 1  # version of the document; the script draws no other
TEXT_MOST = 1_000_000  # letters of all sources together, so that a page stays below 2 MB
LEFT_OUT = "(left out, for the page would be too large: noyau show --kernel prints it)"

MOST = 1_500  # nodes of a drawing that a browser lays out in seconds
_COLOURS = "A colour is a kernel. A dashed edge is a cut between two: choose one of its ends to read why."

Section = dict[str, Any]
Node = dict[str, Any]  # of a drawing: lines, and optionally name, group, tone, facts, source


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, its command, its sections in order, and the kernel sources that they link to, by name."""

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
        return html.html_of(self.to_json(), f"{self.title} - noyau {self.command}")

    def save(self, path: Path) -> None:
        """Write the page atomically, and create its folder. OutputError where that fails."""
        make_folder(path.parent)
        write_text(self.html(), path)

    def notebook(self) -> str:
        """The page as the output of a notebook cell, in a separate frame."""
        return html.frame_page(self.html())


def summary(headline: str, state: str, lines: Iterable[str] = (), facts: Mapping[str, str] | None = None) -> Section:
    """A section with the result in one line, further lines and facts; `state`: good, bad, doubt or plain."""
    head = {"kind": "summary", "title": "Summary", "headline": headline, "state": state}
    return {**head, "lines": list(lines), "facts": facts or {}}


def table(title: str, rows: Iterable[Mapping[str, Any]], note: str = "") -> Section:
    """A section with a sortable table. A cell is a text, several texts, a number, or a number with the ends of its
    interval; a text that is the name of a source links to it. Columns that are empty in every row are omitted."""
    every = list(rows)
    names = dict.fromkeys(name for row in every for name in row)
    columns = [name for name in names if any(row.get(name) not in (None, "", [], ()) for row in every)]
    cells = {"columns": columns, "rows": [[row.get(name) for name in columns] for row in every]}
    return {"kind": "table", "title": title, **cells, "note": note}


def graphs(title: str, drawings: Sequence[Section], note: str = _COLOURS) -> Section:
    """A section with drawings side by side; selecting a node in one highlights its group in all."""
    return {"kind": "graphs", "title": title, "drawings": drawings, "note": note}


def lines(title: str, texts: Iterable[str]) -> Section:
    return {"kind": "lines", "title": title, "lines": list(texts)}


@dataclass(frozen=True, slots=True)
class SizedTime:
    """A time at a size, with its interval, and the bytes moved and flops, if known."""

    size: float
    time_s: float
    low_s: float | None = None
    high_s: float | None = None
    bytes_moved: float | None = None
    flops: float | None = None


def sweeps(title: str, size: str, times: Mapping[str, Sequence[SizedTime]]) -> Section:
    """A section with plots of named series of times: against `size`, as rates beside those of this machine, and in its
    roofline. The ceilings are those measured by `noyau machine` with one thread: copies and reads by bytes, and the
    scalar function with the most flops a second, as kernels count flops."""
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
    """The source entry of a kernel: its text, what it replaces, and its certificate, or `evidence` without one."""
    return {"text": planned.text, "evidence": evidence, "about": describe(planned), "certificate": certificate}
