"""Texts of flat functions, without a GPU."""

from __future__ import annotations

import operator
from types import SimpleNamespace

import pytest
import torch

from noyau.hosts.torch.cuda.launch import direct
from noyau.hosts.torch.modules import flat_codegen
from noyau.hosts.torch.modules.cuda_graph import as_view
from noyau.hosts.torch.modules.flat_codegen import FlatText, ViewForm, may_begin_early


def test_what_begins_where_an_argument_does_is_asked_there():
    graph, x = torch.fx.Graph(), torch.zeros(64)
    text = FlatText(["x"], [x])
    node = graph.placeholder("x")
    updated = graph.call_function(torch.ops.aten.add_.Tensor, (node, 1))
    parts = graph.call_function(torch.ops.aten.split.Tensor, (node, 32))
    late = graph.call_function(operator.getitem, (parts, 1))
    fresh = graph.call_function(torch.ops.aten.neg.default, (node,))
    text.call(updated, x)
    text.call(parts, x.split(32))
    text.pick(late, x[32:])
    text.call(fresh, -x)
    assert text.begins_well(text.values[fresh.name]) and not text.placed
    assert not text.begins_well(text.values[late.name])
    assert text.begins_well(text.values[updated.name]) and text.placed == {"a0"}


def test_how_arguments_are_spelt():
    text, reads = FlatText([], []), []
    assert eval(text.word({"a": [1, slice(None, 2)]}, reads), dict(text.names)) == {"a": [1, slice(None, 2, None)]}


def test_strides_are_asked_of_what_a_backward_is_given():
    given = [torch.zeros(2, 3), torch.zeros(2, 3).T]
    assert FlatText(["saved", "other"], given).conditions() == []
    assert FlatText(["tangents_1", "other"], given).conditions() == [
        "if a0.stride() != (3, 1) or a1.stride() != (1, 3):",
        "    return slowly(arguments)",
    ]


def test_a_view_begins_later_than_what_it_shows():
    x = torch.arange(10)
    assert as_view(x[2:], (2, 2), (3, 1), 1).tolist() == [[3, 4], [6, 7]]
    assert ViewForm("a0").lies is None


class Run:
    """A launcher as Triton has it."""

    launch_cooperative_grid = launch_pdl = False
    global_scratch_size = profile_scratch_size = 0

    def __call__(self, gridX, gridY, gridZ, stream, function, *args): ...

    launch = __call__


@pytest.mark.parametrize(
    ("waits", "loads", "changed", "begins_early"),
    [(1, 1, (), 1), (0, 1, (), 0), (1, 1, ("a0",), 0), (1, 1, ("a1",), 1), (1, 0, ("a0",), 1)],
)
def test_a_launch_that_waits_by_itself_begins_early_where_nothing_writes_what_it_loads(
    waits, loads, changed, begins_early
):
    graph, x = torch.fx.Graph(), torch.zeros(64)
    text = FlatText(["x", "y"], [x, x], frozenset(changed))

    def target(x): ...

    target.waits, target.loads = bool(waits), bool(loads)
    node = graph.call_function(target, (graph.placeholder("x"),))
    one = (*direct(Run()), (1, 1, 1), 7, (), None, (None,), ((0, 0),))
    plan = SimpleNamespace(index=0, allocations=(), results=(0,), launched=[one])
    assert text.launch(node, plan, x)
    assert text.launch(node, plan, x)
    assert " early, " not in text.lines[0].words  # it may follow an update of what it reads
    assert (" False, early, None, None," in text.lines[1].words) is bool(begins_early)
    assert ("early = may_begin_early()" in text.finish()) is bool(begins_early)


@pytest.mark.parametrize(("captures", "capability", "may"), [(1, (9, 0), 1), (0, (9, 0), 0), (1, (8, 6), 0)])
def test_launches_begin_early_in_recordings_on_gpus_that_have_it(captures, capability, may, monkeypatch):
    monkeypatch.setattr(flat_codegen, "is_capturing", lambda: bool(captures))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert may_begin_early(0) is bool(may)
