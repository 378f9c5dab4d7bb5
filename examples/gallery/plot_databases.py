"""Session 10: an op inside a database
===================================

A database already has the rows, so the op goes to them. SQLite calls Python for each row, and noyau's kernels take the
rows in chunks. DuckDB loads the op as an extension in C, generated from the same NumPy function, and runs it in all of
its threads. Both cut a group into pieces as they like and merge the states of the pieces, which is right for a monoid
alone. The broken twin merges two means as if both had the same number of rows.

Run it: ``python examples/gallery/plot_databases.py`` (needs a C compiler and duckdb).
"""

from __future__ import annotations

import sqlite3

import duckdb
import numpy as np

import noyau
from noyau.errors import CheckError

ROWS = 200_000


# %%
# A fold is an aggregate function
# -------------------------------
# The op is three sums and an expression of them: noyau finds the folds in the graph, and the database has the groups.
@noyau.op("f64[n], f64[n] -> f64")
def slope(x, y):
    return ((x * y).sum() - x.sum() * y.sum() / len(x)) / ((x * x).sum() - x.sum() ** 2 / len(x))


# %%
# A result for each row is a scalar function
# ------------------------------------------
@noyau.op("f64[n], f64 -> f64[n]")
def decibels(power, reference):
    return 10 * np.log10(power / reference)


def twin() -> type:
    """A mean that forgets its number of rows."""

    @noyau.reduction
    class Mean:
        def zero(self):
            return np.nan

        def step(self, state, x):
            return self.merge(state, np.mean(x))

        def merge(self, a, b):
            return b if np.isnan(a) else a if np.isnan(b) else (a + b) / 2

        def finish(self, state):
            return state

    return Mean


def main() -> None:
    # %%
    # SQLite
    # ------
    # An aggregate function works in windows too.
    sqlite = sqlite3.connect(":memory:")
    sqlite.execute("CREATE TABLE readings (sensor INTEGER, x REAL, y REAL)")
    noise = np.random.default_rng(0)
    x = noise.normal(size=2000)
    rows = zip(range(2000), x.tolist(), (3 * x + noise.normal(size=2000) / 8).tolist(), strict=True)
    sqlite.executemany("INSERT INTO readings VALUES (? % 3, ?, ?)", rows)
    print(noyau.create_function(sqlite, slope))
    print(noyau.create_function(sqlite, decibels, arguments={"reference": 1e-3}))
    for sensor, value in sqlite.execute("SELECT sensor, slope(x, y) FROM readings GROUP BY sensor"):
        print(f"sensor {sensor}: {value:.2f}")
    frames = "SELECT slope(x, y) OVER (ORDER BY rowid ROWS 99 PRECEDING) FROM readings"
    print("steepest of 100 rows:", f"{max(value for (value,) in sqlite.execute(frames) if value is not None):.2f}")
    print("decibels:", sqlite.execute("SELECT round(decibels(2.0), 3), decibels(NULL)").fetchone())

    # %%
    # DuckDB
    # ------
    # DuckDB's Python package cannot define aggregates; the C API can. An extension without a signature is loaded only
    # if the connection allows it.
    duck = duckdb.connect(config={"allow_unsigned_extensions": True})
    print(noyau.create_function(duck, slope))
    duck.execute(
        f"CREATE TABLE readings AS SELECT i % 3 AS sensor, random() AS x, 3 * random() AS y FROM range({ROWS}) r(i)"
    )
    both = "SELECT sensor, slope(x, y), regr_slope(y, x) FROM readings GROUP BY sensor ORDER BY sensor"
    ours = duck.execute(both).fetchall()
    print("as DuckDB's own:", all(abs(mine - theirs) < 1e-9 for _, mine, theirs in ours))

    # %%
    # The broken twin
    # ---------------
    # A chunk may have half of the rows, and the next chunk a single one. ``noyau check`` finds the fault on random
    # states, and no database gets the function.
    print(noyau.check(twin()))
    try:
        noyau.create_function(sqlite, twin(), "mean_of_means")
    except CheckError as error:
        print(error)


if __name__ == "__main__":
    main()
