"""The clock on a CUDA device: pytest -m gpu."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import CheckError
from noyau.hosts.torch.cuda.clock import clock_of, conditions_of, device_text, time_calls
from noyau.hosts.torch.cuda.comparison_sides import TensorSide
from noyau.hosts.torch.cuda.tensor_rotation import TensorRotation

gpu = pytest.mark.gpu


def check(inputs, outputs):
    wanted = inputs[0] + inputs[1]
    return "" if np.array_equal(wanted, outputs[0]) else "another sum"


def side_of(run, *, cells=1 << 22, cold=True):
    pairs = [[torch.randn(cells, device="cuda") for _ in range(2)] for _ in range(3)]
    rng = np.random.default_rng(0)
    return TensorSide("candidate", run, TensorRotation(pairs, rng), [pairs[0][0]], clock_of(0), cold, rng)


def timed(side, calls=12):
    for _ in range(calls):
        side.lasts(1)
    side.refuse(check)


@gpu
def test_the_flush_makes_a_copy_slower_and_is_not_in_the_time():
    source = torch.ones(1 << 21, device="cuda")
    target = torch.empty_like(source)
    hot, cold = (time_calls({"copy": lambda: target.copy_(source)}, cold=cold)["copy"] for cold in (False, True))
    assert hot.median_s < cold.median_s < 50e-6
    assert cold.unblocked == 0


@gpu
def test_launch_latency_is_not_in_the_time():
    cell = torch.zeros(1, device="cuda")

    def slow_to_launch():
        sum(range(20_000))
        cell.fill_(1.0)

    found = time_calls({"slow": slow_to_launch, "quick": lambda: cell.fill_(1.0)}, cold=False)
    assert found["slow"].median_s < 20e-6
    assert np.median(found["slow"].host_s) > 100e-6 > np.median(found["quick"].host_s)


@gpu
@pytest.mark.parametrize("cold", [True, False])
def test_what_is_right_is_taken(cold):
    side = side_of(lambda x, y: x + y, cold=cold)
    timed(side)
    assert len(side.snapshots) == 4
    assert all(sample.blocked for sample in side.samples[2:])  # the first ones load what changes the inputs


@gpu
def test_work_on_a_side_stream_is_found():
    other = torch.cuda.Stream()

    def run(x, y):
        out = torch.empty_like(x)
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            torch.add(x, y, out=out)
        return out

    with pytest.raises(CheckError, match=r"changed after the call was over|another sum"):
        timed(side_of(run))


@gpu
def test_work_on_a_side_stream_that_waits_for_nothing_is_found():
    other = torch.cuda.Stream()

    def run(x, y):
        out = torch.empty_like(x)
        with torch.cuda.stream(other):
            torch.add(x, y, out=out)
        return out

    with pytest.raises(CheckError, match=r"changed after the call was over|another sum"):
        timed(side_of(run))


@gpu
def test_a_graph_that_is_replayed_on_old_pointers_is_found():
    held = []

    def run(x, y):
        if not held:
            a, b = x.clone(), y.clone()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = a + b
            held.append((graph, out, a, b))
        graph, out, *_ = held[0]
        graph.replay()
        return out.clone()

    x, y = (torch.ones(1 << 22, device="cuda") for _ in range(2))
    run(x, y)
    with pytest.raises(CheckError, match="another sum"):
        timed(side_of(run))


@gpu
def test_what_the_allocator_left_is_no_result():
    side = side_of(lambda x, y: torch.empty_like(x))
    with pytest.raises(CheckError, match="another sum"):
        timed(side)


@gpu
def test_the_device_is_told():
    assert torch.cuda.get_device_name() in device_text(0)
    assert "driver" in device_text(0)
    found = conditions_of(0)
    assert 100 < found.spin_mhz < 5000
