"""The choice between threads and processes, by times that the tests make up."""

import numpy as np
import pytest
from pyarrow import parquet

import noyau
from noyau.engines import processes_engine, stream
from tests.engines.engine_cases import COLUMNS, ROWS, TABLE, Extent, group_sums, roots, scaled


@pytest.fixture
def source(tmp_path):
    parquet.write_table(TABLE, tmp_path / "t.parquet", row_group_size=700)
    return tmp_path / "t.parquet"


def choice(monkeypatch, source, alone, together, free=1.0, op=Extent, rows=10**9, **options):
    """The choice for so many rows, where one step, and two at once, take these seconds."""

    def seconds(calls):
        if getattr(calls[0], "func", None) is not processes_engine.hashlib.sha256:
            return together if len(calls) == 2 else alone
        return 0.004 * (free if len(calls) == 2 else 1)

    monkeypatch.setattr(processes_engine, "_seconds", seconds)
    monkeypatch.setattr("noyau.engines.arrow_files.ArrowFiles.size", rows)
    monkeypatch.setattr(stream, "over", lambda *facts: iter(()))  # the trial alone
    return noyau.stream(op, source, workers=2, **options).engine


def test_steps_that_hold_the_interpreter_go_to_processes(monkeypatch, source):
    assert choice(monkeypatch, source, 0.01, 0.02) == "processes: 2 steps at once took 2.00 times one"
    assert choice(monkeypatch, source, 0.01, 0.0101) == "threads: 2 steps at once took 1.01 times one"
    busy = choice(monkeypatch, source, 0.01, 0.02, free=1.9)
    assert busy.startswith("threads: 2 steps at once took 2.00 times one, and so did 1.90 times") and "busy" in busy
    assert choice(monkeypatch, source, 0.001, 0.002, rows=7000).startswith("threads: all of it takes about")


def test_where_processes_cannot_be_threads_do(monkeypatch, source, tmp_path):
    why = {
        "the source is one part": lambda: noyau.stream(Extent, TABLE.to_batches(10)),
        "one worker": lambda: noyau.stream(Extent, source, workers=1),
        "the source lies in this process": lambda: noyau.stream(Extent, {"x": np.zeros(1 << 21)}, workers=2),
    }
    for reason, run in why.items():
        assert run().engine == f"threads: {reason}"
    assert noyau.stream(Extent, source, in_order=True).engine == "local"
    rows = noyau.stream(scaled, source, tmp_path / "y.csv", arguments={"by": 2.0})
    assert rows.engine == "local" and "at once; local" in str(rows)
    shut = type("Shut", (Extent,), {"__reduce__": lambda self: 1 / 0, "step": Extent.step})
    with monkeypatch.context() as patch:
        assert choice(patch, source, 0.01, 0.02, op=shut).startswith("threads: the trial failed: division by zero")
    fault = noyau.stream(group_sums, source, columns={"key": "key", "x": "x"}, workers=2)
    assert fault.engine.startswith("threads: all of it takes about")


def test_the_choice_changes_no_bit(monkeypatch, source):
    """Each part is folded from zero by threads as by processes."""
    values = set()
    for name in ("threads", "processes"):
        monkeypatch.setattr(stream, "choose", lambda *facts, name=name: (name, "the test says so"))
        result = noyau.stream(roots, source, memory=24 * 256 * 8, workers=1)
        assert (result.engine, result.rows) == (f"{name}: the test says so", ROWS)
        values.add(result.value)
    values.add(noyau.stream(roots, source, memory=24 * 256 * 8, engine="dask").value)
    assert len(values) == 1 and COLUMNS["x"].any()
