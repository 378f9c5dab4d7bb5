"""A bench as text, page, Markdown, JUnit and CSV: at each set of sizes the fastest first, then unranked candidates."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as xml

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.bench.baseline.record import ChangeRecord
from noyau.jobs.bench.record import FILLING, HOT, RETURNING, BenchPoint, BenchRecord, CandidateTimes
from noyau.jobs.page import document
from noyau.jobs.page.document import Page, SizedTime
from noyau.jobs.report.text import Show, TableRow, hanging, shorten, show_of, table
from noyau.text import collect, differing, printable, sizes_text
from noyau.timing.verdict import Comparison, Verdict, spell_s

_GIGA = 1e9
HOST = "host"
_FLOPS = "GFLOP/s"
_LONGEST_RIVAL = 15  # letters, as many as of "AMBIGUOUS" beside its ratio
_SLOW_START_S = 0.05  # a first call that takes longer is mentioned


def render(record: BenchRecord, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The renderables of the record in reading order, for a terminal of `width` columns."""
    show = show_of(ascii_only=ascii_only)
    threads = ", ".join(f"{name} {count}" for name, count in record.threads.items() if name != "cores")
    facts = f"{record.machine.text}{f'; threads: {threads}' if threads else ''}"
    facts = facts if record.gpu is None else f"{record.gpu['device']}; {record.gpu['clocks']}"
    yield from hanging(show(facts), width, rest="  ", style="dim")
    for at in record.at:
        yield Text()
        yield from _at(record.name, at, width, show)


def _at(name: str, at: BenchPoint, width: int, show: Show) -> Iterator[RenderableType]:
    sizes = f" at {', '.join(f'{key}={size}' for key, size in at.sizes.items())}" if at.sizes else ""
    yield from hanging(Text.assemble((show(f"{name}{sizes}"), "bold"), f": {floor_text(at)}"), width, rest="  ")
    rows = [TableRow(show(row.title), _cells(row, at), show(remark(row, at))) for row in at.ranked]
    rival = show(shorten(f"vs {at.against}", _LONGEST_RIVAL))
    headings = (RETURNING, FILLING, HOT, HOST, "GB/s", "floor", _FLOPS, rival)
    yield from table("candidate", headings, rows, width, (_FLOPS,))
    for row in (row for row in at.rows if row.out):
        words, style = ("wrong", "red") if row.fault else ("not timed", "dim")
        yield from hanging(show(f"{row.title} is {words}: {row.out}"), width, rest="    ", style=style)
    for note in filter(None, (*at.notes, at.doubts)):
        yield from hanging(show(f"{note[:1].upper()}{note[1:]}."), width, rest="  ", style="yellow")
    for row in at.ranked:
        if row.name != at.against and at.verdict(row.name) is Verdict.AMBIGUOUS:
            advice = at.deciding(row.name)[1].advice
            yield from hanging(show(f"{row.name}: {advice}."), width, rest="  ", style="yellow")


def floor_text(at: BenchPoint) -> str:
    """A text on the bytes that must move and the floor of their time."""
    what = "must move" if at.work.exact else "in inputs and outputs"
    text = f"{_bytes(at.work.bytes_moved)} {what}"
    if not at.floor_s:
        return text
    rate = at.work.bytes_moved / at.floor_s / _GIGA
    return f"{text}; this machine needs {spell_s(at.floor_s)} for them, {rate:.1f} GB/s"


def _cells(row: CandidateTimes, at: BenchPoint) -> tuple[str, ...]:
    """The table cells of a candidate; empty for a way or a temperature in which it was not timed."""
    best_s = at.least_s(row.name) or float("nan")
    return (
        _spell(at.time_s(row.name)),
        _spell(at.time_s(row.name, FILLING)),
        _spell(at.time_s(row.name, temperature=HOT)) if len(at.races) > 1 else "",
        _spell(row.host_s),
        f"{at.work.bytes_moved / best_s / _GIGA:.1f}" if at.floor_s else "",
        f"{at.floor_s / best_s:.0%}" if at.floor_s else "",
        f"{at.work.flops / best_s / _GIGA:.1f}" if at.work.flops else "",
        "" if len(at.ranked) == 1 else "-" if row.name == at.against else verdict_text(row, at),
    )


def verdict_text(row: CandidateTimes, at: BenchPoint) -> str:
    _, comparison = at.deciding(row.name)
    return f"{comparison.speedup:.2f}x {comparison.verdict.value}"


def remark(row: CandidateTimes, at: BenchPoint) -> str:
    interval = first = ""
    if row.name != at.against:
        temperature, comparison = at.deciding(row.name)
        where = f", {temperature}" if len(at.races) > 1 else ""
        interval = f"[{comparison.low:.2f}, {comparison.high:.2f}] over {comparison.pairs} rounds{where}"
    if row.first_s is not None and row.first_s > max(_SLOW_START_S, 10 * (at.time_s(row.name) or 0.0)):
        first = f"its first call took {spell_s(row.first_s)}"
    return "; ".join(filter(None, (interval, *row.notes, str(at.latency(row.name) or ""), first)))


def _spell(time_s: float | None) -> str:
    return "" if time_s is None else spell_s(time_s)


def _bytes(count: int) -> str:
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{count / size:.3g} {unit}" for size, unit in units if count >= size), f"{count} bytes")


def headline(record: BenchRecord) -> str:
    """The fastest candidate, a line for each set of sizes."""
    return "\n".join(f"{sizes_text(at.sizes)}: {_winner(at)}" if at.sizes else _winner(at) for at in record.at)


def page(record: BenchRecord) -> Page:
    at, facts = record.at, {"machine": record.machine.text}
    facts |= {"GPU": str(record.gpu["device"])} if record.gpu else {}
    floors = (f"{sizes_text(each.sizes)}: {floor_text(each)}" for each in at)
    state = "bad" if not record.ok else "doubt" if any(each.doubts for each in at) else "good"
    varying = differing([each.sizes for each in at])
    size = varying[0] if len(varying) == 1 else ""
    times = collect((printable(row.title), _time(point, row, size)) for point in at for row in point.ranked)
    head, *heads = headline(record).splitlines()
    notes = (printable(note) for each in at for note in (*each.notes, each.doubts) if note)
    sections = [
        document.summary(head, state, (*heads, *floors), facts),
        document.table("Candidates", (_row(row, point) for point in at for row in point.rows)),
        document.sweeps("Times and rates", size, times),
        document.lines("Notes", dict.fromkeys(notes)),
    ]
    return Page(printable(record.name), "bench", sections)


def _winner(point: BenchPoint) -> str:
    if not point.ranked:
        return "no candidate is right"
    best = point.ranked[0]
    beside = "" if best.name == point.against else f", {verdict_text(best, point)} against {point.against}"
    return printable(f"{best.title} is fastest, {spell_s(point.least_s(best.name) or 0.0)}{beside}")


def _row(row: CandidateTimes, point: BenchPoint) -> dict[str, Any]:
    compared = None if row.out or row.name == point.against else point.deciding(row.name)[1]
    name = "" if row.out else row.name  # an unranked candidate has no times
    least_s, latency = point.least_s(name), point.latency(name)
    return {
        "sizes": sizes_text(point.sizes),
        "candidate": printable(row.title),
        "verdict": "WRONG" if row.fault else compared.verdict if compared else "-",
        "speedup": (compared.speedup, compared.low, compared.high) if compared else None,
        "returns_s": point.time_s(name),
        "out_s": point.time_s(name, FILLING),
        "hot_s": point.time_s(name, temperature=HOT),
        **{quantile: getattr(latency, quantile, None) for quantile in ("p90_s", "p99_s", "calls_per_s")},
        "bytes_per_s": point.work.bytes_moved / least_s if least_s else None,
        "floor_share": point.floor_s / least_s if least_s and point.floor_s else None,
        "remark": printable(row.out or "; ".join(row.notes)),
    }


def _time(point: BenchPoint, row: CandidateTimes, size: str) -> SizedTime:
    """The time of a candidate in its faster way, at the usual temperature; by the size, or by the bytes to move."""
    race = point.races[point.usual]
    samples = {k: seconds for k, seconds in enumerate(race.series.seconds) if race.sides[k][0] == row.name}
    middle, low, high = map(float, np.quantile(min(samples.values(), key=np.median), (0.5, 0.1, 0.9)))
    moved = point.work.bytes_moved
    return SizedTime(point.sizes[size] if size else moved, middle, low, high, moved, point.work.flops)


Timed = BenchRecord | ChangeRecord
# `ratio`: against_s / median_s, above 1 if the candidate is faster than its baseline.
_PLACE = ("name", "sizes", "candidate", "temperature", "way", "median_s")
_JUDGED = ("against", "verdict", "against_s", "ratio", "ratio_low", "ratio_high")
_COLUMNS = (*_PLACE, *_JUDGED, "fault", "is_bad")  # is_bad: a CI pipeline should fail


def export_rows(record: Timed) -> Iterator[dict[str, Any]]:
    """A row of `_COLUMNS` for every timing and every fault of a record."""
    if isinstance(record, ChangeRecord):
        yield from (_line((record.name, "", name), fault=fault, is_bad=True) for name, fault in record.faults.items())
        for each in record.changes:
            place = (record.name, sizes_text(each.sizes), each.candidate, each.temperature, RETURNING)
            against = (f"baseline {record.baseline}", each.verdict, *_ratio(each.comparison))
            yield _line((*place, each.comparison.medians_s[1]), against, is_bad=each.is_slower)
        return
    for at in record.at:
        sizes, ranked = sizes_text(at.sizes), {row.name for row in at.ranked}
        for row in at.rows:
            if row.out:
                yield _line((record.name, sizes, row.name), fault=row.out, is_bad=bool(row.fault))
        for temperature, race in at.races.items():
            for name, way in (side for side in race.sides if side[0] in ranked):
                judged: tuple[object, ...] = ()
                if name != at.against and (at.against, way) in race.sides:
                    comparison = at.comparison(name, way=way, temperature=temperature)
                    judged = (at.against, comparison.verdict.value, *_ratio(comparison))
                yield _line((record.name, sizes, name, temperature, way, race.median_s((name, way))), judged)


def _line(place: Sequence[Any], judged: Sequence[Any] = (), fault: str = "", *, is_bad: bool = False) -> dict[str, Any]:
    pairs = (*zip(_PLACE, place, strict=False), *zip(_JUDGED, judged, strict=False))
    return {**dict.fromkeys(_COLUMNS, ""), **dict(pairs), "fault": fault, "is_bad": is_bad}


def _ratio(comparison: Comparison) -> tuple[float, float, float, float]:
    return comparison.before_median_s, comparison.speedup, comparison.low, comparison.high


def csv_text(record: Timed) -> str:
    """The rows as CSV (RFC 4180) with a header; seconds and ratios are not rounded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS)
    writer.writeheader()
    writer.writerows(export_rows(record))
    return text.getvalue()


def markdown(record: Timed) -> str:
    """The record as GitHub-flavoured Markdown: the verdict, a table, and the faults."""
    plain = f"{record.name}: {'every candidate is right' if record.ok else 'WRONG'}"
    verdict, notes = (record.summary, [*record.notes]) if isinstance(record, ChangeRecord) else (plain, list[str]())
    lines = ["| candidate | sizes | inputs | time | against | ratio | interval | |", f"|{'---|' * 8}"]
    for row in export_rows(record):
        if row["fault"]:
            notes.append(f"{row['candidate']} {'is wrong' if row['is_bad'] else 'is not timed'}: {row['fault']}")
        elif row["way"] == RETURNING:
            form = "{ratio:.2f}x|[{ratio_low:.2f}, {ratio_high:.2f}]|{verdict}" if row["against"] else "||"
            names = [row[each] for each in ("candidate", "sizes", "temperature")]
            cells = [*names, spell_s(row["median_s"]), row["against"], *form.format(**row).split("|")]
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
    ends = ("", *(f"- {_cell(note)}" for note in notes), "", f"<sub>{_cell(record.machine.text)}</sub>", "")
    return "\n".join((f"### {':white_check_mark:' if record.ok else ':x:'} {_cell(verdict)}", "", *lines, *ends))


def _cell(text: str) -> str:
    """A text on one line, escaped for Markdown and HTML."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_" else letter for letter in escaped)


def junit(record: Timed) -> str:
    """The record as JUnit XML: a test case for each timing, which fails if it is wrong or too slow."""
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
            xml.SubElement(case, "failure" if row["is_bad"] else "skipped", message=printable(row["fault"] or slower))
    xml.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{xml.tostring(suites, "unicode")}\n'


EXPORTS = {"markdown": markdown, "junit": junit, "csv": csv_text}
