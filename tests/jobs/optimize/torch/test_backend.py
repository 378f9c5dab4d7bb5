from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from noyau.jobs.optimize.torch import candidates as torch_certification
from noyau.jobs.optimize.torch.backend import GraphRecord, backend, compile_captured
from noyau.jobs.optimize.torch.options import CompileOptions
from tests.jobs.optimize.torch.modules import Block, compiled, same

ROOT = Path(__file__).resolve().parents[4]


def test_torch_finds_it_by_its_entry_point():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    entry = importlib.metadata.EntryPoint("noyau", declared["torch_dynamo_backends"]["noyau"], "torch_dynamo_backends")
    assert entry.load() is backend


def test_options_of_torch_compile():
    function = torch.compile(
        lambda x: (x.exp() + 1).log(), backend=backend, options={"keep": "all", "rest": "eager", "budget_s": 0}
    )
    x = torch.randn(5)
    assert torch.allclose(function(x), (x.exp() + 1).log())


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_of_torch_compile(mode):
    x = torch.randn(5)
    assert torch.equal(torch.compile(lambda x: x + 1, backend=backend, mode=mode)(x), x + 1)


@pytest.mark.parametrize("options", [{"rest": "nobody"}, {"nonsense": 1}])
def test_options_that_there_are_not(options):
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"noyau has no option nonsense|rest='nobody' is none of eager, inductor"):
        torch.compile(lambda x: x + 1, backend=backend, options=options)(torch.ones(2))


@pytest.mark.parametrize(
    ("wishes", "forgets", "is_named", "waits"),
    [
        (CompileOptions(), True, False, False),
        (CompileOptions(), True, True, True),
        (CompileOptions(rest="inductor"), True, False, True),
        (CompileOptions(prompt=False), True, False, True),
        (CompileOptions(), False, False, True),
    ],
)
def test_triton_begins_at_once_where_kernels_are_wanted_at_once(monkeypatch, wishes, forgets, is_named, waits):
    class Stop(BaseException):
        pass

    def ahead(*_, on_gpu, waits, **__):
        raise Stop(on_gpu, waits)

    begun = []
    monkeypatch.setattr("noyau.jobs.optimize.torch.backend.begin", lambda: begun.append(1))
    monkeypatch.setattr("noyau.jobs.optimize.torch.backend.AheadOfTime", ahead)
    inputs = [SimpleNamespace(is_cuda=True), *([torch.SymInt.__new__(torch.SymInt)] if is_named else [])]
    with pytest.raises(Stop) as caught:
        compile_captured(torch.fx.GraphModule({}, torch.fx.Graph()), inputs, wishes, GraphRecord(forgets=forgets))
    assert caught.value.args == (True, waits)
    assert begun == [1] * (not waits)  # else beside the trace


@pytest.fixture
def built(monkeypatch):
    """The kernels that were built, by their texts, one entry for each."""
    seen: list[str] = []
    library_of = torch_certification.library_of
    monkeypatch.setattr(torch_certification, "library_of", lambda text: seen.append(text) or library_of(text))
    monkeypatch.setattr(torch_certification.MEMORY, "candidates", {})
    return seen


def test_one_compilation_for_all_lengths(built):
    block = Block()
    function, record = compiled(block, dynamic=True)
    with torch.no_grad():
        for length in (3, 2, 17, 64):
            x = torch.randn(2, length, 32)
            assert same(function(x), block(x))
            assert len(built) == len(record.graphs[0].plan.kernels) > 0
    assert len(record.graphs) == 1


def test_two_compilations_where_nothing_is_said(built):
    block, counts = Block(), []
    function, record = compiled(block)
    with torch.no_grad():
        for length in (5, 6, 17, 64):
            x = torch.randn(2, length, 32)
            assert same(function(x), block(x))
            counts.append(len(built))
    assert len(record.graphs) == 2
    assert counts[0] > 0 and set(counts[1:]) == {counts[1]}


@pytest.mark.slow
def test_inductor_runs_the_rest():
    torch.manual_seed(0)
    block = Block()
    function, record = compiled(block, CompileOptions(rest="inductor", against="eager", keep="all"), dynamic=True)
    with torch.no_grad():
        for shape in ((2, 5, 32), (3, 9, 32)):
            x = torch.randn(shape)
            assert same(function(x), block(x))
    assert record.graphs[0].kept
