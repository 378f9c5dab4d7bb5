import sys

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client, LocalCluster

import noyau
from noyau.errors import InputError, MissingExtraError, OutsideError, RaisedError
from noyau.toolchain.c import compiler as c_compiler
from tests.engines.engine_cases import (
    COLUMNS,
    ROWS,
    TABLE,
    WANT,
    Extent,
    assert_goes_on,
    assert_outlives_sigkill,
    assert_same_as_local,
    assert_same_on_health_spending,
    group_sums,
    roots,
    write_files,
)


def runs():
    return c_compiler.runs[0]


def test_a_cluster_gives_what_threads_do_and_compiles_once(tmp_path, empty_cache):
    write_files(tmp_path)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "local_directory": tmp_path}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        first = noyau.stream(roots, tmp_path / "whole.parquet", engine="dask")
        before = client.run(runs)
        assert first.compiled == sum(before.values()) > 0
        assert noyau.stream(roots, tmp_path / "whole.parquet", engine="dask").compiled == 0
        assert client.run(runs) == before
        result = noyau.stream(Extent(str(tmp_path / "mark")), tmp_path / "whole.parquet", engine="dask")
        assert (tmp_path / "mark").exists() and result.value == np.ptp(COLUMNS["x"])
        address = f"dask:{cluster.scheduler_address}"
        assert noyau.stream(group_sums, tmp_path / "whole.parquet", engine=address).value.tolist() == WANT


def test_the_scheduler_in_this_process_does_too(tmp_path):
    write_files(tmp_path)
    assert_same_as_local("dask", tmp_path)
    assert_same_on_health_spending("dask", tmp_path)


def test_work_that_is_ended_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("noyau.engines.dask_engine._FAN", 4)
    monkeypatch.setattr("noyau.engines.sinks.PAUSE_S", 0.0)
    assert_goes_on("dask", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["dask", "processes"])
def test_sigkill_at_any_moment_leaves_what_can_be_gone_on_with(engine, tmp_path):
    assert_outlives_sigkill(engine, tmp_path, np.random.default_rng(0).uniform(1.0, 6.0, 6))


def test_collections_are_sources():
    frame = dd.from_pandas(TABLE.to_pandas(), npartitions=40)  # whose states are merged as a tree
    nobody = frame[frame.x > 1000]
    bag = db.from_sequence(TABLE.to_pylist(), npartitions=7)
    delayed = [dask.delayed(TABLE.slice)(at, 1000) for at in range(0, ROWS, 1000)]
    empty = bag.filter(lambda record: record["x"] > 3)
    for source in (frame, dd.concat([nobody, frame]), bag, delayed):
        assert noyau.stream(group_sums, source).value.tolist() == WANT
    assert noyau.stream(roots, empty).rows == (COLUMNS["x"] > 3).sum()


def test_without_its_client_an_address_is_refused_and_none_runs_here(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"^dask: distributed, which connects to tcp://127.0.0.1:9, is not"):
        noyau.stream(group_sums, COLUMNS, engine="dask:tcp://127.0.0.1:9")
    assert noyau.stream(group_sums, COLUMNS, engine="dask").value.tolist() == WANT


def test_what_fails_is_one_error(monkeypatch):
    monkeypatch.setattr("noyau.engines.dask_engine._PATIENCE_S", 0.2)
    frame = dd.from_pandas(TABLE.to_pandas().assign(key=7), npartitions=2)
    with pytest.raises(OutsideError, match=r"^dask: group_sums on partition 0, rows 0 to 1500: .*an index is outside"):
        noyau.stream(group_sums, frame)
    with pytest.raises(InputError, match="dask: a partition holds int: let it hold dicts"):
        noyau.stream(group_sums, db.from_sequence([1, 2]))
    with pytest.raises(InputError, match=r"dask: no scheduler can be reached at tcp://127.0.0.1:9: .*; start one"):
        noyau.stream(group_sums, COLUMNS, engine="dask:tcp://127.0.0.1:9")
    client = type("Client", (), {"status": "connecting"})
    with monkeypatch.context() as patch:
        patch.setattr("distributed.default_client", client)
        with pytest.raises(InputError, match="dask: the client in use is connecting; connect"):
            noyau.stream(group_sums, COLUMNS, engine="dask")
    monkeypatch.setattr("dask.compute", lambda *tasks: 1 / 0)
    with pytest.raises(RaisedError, match=r"^dask: group_sums failed: ZeroDivisionError: division by zero$"):
        noyau.stream(group_sums, COLUMNS, engine="dask")
