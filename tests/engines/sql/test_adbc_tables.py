"""Tables as sources and sinks: SQLite, DuckDB, and a PostgreSQL that is started here; work that is ended and gone on
with; what cannot be reached, without its credentials."""

import contextlib
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from adbc_driver_manager import dbapi

import noyau
from noyau.engines.sql.adbc_tables import connect
from noyau.engines.sql.places import place_of
from noyau.errors import InputError, MissingExtraError, OutputError
from noyau.jobs.cli import main

ROWS, PASSWORD = 2000, "se/cret@1"
OP = "import noyau\n@noyau.op('f64[n], f64 -> y: f64[n]')\ndef scaled(x, by):\n    return x * by\n"
CREATE = """CREATE TABLE t AS WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 1999)
SELECT CAST(i AS BIGINT) AS id, CAST(i % 5 AS BIGINT) AS key, {x} AS x, 'name' AS name FROM r"""


@noyau.op("i64[n], f64[n] -> f64[5]")
def sums(key, x):
    out = np.zeros(5)
    np.add.at(out, key, x)
    return out


@noyau.op("f64[n], f64 -> y: f64[n]")
def scaled(x, by):
    return x * by


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a PostgreSQL that listens on a socket alone. It does not run as root."""
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    path = os.pathsep.join([os.environ["PATH"], *folders])
    if not shutil.which("initdb", path=path):
        pytest.fail("no initdb on PATH: apt-get install postgresql", pytrace=False)
    home, user = tmp_path_factory.mktemp("pg"), []
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres" if any(each.pw_name == "postgres" for each in pwd.getpwall()) else "nobody")
        user = ["setpriv", f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
        home = Path(tempfile.mkdtemp(prefix="noyau-pg-"))  # where that user may go
        home.chmod(0o755)
        os.chown(home, owner.pw_uid, owner.pw_gid)
    (home / "password").write_text(PASSWORD)
    (home / "password").chmod(0o644)
    names = ["-U", "noyau", f"--pwfile={home / 'password'}", "-A", "scram-sha-256"]
    run_there = partial(
        subprocess.run, check=True, stdout=subprocess.DEVNULL, cwd="/", env={**os.environ, "PATH": path}
    )
    run_there([*user, "initdb", "-D", home / "data", *names, "--no-sync", "--no-locale", "-E", "UTF8"])
    serve = [*user, "pg_ctl", "-D", home / "data", "-w", "-l", home / "log"]
    run_there([*serve, "-o", f"-c listen_addresses='' -k {home} -F", "start"])
    yield f"postgresql://noyau:se%2Fcret%401@/postgres?host={home}"
    run_there([*serve, "-m", "immediate", "stop"])
    shutil.rmtree(home)


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def url(request, tmp_path, monkeypatch):
    """A database with a table t, whose x is a NUMERIC in PostgreSQL."""
    monkeypatch.chdir(tmp_path)
    place = (
        request.getfixturevalue("server") if request.param == "postgres" else f"{request.param}:///a.{request.param}"
    )
    x = "CAST(i / 4.0 AS NUMERIC(9, 2))" if request.param == "postgres" else "CAST(i / 4.0 AS DOUBLE PRECISION)"
    run(place, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS y", CREATE.format(x=x))
    return place


def run(url, *statements):
    with connect(place_of(f"{url}::t")) as opened, opened.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        rows = cursor.fetchall() if statement.startswith("SELECT") else None
        opened.commit()
    return rows


IDS = np.arange(ROWS)
WANT = sums.reference(IDS % 5, IDS / 4).tolist()


def test_a_table_and_a_query_are_sources(url):
    result = noyau.stream(sums, f"{url}::t", memory="100K", workers=2)
    assert (result.value.tolist(), result.rows) == (WANT, ROWS) and result.chunk_rows < 300
    chosen = sums.reference(IDS[:40] % 5, IDS[:40] / 4).tolist()
    assert noyau.stream(sums, f"{url}::t", where="id < 40").value.tolist() == chosen
    query = f"{url}::SELECT key AS k, id / 4.0 AS v FROM t WHERE id < 40"
    query = query.replace("id / 4.0", "CAST(id AS DOUBLE PRECISION) / 4")
    assert noyau.stream(sums, query, columns={"key": "k", "x": "v"}).value.tolist() == chosen
    run(url, "UPDATE t SET x = NULL WHERE id = 7")
    assert noyau.stream(sums, f"{url}::t", nulls="skip").counts == {"rows with nulls": 1}


def test_workers_share_a_table_by_the_numbers_of_its_rows(url, monkeypatch):
    monkeypatch.setattr("noyau.engines.sql.adbc_tables._CUT", 300)
    run(url, "DELETE FROM t WHERE id % 7 = 3 AND id > 500")
    kept = IDS[~((IDS % 7 == 3) & (IDS > 500))]
    for engine in ("dask", "processes"):
        result = noyau.stream(sums, f"{url}::t", engine=engine, memory="100K", workers=2)
        assert (result.value.tolist(), result.rows) == (sums.reference(kept % 5, kept / 4).tolist(), len(kept))
        assert len(result.parts) == -(-len(kept) // 300)
    chosen = noyau.stream(sums, f"{url}::t", engine="dask", where="id < 40 OR id = 77").rows
    assert chosen == 41
    run(url, "DROP VIEW IF EXISTS v", "CREATE VIEW v AS SELECT * FROM t")
    for name in ("v", "SELECT * FROM t"):
        with pytest.raises(
            InputError, match="cannot be cut: nothing numbers the rows of a query, or of a view; say eng"
        ):
            noyau.stream(sums, f"{url}::{name}", engine="dask")
    run(url, "DROP VIEW v", "DELETE FROM t")
    assert noyau.stream(sums, f"{url}::t", engine="dask").value.tolist() == [0] * 5


def test_work_that_is_ended_goes_on_without_loss_or_repetition(url, monkeypatch):
    monkeypatch.setattr("noyau.engines.sql.adbc_tables.CHUNKS", 2)
    target = url.replace("///a.", "///b.")
    sink, options = f"{target}::y", {"arguments": {"by": 2.0}, "keep": ("id",), "memory": "100K"}
    seen = []

    def end(rows, size):
        seen.append(rows)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        noyau.stream(scaled, f"{url}::t", sink, tell=end, **options)
    with pytest.raises(InputError, match="is of other work"):
        noyau.stream(scaled, f"{url}::t", sink, arguments={"by": 3.0})
    result = noyau.stream(scaled, f"{url}::t", sink, **options)
    assert 0 < result.rows < ROWS and "cret" not in str(result)
    done = run(target, "SELECT count(*), count(DISTINCT id), sum(y - id / 2.0) FROM y")
    assert [tuple(map(float, row)) for row in done] == [(ROWS, ROWS, 0)]
    with pytest.raises(InputError, match="is there already: name another table, or say resume=False"):
        noyau.stream(scaled, f"{url}::t", sink, **options)
    noyau.stream(scaled, f"{url}::t", sink, resume=False, **options)
    assert run(target, "SELECT count(*) FROM y")[0][0] == ROWS
    with pytest.raises(dbapi.Error, match="progress"):  # which is gone
        run(target, "SELECT * FROM y_noyau_progress")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_fault_of_the_database_is_not_taken_for_a_table_that_is_not_there(url):
    run(url, "DROP TABLE IF EXISTS y_noyau_progress", "CREATE TABLE y_noyau_progress (other INT)")
    with pytest.raises(InputError, match=r"::y cannot be read: .*part"):
        noyau.stream(scaled, {"x": IDS / 4}, f"{url}::y", arguments={"by": 2.0})
    run(url, "DROP TABLE y_noyau_progress")
    assert noyau.stream(scaled, {"x": IDS / 4}, f"{url}::y", arguments={"by": 2.0}).rows == ROWS


def test_the_command_reads_and_writes_tables(url, capsys):
    Path("op.py").write_text(OP)
    target = url.replace("///a.", "///b.")
    run(target, "DROP TABLE IF EXISTS y")
    assert main(["stream", "op.py::scaled", f"{url}::t", "-o", f"{target}::y", "--argument", "by=2.0"]) == 0
    assert "::y" in capsys.readouterr().out
    assert run(target, "SELECT sum(y) FROM y")[0][0] == IDS.sum() / 2


def test_credentials_are_never_printed(server):
    for bad in (server.replace("se%2F", "other%2F"), server.replace("noyau:", "nobody:"), f"{server}/nowhere"):
        with pytest.raises(InputError, match=r"^postgresql:///postgres\?host=\S+::t cannot be reached: ") as caught:
            noyau.stream(sums, f"{bad}::t")
        assert not any(word in str(caught.value) for word in (PASSWORD, "cret", 'user "', "nobody", "other"))
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


def refusals():
    arguments = {"by": 2.0}
    yield InputError, "x.db names no table: write URL::TABLE", lambda: noyau.stream(sums, "sqlite:///x.db")
    for kind in ("sqlite", "duckdb"):
        there = f"{kind}:///nowhere/z.db::t"
        yield InputError, "cannot be read: there is no file nowhere/z.db", partial(noyau.stream, sums, there)
        there = f"{kind}:///z.db::SELECT 1 AS key, 2.0 AS x"
        yield InputError, r"x cannot be read: there is no file z.db$", partial(noyau.stream, sums, there)
    yield InputError, "x.db::t cannot be read: .*no such table", lambda: noyau.stream(sums, "sqlite:///x.db::t")
    yield (
        InputError,
        "the source has no column key, x; it has b",
        lambda: noyau.stream(sums, "sqlite:///x.db::SELECT 1 AS b"),
    )
    yield InputError, "is a query, and rows go into a table", lambda: noyau.stream(
        scaled, {"x": IDS / 4}, "sqlite:///x.db::SELECT 1", arguments=arguments)  # fmt: skip
    yield InputError, "y.npy holds one array", lambda: noyau.stream(
        scaled, {"x": IDS / 4, "id": IDS}, "y.npy", keep=("id",), arguments=arguments)  # fmt: skip
    yield OutputError, "x.db::a.y cannot be written: .*unknown database", lambda: noyau.stream(
        scaled, {"x": IDS / 4}, "sqlite:///x.db::a.y", arguments=arguments)  # fmt: skip
    yield (
        InputError,
        "where= is of files",
        lambda: noyau.stream(sums, "sqlite:///x.db::SELECT 1 AS key, 2 AS x", where=3),
    )


@pytest.mark.parametrize(
    ("kind", "message", "call"), list(refusals()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_bad_input_is_one_clear_error(kind, message, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sqlite3.connect("x.db").close()
    with pytest.raises(kind, match=message):
        call()
    assert not Path("z.db").exists()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_sink_that_fails_at_its_start_leaves_no_database(kind, is_there, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if is_there:
        connect(place_of(f"{kind}:///x.db::y")).close()
    with pytest.raises(OutputError, match=r"x\.db::a\.y cannot be written"):
        noyau.stream(scaled, {"x": IDS / 4}, f"{kind}:///x.db::a.y", arguments={"by": 2.0})
    assert [each.name for each in tmp_path.iterdir()] == (["x.db"] if is_there else [])


def test_a_query_of_duckdb_in_memory_needs_no_file():
    result = noyau.stream(sums, "duckdb://::SELECT 1 AS key, 2.0 AS x UNION ALL SELECT 1, 3.0")
    assert result.value.tolist() == [0, 5, 0, 0, 0]


def test_a_driver_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("noyau.engines.sql.places.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"needs adbc_driver_postgresql; run: pip install 'noyau-kernels\[sql\]'"
    ):
        noyau.stream(sums, "postgresql://a:b@c/d::t")
    with contextlib.suppress(MissingExtraError):
        place_of("duckdb:///x::t")
