"""What a copy of this process finds of a graph; no GPU is needed for that."""

from __future__ import annotations

import importlib.util
import os
import time

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from noyau.torch_modules import device_ahead, places  # noqa: E402
from noyau.torch_modules.device_ahead import Copied, found_in  # noqa: E402
from noyau.torch_modules.device_compiling import planned_for_triton  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no copies of processes here")


def graph():
    return make_fx(lambda x, y: torch.softmax(x * 2.5, -1) + y, tracing_mode="fake")(
        torch.randn(4, 30), torch.randn(30)
    ).graph


def test_a_copy_finds_what_is_found_here():
    told = []
    copied = Copied(lambda: found_in(graph(), 90), told.append)
    made, (cut, plan) = copied.result(), planned_for_triton(places.traced(graph()), reasons=False)
    assert [each.positions for each in made.cut.groups] == [each.positions for each in cut.groups]
    assert [(each.operator, each.text) for each in made.plan.kernels] == [
        (each.operator, each.text) for each in plan.kernels
    ]
    if importlib.util.find_spec("triton") is not None and not os.environ.get("TRITON_INTERPRET"):
        assert list(made.tasks) == [each.operator for each in plan.kernels]
    assert told == [made]


def test_what_fails_in_a_copy_gives_nothing(capfd):
    copied = Copied(lambda: os.write(1, b"it is not heard") / 0, pytest.fail)
    assert copied.result() is None
    assert capfd.readouterr() == ("", "")


def test_a_copy_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(device_ahead, "PATIENCE_S", 0.1)
    copied = Copied(lambda: time.sleep(60), pytest.fail)
    assert copied.result() is None
    copied.thread.join(10)
    assert not copied.thread.is_alive()


def test_graphs_of_the_cpu_are_not_copied():
    assert device_ahead.begun(graph()) is None
