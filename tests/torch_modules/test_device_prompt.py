"""Graphs whose first result does not wait for kernels, without a GPU."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch")

from noyau.torch_modules import compiling, device_prompt, places  # noqa: E402
from noyau.torch_modules.compiling import Record  # noqa: E402
from noyau.torch_modules.device_prompt import prompt  # noqa: E402
from noyau.torch_modules.wishes import Wishes  # noqa: E402


@pytest.fixture
def capturing(monkeypatch):
    """Whether a CUDA graph is captured."""
    found = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(found))
    monkeypatch.setattr(device_prompt, "triton_begun", lambda: None)
    return found


def made(compiled):
    return prompt(torch.fx.symbolic_trace(lambda x: torch.relu(x)), compiled)


def test_kernels_are_made_in_the_second_call(capturing):
    calls = []

    def kernel(arguments):
        calls.append(arguments.pop())
        return "by a kernel"

    run, x, found = made(lambda: kernel), torch.randn(3), []
    for _ in range(3):
        given = [x]
        found.append(run(given))
        assert not given
    assert torch.equal(found[0], x.relu()) and found[1:] == ["by a kernel"] * 2
    assert run.prompt.plain is None and run.prompt.compiled is None


def test_nothing_is_made_during_a_capture_or_twice(capturing):
    inside = []

    def compiled():
        other = threading.Thread(target=lambda: inside.append(run([-x])))
        other.start()
        other.join()
        return lambda arguments: "by a kernel"

    run, x = made(compiled), torch.ones(3)
    run([x])
    capturing.append(True)
    assert torch.equal(run([x]), x)
    capturing.clear()
    assert run([x]) == "by a kernel"
    assert torch.equal(inside[0], torch.zeros(3))


def test_what_is_read_or_has_sizes_that_are_names_is_compiled_at_once(monkeypatch):
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x)).graph
    monkeypatch.setattr(places, "device_of", lambda program: torch.device("cuda", 0))
    assert compiling.is_prompt(graph, Wishes(), Record(forgets=True))
    assert not compiling.is_prompt(graph, Wishes(), Record())
    assert not compiling.is_prompt(graph, Wishes(prompt=False), Record(forgets=True))
    assert not compiling.is_prompt(graph, Wishes(rest="inductor"), Record(forgets=True))
    next(iter(graph.nodes)).meta["val"] = torch.SymInt.__new__(torch.SymInt)
    assert not compiling.is_prompt(graph, Wishes(), Record(forgets=True))
    monkeypatch.undo()
    assert not compiling.is_prompt(
        torch.fx.symbolic_trace(lambda x: torch.relu(x)).graph, Wishes(), Record(forgets=True)
    )
