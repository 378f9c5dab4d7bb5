"""A bench, or its comparison with a baseline, as Markdown for a pull request, as JUnit's XML and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as xml

from noyau.jobs.bench.baseline.record import ChangeRecord
from noyau.jobs.bench.record import RETURNING, BenchRecord
from noyau.text import printable, sizes_text
from noyau.timing.verdict import Comparison, spell_s

Timed = BenchRecord | ChangeRecord
# `ratio`: against_s over median_s, above 1 where it is faster than what it is timed against.
_PLACE = ("name", "sizes", "candidate", "temperature", "way", "median_s")
_JUDGED = ("against", "verdict", "against_s", "ratio", "ratio_low", "ratio_high")
_COLUMNS = (*_PLACE, *_JUDGED, "fault", "is_bad")  # is_bad: a pipeline should stop for it


def export_rows(record: Timed) -> Iterator[dict[str, Any]]:
    """Every timing of a record, and what is wrong, by `_COLUMNS`."""
    if isinstance(record, ChangeRecord):
        for name, fault in record.faults.items():
            yield _row((record.name, "", name), fault=fault, is_bad=True)
        for each in record.changes:
            place = (record.name, sizes_text(each.sizes), each.candidate, each.temperature, RETURNING)
            against = (f"baseline {record.baseline}", each.verdict, *_ratio(each.comparison))
            yield _row((*place, each.comparison.medians_s[1]), against, is_bad=each.is_slower)
        return
    for at in record.at:
        sizes, ranked = sizes_text(at.sizes), {row.name for row in at.ranked}
        for row in at.rows:
            if row.out:
                yield _row((record.name, sizes, row.name), fault=row.out, is_bad=bool(row.fault))
        for temperature, race in at.races.items():
            for name, way in (side for side in race.sides if side[0] in ranked):
                judged: tuple[object, ...] = ()
                if name != at.against and (at.against, way) in race.sides:
                    comparison = at.comparison(name, way=way, temperature=temperature)
                    judged = (at.against, comparison.verdict.value, *_ratio(comparison))
                yield _row((record.name, sizes, name, temperature, way, race.median_s((name, way))), judged)


def _row(place: Sequence[Any], judged: Sequence[Any] = (), fault: str = "", *, is_bad: bool = False) -> dict[str, Any]:
    pairs = (*zip(_PLACE, place, strict=False), *zip(_JUDGED, judged, strict=False))
    return {**dict.fromkeys(_COLUMNS, ""), **dict(pairs), "fault": fault, "is_bad": is_bad}


def _ratio(comparison: Comparison) -> tuple[float, float, float, float]:
    return comparison.before_median_s, comparison.speedup, comparison.low, comparison.high


def csv_text(record: Timed) -> str:
    """CSV (RFC 4180) with a heading; seconds and ratios in full."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS)
    writer.writeheader()
    writer.writerows(export_rows(record))
    return text.getvalue()


def markdown(record: Timed) -> str:
    """GitHub-flavoured Markdown: the verdict, a table, and what is wrong."""
    verdict = f"{record.name}: {'every candidate is right' if record.ok else 'WRONG'}"
    verdict = record.summary if isinstance(record, ChangeRecord) else verdict
    notes = list(record.notes) if isinstance(record, ChangeRecord) else []
    lines = ["| candidate | sizes | inputs | time | against | ratio | interval | |", f"|{'---|' * 8}"]
    for row in export_rows(record):
        if row["fault"]:
            notes.append(f"{row['candidate']} {'is wrong' if row['is_bad'] else 'is not timed'}: {row['fault']}")
        elif row["way"] == RETURNING:
            form = "{ratio:.2f}x|[{ratio_low:.2f}, {ratio_high:.2f}]|{verdict}" if row["against"] else "||"
            names = [row[each] for each in ("candidate", "sizes", "temperature")]
            cells = [*names, spell_s(row["median_s"]), row["against"], *form.format(**row).split("|")]
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    heading = f"### {':white_check_mark:' if record.ok else ':x:'} {_cell(verdict)}"
    ends = ("", *(f"- {_cell(note)}" for note in notes), "", f"<sub>{_cell(record.machine.text)}</sub>", "")
    return "\n".join((heading, "", *lines, *ends))


def _cell(text: str) -> str:
    """A text that Markdown and HTML take as it is, on one line."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_" else letter for letter in escaped)


def junit(record: Timed) -> str:
    """JUnit's XML: a test case for each timing, a failure where it is wrong or too slow."""
    rows, suites = list(export_rows(record)), xml.Element("testsuites")
    skipped = sum(bool(row["fault"]) and not row["is_bad"] for row in rows)
    counts = {"tests": len(rows), "failures": sum(row["is_bad"] for row in rows), "skipped": skipped}
    texts = {name: str(count) for name, count in counts.items()}
    suite = xml.SubElement(suites, "testsuite", {"name": f"noyau bench {printable(record.name)}", **texts})
    for row in rows:
        title = ", ".join(filter(None, (row[each] for each in ("candidate", "sizes", "temperature", "way"))))
        facts = {"classname": printable(row["name"]), "name": printable(title), "time": f"{row['median_s'] or 0:.9f}"}
        case = xml.SubElement(suite, "testcase", facts)
        if row["is_bad"] or row["fault"]:
            slower = f"{row['verdict']}: takes {1 / (row['ratio'] or 1) - 1:+.1%} against the {row['against']}"
            message = printable(row["fault"] or slower)
            xml.SubElement(case, "failure" if row["is_bad"] else "skipped", message=message)
    xml.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(suites, "unicode")}\n'


EXPORTS = {"markdown": markdown, "junit": junit, "csv": csv_text}
