"""A bench, or its comparison with a baseline, as Markdown for a pull request, as JUnit's XML and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as xml

from noyau.jobs.bench.baseline import render as changes
from noyau.jobs.bench.baseline.record import ChangeRecord
from noyau.jobs.bench.record import BenchRecord
from noyau.jobs.report.text import write_text
from noyau.text import printable
from noyau.timing.verdict import spell_s

Timed = BenchRecord | ChangeRecord
_COLUMNS = (
    "name", "sizes", "candidate", "temperature", "way", "median_s", "against", "against_s", "ratio", "ratio_low",
    "ratio_high", "verdict", "fault",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportRow:
    """A line of a table: a candidate at sizes and a temperature. `ratio`: `against_s` over `median_s`, above 1 where it
    is faster than what it is timed against; `is_bad`: a pipeline should stop for it."""

    name: str
    sizes: str
    candidate: str
    temperature: str = ""
    way: str = ""
    median_s: float | None = None
    against: str = ""
    against_s: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: str = ""
    fault: str = ""
    is_bad: bool = False


def export_rows(record: Timed) -> Iterator[ExportRow]:
    """All timings of a record, and what is wrong."""
    if isinstance(record, ChangeRecord):
        yield from _rows_of_changes(record)
        return
    for at in record.at:
        sizes = _sizes(at.sizes)
        for row in at.rows:
            if row.out:
                yield ExportRow(record.name, sizes, row.name, fault=row.out, is_bad=bool(row.fault))
        ranked = {row.name for row in at.ranked}
        for temperature, race in at.races.items():
            for name, way in race.sides:
                if name not in ranked:
                    continue
                place = (record.name, sizes, name, temperature, way, race.median_s((name, way)))
                if name == at.against or (at.against, way) not in race.sides:
                    yield ExportRow(*place)
                    continue
                each = at.comparison(name, way=way, temperature=temperature)
                ratio = (at.against, each.before_median_s, each.speedup, each.low, each.high, each.verdict.value)
                yield ExportRow(*place, *ratio)


def _rows_of_changes(record: ChangeRecord) -> Iterator[ExportRow]:
    for name, fault in record.faults.items():
        yield ExportRow(record.name, "", name, fault=fault, is_bad=True)
    for each in record.changes:
        before_s, now_s = each.comparison.medians_s
        place = (record.name, _sizes(each.sizes), each.candidate, each.temperature, "returns", now_s)
        ratio = (f"baseline {record.baseline}", before_s, each.comparison.speedup, *each.comparison.interval)
        yield ExportRow(*place, *ratio, each.verdict, is_bad=each.is_slower)


def _sizes(sizes: object) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) if isinstance(sizes, dict) else ""


def csv_text(record: Timed) -> str:
    """The timings as CSV (RFC 4180) with a heading, seconds and ratios in full."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(row, name) for name in _COLUMNS] for row in export_rows(record))
    return text.getvalue()


def markdown(record: Timed) -> str:
    """GitHub-flavoured Markdown: the verdict, then a table."""
    if isinstance(record, ChangeRecord):
        verdict = changes.summary(record)
        headings = ["candidate", *(heading or "verdict" for heading in changes.HEADINGS)]
        rows = [[changes.title(each), *changes.cells(each)] for each in record.changes]
        notes = [*(f"{name} is wrong: {fault}" for name, fault in record.faults.items()), *record.notes]
    else:
        verdict = f"{record.name}: {'every candidate is right' if record.ok else 'WRONG'}"
        headings = ["candidate", "sizes", "inputs", "median", "speed-up", "interval", "verdict"]
        rows, notes = [], []
        for row in export_rows(record):
            if row.fault:
                notes.append(f"{row.candidate} {'is wrong' if row.is_bad else 'is not timed'}: {row.fault}")
            elif row.way == "returns":
                rows.append([row.candidate, row.sizes, row.temperature, *_numbers(row)])
    machine = record.machine
    mark = ":white_check_mark:" if record.ok else ":x:"
    lines = [f"### {mark} {_cell(verdict)}", "", *_table(headings, rows), "", *(f"- {_cell(note)}" for note in notes)]
    return "\n".join([*lines, "", f"<sub>{_cell(machine.cpu)}, {machine.cores} cores, {machine.level}</sub>", ""])


def _numbers(row: ExportRow) -> list[str]:
    median = "" if row.median_s is None else spell_s(row.median_s)
    if row.ratio is None:
        return [median, "", "", "-"]
    return [median, f"{row.ratio:.2f}x", f"[{row.ratio_low:.2f}, {row.ratio_high:.2f}]", row.verdict]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(text: str) -> str:
    """A text that Markdown and HTML take as it is, on one line."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("\\", "\\\\").replace("|", "\\|").replace("`", "\\`").replace("*", "\\*").replace("_", "\\_")


def junit(record: Timed) -> str:
    """JUnit's XML: a test case for each timing, a failure where it is wrong or too slow."""
    suite = xml.Element("testsuite", name=f"noyau bench {printable(record.name)}")
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for row in export_rows(record):
        title = ", ".join(filter(None, (row.candidate, row.sizes, row.temperature, row.way)))
        case = xml.SubElement(suite, "testcase", classname=printable(row.name), name=printable(title))
        if row.median_s is not None:
            case.set("time", f"{row.median_s:.9f}")
        counts["tests"] += 1
        if row.is_bad:
            ratio = (
                "" if row.ratio is None else f"{row.verdict}: takes {1 / row.ratio - 1:+.1%} against the {row.against}"
            )
            xml.SubElement(case, "failure", message=printable(row.fault or ratio))
            counts["failures"] += 1
        elif row.fault:
            xml.SubElement(case, "skipped", message=printable(row.fault))
            counts["skipped"] += 1
    for name, count in counts.items():
        suite.set(name, str(count))
    suites = xml.Element("testsuites")
    suites.append(suite)
    xml.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(suites, "unicode")}\n'


EXPORTS = {"markdown": markdown, "junit": junit, "csv": csv_text}


def export(record: Timed, kind: str, path: Path) -> None:
    """Write a record as one of `EXPORTS`, whole or not at all. OutputError where that cannot be."""
    write_text(EXPORTS[kind](record), path)
