"""GPUs as an engine, with devices of the CPU in their place: what is dealt, merged and refused."""

import numpy as np
import pytest
import torch

import noyau
from noyau.engines import cuda_engine
from noyau.errors import InputError, OutsideError, UnsupportedError
from tests.engines.engine_cases import COLUMNS, ROWS, TABLE, WANT, Extent, group_sums, highest, roots, scaled

SMALL = 24 * 256 * 16  # bytes, for chunks of 256 rows of two columns


@pytest.fixture
def dealt(monkeypatch):
    """The rows that each of two devices takes, one after the other."""
    rows, on = [[], []], cuda_engine.DeviceKernels.on
    devices = [torch.device("cpu"), torch.device("cpu", 0)]

    def counted(self, device, run, arrays):
        rows[devices.index(device)].append(max(np.shape(array)[0] for array in arrays if np.ndim(array)))
        return on(self, device, run, arrays)

    monkeypatch.setattr(cuda_engine, "devices_of", lambda address: devices)
    monkeypatch.setattr(cuda_engine.DeviceKernels, "on", counted)
    return rows


def test_chunks_go_to_devices_in_turn_and_states_are_merged_in_order(dealt, tmp_path):
    result = noyau.stream(group_sums, COLUMNS, engine="cuda", memory=SMALL)
    assert (result.value.tolist(), result.rows, result.engine) == (WANT, ROWS, "cuda")
    assert list(map(len, dealt)) == [6, 6] and sum(map(sum, dealt)) == ROWS
    assert noyau.stream(highest, COLUMNS, engine="cuda", memory=SMALL).value == noyau.stream(highest, COLUMNS).value
    local, there = (noyau.stream(roots, COLUMNS, engine=each, memory=SMALL).value for each in ("local", "cuda"))
    assert abs(local - there) <= ROWS * np.finfo(float).eps * local
    options = {"arguments": {"by": 2.0}, "keep": ("key",)}
    noyau.stream(scaled, TABLE.to_batches(700), tmp_path / "y.csv", engine="cuda", **options)
    noyau.stream(scaled, TABLE.to_batches(700), tmp_path / "z.csv", engine="threads", **options)
    assert (tmp_path / "y.csv").read_bytes() == (tmp_path / "z.csv").read_bytes()


def test_what_no_gpu_runs_is_one_error(dealt, monkeypatch):
    with pytest.raises(UnsupportedError, match="cuda: the steps of Extent are Python, which no GPU runs; write its"):
        noyau.stream(Extent, COLUMNS, engine="cuda")
    columns = {"key": np.array([0, 7]), "x": np.ones(2)}

    def left_out(self, *tensors):  # as kernels of a GPU do: only the largest index says so
        return (torch.zeros(5, dtype=torch.float64), torch.tensor(0), torch.tensor(7))

    monkeypatch.setattr("noyau.ops.torch.graph_kernels.GraphKernels.__call__", left_out)
    with pytest.raises(OutsideError, match="cuda: group_sums on the arrays, rows 0 to 2: an index is outside the axis"):
        noyau.stream(group_sums, columns, engine="cuda")


@pytest.mark.parametrize(("address", "message"), [("one", "'one' are no devices: say 'cuda', or"), ("7000", "cuda:")])
def test_devices_that_are_not_there_are_named(address, message):
    with pytest.raises(InputError, match=message):
        noyau.stream(group_sums, COLUMNS, engine=f"cuda:{address}")
