from __future__ import annotations

import pytest
import torch

from noyau.errors import BuildError
from noyau.hosts.torch.modules import groups as modules_groups
from noyau.hosts.torch.modules import sites as modules_sites
from noyau.jobs.optimize.torch import candidates as torch_certification
from noyau.jobs.optimize.torch.backend import GraphCompiler
from noyau.jobs.optimize.torch.candidates import AheadOfTime, program_key
from noyau.jobs.optimize.torch.graph_hosts import GraphRecord
from noyau.jobs.optimize.torch.options import CompileOptions
from noyau.toolchain.c import compiler as c_compiler
from tests.frontends.torch.exports import graph_of
from tests.jobs.optimize.torch.modules import compiled, same


def gated(x, y):
    return (torch.sigmoid(x) * y.exp()).sum(-1)


def test_what_the_backward_needs_is_ready_before_it_is_asked_for(monkeypatch):
    cuts, building = [], []
    cut, library_of = modules_groups.cut, torch_certification.library_of
    monkeypatch.setattr(modules_groups, "cut", lambda *args, **words: cuts.append(args) or cut(*args, **words))
    monkeypatch.setattr(torch_certification, "library_of", lambda text: building.append(text) or library_of(text))
    monkeypatch.setattr(torch_certification.MEMORY, "candidates", {})
    function, record = compiled(gated)
    inputs = [torch.randn(3, 6, requires_grad=True) for _ in "xy"]
    made = function(*inputs)
    assert len(cuts) == 2 and len(building) == len(set(building)) > 1
    before = len(building)
    got = torch.autograd.grad(made.sum(), inputs)
    assert len(cuts) == 2 and len(building) == before
    assert [graph.kind for graph in record.graphs if graph.kept] == ["forward", "backward"]
    assert same(got, torch.autograd.grad(gated(*inputs).sum(), inputs))


@pytest.fixture
def graph():
    return graph_of(gated, (torch.randn(3, 6), torch.randn(3, 6)))


def test_a_graph_is_known_by_what_is_in_it(graph):
    other = graph_of(gated, (torch.randn(3, 7), torch.randn(3, 7)))
    assert program_key(graph) == program_key(graph) != program_key(other)
    with AheadOfTime(CompileOptions(), print) as ahead:
        ahead.begin(graph)
        assert ahead.sketch(other) is None
        sketch = ahead.sketch(graph)
        assert ahead.sketch(graph) is None
        assert all(one.certificate.ok for one in ahead.candidates(sketch))


def test_what_is_wrong_is_said_when_it_is_compiled(graph, monkeypatch):
    def missing():
        raise BuildError("no C compiler")

    monkeypatch.setattr(torch_certification.MEMORY, "candidates", {})
    monkeypatch.setattr(c_compiler, "find_compiler", missing)
    with AheadOfTime(CompileOptions(), print) as ahead:
        ahead.begin(graph)
        with pytest.raises(BuildError, match="no C compiler"):
            ahead.candidates(ahead.sketch(graph))


def test_the_reasons_of_cuts_are_found_where_somebody_reads_them(graph):
    with (
        AheadOfTime(CompileOptions(), print) as with_them,
        AheadOfTime(CompileOptions(), print, reasons=False) as without,
    ):
        found = modules_sites.trace_graph(graph)
        assert len(with_them.make_sketch(found).cut.cuts) > len(without.make_sketch(found).cut.cuts)


def test_what_was_left_ends_what_it_begins_again(graph, monkeypatch):
    with AheadOfTime(CompileOptions(), print) as ahead:
        pass
    ended, end = [], torch_certification.Certification.__exit__
    monkeypatch.setattr(torch_certification.Certification, "__exit__", lambda self, *_: ended.append(self) or end(self))
    compiler = GraphCompiler(CompileOptions(budget_s=0), GraphRecord(), ahead)
    compiler.compile(torch.fx.GraphModule({}, graph), [], "inference")
    assert ended == [ahead.certification]
