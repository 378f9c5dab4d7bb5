"""Products of few rows as kernels: packed weights, the kernels in Triton's interpreter, and graphs that call them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from noyau.codegen.triton.row_products import FORMS, RowProducts, WeightForm
from noyau.dtypes import DType
from noyau.hosts.torch.modules import row_products
from noyau.hosts.torch.modules.row_products import (
    OPERATOR,
    families_of,
    launch_products,
    pack,
    packed_products,
    unpack,
    with_products,
)
from noyau.jobs.optimize.torch.weights import certify, tables_of

DTYPES = {DType.F32: torch.float32, DType.F16: torch.float16, DType.BF16: torch.bfloat16}


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_packed_weights_are_within_half_a_step_of_what_they_were(form, dtype):
    weight = drawn(5, 200, dtype=dtype)
    weight[1], weight[2, 0] = 0, 50
    found = unpack(pack(weight, form), form, 200)
    step = weight.double().abs().amax(dim=1, keepdim=True) / (2 ** (form.bits - 1) - 1)
    assert found.shape == weight.shape
    assert ((found - weight.double()).abs() <= step * (0.5 + 0.02 * (form.bits == 4))).all()
    assert (found[1] == 0).all()


def test_cells_in_words_are_those_that_lie_one_by_one():
    weight, form = drawn(5, 64), WeightForm(8)
    (words, scales), (cells, same) = pack(weight, form, has_words=True), pack(weight, form)
    assert (words.shape, words.dtype) == ((5, 16), torch.int32)
    assert torch.equal(words >> 24 & 255, cells[:, 48:].int())
    assert torch.equal(unpack((words, scales), form, 64), unpack((cells, same), form, 64))


def test_a_large_cell_spoils_its_own_group_alone():
    weight, form = drawn(3, 256), WeightForm(4, 32)
    spoiled = weight.clone()
    spoiled[:, 200] = 1000
    one, other = (unpack(pack(each, form), form, 256) for each in (weight, spoiled))
    assert torch.equal(one[:, :192], other[:, :192])
    assert torch.equal(one[:, 224:], other[:, 224:])


@pytest.mark.parametrize("form", [WeightForm(), *FORMS[:1], FORMS[-1]], ids=str)
@pytest.mark.parametrize(
    ("rows", "depth", "widths", "biased", "dtype"),
    [
        (1, 96, (9, 4), (True, False), DType.BF16),
        (1, 64, (8,), (False,), DType.F32),
        (1, 2048, (9, 8), (True, False), DType.BF16),
        (1, 6144, (5,), (False,), DType.F16),
        (3, 100, (17,), (True,), DType.F32),
        (16, 64, (16, 5), (False, True), DType.F16),
    ],
)
def test_kernels_are_right_on_the_packed_weights(form, rows, depth, widths, biased, dtype):
    weights = [drawn(width, depth, dtype=DTYPES[dtype], seed=at) for at, width in enumerate(widths)]
    biases = [
        drawn(width, dtype=DTYPES[dtype], seed=7) if has else None for width, has in zip(widths, biased, strict=True)
    ]
    products = RowProducts(form, rows, depth, widths, biased, dtype)
    packed, x = packed_products(products, weights), drawn(rows, depth, dtype=DTYPES[dtype], seed=9)
    pairs = ((None if form.bits else weight, bias) for weight, bias in zip(weights, biases, strict=True))
    operands = [each for pair in pairs for each in pair if each is not None]
    results = OPERATOR(x, operands, packed.key)
    assert len(results) == len(widths)
    for weight, bias, own, result in zip(weights, biases, packed.packed, results, strict=True):
        exact = x.double() @ unpack(own or (weight,), form, depth).T + (0 if bias is None else bias.double())
        terms = x.double().abs() @ unpack(own or (weight,), form, depth).abs().T
        allowed = torch.finfo(x.dtype).eps * exact.abs() + 2.0**-24 * (depth + 8) * terms + 1e-30
        assert result.dtype == x.dtype
        assert ((result.double() - exact).abs() <= allowed).all()


class Block(nn.Module):
    """Three products of one input, of which one has a bias, and one of another."""

    def __init__(self, width=16):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=at == 1) for at in range(4))
        self.turned = nn.Parameter(drawn(width, width))
        self.shift = nn.Parameter(drawn(width))

    def forward(self, x):
        y = self.o(self.q(x) * torch.relu(self.k(x)) + self.v(x))
        return torch.addmm(self.shift, y.view(-1, 16), self.turned)


def captured(module, *inputs):
    """The graph that dynamo captures, and its arguments."""
    found = []

    def backend(graph, arguments):
        found.append((graph, arguments))
        return graph.forward

    with torch.no_grad():
        torch.compile(module, backend=backend)(*inputs)
    return found[0]


@pytest.fixture
def small(monkeypatch):
    """Products of all sizes are taken."""
    monkeypatch.setattr(row_products, "LEAST_BYTES", 0)


@pytest.mark.parametrize("form", [WeightForm(), WeightForm(8)], ids=str)
def test_families_are_one_product_each_in_a_graph(small, form):
    torch._dynamo.reset()
    module, x = Block().eval(), drawn(1, 2, 16)
    graph, arguments = captured(module, x)
    families, reasons = families_of(graph.graph, arguments)
    assert [each.name for each in families] == ["q + k + v", "o", "turned"]
    assert not reasons
    families = families[: 3 if form.bits else 2]  # weights that are turned are packed alone
    chosen = {each: each.pack(form) for each in families}
    after, places = with_products(graph, chosen)
    assert len(places) == len(arguments) - (5 if form.bits else 0)
    result = after(*(arguments[at] for at in places))[0]
    with torch.no_grad():
        assert torch.allclose(result, module(x), atol=0.2 if form.bits else 1e-5)
    launch_products(after)
    assert not after.graph.find_nodes(op="call_function", target=OPERATOR)
    assert torch.equal(after(*(arguments[at] for at in places))[0], result)


class Gated(nn.Module):
    """Two products of one input, of which one opens the other."""

    def __init__(self, act):
        super().__init__()
        self.gate, self.up, self.act = nn.Linear(16, 12), nn.Linear(16, 12, bias=False), act

    def forward(self, x):
        return self.up(x) * self.act(self.gate(x))


@pytest.mark.parametrize(("form", "rows"), [(WeightForm(), 1), (FORMS[0], 3), (FORMS[-1], 1)], ids=str)
def test_a_gate_is_in_the_launch_of_its_products(small, form, rows):
    torch._dynamo.reset()
    module, x = Gated(nn.SiLU()).eval(), 3 * drawn(rows, 16)
    graph, arguments = captured(module, x)
    (family,), _ = families_of(graph.graph, arguments)
    own = family.pack(form)
    certify(own, x, family)
    after, places = with_products(graph, {family: own})
    assert family.gate and not any(node.name == family.gate[1].name for node in after.graph.nodes)
    result = after(*(arguments[at] for at in places))[0]
    weights = [own.packed[at] or (family.members[at].values,) for at in (0, 1)]
    gate, up = (x.double() @ unpack(each, form, 16).T for each in weights)
    want = module.act(gate + module.gate.bias.double()) * up
    assert torch.allclose(result.double(), want, rtol=1e-5, atol=1e-6)
    launch_products(after)
    assert torch.equal(after(*(arguments[at] for at in places))[0], result)


@pytest.mark.parametrize("first", [Gated(nn.SiLU()), nn.Linear(16, 12)], ids=["gate", "product"])
def test_products_may_read_what_products_make(small, first):
    torch._dynamo.reset()
    module, x = nn.Sequential(first, nn.Linear(12, 16)).eval(), drawn(1, 16)
    graph, arguments = captured(module, x)
    kernels = {each: each.pack(WeightForm()) for each in families_of(graph.graph, arguments)[0]}
    after, places = with_products(graph, kernels)
    assert len(after.graph.find_nodes(op="call_function", target=OPERATOR)) == 2
    assert torch.allclose(after(*(arguments[at] for at in places))[0], module(x), atol=1e-5)


@pytest.mark.parametrize("act", [nn.ReLU(), nn.GELU(), nn.SiLU(inplace=True)], ids=str)
def test_other_activations_stay_outside(small, act):
    torch._dynamo.reset()
    graph, arguments = captured(Gated(act), drawn(1, 16))
    families, _ = families_of(graph.graph, arguments)
    assert not families[0].gate


def test_arguments_by_keyword_are_those_by_place(small):
    class Worded(Block):
        def forward(self, tokens):
            x = torch.nn.functional.embedding(weight=self.turned, input=tokens)
            y = torch.nn.functional.linear(bias=self.k.bias, weight=self.k.weight, input=x)
            return torch.nn.functional.linear(y, weight=self.q.weight)

    torch._dynamo.reset()
    graph, arguments = captured(Worded(), torch.tensor([[3, 1]]))
    families, reasons = families_of(graph.graph, arguments)
    assert [each.name for each in families] == ["k", "q"]
    assert [each.members[0].bias is None for each in families] == [False, True]
    assert not reasons
    assert [count for _, count in tables_of(graph.graph)] == [16]


def test_what_changes_the_rows_between_products_parts_them(small):
    class Changing(Block):
        def forward(self, x):
            y = self.q(x)
            x.mul_(2)
            return y + self.k(x)

    torch._dynamo.reset()
    graph, arguments = captured(Changing(), drawn(1, 16))
    families, _ = families_of(graph.graph, arguments)
    assert [each.name for each in families] == ["q", "k"]


def spoil(module):
    module.q.weight.data[0, 0] = torch.nan
    module.o.weight.data[0, 0] = torch.inf


class OwnTensor(torch.Tensor):
    """As a library has weights that are packed already."""


def test_products_that_are_left_as_they_are_have_a_reason(small):
    torch._dynamo.reset()
    module, x = Block(), drawn(1, 16)
    spoil(module)
    graph, arguments = captured(module, x)
    at = next(
        at
        for at, each in enumerate(graph.graph.find_nodes(op="placeholder"))
        if "_k_" in each.name and "weight" in each.name
    )
    arguments = [*arguments]
    arguments[at] = arguments[at].detach().as_subclass(OwnTensor)
    families, reasons = families_of(graph.graph, arguments)
    assert [each.name for each in families] == ["v", "turned"]
    assert reasons == {
        "q": "its weights have NaN or infinities",
        "k": "its weights are a OwnTensor, and no plain parameter",
        "o": "its weights have NaN or infinities",
    }


def test_many_rows_and_small_weights_are_none_of_them():
    torch._dynamo.reset()
    graph, arguments = captured(Block(), drawn(17, 16))
    assert families_of(graph.graph, arguments) == ([], {})
