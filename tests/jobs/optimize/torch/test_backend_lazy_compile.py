"""Graphs whose first result does not wait for kernels, without a GPU."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from noyau.errors import DeviceError
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.jobs.optimize.torch import backend
from noyau.jobs.optimize.torch.backend import (
    compile_lazily,
    is_prompt,
)
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.options import CompileOptions


@pytest.fixture
def capturing(monkeypatch):
    """Whether a CUDA graph is captured."""
    found = []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(found))
    monkeypatch.setattr(backend, "begin_triton", lambda: None)
    return found


def made(compiled):
    return compile_lazily(torch.fx.symbolic_trace(lambda x: torch.relu(x)), compiled)


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


@pytest.mark.parametrize(("calls", "by_a_kernel"), [(0, False), (1, False), (1, True)])
def test_a_lost_context_is_told_whichever_call_finds_it(capturing, monkeypatch, calls, by_a_kernel):
    def fails(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    run = made(lambda: fails if by_a_kernel else lambda arguments: "by a kernel")
    for _ in range(calls):
        run([torch.ones(3)])
    if not by_a_kernel:
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", fails)
    with pytest.raises(DeviceError, match="a compiled graph: a kernel that ran on the GPU before trapped"):
        run([torch.ones(3)])


def test_no_garbage_is_collected_meanwhile(capturing):
    seen = []
    run, x = made(lambda: seen.append(gc.isenabled()) or (lambda arguments: "by a kernel")), torch.ones(3)
    before = gc.isenabled()
    gc.enable()
    try:
        run([x])
        run([x])
        assert seen == [False]
        assert gc.isenabled()
    finally:
        if not before:
            gc.disable()


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


def test_a_capture_begins_nothing(capturing, monkeypatch):
    begun = []

    class Started(threading.Thread):
        def start(self):
            self.run()

    monkeypatch.setattr(backend, "Thread", Started)
    monkeypatch.setattr(backend, "begin_triton", lambda: begun.append(1))
    run, x = made(lambda: lambda arguments: "by a kernel"), torch.ones(3)
    capturing.append(True)
    backend.begin()
    assert torch.equal(run([x]), x) and not begun
    capturing.clear()
    backend.begin()
    assert begun == [1]
    assert torch.equal(run([x]), x)
    assert run([x]) == "by a kernel"


def test_kernels_of_two_graphs_are_not_made_beside_each_other(capturing):
    inside = []

    def compiled():
        inside.append(other([-x]))
        return lambda arguments: "by a kernel"

    run, other, x = made(compiled), made(lambda: lambda arguments: "by another"), torch.ones(3)
    run([x])
    other([x])
    assert run([x]) == "by a kernel" and torch.equal(inside[0], torch.zeros(3))
    assert other([x]) == "by another"


def test_kernels_are_made_when_the_gpu_is_done(capturing, monkeypatch):
    events, gpu = [], torch.device("cuda", 1)
    monkeypatch.setattr(modules_sites, "device_of", lambda program: gpu)
    monkeypatch.setattr(torch.cuda, "synchronize", events.append)
    run = made(lambda: events.append("compiled") or (lambda arguments: None))
    for _ in range(3):
        run([torch.ones(3)])
    assert events == [gpu, "compiled"]


class Late(backend.LazyCompile):
    """Whose kernels another thread makes as soon as one has looked for them and found none."""

    @property
    def known(self):
        found = self.source
        if self.is_begun and found is None:
            self.source, self.plain = (lambda arguments: "by a kernel"), None
        return found

    @known.setter
    def known(self, found):
        self.source = found


def test_another_thread_may_compile_between_any_two_steps(capturing):
    run, x = Late(torch.fx.symbolic_trace(lambda x: torch.relu(x)), lambda: None), torch.ones(3)
    assert torch.equal(run([x]), x)
    assert run([x]) == "by a kernel"


def test_what_is_read_or_has_sizes_that_are_names_is_compiled_at_once(monkeypatch):
    graph = torch.fx.symbolic_trace(lambda x: torch.relu(x)).graph
    monkeypatch.setattr(modules_sites, "device_of", lambda program: torch.device("cuda", 0))
    assert is_prompt(graph, CompileOptions(), GraphRecord(forgets=True))
    assert not is_prompt(graph, CompileOptions(), GraphRecord())
    assert not is_prompt(graph, CompileOptions(prompt=False), GraphRecord(forgets=True))
    assert not is_prompt(graph, CompileOptions(rest="inductor"), GraphRecord(forgets=True))
    next(iter(graph.nodes)).meta["val"] = torch.SymInt.__new__(torch.SymInt)
    assert not is_prompt(graph, CompileOptions(), GraphRecord(forgets=True))
    monkeypatch.undo()
    assert not is_prompt(
        torch.fx.symbolic_trace(lambda x: torch.relu(x)).graph, CompileOptions(), GraphRecord(forgets=True)
    )


@pytest.fixture
def late(capturing, monkeypatch):
    """Every graph is prompt, and the processes that certify end with the test."""
    opened, own = [], backend.AheadOfTime
    monkeypatch.setattr(backend, "AheadOfTime", lambda *a, **k: opened.append(own(*a, **k)) or opened[-1])
    monkeypatch.setattr(backend, "is_prompt", lambda *_: True)
    yield
    for each in opened:
        each.certification.__exit__()


def test_the_second_call_of_forward_cuts_backward_while_its_launches_are_compiled(late, monkeypatch):
    events, names = [], ("host_of", "optimize_graph")
    for name in names:
        own = getattr(backend, name)
        monkeypatch.setattr(backend, name, lambda *a, own=own, name=name, **k: events.append(name) or own(*a, **k))
    function = torch.compile(lambda x: (x * 2).exp().sum(-1) + 1, backend=backend.backend)
    for count in range(2):
        x = torch.linspace(0, 1, 12).reshape(3, 4).requires_grad_()
        result = function(x)
        assert events == [[], ["host_of", "host_of", "optimize_graph"]][count]
        result.sum().backward()
        assert torch.allclose(x.grad, 2 * (x * 2).exp())
    assert events == ["host_of"] * 2 + ["optimize_graph"] * 2


def test_a_graph_that_cannot_be_cut_leaves_the_one_before_its_kernels(late, monkeypatch):
    own = backend.host_of

    def fails(program, *rest):
        if any(node.name.startswith("tangents") for node in program.nodes):
            raise KeyError("odd")
        return own(program, *rest)

    monkeypatch.setattr(backend, "host_of", fails)
    function, x = torch.compile(lambda x: x.exp().sum(-1) + 1, backend=backend.backend), torch.ones(3, 4)
    x.requires_grad_()
    function(x).sum().backward()
    with pytest.warns(RuntimeWarning, match="noyau leaves this graph to torch: KeyError: 'odd'"):
        result = function(x)
    result.sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach().exp())
