"""The page of a race: who is fastest at each size, the table of all candidates, times and rates against sizes."""

from __future__ import annotations

from typing import Any

import numpy as np

from noyau.jobs.bench.record import COLD, FILLING, HOT, BenchPoint, BenchRecord, CandidateTimes
from noyau.jobs.bench.render import floor_text, remark, verdict_text
from noyau.jobs.page.document import Page, SizedTime, lines, summary, sweeps, table
from noyau.text import printable, sizes_text
from noyau.timing.verdict import spell_s


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
        summary(heads[0], state, (*heads[1:], *floors), facts),
        table("Candidates", (_row(row, point) for point in at for row in point.rows)),
        sweeps("Times and rates", size, times),
        lines("Notes", dict.fromkeys(printable(note) for each in at for note in (*each.notes, each.doubts) if note)),
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
