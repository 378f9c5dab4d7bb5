from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

from noyau.jobs.cli import main
from tests.jobs.profile.samples import TRACE

# Tables of an export as NVIDIA documents them ("SQLite Export Schema Reference"), with the columns that noyau reads and
# some that it does not.
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, blockX INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    graphId INTEGER NOT NULL, graphExecId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER);
"""
THREAD = (1 << 48) + (543 << 24) + 544  # of process 543


def insert(path: Path, table: str, *rows: dict[str, object]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for row in rows:
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


def on_device(begin: int, end: int, **others: object) -> dict[str, object]:
    return {"start": begin, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, **others}


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("r.sqlite")) as database:
        database.executescript(SCHEMA)
    return tmp_path / "r.sqlite"


def fill(path: Path) -> None:
    strings = enumerate(("void [b]add<float>(int)", "[b]add", "cudaLaunchKernel_v7000", "step"))
    insert(path, "StringIds", *({"id": number, "value": text} for number, text in strings))
    shape = {"demangledName": 0, "shortName": 1, "gridX": 1, "blockX": 32}
    kernels = on_device(1_000_000, 3_000_000, **shape), on_device(4_000_000, 6_000_000, **shape)
    insert(path, "CUPTI_ACTIVITY_KIND_KERNEL", *kernels)
    copies = [on_device(6_000_000, 7_000_000, bytes=4096, copyKind=kind) for kind in (1, 9)]
    insert(path, "CUPTI_ACTIVITY_KIND_MEMCPY", *copies)
    insert(path, "CUPTI_ACTIVITY_KIND_MEMSET", on_device(7_000_000, 7_500_000, bytes=64, value=0))
    insert(path, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", on_device(8_000_000, 9_000_000, graphId=5))
    call = {"start": 500_000, "end": 700_000, "eventClass": 0, "globalTid": THREAD, "nameId": 2, "returnValue": 0}
    insert(path, "CUPTI_ACTIVITY_KIND_RUNTIME", call)
    named = {"start": 0, "end": 10_000_000, "eventType": 59, "globalTid": THREAD, "text": "load"}
    insert(path, "NVTX_EVENTS", named, {**named, "text": None, "textId": 3}, {**named, "text": "a mark", "end": None})


def test_a_report_of_nsight_systems_is_a_table_and_a_timeline(report, capsys):
    fill(report)
    assert main(["profile", "r.sqlite", "--json", "p.json", "--trace", "t.json", "--top", "6"]) == 0
    out = capsys.readouterr().out
    head, columns, *rows = out.splitlines()
    assert (
        head == "The program of r.sqlite ran for 10 ms"
        and columns.split() == "function self total share calls bytes on".split()
    )
    assert rows[0].split() == "[b]add 4 ms 4 ms 40% 2 gpu".split()
    assert "Memcpy HtoD 1 ms 1 ms 10% 1 4 KiB gpu".split() in [row.split() for row in rows]
    record = json.loads(Path("p.json").read_text())
    assert record["wall_s"] == pytest.approx(0.01) and record["script"] == "The program of r.sqlite"
    found = {
        each["name"]: (each["calls"], each["self_s"], each["bytes"], each["where"]) for each in record["functions"]
    }
    assert found == {
        "[b]add": (2, pytest.approx(4e-3), None, "gpu"),
        "CUDA graph 5": (1, pytest.approx(1e-3), None, "gpu"),
        "Memcpy HtoD": (1, pytest.approx(1e-3), 4096, "gpu"),
        "Memcpy of kind 9": (1, pytest.approx(1e-3), 4096, "gpu"),
        "Memset": (1, pytest.approx(5e-4), 64, "gpu"),
        "cudaLaunchKernel_v7000": (1, pytest.approx(2e-4), None, "host"),
    }
    trace = json.loads(Path("t.json").read_text())
    jsonschema.validate(trace, TRACE)
    events = trace["traceEvents"]
    ranges = [(each["name"], each["pid"], each["tid"], each["dur"]) for each in events if each.get("cat") == "range"]
    assert ranges == [("load", 543, 544, 10_000.0), ("step", 543, 544, 10_000.0)]
    assert [(each["ts"], each["dur"]) for each in events if each["name"] == "gap"] == [(3000, 1000), (7500, 500)]
    names = {each["args"]["name"] for each in events if each["ph"] == "M"}
    assert names == {"GPU 0", "gaps between kernels"}


COLUMNS = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size",'
ROW = '"{}","736","python","127.0.0.1","{}","1","7","(32, 1, 1)","(16384, 1, 1)","0","9.0",'
DETAILS = [
    "==PROF== Connected to process 736",
    'a line of the program\'s, "quoted"',
    COLUMNS + '"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"',
    ROW.format(0, "void at::scaled<float>(int)") + '"Speed Of Light","DRAM Frequency","hz","3,194,831"',
    ROW.format(0, "void at::scaled<float>(int)") + '"Speed Of Light","Duration","us","2,000"',
    ROW.format(0, "void at::scaled<float>(int)")
    + '"Command line profiler metrics","gpu__time_duration.sum","us","2,000"',
    ROW.format(1, "[b]add") + '"Speed Of Light","Duration","msecond","1.00"',
]


def test_a_report_of_nsight_compute_is_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text("\n".join(DETAILS))
    assert main(["profile", "r.csv", "--trace", "t.json"]) == 0
    out = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert out[0] == "The kernels of r.csv ran for 3 ms".split()
    assert out[2:4] == ["scaled 2 ms 2 ms 67% 1".split(), "[b]add 1 ms 1 ms 33% 1".split()]
    spans = [each for each in json.loads(Path("t.json").read_text())["traceEvents"] if each["ph"] == "X"]
    assert [(each["ts"], each["dur"], each["tid"]) for each in spans] == [(0, 2000, 7), (2000, 1000, 7)]


def spoil(path: Path, kind: str) -> str:
    """Put a report in the place that cannot be read, and return its name."""
    csv = path.with_suffix(".csv")
    match kind:
        case "none":
            path.unlink()
        case "names":
            with closing(sqlite3.connect(path)) as database:
                database.execute("DROP TABLE StringIds")
        case "text":
            path.write_text("nothing of SQLite" * 100)
        case "other":
            path.unlink()
            with closing(sqlite3.connect(path)) as database:
                database.execute("CREATE TABLE songs (id INTEGER)")
        case "schema":
            with closing(sqlite3.connect(path)) as database:
                database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME COLUMN shortName TO name")
        case "types":
            insert(
                path,
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                {"start": "a", "end": "b", "eventClass": 0, "nameId": 0, "returnValue": 0},
            )
        case "table":
            csv.write_text("a,b\n1,2\n")
        case "binary":
            csv.write_bytes(b"\xff\xfe\x00")
        case "value":
            csv.write_text("\n".join([*DETAILS, ROW.format(2, "k") + '"x","Duration","us","n/a"']))
        case "unit":
            csv.write_text("\n".join([*DETAILS, ROW.format(2, "k") + '"x","Duration","%","1"']))
        case "untimed":
            csv.write_text("\n".join(DETAILS[:4]))
        case "report":
            path.with_suffix(".nsys-rep").write_text("a format of its own" * 100)
            return "r.nsys-rep"
        case "compute":
            path.with_suffix(".ncu-rep").touch()
            return "r.ncu-rep"
    return csv.name if csv.exists() else path.name


SYSTEMS = "r.sqlite is no export of Nsight Systems that noyau reads: "
COMPUTE = "r.csv is no export of Nsight Compute that noyau reads: "
NSYS = "nsys profile --trace=cuda,nvtx and nsys export --type sqlite REPORT.nsys-rep write one"
NCU = "ncu and ncu --import REPORT.ncu-rep --csv write one"
EMPTY = "it has no kernel, copy, call of CUDA or range with a time; "


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("none", f"{SYSTEMS}unable to open database file; {NSYS}"),
        ("text", f"{SYSTEMS}file is not a database; {NSYS}"),
        ("other", f"{SYSTEMS}{EMPTY}{NSYS}"),
        ("empty", f"{SYSTEMS}{EMPTY}{NSYS}"),
        ("schema", f"{SYSTEMS}no such column: shortName; {NSYS}"),
        ("names", f"{SYSTEMS}no such table: StringIds; {NSYS}"),
        ("types", f"{SYSTEMS}can't multiply sequence"),
        ("table", f"{COMPUTE}{EMPTY}{NCU}"),
        ("binary", f"{COMPUTE}'utf-8' codec can't decode byte"),
        ("value", f"{COMPUTE}could not convert string to float: 'n/a'; {NCU}"),
        ("unit", f"{COMPUTE}'%'"),
        ("untimed", f"{COMPUTE}{EMPTY}{NCU}"),
        ("report", f"r.nsys-rep is no export of Nsight Systems that noyau reads: file is not a database; {NSYS}"),
        ("compute", f"r.ncu-rep is no export of Nsight Compute that noyau reads: {EMPTY}{NCU}"),
    ],
)
def test_a_report_that_cannot_be_read_is_one_clear_line(report, capsys, kind, message):
    name = spoil(report, kind)
    assert main(["profile", name]) == 2
    out, err = capsys.readouterr()
    assert message in " ".join(err.split()) and "Traceback" not in err and not out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r.sqlite", "words"], "r.sqlite is a report: it takes no arguments"),
        (["r.sqlite", "--no-native"], "r.sqlite is a report: it takes no --native"),
        (["r.sqlite", "--threads", "2"], "r.sqlite is a report: it takes no --threads"),
    ],
)
def test_what_a_report_does_not_take(report, capsys, words, message):
    assert main(["profile", *words]) == 2
    assert message in capsys.readouterr().err
