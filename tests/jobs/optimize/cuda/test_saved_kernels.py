"""Modules with kernels in Triton as files, in Triton's interpreter."""

from __future__ import annotations

import threading
import warnings
import zipfile

import pytest
import torch

from noyau.errors import ModelError
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.hosts.torch.modules.rewrite import rewrite
from noyau.jobs.optimize import pipeline
from noyau.jobs.optimize.cuda.host import CudaHost
from noyau.jobs.optimize.cuda.saved_kernels import flatten_later, reopen
from noyau.jobs.optimize.torch import saved_module
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.jobs.optimize.torch.run import _piece
from noyau.jobs.optimize.torch.saved_module import export
from noyau.toolchain.triton.module import interprets

pytestmark = pytest.mark.skipif(not interprets(), reason="Triton does not interpret")


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x):
        return torch.softmax(x.transpose(0, 1).tanh() * self.weight, -1)


def test_a_module_comes_back_with_its_kernels(tmp_path, monkeypatch):
    module, x = Scaled(), torch.randn(5, 3, 8).transpose(0, 1)
    exported = export(module, (x,), False)
    found = modules_sites.trace_graph(exported.program)
    made = pipeline.optimize(CudaHost(found, modules_sites.CPU, CompileOptions(keep="all")), "all", print)
    swaps = made.installed
    assert swaps
    pairs = [(one, group) for one in made.candidates if one.kept for group in one.planned.groups]
    pieces = {swap.target: _piece(swap, *pair) for swap, pair in zip(swaps, pairs, strict=True)}
    path = tmp_path / "m.noyau"
    saved_module.save(path, exported, rewrite(exported.program, swaps), pieces)
    assert [name for name in zipfile.ZipFile(path).namelist() if name.startswith("kernels/")] == ["kernels/0.py"]
    with torch.no_grad():
        want = module(x)
        assert torch.allclose(saved_module.load(path)(x), want, atol=1e-6)
        monkeypatch.setattr("noyau.toolchain.triton.module.interprets", lambda: False)
        with pytest.warns(RuntimeWarning, match="runs on torch's kernels alone: kernels in Triton run on a GPU"):
            plain = saved_module.load(path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(plain(x), want)


def nowhere(arguments):
    raise AssertionError("it went node by node")


def test_a_graph_of_a_file_is_flat_from_its_second_call_on():
    run = flatten_later(torch.fx.symbolic_trace(lambda x, w: (torch.relu(x @ w), x)).graph, [0], nowhere)
    for _ in range(3):
        x, w = torch.randn(2, 3), torch.randn(3, 3)
        given = [x, w]
        made, same = run(given)
        assert torch.equal(made, torch.relu(x @ w)) and same is x and not given


@pytest.mark.parametrize("noted", [0, 1])
def test_what_is_noted_is_not_done_to_tensors_that_lie_otherwise(noted):
    def function(x):
        return x.transpose(0, 1).relu()

    program = torch.fx.symbolic_trace(lambda x: torch.relu(torch.ops.aten.transpose.int(x, 0, 1))).graph
    run = flatten_later(program, [0], lambda given: function(given.pop()))
    x = torch.randn(4, 6)
    lying = [x, torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2], x.half(), x.double()]
    lying[0], lying[noted] = lying[noted], lying[0]
    for each in (lying[0], *lying, *lying):
        assert torch.equal(run([each]), function(each))


def test_a_thread_beside_the_first_call_goes_node_by_node():
    started, beside = [], []

    def meanwhile(x):
        if not started:
            started.append(threading.Thread(target=lambda: beside.append(run([-x]))))
            started[0].start()
            started[0].join()
        return x

    graph = torch.fx.Graph()
    graph.output(graph.call_function(meanwhile, (graph.placeholder("x"),)))
    run = flatten_later(graph, [0], lambda given: ("node by node", given.pop()))
    x = torch.ones(3)
    assert run([x]) is x
    assert beside[0][0] == "node by node" and torch.equal(beside[0][1], -x)


def test_what_cannot_be_read_is_said():
    for told, fault in (({}, "'name'"), ({"name": "a b", "launches": 1, "axes": []}, "a b is no name")):
        with pytest.raises(ModelError, match=f"a kernel of the file cannot be read: .*{fault}"):
            reopen(told, "")
    for text in ("x = 1", "1 / 0", "("):
        with pytest.raises(ModelError, match="f has a text that Triton does not read"):
            reopen({"name": "f", "launches": 1, "axes": []}, text)
    with pytest.raises(ModelError, match="it has 100000 launches"):
        reopen({"name": "f", "launches": 100_000, "axes": []}, "")
