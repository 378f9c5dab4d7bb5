"""SQLite: reductions with and without an inverse, the rows that are kept, and why a call failed."""

import json
import sqlite3

import numpy as np
import pytest

import noyau
from noyau.engines.sql import functions
from noyau.errors import CheckError


@noyau.reduction
class Mean:
    taken = 0

    def zero(self):
        return 0, 0.0

    def step(self, state, x):
        return self.merge(state, (len(x), float(np.sum(x))))

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]

    def inverse(self, state, x):
        Mean.taken += len(x)
        return state[0] - len(x), state[1] - float(np.sum(x))

    def finish(self, state):
        return state[1] / max(state[0], 1)


@noyau.reduction
class MeanOfMeans(Mean):
    def merge(self, a, b):
        return 1, (a[1] + b[1]) / 2 if a[0] and b[0] else a[1] + b[1]


@noyau.reduction
class Last:
    """The last text: a column of any type."""

    def zero(self):
        return ""

    def step(self, state, x):
        return max(state, *x)

    def merge(self, a, b):
        return max(a, b)

    def finish(self, state):
        return {"last": state}

    def inputs(self, rng, n):
        return {"x": rng.choice(["a", "b"], n)}


@pytest.fixture
def connection(monkeypatch):
    monkeypatch.setattr(functions, "BATCH", 16)
    opened = sqlite3.connect(":memory:")
    opened.execute("CREATE TABLE t (x REAL)")
    opened.executemany("INSERT INTO t VALUES (?)", [(None if at % 7 == 3 else float(at),) for at in range(100)])
    yield opened
    opened.close()


SLIDES = "SELECT {0}(x) OVER w, avg(x) OVER w FROM t WINDOW w AS (ORDER BY rowid ROWS BETWEEN {1} AND 2 FOLLOWING)"


@pytest.mark.parametrize("frame", ["3 PRECEDING", "1 PRECEDING", "UNBOUNDED PRECEDING"])
def test_rows_leave_a_frame_by_the_inverse(connection, frame):
    Mean.taken = 0
    function = noyau.create_function(connection, Mean, "mine")
    assert "aggregate and window function; 16 rows at once; rows leave a frame by its inverse" in str(function)
    for ours, theirs in connection.execute(SLIDES.format("mine", frame)).fetchall():
        assert ours == pytest.approx(theirs)
    assert Mean.taken == 0 if frame.startswith("UNBOUNDED") else Mean.taken > 50


def test_without_an_inverse_frames_are_computed_anew_and_it_is_said(connection):
    extent = noyau.op("f64[n] -> f64", name="extent")(lambda x: x.max() - x.min())
    function = noyau.create_function(connection, extent)
    assert "frames are computed anew, of rows kept" in str(function)
    query = SLIDES.format("extent", "9 PRECEDING").replace("avg(x) OVER w", "max(x) OVER w - min(x) OVER w")
    assert all(ours == theirs for ours, theirs in connection.execute(query).fetchall())


def test_an_aggregate_without_windows_keeps_no_rows(connection, monkeypatch):
    seen = []
    drop = functions.Rows.drop
    monkeypatch.setattr(functions.Rows, "drop", lambda self: (seen.append(self.gone), drop(self)))
    assert "no rows are kept" in str(noyau.create_function(connection, Mean, "mine", window=False))
    assert connection.execute("SELECT mine(x) = avg(x) FROM t").fetchall() == [(1,)]
    assert seen[:5] == [16] * 5
    with pytest.raises(sqlite3.OperationalError, match="may not be used as a window function"):
        connection.execute(SLIDES.format("mine", "3 PRECEDING"))


def test_an_aggregate_that_is_no_monoid_is_refused_unless_it_is_sequential(connection):
    with pytest.raises(CheckError, match="MeanOfMeans is no monoid"):
        noyau.create_function(connection, MeanOfMeans)
    noyau.create_function(connection, noyau.reduction(sequential=True)(MeanOfMeans), "steps")
    assert connection.execute("SELECT steps(x) FROM t WHERE x < 2").fetchall() == [(1.0,)]


def test_places_and_texts(connection):
    noyau.create_function(connection, noyau.op("f64[n] -> i64", name="place")(lambda x: x.argmax()))
    assert connection.execute("SELECT place(-x) FROM t WHERE x > 3").fetchall() == [(0,)]
    noyau.create_function(connection, Last)
    query = "SELECT json_extract(last(name), '$.last') FROM (SELECT 'a' AS name UNION SELECT 'c')"
    assert connection.execute(query).fetchall() == [("c",)]


def test_several_results_are_one_json_text(connection):
    """Of a function of rows as of a fold."""

    @noyau.op("f64[n] -> low: f64[n], high: f64[n]")
    def ends(x):
        return x - 1, x + 1

    @noyau.op("f64[n] -> low: f64, high: f64")
    def extent(x):
        return x.min(), x.max()

    noyau.create_function(connection, ends)
    noyau.create_function(connection, extent)
    query = "SELECT ends(x), extent(x) FROM (SELECT 2.5 AS x)"
    assert [json.loads(each) for each in connection.execute(query).fetchone()] == [[1.5, 3.5], [2.5, 2.5]]
    assert connection.execute("SELECT ends(NULL)").fetchone() == (None,)


def test_why_a_call_failed_is_kept(connection):
    doubled = noyau.op("i64[n] -> i64[n]", name="doubled")(lambda x: 2 * x)
    function = noyau.create_function(connection, doubled)
    with pytest.raises(sqlite3.OperationalError, match="user-defined function raised exception"):
        connection.execute("SELECT doubled('a')").fetchall()
    assert "invalid literal" in str(function.fault)
    total = noyau.create_function(connection, noyau.op("i64[n] -> i64", name="total")(lambda x: x.sum()))
    with pytest.raises(sqlite3.OperationalError, match="raised error"):
        connection.execute("SELECT total(x) FROM t").fetchall()
    assert isinstance(total.fault, TypeError)
