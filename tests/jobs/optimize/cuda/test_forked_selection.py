"""What a copy of this process finds of a graph; no GPU is needed for that."""

from __future__ import annotations

import importlib.util
import os
import time
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from noyau.hosts.torch.modules import sites as modules_sites  # noqa: E402
from noyau.jobs.optimize.cuda import forked_selection  # noqa: E402
from noyau.jobs.optimize.cuda.forked_selection import ForkedPlanner, plan_program  # noqa: E402
from noyau.jobs.optimize.cuda.host import plan_for_triton  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no copies of processes here")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    monkeypatch.setattr(forked_selection, "PATIENCE_S", 60.0)  # machines of tests are busy


def graph():
    return make_fx(lambda x, y: torch.softmax(x * 2.5, -1) + y, tracing_mode="fake")(
        torch.randn(4, 30), torch.randn(30)
    ).graph


def test_a_copy_finds_what_is_found_here():
    told = []
    copied = ForkedPlanner(lambda: plan_program(graph(), 90), told.append)
    made, (cut, plan) = copied.result(), plan_for_triton(modules_sites.trace_graph(graph()), reasons=False)
    assert made is not None, "the copy of this process gave nothing"
    assert [each.positions for each in made.cut.groups] == [each.positions for each in cut.groups]
    assert [(each.operator, each.text) for each in made.plan.kernels] == [
        (each.operator, each.text) for each in plan.kernels
    ]
    if importlib.util.find_spec("triton") is not None and not os.environ.get("TRITON_INTERPRET"):
        assert list(made.tasks) == [each.operator for each in plan.kernels]
    assert told == [made]


def test_what_fails_in_a_copy_gives_nothing(capfd):
    copied = ForkedPlanner(lambda: os.write(1, b"it is not heard") / 0, pytest.fail)
    assert copied.result() is None
    assert capfd.readouterr() == ("", "")


def test_a_copy_that_takes_too_long_is_ended(monkeypatch, caplog):
    caplog.set_level("INFO", "noyau")
    monkeypatch.setattr(forked_selection, "PATIENCE_S", 0.1)
    copied = ForkedPlanner(lambda: time.sleep(60), pytest.fail)
    assert copied.result() is None
    copied.thread.join(10)
    assert not copied.thread.is_alive()
    assert "has not found the kernels of a graph in 0.1 s" in caplog.text
    assert not copied.worker.is_running


@pytest.mark.parametrize("hip", [None, "6.2"])
def test_graphs_of_a_gpu_are_copied_but_with_hip(hip, monkeypatch):
    made, imported = SimpleNamespace(), []
    monkeypatch.setattr(modules_sites, "device_of", lambda _: torch.device("cuda"))
    monkeypatch.setattr(forked_selection, "processors", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(forked_selection, "import_module", imported.append)
    monkeypatch.setattr(
        forked_selection, "ForkedPlanner", lambda work, then: made if imported else pytest.fail("too early")
    )
    assert forked_selection.begin(graph()) is (made if hip is None else None)


def test_graphs_of_the_cpu_are_not_copied():
    assert forked_selection.begin(graph()) is None
