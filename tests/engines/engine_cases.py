"""What the tests of all engines run: ops and reductions, files, and what each engine is to give."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import noyau

ROWS = 3000
NOISE = np.random.default_rng(0)
TABLE = pa.table({"key": NOISE.integers(0, 5, ROWS), "x": NOISE.integers(-99, 99, ROWS) / 4})
COLUMNS = {name: TABLE[name].to_numpy() for name in ("key", "x")}


@noyau.op("i64[n], f64[n] -> f64[g]", sizes={"g": 5})
def group_sums(key, x):
    out = np.zeros(5)
    np.add.at(out, key, x)
    return out


@noyau.op("f64[n], f64 -> y: f64[n]")
def scaled(x, by):
    return x * by


@noyau.op("f64[n] -> at: i64, top: f64")
def highest(x):
    return np.argmax(x), x.max()


@noyau.op("f64[n] -> f64")
def roots(x):
    return np.sqrt(np.abs(x)).sum()


@noyau.reduction
class Extent:
    """The largest less the smallest; a worker that runs it first ends, where `mark` names a file to say so."""

    def __init__(self, mark=""):
        self.mark, self.home = mark, os.getpid()

    def zero(self):
        return np.inf, -np.inf

    def step(self, state, x):
        if self.mark and os.getpid() != self.home:
            try:
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return min(state[0], x.min()), max(state[1], x.max())

    def merge(self, a, b):
        return min(a[0], b[0]), max(a[1], b[1])

    def finish(self, state):
        return state[1] - state[0]


WANT = group_sums.reference(**COLUMNS).tolist()


def write_files(folder: Path) -> None:
    """A Parquet file of five row groups; and a folder of files that differ: no row, one row, other dtypes."""
    parquet.write_table(TABLE, folder / "whole.parquet", row_group_size=700)
    (folder / "drift").mkdir()
    narrow = pa.schema([("key", pa.int16()), ("x", pa.float32())])
    pieces = [TABLE.slice(0, 0), TABLE.slice(0, 1), TABLE.slice(1, 1000).cast(narrow), TABLE.slice(1001)]
    for at, piece in enumerate(pieces):
        parquet.write_table(piece, folder / f"drift/{at}.parquet")
    parquet.write_table(pa.table({"key": [1, 2], "x": [0.5, None]}), folder / "nulls.parquet")


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def assert_same_as_local(engine: str, folder: Path) -> None:
    """Exact monoids to the bit, others within the bound of a sum in another order, rows byte by byte."""
    for source in ("whole.parquet", "drift"):
        result = noyau.stream(group_sums, folder / source, engine=engine)
        assert (result.value.tolist(), result.rows) == (WANT, ROWS)
        assert noyau.stream(highest, folder / source, engine=engine).value == noyau.stream(highest, COLUMNS).value
    local, there = (noyau.stream(roots, folder / "whole.parquet", engine=each).value for each in ("local", engine))
    assert abs(local - there) <= ROWS * np.finfo(float).eps * local
    assert noyau.stream(group_sums, folder / "nulls.parquet", engine=engine, nulls="skip").counts
    options = {"arguments": {"by": 2.0}, "keep": ("key",)}
    for each in ("local", engine):
        noyau.stream(scaled, folder / "whole.parquet", folder / f"{each}.parquet", engine=each, **options)
    assert contents(folder / f"{engine}.parquet") == contents(folder / "local.parquet")


def assert_same_on_health_spending(engine: str, folder: Path) -> None:
    """Sums of whole amounts, a sketch of distinct values and groups of texts of a table like Open DAMIR's, in CSV."""
    health = runpy.run_path(str(Path(__file__).parents[2] / "examples/health_table.py"))
    for month in (202401, 202402):
        health["write"](folder / f"{month}.csv", 3000, month, month)

    def results(engine: str) -> list[Any]:
        months = f"{folder}/2024*.csv"
        sums = noyau.stream(group_sums, months, columns={"key": "PRS_PPU_SEC", "x": "PRS_PAI_MNT"}, engine=engine)
        acts = noyau.stream(noyau.reductions.HyperLogLog, months, columns={"x": "PRS_NAT"}, engine=engine)
        bound = {"key": "PRS_REM_TYP", "x": "PRS_ACT_QTE"}
        kinds = noyau.stream(noyau.reductions.GroupMoments, months, columns=bound, engine=engine)
        return [sums.value.tolist(), acts.value, *(kinds.value[name].tolist() for name in ("key", "rows", "sum"))]

    there = results(engine)
    assert there == results("local") and sum(there[-2]) == 6000


def assert_goes_on(engine: str, folder: Path) -> None:
    """What was ended after some parts goes on behind them, and gives the rows and the state of an undisturbed run."""
    parquet.write_table(TABLE, folder / "many.parquet", row_group_size=30)
    options = {"arguments": {"by": 2.0}, "keep": ("key",)}
    noyau.stream(scaled, folder / "many.parquet", folder / "undisturbed.parquet", **options)
    for op, sink, more in ((scaled, "rows.parquet", options), (group_sums, "sums.npz", {})):
        rows = []

        def end(number, size, rows=rows):
            rows.append(number)
            if sum(rows) > ROWS / 3:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            noyau.stream(op, folder / "many.parquet", folder / sink, engine=engine, tell=end, **more)
        result = noyau.stream(op, folder / "many.parquet", folder / sink, engine=engine, **more)
        assert ROWS / 3 < sum(rows) < ROWS and 0 < result.rows < ROWS * 2 / 3
    assert contents(folder / "rows.parquet") == contents(folder / "undisturbed.parquet")
    assert result.value.tolist() == np.load(folder / "sums.npz")["result"].tolist() == WANT


KILLED = """
import sys, noyau
from noyau.ops.op_files import load_op
op, source, sink, engine = sys.argv[1:]
noyau.stream(load_op(op), source, sink, arguments={"by": 2.0}, engine=engine)
"""


def assert_outlives_sigkill(engine: str, folder: Path, waits_s: Sequence[float]) -> None:
    """Ended at these moments, the resumed output is byte for byte that of an undisturbed run."""
    (folder / "op.py").write_text(
        "import noyau\n@noyau.op('f64[n], f64 -> y: f64[n]')\ndef scaled(x, by):\n    return x * by\n"
    )
    parquet.write_table(TABLE, folder / "many.parquet", row_group_size=3)
    run = [sys.executable, "-c", KILLED, f"{folder}/op.py::scaled", folder / "many.parquet"]
    subprocess.run([*run, folder / "undisturbed.parquet", "local"], check=True)
    for at, wait_s in enumerate(waits_s):
        process = subprocess.Popen([*run, folder / f"{at}.parquet", engine])
        time.sleep(wait_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        subprocess.run([*run, folder / f"{at}.parquet", engine], check=True)
        assert contents(folder / f"{at}.parquet") == contents(folder / "undisturbed.parquet")
