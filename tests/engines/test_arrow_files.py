"""Texts that are cut into ranges of lines, for engines of other processes."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import noyau
from noyau.engines import arrow_files
from noyau.engines.reading import Reading
from noyau.errors import InputError
from tests.engines.engine_cases import COLUMNS, ROWS, TABLE, WANT, group_sums


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv.write_csv(TABLE, "t.csv")
    return tmp_path


@pytest.mark.parametrize("size", [37, 1000, 9999])
def test_each_line_is_in_one_range(folder, monkeypatch, size):
    monkeypatch.setattr(arrow_files, "_RANGE", size if size > 100 else 4000)
    if size == 37:  # lines of Windows, no end of the last one
        text = (folder / "t.csv").read_text()
        (folder / "t.csv").write_bytes(text.rstrip("\n").replace("\n", "\r\n").encode())
    result = noyau.stream(group_sums, "t.csv", engine="dask")
    assert (result.value.tolist(), result.rows) == (WANT, ROWS) and len(result.parts) >= 3
    chosen = noyau.stream(group_sums, "t.csv", engine="dask", where="x > 3")
    assert chosen.value.tolist() == noyau.stream(group_sums, "t.csv", where="x > 3").value.tolist()
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    assert len(noyau.stream(group_sums, "t.csv.gz", engine="dask").parts) == 1


def test_ends_of_ranges_at_any_place(folder, monkeypatch):
    """Also where a line is longer than a range, and where one ends at the end of a line."""
    (folder / "s.csv").write_text("key,x\n0,1.5\n1,2.25\n2,123456789.5\n\n3,4\n4,5\n")
    for size in range(1, 30):
        monkeypatch.setattr(arrow_files, "_RANGE", size)
        result = noyau.stream(group_sums, "s.csv", engine="dask")
        assert (result.value.tolist(), result.rows) == ([1.5, 2.25, 123456789.5, 4, 5], 5)


def test_quoted_values_pass_and_a_newline_within_quotes_is_refused_by_name(folder, monkeypatch):
    monkeypatch.setattr(arrow_files, "_RANGE", 40)
    (folder / "q.csv").write_text("key,name,x\n" + '0,"a, ""b""",1\n' * 9)
    result = noyau.stream(group_sums, "q.csv", engine="dask")
    assert (result.value.tolist(), result.rows) == ([9, 0, 0, 0, 0], 9)
    (folder / "q.csv").write_text("key,name,x\n" + '0,"a\nbcdefghijklmnopqrstuvw",1\n' * 9)
    with pytest.raises(InputError, match=r"^dask: q.csv|q.csv \(bytes \d+ to \d+\) has a newline within quotes, or"):
        noyau.stream(group_sums, "q.csv", engine="dask")
    assert noyau.stream(group_sums, "q.csv").rows == 9


def test_bad_lines_of_each_range_are_set_aside(folder, monkeypatch):
    monkeypatch.setattr(arrow_files, "_RANGE", 30)
    (folder / "bad.csv").write_text("key,x\n" + "1,2.0\n1,2,3\n" * 20)
    result = noyau.stream(group_sums, "bad.csv", engine="dask", bad_lines="aside")
    assert (result.value.tolist(), result.counts) == ([0, 40, 0, 0, 0], {"bad lines": 20})
    lines = [line for file in (folder / "aside").iterdir() for line in file.read_text().splitlines()]
    assert lines == ["1,2,3"] * 20


def test_parquet_by_threads_is_what_processes_give(folder):
    """To the bit, for each part is folded from zero: whatever the trial chooses."""
    parquet.write_table(TABLE, "t.parquet", row_group_size=100)
    roots = noyau.op("f64[n] -> f64", name="roots")(lambda x: np.sqrt(np.abs(x)).sum())
    values = {noyau.stream(roots, "t.parquet", workers=each, engine="threads").value for each in (1, 2, 5, 40)}
    assert values == {noyau.stream(roots, "t.parquet", workers=1, engine="processes").value}
    assert values == {noyau.stream(roots, "t.parquet", memory="1G").value} and COLUMNS["x"].any()


def test_a_row_group_that_memory_holds_is_one_chunk_mapped_or_not(folder):
    parquet.write_table(TABLE, "t.parquet", row_group_size=700)
    part = next(arrow_files.open_files("t.parquet").parts(("key", "x")))
    assert part._extent(part.footer, ["x"])[1] < part._extent(part.footer, ["key", "x"])[1]
    for whole, rows in ((700, [700]), (699, [300, 300, 100])):
        for mapped in (0, 1 << 30):
            chunks = list(part.chunks(Reading(("key", "x"), 300, whole=whole, mapped=mapped)))
            assert [len(chunk["x"]) for chunk in chunks] == rows
            assert np.concatenate([chunk["x"] for chunk in chunks]).tolist() == COLUMNS["x"][:700].tolist()


def test_a_file_is_mapped_once_whatever_may_be_mapped(folder):
    parquet.write_table(TABLE, "t.parquet", row_group_size=700)
    part = next(arrow_files.open_files("t.parquet").parts(("key", "x")))
    readers = []
    for mapped in (0, 1 << 30, 0):
        assert sum(len(chunk["x"]) for chunk in part.chunks(Reading(("key", "x"), 300, mapped=mapped))) == 700
        readers.append(part.idle)
        assert len(part.idle) == 1 and part.idle[0] is readers[0][0]


def test_sources_of_urls_and_of_other_packages(folder):
    import fsspec

    parquet.write_table(TABLE, "whole.parquet", row_group_size=700)
    memory = fsspec.filesystem("memory")
    memory.pipe("/noyau/a.parquet", (folder / "whole.parquet").read_bytes())
    (folder / "a b").mkdir()
    parquet.write_table(TABLE, "a b/whole.parquet")
    own = (f"file://{folder}/whole*.parquet", (folder / "a b" / "whole.parquet").as_uri())
    for source in ("memory://noyau/*.parquet", *own):
        assert noyau.stream(group_sums, source).value.tolist() == WANT
    total = noyau.op("i64[n] -> i64", name="total")(lambda x: x.sum())
    nullable = pa.record_batch({"x": pa.array([None, 2**60, None], pa.int64())})
    assert noyau.stream(total, [nullable], nulls="skip").value == 2**60
