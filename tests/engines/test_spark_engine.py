"""Spark's tests are `long`: its package is 430 MB, and takes a minute to install. By hand, in an environment that has
the extra `spark` and Java: `pytest -m long tests/engines/test_spark_engine.py`."""

import numpy as np
import pytest

import noyau
from noyau.errors import InputError, OutsideError, RaisedError
from tests.engines.engine_cases import (
    COLUMNS,
    ROWS,
    WANT,
    Extent,
    assert_goes_on,
    assert_same_as_local,
    assert_same_on_health_spending,
    group_sums,
    highest,
    roots,
    write_files,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    with builder.getOrCreate() as session:
        yield session


def test_spark_gives_what_threads_do_and_compiles_once(session, tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.engines.spark_engine._FAN", 2)
    write_files(tmp_path)
    assert_same_as_local("spark", tmp_path)
    assert_same_on_health_spending("spark", tmp_path)
    assert noyau.stream(roots, tmp_path / "whole.parquet", engine="spark").compiled == 0
    assert len(noyau.stream(roots, tmp_path / "whole.parquet", engine="spark").parts) == 5
    result = noyau.stream(Extent(str(tmp_path / "mark")), tmp_path / "whole.parquet", engine="spark")
    assert (tmp_path / "mark").exists() and result.value == np.ptp(COLUMNS["x"])


def test_a_frame_is_a_source(session, tmp_path):
    write_files(tmp_path)
    frame = session.read.parquet(str(tmp_path / "whole.parquet"))
    result = noyau.stream(group_sums, frame.repartition(5))
    assert result.value.tolist() == WANT and result.rows == ROWS and len(result.parts) == 5
    assert noyau.stream(highest, frame.coalesce(1)).value == noyau.stream(highest, COLUMNS).value
    assert noyau.stream(roots, frame.filter("x > 1000").repartition(3)).value == 0
    with pytest.raises(OutsideError, match=r"^spark: group_sums on partition 0, rows 0 to \d+: [^\n]*index is outside"):
        noyau.stream(group_sums, frame.repartition(2).withColumn("key", frame.key + 7))
    with pytest.raises(RaisedError, match=r"^spark: roots failed: \w+: [^\n]*$"):
        noyau.stream(roots, session.range(3).selectExpr("raise_error('no') AS x").selectExpr("CAST(x AS double) AS x"))


def test_work_that_is_ended_goes_on(session, tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.engines.spark_engine._JOB", 10)
    monkeypatch.setattr("noyau.engines.sinks.PAUSE_S", 0.0)
    assert_goes_on("spark", tmp_path)


def test_without_java_one_line_says_so(monkeypatch, tmp_path):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda self: (tmp_path / "java").read_text())
    with pytest.raises(InputError, match=r"^spark: no session of local\[1\] can be had: .*; it needs Java 17"):
        noyau.stream(group_sums, COLUMNS, engine="spark:local[1]")
