"""Streams on the GPUs of a machine: run by hand where there is one, pytest -m gpu."""

import numpy as np
import pytest
import torch

import noyau
from noyau.engines import cuda_engine
from noyau.errors import OutsideError
from tests.engines.engine_cases import COLUMNS, ROWS, WANT, group_sums, highest, roots, scaled, write_files

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
SMALL = 24 * 256 * 16


@pytest.mark.parametrize("engine", ["cuda:0", "cuda"])
def test_gpus_give_what_threads_do(engine, tmp_path):
    write_files(tmp_path)
    for source in (COLUMNS, tmp_path / "whole.parquet", tmp_path / "drift"):
        result = noyau.stream(group_sums, source, engine=engine, memory=SMALL)
        assert (result.value.tolist(), result.rows) == (WANT, ROWS)
        assert noyau.stream(highest, source, engine=engine, memory=SMALL).value == noyau.stream(highest, COLUMNS).value
    local, there = (noyau.stream(roots, COLUMNS, engine=each, memory=SMALL).value for each in ("local", engine))
    assert abs(local - there) <= ROWS * np.finfo(float).eps * local
    noyau.stream(scaled, tmp_path / "whole.parquet", tmp_path / "y.npy", engine=engine, arguments={"by": 2.0})
    assert np.array_equal(np.load(tmp_path / "y.npy"), 2.0 * COLUMNS["x"])


def test_every_gpu_takes_its_turn(monkeypatch):
    seen, on = [], cuda_engine.DeviceKernels.on
    counted = lambda self, device, *rest: (seen.append(device), on(self, device, *rest))[1]  # noqa: E731
    monkeypatch.setattr(cuda_engine.DeviceKernels, "on", counted)
    noyau.stream(group_sums, COLUMNS, engine="cuda", memory=SMALL)
    assert {device.index for device in seen} == set(range(torch.cuda.device_count()))


def test_an_index_outside_is_an_error_though_kernels_leave_it_out():
    columns = {"key": np.array([0, 7]), "x": np.ones(2)}
    words = r"cuda: group_sums on the arrays, rows 0 to 2: .*an index is 7, .* the axis that it looks into has 5"
    with pytest.raises(OutsideError, match=words):
        noyau.stream(group_sums, columns, engine="cuda")


def test_a_sum_of_integers_that_overflows_is_an_error():
    total = noyau.op("i64[n] -> i64", name="total")(lambda x: x.sum())
    with pytest.raises(noyau.errors.InputError, match="a sum of int64 overflows"):
        noyau.stream(total, np.full(5000, 2**61), engine="cuda")
