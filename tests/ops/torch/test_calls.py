"""Ops on tensors: torch in, torch out."""

from __future__ import annotations

import threading
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.frontends.torch.tensors import TO_TORCH
from noyau.ops.torch_entry import tensor_calls
from tests.hosts.torch.kinds import doubled, embedding, peak, rmsnorm, scaled, softmax, spread
from tests.ops.dispatch.ops import forgetting


def test_tensors_give_tensors():
    x, weight = torch.randn(3, 4), torch.randn(4)
    made = rmsnorm(x, weight, eps=0.5)
    assert type(made) is torch.Tensor
    assert torch.allclose(made, x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt() * weight, atol=1e-6)
    assert torch.equal(rmsnorm(weight=weight, x=x, eps=0.5), made)
    most, at = peak(torch.tensor([1.0, 5.0, 2.0]))
    assert (most.item(), at.item(), most.dim()) == (5.0, 1, 0)


def test_numbers_and_sizes():
    assert scaled(2, torch.ones(3)).tolist() == [2, 2, 2]
    assert scaled(torch.tensor(0.5), torch.ones(3)).tolist() == [0.5] * 3
    assert spread(torch.ones(3, dtype=torch.float64), 2).tolist() == [3, 3]
    assert spread(torch.ones(3, dtype=torch.float64), 4).tolist() == [3, 3, 3, 3]


def test_constants_that_differ_in_each_call_keep_no_fast_call_each(monkeypatch):
    monkeypatch.setattr("noyau.ops.dispatch.calls.MOST_CONSTANTS", 2)
    x, weight = torch.randn(3, 4), torch.randn(4)
    for eps in (0.1, 0.2, 0.3, 0.4, 0.5):
        rmsnorm(x, weight, eps=eps)
    assert 1 <= len(tensor_calls(rmsnorm.calls).others) <= 2


def test_a_second_call_goes_through_the_fast_call_of_the_first():
    x = torch.randn(2, 3)
    doubled(x)
    calls = tensor_calls(doubled.calls)
    assert calls.plain[0]((x,)).equal(x * 2)
    calls.forget()
    assert calls.plain == ()
    assert doubled(x).equal(x * 2)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint16, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(dtype):
    x = torch.tensor([[1, 0, 1]]).to(dtype)
    assert doubled(x).dtype is dtype
    assert dtype in TO_TORCH.values()


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 3).T,
        torch.randn(3, 8)[:, ::2],
        torch.randn(3, 1).expand(3, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(0, 4),
        torch.zeros(3, 1),
        torch._neg_view(torch.randn(3, 4)),
        torch.nn.Parameter(torch.randn(3, 4), requires_grad=False),
    ],
    ids=["transposed", "strided", "expanded", "channels last", "no rows", "one column", "negated", "parameter"],
)
def test_however_the_cells_lie(x):
    for _ in range(2):
        assert torch.allclose(softmax(x), torch.softmax(x, -1))


def test_what_is_decided_while_an_op_forgets_has_no_fast_call(monkeypatch):
    x = torch.ones(2, 3)
    doubled.calls.forget()
    calls = tensor_calls(doubled.calls)
    with forgetting(doubled, monkeypatch):
        assert doubled(x).equal(x * 2)
    assert (calls.plain, calls.others) == ((), {})
    assert doubled(x).equal(x * 2)
    assert len(calls.plain) == 1


def test_inference_mode_and_modes():
    x = torch.randn(3, 4)
    with torch.inference_mode():
        assert softmax(x).is_inference()
    with torch.device("meta"):
        assert softmax(x).device.type == "cpu"
    assert softmax(x.to("meta")).shape == (3, 4)
    assert softmax(x.to("meta")).device.type == "meta"


def test_subclasses_stay_what_they_are():
    class Mine(torch.Tensor):
        pass

    assert type(softmax(torch.ones(3).as_subclass(Mine))) is Mine


def test_autocast_promotes_floats_that_differ():
    x, weight = torch.randn(3, 4).bfloat16(), torch.ones(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rmsnorm(x, weight).dtype is torch.float32
        assert rmsnorm(x, weight.bfloat16()).dtype is torch.bfloat16
        assert rmsnorm(x.requires_grad_(), weight).requires_grad
    with pytest.raises(SignatureError, match="weight: f32\\[4\\] does not fit float\\[n\\]"):
        rmsnorm(x, weight)


@pytest.fixture
def compile_whole():
    try:
        torch.compile(torch.neg, backend="aot_eager")
    except ImportError as error:
        if "triton" not in str(error):
            raise
        pytest.skip(f"this torch compiles nothing beside a Triton that is newer than it: {error}")
    return partial(torch.compile, fullgraph=True)


def test_autocast_reaches_what_is_compiled(compile_whole):
    compiled = compile_whole(lambda x, w: rmsnorm(x, w), backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(torch.randn(3, 4).bfloat16(), torch.ones(4)).dtype is torch.float32


def test_what_is_compiled_does_not_hang_on_the_modules_that_others_import(compile_whole):
    def model(x):
        return softmax(x * 2) + 1

    x, graphs = torch.randn(3, 4), []
    compiled = compile_whole(model, backend=lambda graph, _: graphs.append(graph) or graph)
    assert torch.allclose(compiled(x), torch.softmax(x * 2, -1) + 1)
    assert "torch.ops.noyau.softmax" in str(graphs[0].graph)
    (entry,) = torch._dynamo.eval_frame._debug_get_cache_entry_list(model)
    guards = str(entry.guard_manager)
    assert "is_traced" in guards
    assert "sys.modules" not in guards


def test_results_into_tensors():
    x, out = torch.randn(3, 4), torch.empty(4, 3).T
    assert softmax(x, out=out) is out
    assert torch.allclose(out, x.softmax(-1))
    with pytest.raises(InputError, match=r"softmax: out is torch.float32\[3, 5\], and the result is torch.float32"):
        softmax(x, out=torch.empty(3, 5))
    with pytest.raises(InputError, match="softmax: out is ndarray, and results on tensors are written to tensors"):
        softmax(x, out=np.empty((3, 4), np.float32))
    with pytest.raises(InputError, match="peak has 2 results, and out= has 1"):
        peak(torch.ones(3), out=torch.ones(()))
    with pytest.raises(InputError, match=r"peak: out\[1\] is torch.float32"):
        peak(torch.ones(3), out=(torch.ones(()), torch.ones(())))
    with pytest.raises(UnsupportedError, match="out= leaves nothing to record a gradient by; leave it out"):
        softmax(x.requires_grad_(), out=out)


def test_errors_are_those_of_arrays():
    with pytest.raises(SignatureError, match=r"x: f32\[3, 4\] binds .* weight: f32\[5\] does not fit"):
        rmsnorm(torch.ones(3, 4), torch.ones(5))
    with pytest.raises(InputError, match="an index is outside the axis"):
        embedding(torch.ones(3, 2), torch.tensor([4]))
    with pytest.raises(SignatureError, match="it has no parameter epsilon"):
        rmsnorm(torch.ones(3, 4), torch.ones(4), epsilon=1)


def test_as_written():
    x = torch.randn(3, 4)
    with noyau.reference():
        assert torch.allclose(softmax(x), x.softmax(-1))


def test_what_has_no_kernel_runs_as_its_reference_with_a_warning():
    @noyau.op("f64[n] -> f64[n]")
    def sorted_cells(x):
        return np.sort(x)

    with pytest.warns(noyau.ReferenceWarning, match="sorted_cells .* runs as its reference"):
        assert sorted_cells(torch.tensor([2.0, 1.0], dtype=torch.float64)).tolist() == [1, 2]


def test_a_kernel_of_ones_own_runs_on_tensors():
    @noyau.op("f32[n] -> f32[n]")
    def tripled(x):
        return 3 * x

    before = tripled(torch.ones(4))
    tripled.kernel(
        "#include <stdint.h>\n"
        "void k(const float *x, float *out, int64_t n) { for (int64_t i = 0; i < n; i++) out[i] = 4 * x[i]; }",
        language="c",
        entry="k",
        trust=True,
    )
    assert before.tolist() == [3] * 4
    assert tripled(torch.ones(4)).tolist() == [4] * 4
    x = torch.ones(4, requires_grad=True)
    tripled(x).sum().backward()
    assert x.grad.tolist() == [3] * 4
    tripled.kernel(lambda x: 5 * x, name="python", trust=True, returns=True)
    assert tripled(torch.ones(2, 2)[0]).tolist() == [4] * 2


def test_two_threads_in_a_first_call():
    @noyau.op("float[n] -> float[n]")
    def cubed(x):
        return x * x * x

    found, x = [], torch.full((5,), 2.0, requires_grad=True)

    def call():
        found.append(cubed(x))

    threads = [threading.Thread(target=call) for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [each.tolist() for each in found] == [[8.0] * 5] * 4
    sum(found).sum().backward()
    assert x.grad.tolist() == [48.0] * 5
