"""A bench as text and as a page: for each set of sizes one table, the fastest first; who is not ranked, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.bench.record import COLD, FILLING, HOT, RETURNING, BenchPoint, BenchRecord, CandidateTimes
from noyau.jobs.page import document
from noyau.jobs.page.document import Page, SizedTime
from noyau.jobs.report.text import Show, TableRow, fits, hanging, shorten, show_of, table
from noyau.text import printable, sizes_text
from noyau.timing.verdict import Verdict, spell_s

_GIGA = 1e9
HOST = "host"
_FLOPS, _CANDIDATE = "GFLOP/s", "candidate"
_LONGEST_RIVAL = 15  # as wide as an AMBIGUOUS beside its ratio
_SLOW_START_S = 0.05  # of a first call, from which it is worth a word


def render(record: BenchRecord, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The record in the order in which it is read, for a terminal of so many columns."""
    show = show_of(ascii_only=ascii_only)
    machine = record.machine
    threads = ", ".join(f"{name} {count}" for name, count in record.threads.items() if name != "cores")
    facts = f"{machine.cpu}, {machine.cores} cores, {machine.level}{f'; threads: {threads}' if threads else ''}"
    facts = facts if record.gpu is None else f"{record.gpu['device']}; {record.gpu['clocks']}"
    yield from hanging(show(facts), width, rest="  ", style="dim")
    for at in record.at:
        yield Text()
        yield from _at(record.name, at, width, show)


def _at(name: str, at: BenchPoint, width: int, show: Show) -> Iterator[RenderableType]:
    sizes = f" at {', '.join(f'{key}={size}' for key, size in at.sizes.items())}" if at.sizes else ""
    yield from hanging(Text.assemble((show(f"{name}{sizes}"), "bold"), f": {floor_text(at)}"), width, rest="  ")
    if at.ranked:
        yield from _ranked(at, width, show)
    for row in at.rows:
        if row.fault:
            yield from hanging(show(f"{row.title} is wrong: {row.fault}"), width, rest="    ", style="red")
        elif row.skipped:
            yield from hanging(show(f"{row.title} is not timed: {row.skipped}"), width, rest="    ", style="dim")
    for note in filter(None, (*at.notes, at.doubts)):
        yield from hanging(show(f"{note[:1].upper()}{note[1:]}."), width, rest="  ", style="yellow")
    for row in at.ranked:
        if row.name != at.against and at.verdict(row.name) is Verdict.AMBIGUOUS:
            advice = at.deciding(row.name)[1].advice
            yield from hanging(show(f"{row.name}: {advice}."), width, rest="  ", style="yellow")


def _ranked(at: BenchPoint, width: int, show: Show) -> Iterator[Text]:
    """The table; without its flops where a line has no room for them."""
    columns = _columns(at)
    for left in (columns, tuple(name for name in columns if name != _FLOPS)):
        rows = [TableRow(show(row.title), _cells(row, at, left), show(remark(row, at))) for row in at.ranked]
        headings = [name or show(shorten(f"vs {at.against}", _LONGEST_RIVAL)) for name in left]
        if fits(_CANDIDATE, headings, rows, width):
            break
    yield from table(_CANDIDATE, headings, rows, width)


def floor_text(at: BenchPoint) -> str:
    """The bytes and the floor, and what the bytes are of."""
    what = "must move" if at.work.exact else "in inputs and outputs"
    text = f"{_bytes(at.work.bytes_moved)} {what}"
    if not at.floor_s:
        return text
    rate = at.work.bytes_moved / at.floor_s / _GIGA
    return f"{text}; this machine needs {spell_s(at.floor_s)} for them, {rate:.1f} GB/s"


def _columns(at: BenchPoint) -> tuple[str, ...]:
    """The headings: a way or a temperature that nobody was timed in has none."""
    names = [row.name for row in at.ranked]
    columns = [RETURNING]
    columns += [FILLING] if any(at.time_s(name, FILLING) is not None for name in names) else []
    columns += [HOT] if len(at.races) > 1 else []
    columns += [HOST] if any(row.host_s is not None for row in at.ranked) else []
    columns += ["GB/s", "floor"] if at.floor_s else []
    columns += [_FLOPS] if at.work.flops else []
    return (*columns, "") if len(names) > 1 else tuple(columns)


def _cells(row: CandidateTimes, at: BenchPoint, columns: tuple[str, ...]) -> tuple[str, ...]:
    best_s = at.least_s(row.name) or float("nan")
    cells = {
        RETURNING: _spell(at.time_s(row.name)),
        FILLING: _spell(at.time_s(row.name, FILLING)),
        HOT: _spell(at.time_s(row.name, temperature=HOT)),
        HOST: _spell(row.host_s),
        "GB/s": f"{at.work.bytes_moved / best_s / _GIGA:.1f}",
        "floor": f"{(at.floor_s or 0.0) / best_s:.0%}",
        _FLOPS: f"{(at.work.flops or 0.0) / best_s / _GIGA:.1f}",
        "": "-" if row.name == at.against else verdict_text(row, at),
    }
    return tuple(cells[column] for column in columns)


def verdict_text(row: CandidateTimes, at: BenchPoint) -> str:
    _, comparison = at.deciding(row.name)
    return f"{comparison.speedup:.2f}x {comparison.verdict.value}"


def remark(row: CandidateTimes, at: BenchPoint) -> str:
    """The interval and what else is worth a word."""
    remarks = list(row.notes)
    if row.name != at.against:
        temperature, comparison = at.deciding(row.name)
        where = f", {temperature}" if len(at.races) > 1 else ""
        remarks.insert(0, f"[{comparison.low:.2f}, {comparison.high:.2f}] over {comparison.pairs} rounds{where}")
    if row.first_s is not None and row.first_s > max(_SLOW_START_S, 10 * (at.time_s(row.name) or 0.0)):
        remarks.append(f"its first call took {spell_s(row.first_s)}")
    return "; ".join(remarks)


def _spell(time_s: float | None) -> str:
    return "" if time_s is None else spell_s(time_s)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def page(record: BenchRecord) -> Page:
    """The page of a record, size by size."""
    machine, at = record.machine, record.at
    facts = {"machine": f"{machine.cpu}, {machine.cores} cores, {machine.level}"}
    facts |= {"GPU": str(record.gpu["device"])} if record.gpu else {}
    heads = [f"{sizes_text(each.sizes)}: {_winner(each)}" if each.sizes else _winner(each) for each in at]
    floors = (f"{sizes_text(each.sizes)}: {floor_text(each)}" for each in at)
    state = "bad" if not record.ok else "doubt" if any(each.doubts for each in at) else "good"
    varying = [name for name in at[0].sizes if len({each.sizes.get(name) for each in at}) > 1]
    size = varying[0] if len(varying) == 1 else ""
    times: dict[str, list[SizedTime]] = {}
    for point in at:
        for row in point.ranked:
            times.setdefault(printable(row.title), []).append(_time(point, row, size))
    sections = [
        document.summary(heads[0], state, (*heads[1:], *floors), facts),
        document.table("Candidates", (_row(row, point) for point in at for row in point.rows)),
        document.sweeps("Times and rates", size, times),
        document.lines(
            "Notes", dict.fromkeys(printable(note) for each in at for note in (*each.notes, each.doubts) if note)
        ),
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
    least_s = None if row.out else point.least_s(row.name)
    return {
        "sizes": sizes_text(point.sizes),
        "candidate": printable(row.title),
        "verdict": "WRONG" if row.fault else compared.verdict if compared else "-",
        "speedup": (compared.speedup, compared.low, compared.high) if compared else None,
        "returns_s": None if row.out else point.time_s(row.name),
        "out_s": None if row.out else point.time_s(row.name, FILLING),
        "hot_s": None if row.out else point.time_s(row.name, temperature=HOT),
        "bytes_per_s": point.work.bytes_moved / least_s if least_s else None,
        "floor_share": point.floor_s / least_s if least_s and point.floor_s else None,
        "remark": printable(row.out or remark(row, point)),
    }


def _time(point: BenchPoint, row: CandidateTimes, size: str) -> SizedTime:
    """The faster of the ways in which a candidate was called, with cold caches where that was timed; at a size, or at
    the bytes that must move."""
    race = point.races[COLD if COLD in point.races else HOT]
    samples = {k: seconds for k, seconds in enumerate(race.series.seconds) if race.sides[k][0] == row.name}
    best = min(samples.values(), key=np.median)
    middle, low, high = map(float, np.quantile(best, (0.5, 0.1, 0.9)))
    moved = point.work.bytes_moved
    return SizedTime(point.sizes[size] if size else moved, middle, low, high, moved, point.work.flops)
