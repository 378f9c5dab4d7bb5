"""Every stage of the compiler can be seen: of a model, an op and a torch module."""

from __future__ import annotations

import pytest
import torch

import noyau
from noyau.errors import InputError
from noyau.jobs.optimize.torch.explain import explain
from noyau.jobs.show.model import show
from noyau.jobs.show.op_view import show_op
from noyau.jobs.show.stages import STAGES, align_lines
from tests.small_models import twice, written


class Softmax(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2, -1)


@noyau.op("f32[rows, n] -> f32[rows, n]")
def doubled_softmax(x):
    import numpy as np

    powers = np.exp(x + x - np.max(x + x, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


def model_stages(folder):
    return show(written(twice(), folder))


def op_stages(_):
    return show_op(doubled_softmax.description, doubled_softmax.usual())


def module_stages(_):
    return explain(Softmax(), torch.zeros(8, 64))


@pytest.mark.parametrize("staged", [model_stages, op_stages, module_stages])
def test_each_stage_is_printed_in_its_grammar(staged, tmp_path):
    staged = staged(tmp_path)
    texts = {stage: staged.stage(stage) for stage in STAGES}
    name = staged.stages[0].name
    for stage, text in texts.items():
        assert text.startswith(f"==== {name}: {stage} ====\n")
        assert text.count("====") == 2 * len(staged.stages)
    assert " = input" in texts["graph"]
    assert "return " in texts["normal"]
    assert " on serial:" in texts["loops"]
    assert " on threads:" in texts["scheduled"]
    assert "noyau_kernel" in texts["text"]
    whole = staged.stage("all", name)
    assert [line.split(": ")[1].split()[0] for line in whole.splitlines() if line.startswith("====")] == list(STAGES)


def test_the_stages_of_one_kernel(tmp_path):
    staged = model_stages(tmp_path)
    one, other = (each.name for each in staged.stages)
    assert one in staged.stage("loops", one)
    assert other not in staged.stage("loops", one)
    assert staged.stage("loops", one[:-3]) == staged.stage("loops", one)
    with pytest.raises(InputError, match=rf"several generated kernels begin with ; there are: {one}, {other}"):
        staged.stage("loops", "")
    with pytest.raises(InputError, match=rf"no generated kernel none; there are: {one}, {other}"):
        staged.stage("loops", "none")
    with pytest.raises(InputError, match="no stage nonsense; the stages are: graph, normal, loops, scheduled, text"):
        staged.stage("nonsense")


def test_two_stages_side_by_side():
    difference = str(op_stages(None).difference("loops", "scheduled"))
    head, first, *_ = difference.splitlines()[1:]
    assert head.split() == ["loops", "scheduled"]
    assert first.count("kernel doubled_softmax") == 2
    assert "|" in difference
    assert ">" in difference


def test_lines_are_aligned():
    assert list(align_lines(["a", "b", "c"], ["a", "x", "c", "d"])) == [
        (" ", "a", "a"),
        ("|", "b", "x"),
        (" ", "c", "c"),
        (">", "", "d"),
    ]
    assert list(align_lines(["a"], [])) == [("<", "a", "")]


def test_an_op_without_a_graph_has_no_stages():
    @noyau.op("f32[n] -> f32[n]")
    def looping(x):
        while x.sum() > 0:
            x = x - 1
        return x

    with pytest.raises(InputError, match="nothing is generated"):
        show_op(looping.description, looping.usual()).stage("graph")
