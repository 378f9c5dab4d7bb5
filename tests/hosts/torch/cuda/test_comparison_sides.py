"""What a timed callable of tensors must not do; here on the CPU, those that need a GPU in test_torch_cuda.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import CheckError
from noyau.hosts.torch.cuda import comparison_sides
from noyau.hosts.torch.cuda.comparison_sides import TensorSide
from noyau.hosts.torch.cuda.tensor_rotation import TensorRotation, result_tensors
from noyau.timing.comparison import compare_all
from noyau.timing.queue_clock import BlockedClock
from noyau.timing.verdict import Verdict
from tests.timing.simulated import SimulatedQueue


def check(inputs, outputs):
    """The outputs are the sums of the two inputs."""
    wanted = inputs[0] + inputs[1]
    return "" if np.array_equal(wanted, outputs[0]) else "another sum"


def side_of(run, *, queue=None, device_s=10e-6, name="candidate", seed=0):
    """A side whose call takes so long on a simulated queue."""
    queue = queue or SimulatedQueue()
    noise = torch.Generator().manual_seed(0)
    pairs = [[torch.randn(64, generator=noise) for _ in range(2)] for _ in range(3)]

    def call(*tensors):
        queue.work(device_s)
        return run(*tensors)

    rng = np.random.default_rng(seed)
    rotation = TensorRotation(pairs, rng)
    return TensorSide(name, call, rotation, [pairs[0][0]], BlockedClock(queue, queue.clock), True, rng)


def timed(side, calls=12):
    for _ in range(calls):
        side.lasts(1)
    side.refuse(check)


def test_what_is_right_is_timed_and_judged():
    side = side_of(lambda x, y: x + y)
    timed(side)
    assert len(side.snapshots) == 4
    assert [sample.took_s for sample in side.samples] == pytest.approx([10e-6] * 12)
    assert side.unblocked == 0


def cached_by_identity():
    held = {}
    return lambda x, y: held.setdefault(id(x), x + y).clone()


def cached_by_address():
    held = {}
    return lambda x, y: held.setdefault((x.data_ptr(), y.data_ptr()), x + y).clone()


def cached_by_a_cell():
    held = {}
    return lambda x, y: held.setdefault((x.data_ptr(), float(x[0])), x + y).clone()


def computed_once():
    held = []

    def run(x, y):
        held.append(x + y)
        return held[0].clone()

    return run


def on_stale_pointers():
    held = []

    def run(x, y):
        held.append((x, y))
        return held[0][0] + held[0][1]

    return run


@pytest.mark.parametrize(
    "cheat", [cached_by_identity, cached_by_address, cached_by_a_cell, computed_once, on_stale_pointers]
)
def test_results_of_earlier_calls_are_found(cheat):
    with pytest.raises(CheckError, match="was wrong in a run that was timed: another sum"):
        timed(side_of(cheat()), 40)


@pytest.mark.parametrize(
    ("cheat", "told"),
    [
        (lambda x, y: y.add_(x), "it changed its input 1"),
        (lambda x, y: x.add_(y).sub_(y), "it changed its input 0|another sum"),
        (lambda x, y: x[:], "its output 0 is a view of an input"),
        (lambda x, y: (x + y).numpy(), "it returned ndarray, not a tensor"),
        (lambda x, y: None, "it returned NoneType"),
        (lambda x, y: torch.empty_like(x), "another sum"),
        (lambda x, y: torch.zeros_like(x), "another sum"),
        (lambda x, y: (x.half() + y.half()).float(), "another sum"),
        (lambda x, y: torch.full_like(x, float("nan")), "another sum"),
    ],
)
def test_what_is_not_the_result_is_found(cheat, told):
    with pytest.raises(CheckError, match=told):
        timed(side_of(cheat))


class Lazy(torch.Tensor):
    """A tensor that does its work when it is looked at."""


def test_a_result_that_computes_itself_later_is_found():
    with pytest.raises(CheckError, match="it returned Lazy, not a tensor: what is left to do later is not timed"):
        timed(side_of(lambda x, y: (x + y).as_subclass(Lazy)))
    assert result_tensors(torch.nn.Parameter(torch.ones(1)))[1] == ""


def test_work_that_goes_on_after_the_call_is_found(monkeypatch):
    pending = []
    queue = SimulatedQueue()

    def run(x, y):
        made = torch.zeros_like(x)
        pending.append((made, x + y))
        return made

    def settle():
        for made, sums in pending:
            made.copy_(sums)
        pending.clear()

    queue.settle = settle
    with pytest.raises(CheckError, match="its output 0 changed after the call was over"):
        timed(side_of(run, queue=queue))


def test_a_clock_that_was_replaced_is_found(monkeypatch):
    side = side_of(lambda x, y: x + y)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    with pytest.raises(CheckError, match=r"candidate is not timed: torch\.cuda\.synchronize was replaced"):
        timed(side)
    assert "torch.cuda.Event" in comparison_sides._AT_FIRST


def test_the_verdict_is_that_of_the_cpu_s_clock():
    queue = SimulatedQueue()
    slow, fast = (
        side_of(lambda x, y: x + y, queue=queue, device_s=device_s, name=name)
        for device_s, name in ((12e-6, "slow"), (8e-6, "fast"))
    )
    series = compare_all([slow, fast], budget_s=0.2, sample_s=0.0)
    assert series.calls == (1, 1)
    found = series.comparison(0, 1)
    assert found.verdict is Verdict.FASTER
    assert found.speedup == pytest.approx(1.5)
    again = compare_all([slow, slow], budget_s=0.2, sample_s=0.0).comparison(0, 1)
    assert again.verdict is Verdict.SAME
