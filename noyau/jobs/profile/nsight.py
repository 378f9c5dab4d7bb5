"""Reader of NVIDIA's Nsight reports: of Nsight Systems as SQLite, of Nsight Compute as CSV."""

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import dropwhile
from pathlib import Path

from noyau.errors import InputError, reason_of
from noyau.jobs.profile.record import ScriptProfile
from noyau.jobs.profile.timeline import ON_GPU, call_rows, gap_threads, label, span
from noyau.timing.ranges import Event

_SYSTEMS = "program", "Nsight Systems", "nsys profile --trace=cuda,nvtx and nsys export --type sqlite REPORT.nsys-rep"
_COMPUTE = "kernels", "Nsight Compute", "ncu and ncu --import REPORT.ncu-rep --csv"
_PER_UNIT = {"n": 1e-3, "u": 1.0, "m": 1e3, "s": 1e6}  # microseconds, by the first letter: ns, nsecond, us, ms, second
_STRING = "(SELECT value FROM StringIds WHERE StringIds.id = {})"
_DEVICE, _THREAD = "deviceId, streamId", "(globalTid >> 24) & 0xffffff, globalTid & 0xffffff"
_KINDS = "WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 8 THEN 'DtoD' WHEN 10 THEN 'PtoP' ELSE 'of kind ' || copyKind"
# The category, and the SQL of name, place and bytes, of each table. Source: NVIDIA, "SQLite Export Schema Reference".
_TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("kernel", _STRING.format("shortName"), _DEVICE, "NULL"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("kernel", "'CUDA graph ' || graphId", _DEVICE, "NULL"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("gpu_memcpy", f"'Memcpy ' || CASE copyKind {_KINDS} END", _DEVICE, "bytes"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("gpu_memset", "'Memset'", _DEVICE, "bytes"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("cuda_runtime", _STRING.format("nameId"), _THREAD, "NULL"),
    "NVTX_EVENTS": ("range", f"coalesce(text, {_STRING.format('textId')})", _THREAD, "NULL"),
}


def profile_report(path: Path, top: int) -> ScriptProfile:
    """The profile of a report's events. InputError where the file is no export of Nsight, or has no events."""
    is_compute = path.suffix in (".csv", ".ncu-rep")
    what, tool, ways = _COMPUTE if is_compute else _SYSTEMS
    try:
        events = list(_compute_events(path) if is_compute else _systems_events(path))
        if not events:
            raise ValueError("it has no kernel, copy, call of CUDA or range with a time")
        wall_us = max(each["ts"] + each["dur"] for each in events) - min(each["ts"] for each in events)
    except (OSError, sqlite3.Error, ValueError, KeyError, TypeError) as error:
        reason = f"{reason_of(error)}; {ways} write one"
        raise InputError(f"{path} is no export of {tool} that noyau reads: {reason}") from error
    rows = tuple(call_rows(each for each in events if each["cat"] != "range"))
    busy = [each for each in events if each["cat"] in ON_GPU]
    names = (label("process_name", f"GPU {pid}", pid) for pid in {each["pid"] for each in busy})
    timeline = (*names, *events, *gap_threads(busy, "kernels"))
    return ScriptProfile(f"The {what} of {path}", 1e-6 * wall_us, "", 0, None, timeline, rows, top)


def _systems_events(path: Path) -> Iterator[Event]:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        for table, (category, name, place, size) in _TABLES.items():
            # A table without rows is absent; a mark of NVTX has no end.
            query = f"SELECT {name}, start, end, {place}, {size} FROM {table} WHERE end >= start"  # noqa: S608
            for title, begin, end, pid, tid, moved in database.execute(query) if table in tables else ():
                yield span(title or category, 1e-3 * begin, 1e-3 * end, pid, tid, category, bytes=moved)


def _compute_events(path: Path) -> Iterator[Event]:
    """Kernels one after the other, since the report has no start times."""
    # The program's output precedes the table; a kernel may have its duration in two sections.
    rows = csv.DictReader(dropwhile(lambda line: not line.startswith('"ID"'), path.read_text("utf-8").splitlines()))
    timed = {row["ID"]: row for row in rows if row.get("Metric Name") in ("Duration", "gpu__time_duration.sum")}
    until_us = 0.0
    for row in timed.values():
        begin_us, place = until_us, (int(row.get("Device") or 0), int(row["Stream"]))
        until_us += float(row["Metric Value"].replace(",", "")) * _PER_UNIT[row["Metric Unit"][:1]]
        yield span(row["Kernel Name"], begin_us, until_us, *place, "kernel")
