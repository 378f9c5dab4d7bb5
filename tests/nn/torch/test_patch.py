from __future__ import annotations

import copy
import io
import sys

import pytest
import torch

import noyau
from noyau.errors import InputError, MissingExtraError


class RootNorm(torch.nn.Module):
    """As transformers writes it."""

    def __init__(self, n, eps=1e-6, shift=0.0):
        super().__init__()
        self.weight, self.variance_epsilon, self.shift = torch.nn.Parameter(torch.rand(n)), eps, shift

    def forward(self, hidden_states):
        wide = hidden_states.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight + self.shift) * wide.to(hidden_states.dtype)


class SumNorm(RootNorm):
    """Looks the same, and computes something else."""

    def forward(self, hidden_states):
        return self.weight * hidden_states / (hidden_states.abs().sum(-1, keepdim=True) + self.variance_epsilon)


class Gated(torch.nn.Module):
    def __init__(self, n, act, exchanged=False):
        super().__init__()
        self.gate_proj, self.up_proj = torch.nn.Linear(n, 2 * n), torch.nn.Linear(n, 2 * n)
        self.down_proj, self.act_fn, self.exchanged = torch.nn.Linear(2 * n, n), act, exchanged

    def forward(self, x):
        gate, up = (self.up_proj, self.gate_proj) if self.exchanged else (self.gate_proj, self.up_proj)
        return self.down_proj(self.act_fn(gate(x)) * up(x))


def block(*more):
    torch.manual_seed(0)
    norms = RootNorm(16), RootNorm(16, shift=1.0), torch.nn.LayerNorm(16), torch.nn.RMSNorm(16)
    return torch.nn.Sequential(*norms, Gated(16, torch.nn.SiLU()), Gated(16, torch.nn.GELU()), torch.nn.GELU(), *more)


def gradients(model, x):
    x = x.clone().requires_grad_()
    found = model(x)
    return [found, *torch.autograd.grad(found.square().sum(), [x, *model.parameters()])]


OPS = ["rms_norm", "rms_norm", "layer_norm", "rms_norm", "swiglu", "geglu", "gelu"]


def test_what_computes_the_same_calls_the_op_forward_and_backward():
    model, x = block(), torch.randn(3, 5, 16)
    wanted, state = gradients(model, x), copy.deepcopy(model.state_dict())
    classes = [type(each) for each in model]
    record = noyau.patch(model)
    assert [each.op for each in record.swapped] == OPS
    assert record.left == ()
    assert str(record).startswith("7 modules call ops of noyau\n0 (RootNorm): rms_norm\n")
    for one, other in zip(gradients(model, x), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state)
    assert noyau.patch(model).swapped == ()
    noyau.unpatch(model)
    assert [type(each) for each in model] == classes
    assert all(torch.equal(one, other) for one, other in zip(gradients(model, x), wanted, strict=True))


def test_the_ops_are_called(monkeypatch):
    called = []
    for name in set(OPS):
        op = getattr(noyau.nn, name)

        def call(*given, name=name, op=op, **said):
            called.append(name)
            return op(*given, **said)

        monkeypatch.setattr(f"noyau.nn.{name}", call)
    model = block()
    with noyau.patch(model), torch.no_grad():
        model(torch.randn(2, 16))
    assert called == OPS
    with torch.no_grad():
        model(torch.randn(2, 16))
    assert called == OPS


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (SumNorm(16), "it does not compute an RMSNorm"),
        (Gated(16, torch.nn.SiLU(), exchanged=True), "it does not compute down(act(gate(x)) * up(x))"),
        (Gated(16, torch.nn.ReLU()), "its activation is neither silu nor gelu"),
        (torch.nn.LayerNorm(16, bias=False), "it has no bias"),
        (torch.nn.LayerNorm((3, 16)), "its weight has not one axis"),
        (torch.nn.SiLU(inplace=True), "it writes into its input"),
        (torch.nn.BatchNorm1d(16), "it is no norm of one weight and an eps"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_only_looks_alike_is_left_and_the_record_says_why(module, reason):
    model = torch.nn.Sequential(module)
    record = noyau.patch(model)
    assert type(model[0]) is type(module)
    assert [each.reason for each in record.left if each.module == "0"] == [reason]
    assert f"0 ({type(module).__name__}) is left: {reason}" in str(record)


def test_what_fails_when_it_is_tried_and_what_was_replaced_before_are_left():
    class FailingNorm(RootNorm):
        def forward(self, hidden_states):
            raise RuntimeError("not on this machine")

    replaced = RootNorm(16)
    replaced.forward = lambda x: x
    record = noyau.patch(torch.nn.Sequential(FailingNorm(16), replaced))
    told = [each.reason for each in record.left]
    assert told == ["it could not be tried: RuntimeError: not on this machine", "its forward was replaced already"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float64, marks=pytest.mark.long)])
def test_other_dtypes(dtype):
    model, x = block().to(dtype), torch.randn(4, 16, dtype=dtype)
    exact = copy.deepcopy(model).double()(x.double())
    noyau.patch(model)
    found = model(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=0.1 if dtype == torch.bfloat16 else 1e-5)


def test_what_no_op_takes_runs_as_it_was():
    model, x = torch.nn.Sequential(RootNorm(16), torch.nn.LayerNorm(16)), torch.randn(4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = model(x)
        noyau.patch(model)
        assert torch.equal(model(x), wanted)
    half = RootNorm(16)
    wanted = half(x.bfloat16())
    noyau.patch(half)
    assert torch.equal(half(x.bfloat16()), wanted)
    torch.testing.assert_close(half(hidden_states=x), half(x))


def test_copies_and_pickles_are_patched_too_and_can_be_put_back():
    model = block()
    noyau.patch(model)
    other = copy.deepcopy(model)
    assert other[0].weight is not model[0].weight
    assert type(other[0]) is type(model[0])
    linear = torch.nn.Sequential(torch.nn.LayerNorm(4))
    noyau.patch(linear)
    buffer = io.BytesIO()
    torch.save(linear, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    noyau.unpatch(loaded)
    assert type(loaded[0]) is torch.nn.LayerNorm


def test_within_a_compiled_model():
    model, x = torch.nn.Sequential(RootNorm(16), torch.nn.LayerNorm(16), Gated(16, torch.nn.SiLU())), torch.randn(3, 16)
    wanted = gradients(model, x)
    with noyau.patch(model):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        for one, other in zip(gradients(compiled, x), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def small_llama(**said):
    transformers = pytest.importorskip("transformers", reason="transformers is of the extra export")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=50, num_key_value_heads=2, **sizes, **said)
    return transformers.LlamaForCausalLM(config)


def test_a_llama_of_transformers():
    model = small_llama()
    ids = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))

    def run():
        found = model(input_ids=ids, labels=ids)
        return [found.loss, found.logits, *torch.autograd.grad(found.loss, list(model.parameters()))]

    wanted, kind = run(), type(model)
    with noyau.patch(model) as record:
        ops = [each.op for each in record.swapped]
        assert {op: ops.count(op) for op in set(ops)} == {"rms_norm": 5, "swiglu": 2, "rope": 2, "cross_entropy": 1}
        assert record.left == ()
        for one, other in zip(run(), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
        assert type(model).__name__ == kind.__name__
    assert type(model) is kind
    assert all(torch.equal(one, other) for one, other in zip(run(), wanted, strict=True))


@pytest.mark.long
def test_a_llama_within_torch_compile():
    model = small_llama()
    ids = torch.arange(6).reshape(2, 3)
    wanted = model(input_ids=ids, labels=ids)
    with noyau.patch(model):
        found = torch.compile(model, backend="aot_eager")(input_ids=ids, labels=ids)
        torch.testing.assert_close(found.loss, wanted.loss)
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)


def test_another_model_of_the_same_class_is_left_alone():
    one, other = small_llama(), small_llama()
    noyau.patch(one)
    assert type(other.model.layers[0].self_attn) is not type(one.model.layers[0].self_attn)
    rotate = sys.modules[type(other.model).__module__].apply_rotary_pos_emb
    assert rotate.__module__.startswith("transformers")


def test_a_gpt2_of_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers is of the extra export")
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.arange(7)[None]
    wanted = model(ids).logits
    ops = [each.op for each in noyau.patch(model).swapped]
    assert {op: ops.count(op) for op in set(ops)} == {"layer_norm": 3, "gelu": 1, "cross_entropy": 1}
    torch.testing.assert_close(model(ids).logits, wanted, rtol=1e-4, atol=1e-5)


def test_what_is_no_module_is_refused():
    with pytest.raises(InputError, match=r"noyau.patch takes a torch.nn.Module, not a str"):
        noyau.patch("llama")
    with pytest.raises(InputError, match=r"noyau.unpatch takes a torch.nn.Module, not a int"):
        noyau.unpatch(3)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'noyau-kernels\[torch\]'"):
        noyau.patch(torch.nn.SiLU())
