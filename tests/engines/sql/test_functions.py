"""Functions of SQL, the same in SQLite and DuckDB: groups, windows, nulls, no rows; what is refused."""

import sqlite3
from functools import cache

import duckdb
import numpy as np
import pytest

import noyau
from noyau.errors import CheckError, InputError, SignatureError, UnsupportedError

ROWS = 5000  # more than wait in SQLite, and than a chunk of DuckDB has


@noyau.op("f64[n], f64[n] -> f64")
def weighted(x, w):
    return (x * w).sum() / w.sum() + 0 * (len(x) - 1)


@noyau.op("i64[n], f64[n] -> f64[g]", sizes={"g": 4})
def sums(key, x):
    out = np.zeros(4)
    np.add.at(out, key, x)
    return out


@noyau.op("f64[n], f64[k] -> f64[n]")
def scaled(x, by):
    return x * by.sum()


@noyau.reduction
class Texts:
    """The number of texts and their last one: columns of any type."""

    def zero(self):
        return np.array(0), np.array("")

    def step(self, state, x):
        return self.merge(state, (np.array(len(x)), np.max(np.asarray(x, str))))

    def merge(self, a, b):
        return a[0] + b[0], max(a[1], b[1])

    def finish(self, state):
        return {"rows": state[0], "last": str(state[1])}

    def inputs(self, rng, n):
        return {"x": rng.choice(["a", "b", "c"], n)}


TABLE = """CREATE TABLE t AS SELECT i, i % 4 AS key, i % 3 AS g,
CASE WHEN i % 11 = 5 THEN NULL ELSE (i * 7919 % 1000) / 8.0 END AS x, (i * 104729 % 100 + 1) / 4.0 AS w FROM """
NUMBERS = {
    "sqlite": f"(WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < {ROWS - 1}) SELECT i FROM r)",
    "duckdb": f"range({ROWS}) r(i)",
}


@pytest.fixture(params=NUMBERS, scope="module")
def connection(request):
    extensions = {"config": {"allow_unsigned_extensions": True}}
    opened = sqlite3.connect(":memory:") if request.param == "sqlite" else duckdb.connect(**extensions)
    opened.execute(TABLE + NUMBERS[request.param])
    noyau.create_function(opened, weighted)
    noyau.create_function(opened, sums, "sums_of")
    noyau.create_function(opened, scaled, arguments={"by": np.array([0.5, 1.5])})
    yield opened
    opened.close()


def rows(connection, query):
    return connection.execute(query).fetchall()


WEIGHTED = "sum(x * w) {0} / sum(CASE WHEN x IS NOT NULL THEN w END) {0}"
FRAMES = (
    "ROWS BETWEEN 5 PRECEDING AND 3 FOLLOWING",
    "ROWS UNBOUNDED PRECEDING",
    "ROWS BETWEEN 4 FOLLOWING AND 6 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW",
)


@pytest.mark.parametrize("clause", ["", "GROUP BY g", "GROUP BY i % 700", "GROUP BY x"])
def test_groups_are_what_sql_gives(connection, clause):
    got = rows(connection, f"SELECT weighted(x, w), {WEIGHTED.format('')} FROM t {clause}")
    for ours, theirs in got:
        assert ours == pytest.approx(theirs, rel=1e-12) if theirs is not None else ours is None


@pytest.mark.parametrize("frame", FRAMES)
def test_frames_are_what_sql_gives(connection, frame):
    over = f"OVER (PARTITION BY g ORDER BY i {frame})"
    source = "(SELECT * FROM t WHERE i < 600)"
    for ours, theirs in rows(connection, f"SELECT weighted(x, w) {over}, {WEIGHTED.format(over)} FROM {source} AS s"):
        assert ours == pytest.approx(theirs, rel=1e-12) if theirs is not None else ours is None


def test_filters_and_no_rows(connection):
    query = "SELECT weighted(x, w) FILTER (WHERE g = 1), weighted(x, w) FILTER (WHERE g > 7), weighted(NULL, w) FROM t"
    ((some, none, nulls),) = rows(connection, query)
    ((want,),) = rows(connection, f"SELECT {WEIGHTED.format('')} FROM t WHERE g = 1")
    assert some == pytest.approx(want) and none is None and nulls is None
    assert rows(connection, "SELECT weighted(x, w) FROM t WHERE i < 0") == [(None,)]


def test_an_array_is_json_or_an_array(connection):
    ((got, *want),) = rows(
        connection,
        "SELECT sums_of(key, x), " + ", ".join(f"sum(CASE WHEN key = {at} THEN x END)" for at in range(4)) + " FROM t",
    )
    values = np.array(eval(got) if isinstance(got, str) else got)
    np.testing.assert_allclose(values, want, rtol=1e-12)


def test_constants_of_an_op_are_among_its_arguments(connection):
    @noyau.op("f64[n] -> f64")
    def total_and(x, *, more=0.0):
        return x.sum() + more

    @noyau.op("f64[n] -> f64[n]")
    def moved_by(x, *, more=0.0):
        return x + more

    for op in (total_and, moved_by):
        noyau.create_function(connection, op, arguments={"more": 1.5})
        assert connection.execute(f"SELECT {op.name}(x) FROM (SELECT 2.5 AS x) q").fetchall() == [(4.0,)]
        with pytest.raises(SignatureError, match="has no parameter less; it takes x, more"):
            noyau.create_function(connection, op, "other", arguments={"less": 1.5})


def test_a_scalar_function_keeps_nulls(connection):
    got = rows(connection, "SELECT scaled(x), x * 2 FROM t ORDER BY i")
    assert len(got) == ROWS and all(ours == theirs for ours, theirs in got)
    assert rows(connection, "SELECT scaled(NULL)") == [(None,)]


def test_an_index_outside_fails_the_query(connection):
    with pytest.raises((duckdb.Error, sqlite3.OperationalError), match=r"sums_of: an index is outside|raised error"):
        rows(connection, "SELECT sums_of(key + 1, x) FROM t")


def totals(name, dtype):
    """An op that sums integers, and one that sums them by groups."""
    whole = noyau.op(f"{dtype}[n] -> {dtype}", name=f"{name}_{dtype}")(lambda x: x.sum())

    @noyau.op(f"i64[n], {dtype}[n] -> {dtype}[g]", name=f"{name}s_{dtype}", sizes={"g": 3})
    def groups(key, x):
        out = np.zeros(3, x.dtype)
        np.add.at(out, key, x)
        return out

    return whole, groups


def test_a_sum_of_integers_that_overflows_is_an_error(connection):
    """In a chunk, in the merge of two, in one group of several; what comes near the end does not."""
    is_sqlite, large = isinstance(connection, sqlite3.Connection), 2**61
    total, groups = (noyau.create_function(connection, op) for op in totals("total", "i64"))
    near = f"CASE i WHEN 0 THEN {2**63 - 1} WHEN 1 THEN {-(2**62)} ELSE -1 END"
    order = "(SELECT * FROM t ORDER BY i)"
    ((value,),) = rows(connection, f"SELECT total_i64({near}) FROM {order} AS t")
    assert value == 2**63 - 1 - 2**62 - (ROWS - 2)
    ((value,),) = rows(connection, f"SELECT totals_i64(g, CASE WHEN i < 9 THEN {large} - 1 ELSE 0 END) FROM t")
    assert list(eval(value) if is_sqlite else value) == [3 * (large - 1)] * 3
    chunk = f"CASE WHEN i < 4 THEN {large} ELSE 0 END"
    apart = f"CASE WHEN i % 1250 = 0 THEN {large} ELSE 0 END"
    queries = [
        f"total_i64({chunk})",
        f"total_i64({apart})",
        f"total_i64(-{apart} - 1)",
        f"totals_i64(i % 2, 2 * {apart})",
    ]
    for query in queries:
        with pytest.raises((duckdb.Error, sqlite3.OperationalError), match=r"_i64: a sum of integers overflows|raised"):
            rows(connection, f"SELECT {query} FROM t")
        faults = [str(function.fault) for function in (total, groups) if function.fault]
        assert not is_sqlite or "a sum of int64 overflows: make float64" in faults[-1]


def test_products_of_matrices_are_kernels(connection):
    @noyau.op("f64[n], f64[n] -> f64[4]")
    def gram(x, w):
        both = np.stack([x, w], axis=1)
        return (both.T @ both).reshape(4)

    weights = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    noyau.create_function(connection, gram)
    noyau.create_function(
        connection,
        noyau.op("f64[n], f64[n], f64[2, k] -> f64[n, k]", name="by")(lambda x, w, by: np.stack([x, w], axis=1) @ by),
        arguments={"by": weights},
    )
    query = "SELECT gram(x, w), sum(x * x), sum(x * w), sum(w * w) FROM t WHERE x IS NOT NULL"
    ((got, *want),) = rows(connection, query)
    np.testing.assert_allclose(eval(got) if isinstance(got, str) else got, np.array(want)[[0, 1, 1, 2]], rtol=1e-12)
    for got, x, w in rows(connection, "SELECT by(x, w), x, w FROM t WHERE i < 5"):
        assert list(eval(got) if isinstance(got, str) else got) == (np.array([x, w]) @ weights).tolist()


@cache
def connect(**options):
    return duckdb.connect(**({"config": {"allow_unsigned_extensions": True}} if options else {}))


def refusals():
    extensions = {"extensions": True}
    matrix = noyau.op("f64[n, k] -> f64[k]", name="means")(lambda x: x.sum(0))
    place = noyau.op("f64[n] -> i64", name="place")(lambda x: x.argmax())
    two = noyau.op("f64[n] -> a: f64, b: f64", name="two")(lambda x: (x.min(), x.max()))
    half = noyau.op("f16[n] -> f16", name="half")(lambda x: x.max())
    wide = noyau.op("f64[n] -> f64[2, 2]", name="wide")(lambda x: np.zeros((2, 2)) + x.sum())
    squares = noyau.op("f64[n] -> f64", name="squares")(lambda x: x.sum() / (len(x) * len(x)))
    yield InputError, "a int is no connection of sqlite3 or duckdb", lambda: noyau.create_function(3, weighted)
    yield InputError, "'a b' is no name", lambda: noyau.create_function(sqlite3.connect(":memory:"), weighted, "a b")
    yield SignatureError, "is no op and no reduction", lambda: noyau.create_function(sqlite3.connect(":memory:"), len)
    yield SignatureError, "x has several numbers a row", lambda: noyau.create_function(connect(), matrix)
    yield (
        SignatureError,
        "by has no rows",
        lambda: noyau.create_function(connect(), noyau.op("f64[n], f64 -> f64[n]")(up)),
    )
    yield (
        SignatureError,
        r"its steps are Python: .*or stream the rows: noyau.stream\(Texts, conn",
        lambda: noyau.create_function(connect(), Texts),
    )
    yield (
        InputError,
        r"open it by duckdb.connect\(PATH, config=\{",
        lambda: noyau.create_function(connect(), weighted),
    )
    yield InputError, "has a function sum, and replaces none", lambda: noyau.create_function(connect(), weighted, "sum")
    yield UnsupportedError, "have no order", lambda: noyau.create_function(connect(**extensions), place)
    yield UnsupportedError, "has not one result", lambda: noyau.create_function(connect(**extensions), two)
    yield UnsupportedError, "DuckDB has no f16", lambda: noyau.create_function(connect(**extensions), half)
    yield UnsupportedError, "a number or an array", lambda: noyau.create_function(connect(**extensions), wide)
    yield UnsupportedError, "counts rows by factors", lambda: noyau.create_function(connect(**extensions), squares)


def up(x, by):
    return x + by


@pytest.mark.parametrize(
    ("kind", "message", "run"), list(refusals()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_bad_input_is_one_clear_error(kind, message, run):
    with pytest.raises(kind, match=message):
        run()


def test_a_function_that_is_wrong_is_not_created(monkeypatch):
    monkeypatch.setattr("noyau.engines.sql.duckdb_extension.is_near", lambda value, truth: False)
    opened = duckdb.connect(config={"allow_unsigned_extensions": True})
    with pytest.raises(CheckError, match="scaled is wrong in DuckDB, on 257 made-up rows"):
        noyau.create_function(opened, scaled, arguments={"by": np.array([0.5, 1.5])})
    with pytest.raises(duckdb.CatalogException, match="scaled does not exist"):
        opened.execute("SELECT scaled(1)")


@pytest.mark.parametrize("connection", ["duckdb"], indirect=True)
def test_duckdb_merges_the_states_of_its_threads(connection):
    connection.execute(
        "CREATE TABLE large AS SELECT i, (i % 1000)::DOUBLE AS x, 1.0::DOUBLE AS w FROM range(300000) r(i)"
    )
    connection.execute("SET threads = 4")
    assert rows(connection, "SELECT weighted(x, w) FROM large") == [(499.5,)]
    groups = rows(connection, "SELECT i % 2000 AS g, weighted(x, w) FROM large GROUP BY g")
    assert len(groups) == 2000 and all(value == group % 1000 for group, value in groups)
