"""Files that rows go into, one behind the other."""

import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

import noyau
from noyau.engines import sinks, sources
from noyau.errors import OutputError

ROWS = 3000
X = np.random.default_rng(0).normal(size=(ROWS, 2))


@noyau.op("f64[n], f64 -> y: f64[n]")
def scaled(x, by):
    return x * by


@pytest.mark.parametrize("name", ["y.csv", "y.npy"])
def test_work_that_is_ended_goes_on_without_loss_or_repetition(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sources, "ROWS", 1000)
    monkeypatch.setattr("noyau.engines.sinks.CHUNKS", 2)
    options = {"arguments": {"by": 2.0}, "memory": 256 * 24 * 8, "keep": () if name == "y.npy" else ("name",)}
    columns = {"x": X[:, 0], "name": np.array(['a"b', "c,d\n", ""] * (ROWS // 3), object)}
    for wait in (1, 3, 4, 2, 3):
        seen = []

        def end(rows, size, wait=wait, seen=seen):
            seen.append(rows)
            if len(seen) == wait:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            noyau.stream(scaled, columns, name, tell=end, **options)
    result = noyau.stream(scaled, columns, name, **options)
    assert 0 < result.rows < ROWS and str(result).endswith(f"wrote {name}")
    if name == "y.npy":
        assert np.array_equal(np.load(name), X[:, 0] * 2)
    else:
        table = csv.read_csv(name, parse_options=csv.ParseOptions(newlines_in_values=True))
        assert table["y"].to_numpy().tolist() == (X[:, 0] * 2).tolist()
        assert table["name"].to_pylist() == columns["name"].tolist() and table.schema.field("y").type == pa.float64()
    assert os.listdir() == [name]


@pytest.mark.parametrize("name", ["y.csv", "y.npy", "y.parquet"])
def test_work_that_is_ended_before_any_progress_leaves_no_file(name, tmp_path, monkeypatch):
    def end(rows, size):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        noyau.stream(scaled, {"x": X[:, 0]}, name, arguments={"by": 2.0}, memory=256 * 24 * 8, tell=end)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_a_file_that_cannot_be_replaced_leaves_no_other(tmp_path):
    (tmp_path / "y.json").mkdir()
    with pytest.raises(OutputError, match="Is a directory"):
        sinks.replace_file(tmp_path / "y.json", b"{}")
    assert [each.name for each in tmp_path.iterdir()] == ["y.json"]


def test_no_rows_are_an_empty_array(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noyau.stream(scaled, {"x": np.zeros(0)}, "y.npy", arguments={"by": 2.0})
    assert np.load("y.npy").shape == (0,)


def test_rows_of_several_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noyau.stream(noyau.op("f32[n, k] -> f32[n, k]", name="twice")(lambda x: 2 * x), X.astype(np.float32), "y.npy")
    assert np.array_equal(np.load("y.npy"), 2 * X.astype(np.float32))
