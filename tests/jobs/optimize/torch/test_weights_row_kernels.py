"""Kernels of few rows, in Triton's interpreter: right ones are kept where they win, wrong ones are found."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention

from noyau.codegen.triton.row_attention import RowAttention, source
from noyau.dtypes import DType
from noyau.errors import CheckError
from noyau.hosts.torch.modules import row_products
from noyau.jobs.optimize.torch import weights
from noyau.jobs.optimize.torch import weights as weights_module
from noyau.jobs.optimize.torch.weights import TorchWeightStage, certify_attention
from tests.hosts.torch.modules.test_row_products import captured, drawn
from tests.jobs.optimize.torch.test_weights import clock_of

CPU = torch.device("cpu")
KINDS = [
    RowAttention(1, 2, 1, 1, 70, 32, 0.25, DType.F32),
    RowAttention(2, 4, 1, 2, 40, 24, 0.2, DType.BF16, DType.BOOL),
    RowAttention(2, 2, 3, 1, 33, 16, 0.25, DType.F32, DType.F32, (99, 0, 33)),
    RowAttention(1, 2, 2, 2, 64, 16, 1.0, DType.F16, DType.BOOL, (0, 128, 64)),
]


@pytest.mark.parametrize("own", KINDS, ids=str)
def test_kernels_are_certified(own):
    certify_attention(own, CPU)


FAULTS = {
    "a part is left out": ("tl.max(seen.to(tl.int32), 0) > 0", "(tl.max(seen.to(tl.int32), 0) > 0) & (part == 0)"),
    "the largest score is that of the last tile": ("tl.maximum(most, tl.max(score, 0))", "tl.max(score, 0)"),
    "sums are not made less": ("acc * less[:, None], 0", "acc, 0"),
    "the scale is another one": (".to(tl.float32) * 0.25", ".to(tl.float32) * 0.2501"),
    "a mask is not asked": ("tl.where(seen, ", "tl.where(n < 40, "),
    "a row that sees nothing is NaN": ("tl.where(total == 0, 0.0, ", "tl.where(total < 0, 0.0, "),
    "keys of another head": ("(row // 1)", "(row // 1 % 2)"),
    "writes behind its result": ("tl.store(y + place * 16 + d,", "tl.store(y + (place + row // 3) * 16 + d,"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_kernels_are_found(fault, monkeypatch):
    monkeypatch.setattr(row_products.row_attention, "source", lambda own: spoiled(*source(own), *FAULTS[fault]))
    for name, count in (("_PROGRAMS", 12), ("_CELLS", 256)):  # three parts of up to three tiles
        monkeypatch.setattr(f"noyau.codegen.triton.row_attention.{name}", count)
    with pytest.raises(CheckError, match=r"of product 0 got|wrote"):
        certify_attention(RowAttention(2, 2, 1, 1, 120, 16, 0.25, DType.F32, DType.BOOL, (240, 120, 0)), CPU)


def spoiled(name, text, right, wrong):
    assert right in text
    return name + "s", text.replace(name, name + "s").replace(right, wrong)


class Reader(nn.Module):
    """Attention without a product, and twice."""

    def forward(self, query, keys, values):
        once = scaled_dot_product_attention(query, keys, values)
        return scaled_dot_product_attention(once * 2, keys, values)


@pytest.mark.parametrize(("seconds", "count"), [(0.5, 2), (2.0, 0)])
def test_attention_is_ours_where_it_is_faster(seconds, count):
    torch._dynamo.reset()
    given = [drawn(1, 2, n, 16, seed=at) for at, n in enumerate((1, 30, 30))]
    with torch.no_grad():
        graph, arguments = captured(Reader(), *given)
        found = TorchWeightStage(graph, arguments, "none", None, clock=clock_of(seconds)).run()
        assert len(found.kept) == count
        assert found.gain_s == pytest.approx(count * 0.5, rel=0.01)
        if count:
            assert torch.allclose(found.module(*found.pick(arguments))[0], Reader()(*given), atol=1e-5)


@pytest.mark.parametrize("error", [CheckError("at (0, 0)"), AssertionError()], ids=repr)
def test_a_kernel_that_is_wrong_or_does_not_run_leaves_attention_to_torch(error, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(weights, "certify_attention", lambda *_: (_ for _ in ()).throw(error))
    with torch.no_grad():
        found = captured(Reader(), *(drawn(1, 2, n, 16, seed=at) for at, n in enumerate((1, 30, 30))))
        assert not weights_module.TorchWeightStage(*found, "none", None, clock=clock_of(0.5)).run().kept


def test_attention_is_tried_on_the_gpu_that_some_arguments_are_on(monkeypatch):
    torch._dynamo.reset()
    tried, devices = [], [torch.device(each) for each in ("cpu", "cuda:0")]
    monkeypatch.setattr(weights_module, "attention_kernels", lambda sites, device, clock: (tried.append(device), 0.0))
    with torch.no_grad():
        graph, _ = captured(Reader(), *(drawn(1, 2, n, 16, seed=at) for at, n in enumerate((1, 30, 30))))
        with FakeTensorMode():
            arguments = [torch.empty(1, device=each) for each in (*devices, devices[1])]
        TorchWeightStage(graph, arguments, "none", None)._run()
    assert tried == devices[1:]


@pytest.mark.gpu
@pytest.mark.parametrize("length", [17, 1024, 5000])
@pytest.mark.parametrize("mask", [None, DType.BOOL, DType.BF16])
@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16, DType.F32])
def test_kernels_on_a_gpu_are_certified(length, mask, dtype):
    kind = dtype if mask is DType.BF16 else mask
    steps = (0, 0, 0) if kind is None else (length, 0, 0)
    for heads, share, depth in ((16, 1, 128), (14, 7, 64), (8, 1, 80)):
        own = RowAttention(2, heads, 1, share, length, depth, 0.1, dtype, kind, steps)
        certify_attention(own, torch.device("cuda"))
