"""A bench, or its comparison with a baseline, as Markdown for a pull request, as JUnit's XML and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from xml.etree import ElementTree as xml

from noyau.jobs.bench.baseline import render as changes
from noyau.jobs.bench.baseline.record import ChangeRecord
from noyau.jobs.bench.record import RETURNING, BenchRecord
from noyau.text import printable, sizes_text
from noyau.timing.verdict import Comparison, spell_s

Timed = BenchRecord | ChangeRecord


@dataclass(frozen=True, slots=True)
class ExportRow:
    """A timing, or why there is none. `ratio`: `against_s` over `median_s`, above 1 where it is faster than what it is
    timed against; `is_bad`: a pipeline should stop for it."""

    name: str
    sizes: str
    candidate: str
    temperature: str = ""
    way: str = ""
    median_s: float | None = None
    verdict: str = ""
    fault: str = ""
    is_bad: bool = False
    against: str = ""
    against_s: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


def export_rows(record: Timed) -> Iterator[ExportRow]:
    """Every timing of a record, and what is wrong."""
    if isinstance(record, ChangeRecord):
        for name, fault in record.faults.items():
            yield ExportRow(record.name, "", name, fault=fault, is_bad=True)
        for each in record.changes:
            place = (record.name, sizes_text(each.sizes), each.candidate, each.temperature, RETURNING)
            judged = (each.comparison.medians_s[1], each.verdict, "", each.is_slower)
            yield ExportRow(*place, *judged, f"baseline {record.baseline}", *_ratio(each.comparison))
        return
    for at in record.at:
        sizes, ranked = sizes_text(at.sizes), {row.name for row in at.ranked}
        for row in at.rows:
            if row.out:
                yield ExportRow(record.name, sizes, row.name, fault=row.out, is_bad=bool(row.fault))
        for temperature, race in at.races.items():
            for name, way in (side for side in race.sides if side[0] in ranked):
                timed = (record.name, sizes, name, temperature, way, race.median_s((name, way)))
                if name == at.against or (at.against, way) not in race.sides:
                    yield ExportRow(*timed)
                    continue
                comparison = at.comparison(name, way=way, temperature=temperature)
                yield ExportRow(*timed, comparison.verdict.value, "", False, at.against, *_ratio(comparison))


def _ratio(comparison: Comparison) -> tuple[float, float, float, float]:
    return comparison.before_median_s, comparison.speedup, comparison.low, comparison.high


def csv_text(record: Timed) -> str:
    """CSV (RFC 4180) with a heading; seconds and ratios in full."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([each.name for each in fields(ExportRow)])
    writer.writerows(astuple(row) for row in export_rows(record))
    return text.getvalue()


def markdown(record: Timed) -> str:
    """GitHub-flavoured Markdown: the verdict, a table, and what is wrong."""
    verdict = f"{record.name}: {'every candidate is right' if record.ok else 'WRONG'}"
    notes = list(record.notes) if isinstance(record, ChangeRecord) else []
    lines = ["| candidate | sizes | inputs | time | against | ratio | interval | |", f"|{'---|' * 8}"]
    for row in export_rows(record):
        cells = [row.candidate, row.sizes, row.temperature, spell_s(row.median_s or 0), row.against, *[""] * 3]
        if row.ratio is not None:
            cells[5:] = [f"{row.ratio:.2f}x", f"[{row.ratio_low:.2f}, {row.ratio_high:.2f}]", row.verdict]
        if row.fault:
            notes.append(f"{row.candidate} {'is wrong' if row.is_bad else 'is not timed'}: {row.fault}")
        elif row.way == RETURNING:
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    verdict = changes.summary(record) if isinstance(record, ChangeRecord) else verdict
    mark = ":white_check_mark:" if record.ok else ":x:"
    machine = f"{record.machine.cpu}, {record.machine.cores} cores, {record.machine.level}"
    heading, ending = f"### {mark} {_cell(verdict)}", f"<sub>{_cell(machine)}</sub>"
    return "\n".join([heading, "", *lines, "", *(f"- {_cell(note)}" for note in notes), "", ending, ""])


def _cell(text: str) -> str:
    """A text that Markdown and HTML take as it is, on one line."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_" else letter for letter in escaped)


def junit(record: Timed) -> str:
    """JUnit's XML: a test case for each timing, a failure where it is wrong or too slow."""
    suites = xml.Element("testsuites")
    suite = xml.SubElement(suites, "testsuite", name=f"noyau bench {printable(record.name)}")
    rows = list(export_rows(record))
    for row in rows:
        title = ", ".join(filter(None, (row.candidate, row.sizes, row.temperature, row.way)))
        seconds = f"{row.median_s or 0:.9f}"
        case = xml.SubElement(suite, "testcase", classname=printable(row.name), name=printable(title), time=seconds)
        slower = f"{row.verdict}: takes {1 / (row.ratio or 1) - 1:+.1%} against the {row.against}"
        if row.is_bad or row.fault:
            xml.SubElement(case, "failure" if row.is_bad else "skipped", message=printable(row.fault or slower))
    suite.set("tests", str(len(rows)))
    suite.set("failures", str(sum(row.is_bad for row in rows)))
    suite.set("skipped", str(sum(bool(row.fault) and not row.is_bad for row in rows)))
    xml.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(suites, "unicode")}\n'


EXPORTS = {"markdown": markdown, "junit": junit, "csv": csv_text}
