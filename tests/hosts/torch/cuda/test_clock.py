"""The clock on a CUDA device: pytest -m gpu."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import CheckError
from noyau.hosts.torch.cuda.clock import FLUSH_BYTES, TimedStream, clock_of, conditions_of, device_text
from noyau.hosts.torch.cuda.comparison_sides import TensorSide
from noyau.hosts.torch.cuda.tensor_rotation import TensorRotation
from noyau.timing.queue_clock import BlockedClock

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
def test_a_cold_call_comes_after_a_flush_and_a_hot_one_does_not():
    clock = BlockedClock(TimedStream(0))
    clock.queue.flushed = None  # empty pairs are cold ones
    clock.sample(lambda: None, cold=False)
    assert clock.queue.flushed is None
    clock.sample(lambda: None, cold=True)
    assert clock.queue.flushed.nbytes == FLUSH_BYTES


@gpu
@pytest.mark.parametrize("cold", [True, False])
def test_what_is_right_is_taken(cold):
    side = side_of(lambda x, y: x + y, cold=cold)
    timed(side)
    assert len(side.snapshots) == 4
    assert side.unblocked <= len(side.samples) == 12  # whether a queue was held long enough, a busy host decides


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
