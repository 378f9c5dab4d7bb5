from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.sanitizer.scripts.triton_host import GPU, torch_stood_in


@pytest.fixture
def calls():
    seen = []
    with torch_stood_in(lambda function, args, named, made: seen.append(function.__name__)):
        yield seen


def test_tensors_that_are_asked_of_a_gpu_say_that_they_lie_there(calls):
    made = torch.zeros(3, device="cuda:0")
    assert (made.device, made.is_cuda, made.get_device()) == (GPU, True, 0)
    for each in (made + 1, made[1:], made[None].T, torch.empty_like(made), torch.stack([made, made])):
        assert each.device == GPU
    plain = torch.zeros(3)
    assert (plain.device.type, plain.is_cuda) == ("cpu", False)
    assert torch.zeros_like(made, device="cpu").device.type == "cpu"
    assert "zeros" in calls


def test_a_move_is_a_copy(calls):
    plain = torch.zeros(3)
    for there in (plain.cuda(), plain.to("cuda"), plain.to(GPU, torch.float64), plain.to(device="cuda")):
        there.add_(1)
        assert there.is_cuda
        back = there.cpu()
        assert not back.is_cuda
        assert there.to("cpu").device.type == "cpu"
        back.add_(1)
        assert there.tolist() == [1, 1, 1]
    assert plain.tolist() == [0, 0, 0]
    assert there.cuda() is there
    assert there.to(torch.float16).is_cuda
    assert plain.to(there).is_cuda
    assert plain.pin_memory() is plain


def test_parameters_and_models_lie_where_their_data_does(calls):
    assert torch.nn.Parameter(torch.ones(3).cuda()).is_cuda
    assert not torch.nn.Parameter(torch.ones(3)).is_cuda
    model = torch.nn.Linear(3, 2).cuda()
    assert (model.weight.is_cuda, model.bias.requires_grad) == (True, True)
    assert model(torch.ones(1, 3, device="cuda")).is_cuda
    model.weight.data = torch.zeros(2, 3)
    assert not model.weight.is_cuda
    assert not model.cpu().bias.is_cuda


def test_what_is_said_to_torch_cuda(calls):
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_properties(0).multi_processor_count == 2
    assert torch.cuda.get_device_capability() == (9, 0)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        start.record()
    stop.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(stop) >= 0
    assert torch.rand(3, generator=torch.Generator("cuda"), device="cuda").is_cuda


def test_what_asks_a_driver_is_answered_without_one(calls):
    torch.cuda.set_rng_state(torch.cuda.get_rng_state())
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
    assert (torch.cuda.get_arch_list(), torch.cuda.is_current_stream_capturing()) == (["sm_90"], False)
    weight = torch.nn.Parameter(torch.ones(3, device="cuda"))
    steps = torch.optim.AdamW([weight], lr=0.5, weight_decay=0.0), torch.optim.SGD([weight], lr=0.5)
    torch.utils.checkpoint.checkpoint(torch.sin, weight, use_reentrant=False).sum().backward()
    for each in steps:
        each.step()
    torch.testing.assert_close(weight.detach().cpu(), torch.full((3,), 0.5 - 0.5 * 0.5403023))


def test_what_autograd_makes_or_keeps_lies_on_the_gpu(calls):
    kept = []
    weight = torch.ones(3, device="cuda", requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.device.type), x)[1], lambda x: x):
        torch.exp(torch.sin(weight)).sum().backward()
    torch.utils.checkpoint.checkpoint(torch.exp, weight, use_reentrant=False).sum().backward()
    assert set(kept) == {"cuda"}
    cells = torch.ones(3)
    there = torch.as_tensor(cells, device="cuda")
    there += 1
    assert torch.func.vmap(lambda row: row.sin())(there[None]).any()
    nothing = torch.empty(0, device="cuda")
    assert nothing.is_cuda and not torch.empty(0).is_cuda and there.to_sparse().is_cuda
    assert there.is_cuda and not cells.is_cuda and cells.tolist() == [1, 1, 1]


def test_the_default_device(calls):
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).is_cuda
    assert not torch.zeros(2).is_cuda


def test_a_gradient(calls):
    weight = torch.ones(3, device="cuda", requires_grad=True)
    (2 * weight).sum().backward()
    assert weight.grad.tolist() == [2, 2, 2]


def test_all_is_as_before_afterwards():
    before = torch.cuda.is_available, torch.Generator
    with torch_stood_in(lambda *_: None):
        assert torch.cuda.is_available is not before[0]
    assert (torch.cuda.is_available, torch.Generator) == before


def test_arrays_and_views_of_tensors_on_the_host_stay_there(calls):
    cells, there = np.zeros(3, np.float32), torch.ones(3, device="cuda")
    for copy in (torch.as_tensor, torch.asarray):
        moved = copy(cells, device="cuda")
        moved.add_(1)
        assert moved.is_cuda
        assert not torch.from_numpy(cells).is_cuda
    assert cells.tolist() == [0, 0, 0]
    for function in (torch.Tensor.expand_as, torch.Tensor.reshape_as, torch.Tensor.view_as):
        plain = torch.zeros(3)
        assert not function(plain, there).is_cuda
        assert not plain.is_cuda
        assert function(there, plain).is_cuda
