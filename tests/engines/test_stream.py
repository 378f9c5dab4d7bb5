import contextlib
import gzip
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from pyarrow import csv, parquet

import noyau
from noyau.engines import sinks, sources
from noyau.errors import InputError, MissingExtraError, OutputError, OutsideError, RaisedError, SignatureError
from noyau.jobs.cli import main

ROWS = 3000
NOISE = np.random.default_rng(0)
TABLE = pa.table(
    {
        "key": NOISE.integers(0, 5, ROWS),
        "x": NOISE.integers(-99, 99, ROWS) / 4,
        "name": NOISE.choice(["a", "b"], ROWS),
    }
)
COLUMNS = {name: TABLE[name].to_numpy() for name in ("key", "x")}


@noyau.op("i64[n], f64[n] -> f64[g]", sizes={"g": 5})
def group_sums(key, x):
    out = np.zeros(5)
    np.add.at(out, key, x)
    return out


@noyau.op("f64[n], f64 -> y: f64[n]")
def scaled(x, by):
    return x * by


WANT = group_sums.reference(**COLUMNS).tolist()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parquet.write_table(TABLE, "whole.parquet", row_group_size=700)
    os.mkdir("parts")
    for at in range(3):
        csv.write_csv(TABLE.slice(at * 1000, 1000), f"parts/{at}.csv")
    text = "\n".join(";".join(line.split(",")) for line in (tmp_path / "parts/0.csv").read_text().splitlines())
    (tmp_path / "semicolons.csv.gz").write_bytes(gzip.compress(text.encode()))
    np.save("x.npy", COLUMNS["x"])
    return tmp_path


def test_every_source_gives_the_same(folder):
    frames = ({name: column[at : at + 500] for name, column in COLUMNS.items()} for at in range(0, ROWS, 500))
    arrays = [
        "whole.parquet",
        "parts",
        "parts/*.csv",
        COLUMNS,
        TABLE,
        TABLE.to_batches(300),
        frames,
        TABLE.to_reader(999),
    ]
    for source in arrays:
        result = noyau.stream(group_sums, source, memory="100K", workers=2)
        assert (result.value.tolist(), result.rows) == (WANT, ROWS)
    assert (
        noyau.stream(group_sums, "semicolons.csv.gz").value.tolist()
        == group_sums(*(column[:1000] for column in COLUMNS.values())).tolist()
    )
    total = noyau.op("f64[n] -> f64", name="total")(lambda x: x.sum())
    assert noyau.stream(total, "x.npy").value == noyau.stream(total, COLUMNS["x"]).value == COLUMNS["x"].sum()
    assert noyau.stream(total, {"x": np.zeros(0)}).value == 0


def test_a_condition_and_columns_of_other_names(folder):
    rows = COLUMNS["x"] > 3
    result = noyau.stream(group_sums, "whole.parquet", where=(ds.field("x") > 3) & (ds.field("name") == "a"))
    rows &= TABLE["name"].to_numpy() == "a"
    assert result.value.tolist() == group_sums(COLUMNS["key"][rows], COLUMNS["x"][rows]).tolist()
    text = noyau.stream(group_sums, "whole.parquet", where="x > 3 and name == 'a'")
    assert text.value.tolist() == result.value.tolist()
    gram = noyau.op("f64[n, k] -> f64[k, k]", name="gram")(lambda x: x.T @ x)
    square = noyau.stream(gram, "whole.parquet", columns={"x": ["x", "key"]}).value
    both = np.stack([COLUMNS["x"], COLUMNS["key"]], axis=1)
    np.testing.assert_allclose(square, both.T @ both)


def test_nulls_and_bad_lines_are_never_dropped_in_silence(folder):
    (folder / "bad.csv").write_text("key,x\n1,2.0\n1,,3\n2,\n3,4.5\n")
    with pytest.raises(InputError, match=r"bad.csv cannot be read as csv: .*Expected 2 columns, got 3"):
        noyau.stream(group_sums, "bad.csv")
    with pytest.raises(InputError, match="the column x has 1 nulls"):
        noyau.stream(group_sums, "bad.csv", bad_lines="aside")
    result = noyau.stream(group_sums, "bad.csv", bad_lines="aside", nulls="skip")
    assert result.value.tolist() == [0, 2, 0, 4.5, 0]
    assert result.counts == {"bad lines": 1, "rows with nulls": 1} and "left out: 1 bad lines" in str(result)
    assert [file.read_text() for file in (folder / "aside").iterdir()] == ["1,,3\n"]
    assert np.isnan(noyau.stream(group_sums, "bad.csv", bad_lines="aside", nulls="nan").value[2])
    (folder / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        noyau.stream(group_sums, "bad.csv", bad_lines="file", nulls="skip")


def test_types_and_the_order_of_columns_may_change_between_files(folder):
    narrow = pa.schema([("x", pa.float32()), ("key", pa.int16()), ("name", pa.string())])
    (folder / "drift").mkdir()
    pieces = TABLE.slice(0, 1000), TABLE.slice(1000, 0), TABLE.slice(1000, 1), TABLE.slice(1001)
    for at, piece in enumerate(pieces):  # a file without rows, and one with one row
        piece = piece.select(narrow.names).cast(narrow) if at % 2 == 0 else piece
        parquet.write_table(piece, f"drift/{at}.parquet", row_group_size=600)
    for condition in (None, "x > -100"):
        result = noyau.stream(group_sums, "drift", memory="100K", where=condition)
        assert (result.value.tolist(), result.rows) == (WANT, ROWS)


def refusals():
    yield InputError, "has no column key; it has x; say columns=", lambda: noyau.stream(group_sums, {"x": np.zeros(3)})
    yield (
        InputError,
        "1.csv has no column x",
        lambda: (csv.write_csv(TABLE.select(["key"]), "parts/1.csv"), noyau.stream(group_sums, "parts")),
    )
    yield (
        InputError,
        "1.csv has other types than",
        lambda: (
            csv.write_csv(TABLE.set_column(1, "x", TABLE["name"]), "parts/1.csv"),
            noyau.stream(group_sums, "parts"),
        ),
    )
    yield (
        OutsideError,
        "group_sums on the arrays, rows 0 to 1: an index is outside",
        lambda: noyau.stream(group_sums, {"key": np.array([7]), "x": np.zeros(1)}),
    )
    yield (
        InputError,
        "the arrays: group_sums: key is declared int64, and its column key is float64",
        lambda: noyau.stream(group_sums, {"key": np.zeros(2), "x": np.zeros(2)}),
    )
    yield (
        InputError,
        "overflows that",
        lambda: noyau.stream(noyau.op("i8[n] -> i8", name="low")(lambda x: x.max()), {"x": np.array([300])}),
    )
    yield (
        InputError,
        "needs columns of one length",
        lambda: noyau.stream(group_sums, {"key": np.zeros(2, int), "x": np.zeros(3)}),
    )
    yield InputError, "file that can be read: it is not there", lambda: noyau.stream(group_sums, "nothing.parquet")
    yield InputError, "names no files of one format", lambda: noyau.stream(group_sums, "mixed")
    yield InputError, "torn.npy cannot be mapped", lambda: noyau.stream(group_sums, "torn.npy")
    yield InputError, "empty.npy cannot be mapped", lambda: noyau.stream(group_sums, "empty.npy")
    yield InputError, "a int is no source", lambda: noyau.stream(group_sums, 3)
    yield InputError, "a chunk is a int", lambda: noyau.stream(group_sums, [3])
    yield InputError, "several files are a glob", lambda: noyau.stream(group_sums, ["a.csv", "b.csv"])
    yield (
        InputError,
        "^whole.parquet: group_sums: x is declared float64, and its column name is texts: name one of numbers",
        lambda: noyau.stream(group_sums, "whole.parquet", columns={"key": "key", "x": "name"}),
    )
    yield (
        InputError,
        "Top on whole.parquet .row group 0., rows 0 to 700: Top takes numbers",
        lambda: noyau.stream(noyau.reductions.Top, "whole.parquet", columns={"x": "name"}, workers=1),
    )
    yield InputError, "x is wrong or lacking", lambda: noyau.stream(group_sums, COLUMNS, columns={"key": "key"})
    yield InputError, "by is wrong or lacking", lambda: noyau.stream(scaled, COLUMNS, "y.csv")
    yield InputError, "workers=0 is no number", lambda: noyau.stream(group_sums, COLUMNS, workers=0)
    yield (
        InputError,
        "no text in UTF-8",
        lambda: noyau.stream(group_sums, "latin.csv", columns={"key": "key", "x": "n"}),
    )
    yield InputError, "late.csv cannot be .* 2.0 there makes it", lambda: noyau.stream(group_sums, "late.csv")
    yield (
        InputError,
        "highest: no row came through, of which it has no result",
        lambda: noyau.stream(noyau.op("f64[n] -> f64", name="highest")(lambda x: x.max()), {"x": np.zeros(0)}),
    )
    yield (
        InputError,
        "y.parquet is what is read, or a folder of it",
        lambda: [
            noyau.stream(scaled, each, "y.parquet", arguments={"by": 2.0}, columns={"x": name})
            for each, name in ((COLUMNS, "x"), ("y.parquet/*", "y"))
        ],
    )
    yield (
        InputError,
        "scaled has a result y, and keep= a column of that name",
        lambda: noyau.stream(scaled, {"x": np.ones(2), "y": np.ones(2)}, "z.csv", arguments={"by": 2.0}, keep=("y",)),
    )
    yield InputError, "yields no chunk", lambda: noyau.stream(group_sums, [])
    yield InputError, "chunk 1 has no column x", lambda: noyau.stream(group_sums, [COLUMNS, {"key": np.zeros(2, int)}])
    yield InputError, "where= is of files", lambda: noyau.stream(group_sums, COLUMNS, where=ds.field("x") > 1)
    yield InputError, "where='x >' is no condition", lambda: noyau.stream(group_sums, "whole.parquet", where="x >")
    yield InputError, "FieldRef.Name.other", lambda: noyau.stream(group_sums, "whole.parquet", where="other > 1")
    yield (
        InputError,
        "total: a sum of int64 overflows: make float64 of its column",
        lambda: noyau.stream(noyau.op("i64[n] -> i64", name="total")(lambda x: x.sum()), np.full(5000, 2**61)),
    )
    yield InputError, "nulls='drop' is nothing to do", lambda: noyau.stream(group_sums, COLUMNS, nulls="drop")
    yield InputError, "memory='much' is no size", lambda: noyau.stream(group_sums, COLUMNS, memory="much")
    yield InputError, "is list", lambda: noyau.stream(group_sums, pa.table({"key": [1], "x": [[1.0]]}))
    yield SignatureError, "takes an op or a reduction", lambda: noyau.stream(len, COLUMNS)
    yield (
        InputError,
        "scaled has a result for each row: name a sink that is .parquet or .csv or .npy, not None",
        lambda: noyau.stream(scaled, COLUMNS, arguments={"by": 2.0}),
    )
    yield (
        InputError,
        "group_sums has one result: name a sink that is .npz or .json, not a.csv",
        lambda: noyau.stream(group_sums, COLUMNS, "a.csv"),
    )
    yield (
        OutputError,
        "Not a directory; name another place",
        lambda: noyau.stream(scaled, COLUMNS, "x.npy/y.parquet", arguments={"by": 2.0}),
    )


@pytest.mark.parametrize(
    ("kind", "message", "run"), list(refusals()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_bad_input_is_one_clear_error(kind, message, run, folder):
    (folder / "torn.npy").write_bytes(b"x")
    (folder / "empty.npy").touch()
    (folder / "latin.csv").write_bytes(b"key,n\n1,caf\xe9\n")
    if "late.csv" in message:
        (folder / "late.csv").write_text("key,x\n" + "1,2\n" * 20_000 + "1,2.5\n")
    (folder / "mixed").mkdir()
    (folder / "mixed/a.csv").touch()
    (folder / "mixed/a.parquet").touch()
    with pytest.raises(kind, match=message):
        run()


def test_a_step_that_raises_says_where_once(folder):
    @noyau.reduction
    class Picky:
        def zero(self):
            return 0

        def step(self, state, x):
            return state + len(x) / (0 if len(x) == 200 else 1)

        def merge(self, a, b):
            return a + b

        def finish(self, state):
            return state

    with pytest.raises(
        RaisedError, match=r"^local: Picky raised ZeroDivisionError: .*whole.parquet \(row group 4\), rows 0 to 200$"
    ):
        noyau.stream(Picky, "whole.parquet", workers=1)


def test_a_package_that_is_missing_is_named(folder, monkeypatch):
    monkeypatch.setattr("noyau.engines.sources.find_spec", lambda name: None)
    monkeypatch.setattr("noyau.engines.stream.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"noyau-kernels.stream"):
        noyau.stream(group_sums, "whole.parquet")
    with pytest.raises(MissingExtraError, match=r"noyau-kernels.stream"):
        noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0})


def test_no_rows_are_a_result_too(folder):
    """Of a text without lines, whose types nothing tells, and of a map, whose columns are there."""
    (folder / "head.csv").write_text("key,x\n")
    assert noyau.stream(group_sums, "head.csv").value.tolist() == [0] * 5
    for sink in ("none.parquet", "none.csv"):
        noyau.stream(scaled, "head.csv", sink, arguments={"by": 2.0}, keep=("key",))
        assert ds.dataset(sink, format=sink[5:]).to_table().column_names == ["key", "y"]


def test_results_of_several_kinds_keep_their_names_and_dtypes(folder):
    highest = noyau.op("f64[n] -> at: i64, top: f64", name="highest")(lambda x: (x.argmax(), x.max()))
    noyau.stream(highest, "whole.parquet", "top.npz")
    results = dict(np.load("top.npz"))
    assert list(results) == ["at", "top"] and results["at"].dtype == np.int64
    days = {"key": np.array(["2024-01-01", "2024-01-02"], "M8[s]"), "x": np.ones(2)}
    noyau.stream(noyau.reductions.GroupMoments, days, "days.json")
    assert '"2024-01-02 00:00:00"' in (folder / "days.json").read_text()


def contents(path):
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def test_rows_go_into_parquet_and_go_on_after_an_end(folder, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 1000)
    monkeypatch.setattr("noyau.engines.arrow_files.CHUNKS", 2)
    options = {"arguments": {"by": 2.0}, "keep": ("key",), "memory": 256 * 24 * 16}
    noyau.stream(scaled, COLUMNS, "undisturbed.parquet", **options)
    table = parquet.read_table("undisturbed.parquet")
    assert table["y"].to_numpy().tolist() == (2 * COLUMNS["x"]).tolist()
    assert table["key"].to_numpy().tolist() == COLUMNS["key"].tolist()
    for wait in range(1, 14):
        seen = []

        def end(rows, size, wait=wait, seen=seen):
            seen.append(rows)
            if len(seen) == wait:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            noyau.stream(scaled, COLUMNS, "ended.parquet", tell=end, **options)
        assert noyau.stream(scaled, COLUMNS, "ended.parquet", **options).rows <= ROWS
        assert contents(folder / "ended.parquet") == contents(folder / "undisturbed.parquet")
        assert not (folder / "ended.parquet.progress").exists()


def test_other_work_does_not_go_on_with_a_sink(folder):
    def end(rows, size):
        if not rows:  # the end of a part
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0}, tell=end)
    with pytest.raises(InputError, match="is of other work"):
        noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 3.0})
    (folder / "y.parquet.progress").write_text("{")
    with pytest.raises(InputError, match="is torn"):
        noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0})
    noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0}, resume=False)


def test_no_room_is_said_and_gone_on_from(folder, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sinks.Path, "write_bytes", full)
        with pytest.raises(OutputError, match="No space left on device; make room and start it again"):
            noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0})
    noyau.stream(scaled, COLUMNS, "y.parquet", arguments={"by": 2.0})
    assert parquet.read_table("y.parquet").num_rows == ROWS


def test_a_state_is_written_down_and_gone_on_from(folder, monkeypatch):
    monkeypatch.setattr(sinks, "PAUSE_S", 0.0)
    seen = []

    def end(rows, size):
        seen.append(rows)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        noyau.stream(group_sums, "whole.parquet", "sums.npz", tell=end)
    result = noyau.stream(group_sums, "whole.parquet", "sums.npz")
    assert result.rows < ROWS and result.value.tolist() == np.load("sums.npz")["result"].tolist() == WANT


PROGRAM = """
import sys, noyau
from noyau.ops.op_files import load_op
noyau.stream(load_op("op.py::scaled"), "whole.parquet", sys.argv[1], arguments={"by": 2.0}, memory="100K")
"""
OP = "import noyau\n@noyau.op('f64[n], f64 -> y: f64[n]')\ndef scaled(x, by):\n    return x * by\n"


def test_the_command_prints_and_writes(folder, capsys):
    (folder / "op.py").write_text(OP)
    assert main(["stream", "op.py::scaled", "whole.parquet", "-o", "y.parquet", "--argument", "by=2.0"]) == 0
    assert f"{ROWS} rows in" in capsys.readouterr().out
    assert pc.sum(parquet.read_table("y.parquet")["y"]).as_py() == 2 * COLUMNS["x"].sum()


def test_noyaus_own_reductions_have_a_name_in_the_command(folder, capsys):
    run = ["stream", "noyau.reductions::Histogram", "whole.parquet", "--column", "x=x", "--where", "key == 3"]
    assert main([*run, "--argument", "low=-25", "--argument", "high=25", "-o", "h.npz"]) == 0
    want = np.histogram(COLUMNS["x"][COLUMNS["key"] == 3], 10, (-25, 25))[0]
    assert np.load("h.npz")["counts"].tolist() == want.tolist()
    assert main([*run, "--argument", "widths=3"]) == 2
    assert "Histogram needs other parameters" in capsys.readouterr().err
    assert main(["check", "noyau.reductions::Top"]) == 0
    assert "Top[laws]: its laws hold" in capsys.readouterr().out


def test_too_little_memory_is_told(folder, capsys):
    assert main(["stream", "noyau.reductions::Top", "whole.parquet", "--memory", "50M"]) == 2
    assert "--memory 50M is too small: Python and its packages take" in capsys.readouterr().err


def rows_of(sink):
    """What is in a sink."""
    if "::" not in sink:
        return contents(Path(sink)) if Path(sink).is_dir() else Path(sink).read_bytes()
    with sqlite3.connect(sink.removeprefix("sqlite:///").partition("::")[0]) as connection:
        return connection.execute("SELECT rowid, * FROM y").fetchall(), connection.execute(
            "SELECT name FROM sqlite_master"
        ).fetchall()


def is_whole(sink, undisturbed):
    """Whether a table was written to its end, after which it is not written again."""
    with contextlib.suppress(sqlite3.OperationalError):  # there is no table yet
        return rows_of(sink) == rows_of(undisturbed)
    return False


@pytest.mark.long
@pytest.mark.parametrize("sink", ["{}.parquet", "{}.csv", "{}.npy", "sqlite:///{}.db::y"])
def test_sigkill_at_any_moment_leaves_what_can_be_gone_on_with(sink, folder):
    (folder / "op.py").write_text(OP)
    run = [sys.executable, "-c", PROGRAM]
    subprocess.run([*run, sink.format("undisturbed")], check=True)
    for at, wait_s in enumerate(np.random.default_rng(0).uniform(0.3, 1.6, 20)):
        process = subprocess.Popen([*run, sink.format(f"ended{at}")])
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not ("::" in sink and is_whole(sink.format(f"ended{at}"), sink.format("undisturbed"))):
            subprocess.run([*run, sink.format(f"ended{at}")], check=True)
        assert rows_of(sink.format(f"ended{at}")) == rows_of(sink.format("undisturbed"))


MEASURED = """
import sys
class WithoutPandas:  # pyarrow.dataset imports it where it is: 50 MB that no stream needs
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutPandas())
from noyau.jobs.cli import main
from noyau.workers.resources import peak_bytes
status = main(sys.argv[1:])
print(f"peak {peak_bytes()}")
sys.exit(status)
"""
MEMORY = 192 << 20
GROUPS = """
import numpy as np, noyau
@noyau.op("i64[n], f64[n] -> f64[g]", sizes={"g": 100})
def sums(key, x):
    out = np.zeros(100)
    np.add.at(out, key, x)
    return out
"""


@contextlib.contextmanager
def limit_of(size):
    """A control group of Linux with this limit, as the file that a process of it writes its number to."""
    places = [path for path in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if os.access(path, os.W_OK)]
    if not places:
        pytest.skip("no control group can be made here")
    group = places[0] / f"noyau-{os.getpid()}"
    group.mkdir()
    try:
        names = [name for name in ("memory.limit_in_bytes", "memory.max") if (group / name).exists()]
        (group / names[0]).write_text(str(size))
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_file_of_four_times_the_memory_goes_through(kind, folder):
    """In a control group that ends what takes more; and the process itself has never had more."""
    (folder / "op.py").write_text(GROUPS)
    whole, rows = np.zeros(100), 1 << 20
    schema = pa.schema([("key", pa.int64()), ("x", pa.float64())])
    place = f"large.{kind}"
    plain = {"compression": "none", "use_dictionary": False}
    writer = csv.CSVWriter(place, schema) if kind == "csv" else parquet.ParquetWriter(place, schema, **plain)
    with writer:
        while os.path.getsize(place) < 4 * MEMORY:
            key, x = NOISE.integers(0, 100, rows), NOISE.integers(0, 4_000_000, rows) / 4
            np.add.at(whole, key, x)
            writer.write_table(pa.table([key, x], schema))
    command = ["stream", "op.py::sums", place, "-o", "sums.npz", "--memory", str(MEMORY)]
    with limit_of(MEMORY) as group:
        entered = lambda: group.write_text(str(os.getpid()))  # noqa: E731
        ran = subprocess.run(
            [sys.executable, "-c", MEASURED, *command], preexec_fn=entered, capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, ran.stderr
    assert np.load("sums.npz")["result"].tolist() == whole.tolist()
    assert int(ran.stdout.split("peak ")[1]) < MEMORY
