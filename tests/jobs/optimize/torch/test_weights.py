"""Weights in few bits of modules, in Triton's interpreter and with a planted clock: what is chosen, and what runs."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import noyau
from noyau.codegen.triton.row_products import FORMS, WeightForm
from noyau.errors import CheckError, InputError, UnsupportedError
from noyau.hosts.torch.modules import row_products
from noyau.jobs.optimize.torch import weights as weights_module
from noyau.jobs.optimize.torch.backend import backend
from noyau.jobs.optimize.torch.weights import TorchWeightStage, certify
from noyau.timing.verdict import Comparison
from tests.hosts.torch.modules.test_row_products import Gated, captured, drawn


class Model(nn.Module):
    """Logits of tokens, by three products."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(40, 16)
        self.q, self.k, self.head = (nn.Linear(16, 16 if at < 2 else 24, bias=at == 0) for at in range(3))

    def forward(self, tokens):
        x = self.table(tokens)
        return self.head(torch.tanh(self.q(x)) * self.k(x))


def clock_of(*seconds):
    """A clock on which torch takes a second, and each kernel the next of these; the last of them from then on."""
    left = list(seconds)

    def clock(before, after):
        before(), after()
        taken = left.pop(0) if len(left) > 1 else left[0]
        noise = 1 + 1e-3 * np.random.default_rng(0).random(20)
        return Comparison(noise, taken * noise)

    return clock


@pytest.fixture
def planted(monkeypatch):
    """Products of all sizes are taken, and kernels take half the time; a function that sets another clock."""
    monkeypatch.setattr(row_products, "LEAST_BYTES", 0)
    monkeypatch.setattr(weights_module, "MOST_RUNS", 6)
    torch._dynamo.reset()

    def plant(*seconds):
        monkeypatch.setattr(weights_module, "TorchWeightStage", partial(TorchWeightStage, clock=clock_of(*seconds)))

    plant(0.5)
    return plant


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


TOKENS = torch.tensor([[3]])
QUICK = {"keep": "all", "budget_s": 0.01, "certificate": "smoke"}


def outcome(model, *seconds, tokens=TOKENS, weights="int8", budget=0.1):
    """What a stage makes of the graph of a model, with a clock of so many seconds."""
    with torch.no_grad():
        return TorchWeightStage(*captured(model, tokens), weights, budget, clock=clock_of(*seconds)).run()


def test_a_module_with_weights_in_8_bits_and_one_of_them_changed_later(planted, model):
    found = noyau.optimize(model, (TOKENS,), weights="int8", budget=0.05, **QUICK)
    record = found.report.weights
    assert [(each.name, each.shape, each.variant) for each in record.products] == [
        ("q + k", (16, 32), "8 bits by channel"),
        ("head", (16, 24), "8 bits by channel"),
    ]
    assert (record.weights, record.budget, record.rows, record.reason) == ("int8", "0.05", 6, "")
    assert 0 < record.error <= 0.05
    assert all(0 < each.chosen.errors[0] < 0.02 for each in record.products)
    assert "Weights in few bits (int8, 0.05): 2 of 2 products" in str(found.report)
    with torch.no_grad():
        want = model(TOKENS)
        assert 0 < (found(TOKENS) - want).abs().max() <= 0.05 * want.abs().max()
        with pytest.raises(UnsupportedError, match=r'not saved; optimize the module with weights="none" to save it'):
            found.save("model.pt2")
        model.k.weight.mul_(2)
        assert torch.equal(found(TOKENS), model(TOKENS))
        model.head.weight.data = model.head.weight.data * 2
        assert torch.equal(found(TOKENS), model(TOKENS))


@pytest.mark.long
def test_torch_compile_takes_the_same_words_and_many_rows_have_the_weights_as_they_were(planted, model):
    verdicts = []
    options = {"weights": "int8", "budget": 0.05, "verdicts": verdicts}
    compiled = torch.compile(model, backend="noyau", options=options, dynamic=False)
    many = torch.arange(20).view(1, 20)
    with torch.no_grad():
        assert 0 < (compiled(TOKENS) - model(TOKENS)).abs().max() < 0.1
        assert torch.allclose(compiled(many), model(many), atol=1e-5)
    assert verdicts[0].startswith(
        "2 launches of products of few rows, 2 with weights in few bits; the outputs move by 0.0"
    )
    assert "no product of 16 rows or fewer has a parameter of 64 KiB or more" in verdicts[1]
    calibrated = torch.compile(model, backend="noyau", options={**options, "calibration": [(TOKENS,)]})
    with torch.no_grad(), pytest.raises(Exception, match=r"a calibration is for noyau\.optimize"):
        calibrated(TOKENS)


@pytest.mark.long
def test_with_gradients_weights_stay(planted, model):
    verdicts = []
    options = {"weights": "int8", "budget": 0.05, "verdicts": verdicts}
    torch.compile(model, backend="noyau", options=options)(TOKENS).sum().backward()
    assert "gradients are wanted" in verdicts[0]
    assert model.k.weight.grad is not None


def test_a_budget_that_none_keeps_says_by_how_much(planted, model):
    found = outcome(model, 2.0, 0.5, budget=1e-7)
    assert not found.weights
    assert found.record.reason.startswith("no choice could be kept: the outputs move by 0.0")
    assert all("the outputs move by" in each.reason for each in found.record.products)


@pytest.mark.long
def test_what_costs_most_is_undone_until_the_budget_holds(planted, model):
    with torch.no_grad():
        model.k.weight[:, 3] = 40  # every other input of a channel is lost beside it
    most = outcome(model, 2.0, 0.5, weights="int4", budget=9.0).record
    some = outcome(model, 2.0, 0.5, weights="int4", budget=most.error / 4).record
    assert (len(most.changed), len(some.changed)) == (2, 1)
    assert some.error <= most.error / 4
    undone = [each for each in some.products if not each.variant]
    assert all("the outputs move by" in each.reason for each in undone)


def test_forms_that_are_slower_stay_out_and_weights_as_they_were_need_no_budget(planted, model):
    found = outcome(model, 0.5, 2.0, 0.5, 2.0)
    assert not found.record.changed
    assert [each.reason for each in found.record.products] == ["8 bits by channel: SLOWER at rows=1: 0.50x"] * 2
    assert [each.products.form for each in found.kept] == [WeightForm()] * 2
    assert found.gain_s == pytest.approx(1.0, rel=0.01)
    none = outcome(model, 0.5, weights="none", budget=None)
    assert len(none.kept) == 2
    assert not none.weights
    graph, arguments = captured(model, TOKENS)
    with torch.no_grad():
        assert torch.allclose(none.module(*none.pick(arguments))[0], model(TOKENS), atol=1e-5)
        model.k.weight.mul_(2)  # what is not packed is read anew
        assert torch.allclose(none.module(*none.pick(arguments))[0], graph(*arguments)[0], atol=1e-5)


@pytest.mark.long
def test_a_calibration_takes_the_place_of_tokens_that_are_made_up(planted, model):
    calibration = [(torch.tensor([[at]]),) for at in range(3)]
    found = noyau.optimize(model, (TOKENS,), weights="int8", budget=0.05, calibration=calibration, **QUICK)
    assert (found.report.weights.rows, len(found.report.weights.changed)) == (3, 2)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"weights": "int3"}, "weights='int3' is none of none, auto, int8, int4"),
        ({"budget": 1e-2}, 'a budget and a calibration are for weights in few bits: give weights="auto" too'),
        ({"weights": "auto", "budget": "much"}, "the budget 'much' is neither same-tokens nor a number above 0"),
        (
            {"weights": "auto", "calibration": [(TOKENS,), (torch.tensor([[1, 2]]),)]},
            r"calibration 1 has int64\[1, 2\] where the inputs have int64\[1, 1\]: give it the same shapes",
        ),
    ],
)
def test_wishes_that_mean_nothing(planted, model, named, message):
    with pytest.raises(InputError, match=message):
        noyau.optimize(model, (TOKENS,), **named)


def test_on_a_cpu_it_says_where_to_go(planted, model, monkeypatch):
    monkeypatch.setattr(weights_module, "interprets", lambda: False)
    with pytest.raises(InputError, match=r"this one is on the CPU: move it there, or export it and run noyau optimize"):
        noyau.optimize(model, (TOKENS,), weights="int8")


def test_same_tokens_of_what_has_no_tokens(planted):
    found = outcome(nn.Linear(16, 16), 0.5, tokens=drawn(1, 1, 4, 16), budget=None)
    assert (
        found.record.reason
        == "no choice could be kept: no output is logits or tokens: give --budget 1e-2 in place of same-tokens"
    )


def test_a_kernel_that_is_wrong_is_none_to_take(planted, model):
    graph, arguments = captured(model, TOKENS)
    families, _ = row_products.families_of(graph.graph, arguments)
    first, rows = families[0], drawn(1, 16)
    packed = first.pack(WeightForm(8))
    certify(packed, rows, first)
    packed.packed[1][1][3] *= 1.01  # a scale, after it was packed
    right = packed.packed[1][1].clone()
    right[3] /= 1.01
    wrong = first.pack(WeightForm(8))
    call = wrong.call
    object.__setattr__(wrong, "call", lambda *given: call(*given[:-1], packed.packed[1][1]))
    with pytest.raises(CheckError, match=r"at \(0, 3\) of product 1 got .*, want .* \(float64\)"):
        certify(wrong, rows, first)


def gate_of(*inputs):
    """A family with a gate, and the graph and arguments that it is of."""
    graph, arguments = captured(Gated(nn.SiLU()).to(inputs[0].dtype).eval(), *inputs)
    return row_products.families_of(graph.graph, arguments)[0][0], graph, arguments


def test_a_gate_that_loses_leaves_its_products_to_a_launch_of_their_own(planted):
    _, graph, arguments = gate_of(drawn(1, 16))
    with torch.no_grad():
        found = [
            TorchWeightStage(graph, arguments, "none", None, clock=clock_of(*each)).run() for each in ((0.5,), (2, 0.5))
        ]
    assert [[each.products.gated for each in one.kept] for one in found] == [[True], [False]]


def test_a_gate_is_right_where_a_sigmoid_of_float32_is_0_and_wrong_elsewhere(planted):
    family, _, _ = gate_of(drawn(1, 16, dtype=torch.bfloat16))
    for each, value in zip(family.members, (-95, 100), strict=True):
        each.values.data.fill_(value / 16)
    certify(family.pack(WeightForm()), torch.ones(1, 16, dtype=torch.bfloat16), family)
    wrong, (first, _) = family.pack(WeightForm()), family.members
    first.values.data.fill_(1 / 16)
    object.__setattr__(wrong, "call", partial(lambda call, *given: call(*given) * 1.02, wrong.call))
    with pytest.raises(CheckError, match=r"at \(0, 0\) of product 0 got .*, want .* \(float64\)"):
        certify(wrong, torch.ones(1, 16, dtype=torch.bfloat16), family)


def test_large_halves_have_errors_too(planted, model):
    graph, arguments = captured(model.half(), TOKENS)
    (first, *_), _ = row_products.families_of(graph.graph, arguments)
    rows = 1000 * drawn(4, 16, dtype=torch.float16)
    plain, few = weights_module.judge(first, rows, [WeightForm(8)])
    assert 0 < max(plain) < 1e-3 < max(few) < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["none", "int8", "int4"])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_recording_on_a_gpu_has_the_kernels_of_few_rows(model, weights, rows, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(row_products, "LEAST_BYTES", 0)
    monkeypatch.setattr(weights_module, "TorchWeightStage", partial(TorchWeightStage, clock=clock_of(0.5)))
    model, tokens = model.to("cuda", torch.bfloat16), torch.arange(rows, device="cuda").view(1, rows)
    verdicts, budget = [], None if weights == "none" else 0.5
    options = {"weights": weights, "budget": budget, "verdicts": verdicts, "keep": "all"}
    compiled = torch.compile(model, backend=backend, options=options, dynamic=False)
    with torch.no_grad():
        want = model(tokens).float()
        for _ in range(12):  # noyau records in the sixth or so
            found = compiled(tokens).float()
            assert (found - want).abs().max() <= (0.5 if budget else 0.02) * want.abs().max()
    assert verdicts[0].startswith("2 launches of products of few rows")


class Deep(nn.Module):
    """Norms and products of few rows, one after another, which read what others have just written."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(2048) for _ in range(6))
        widths = ((2048, 5632), (2048, 5632), (5632, 2048))
        self.ways = nn.ModuleList(nn.ModuleList(nn.Linear(*each) for each in widths) for _ in range(6))

    def forward(self, x):
        for norm, (gate, up, down) in zip(self.norms, self.ways, strict=True):
            rows = norm(x)
            x = x + down(nn.functional.silu(gate(rows)) * up(rows))
        return x


@pytest.mark.gpu
@pytest.mark.parametrize("weights", ["none", "int8"])
@pytest.mark.parametrize("rows", [1, 5])
def test_launches_that_begin_early_have_the_bits_of_those_one_by_one(weights, rows, monkeypatch):
    monkeypatch.setattr(weights_module, "TorchWeightStage", partial(TorchWeightStage, clock=clock_of(0.5)))
    model, runs, x = Deep().to("cuda", torch.bfloat16), [], torch.empty(rows, 2048, device="cuda", dtype=torch.bfloat16)
    budget = None if weights == "none" else 0.5
    torch._dynamo.reset()
    for graphs in (True, False):
        options = {"weights": weights, "budget": budget, "keep": "all", "graphs": graphs}
        runs.append(torch.compile(model, backend=backend, options=options, dynamic=False))
        with torch.no_grad():
            for _ in range(12):
                x.normal_()
                runs[-1](x)
                torch.cuda.synchronize()
    with torch.no_grad():
        for _ in range(200):
            x.normal_()
            recorded, launched = (run(x) for run in runs)
            assert torch.equal(recorded, launched)


@pytest.mark.gpu
@pytest.mark.parametrize("form", [WeightForm(), *FORMS], ids=str)
@pytest.mark.parametrize(
    ("rows", "dtype"), [(1, torch.bfloat16), (1, torch.float32), (4, torch.float16), (16, torch.float32)]
)
def test_kernels_on_a_gpu_are_certified(form, rows, dtype):
    torch._dynamo.reset()
    holder, shapes = captured(Wide().to("cuda", dtype), drawn(rows, 2048, dtype=dtype).cuda()), (2048, 1027)
    families, _ = row_products.families_of(holder[0].graph, holder[1])
    (family,) = families
    assert tuple(len(each.values) for each in family.members) == shapes
    packed = family.pack(form)
    certify(packed, drawn(rows, 2048, dtype=dtype).cuda(), family)


class Wide(nn.Module):
    """Two products of one input, as large as those of models."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(2048, 2048, bias=False), nn.Linear(2048, 1027)

    def forward(self, x):
        return self.one(x), self.other(x)
