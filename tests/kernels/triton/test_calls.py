from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import DeviceError, SignatureError, UnsupportedError
from noyau.kernels.call import HostTensor
from noyau.kernels.cuda_grids import device_properties, where
from noyau.kernels.triton.calls import TritonKernel, as_grid
from noyau.kernels.triton.parameters import is_interpreted
from noyau.kernels.user_kernel import GPU, choose_constants
from noyau.signatures.instances import bind
from tests.kernels import triton_ops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
can_run = pytest.mark.skipif(
    DEVICE == "cpu" and not is_interpreted(triton_ops.blocks),
    reason="triton was imported before it was asked to interpret",
)


def made(op, name, *given, constants=(), **known):
    arrays = [each.cpu().numpy() if isinstance(each, torch.Tensor) else each for each in given]
    bound = bind(op.signature, arrays, op.known_sizes(op.description.reference.constants), op.name)
    return TritonKernel(choose_constants(op.kernels[name], constants), bound.instance, known)


def vector(count):
    return torch.arange(count, dtype=torch.float32, device=DEVICE)


def test_a_grid_may_hang_on_a_run_time_scalar():
    op, x = noyau.op("f32[n], f32 -> f32[n]")(triton_ops.scaled.reference), vector(5)
    op.kernel(triton_ops.blocks, name="k", launch=lambda by: (int(by),), constants={"BLOCK": 64})
    kernel = made(op, "k", x, 3.0)
    assert [kernel.plan([x, by], x.device).grid for by in (3.0, 2.0, 3.0)] == [(3,), (2,), (3,)]


@can_run
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("name", ["blocks", "on_a_copy"])
def test_results_are_new_tensors(name, count):
    x = vector(count)
    (out,) = made(triton_ops.scaled, name, x, 3.0)(x, 3.0)
    assert torch.equal(out, 3 * vector(count))
    assert torch.equal(x, vector(count))


@can_run
def test_a_constant_is_chosen_of_a_list():
    x = vector(100)
    kernel = made(triton_ops.scaled, "blocks", x, 2.0, constants=[("BLOCK", 128)])
    kernel(x, 2.0)
    (plan,) = kernel.plans.values()
    assert plan.grid == (1,)
    assert plan.named == {"BLOCK": 128, "num_warps": 8}


@can_run
def test_what_is_found_out_is_kept_for_calls_that_are_alike():
    x = vector(100)
    kernel = made(triton_ops.scaled, "blocks", x, 2.0)
    for by in (2.0, 3.0):
        assert torch.equal(kernel(x, by)[0], by * x)
    assert len(kernel.plans) == 1
    kernel(vector(101), 2.0)
    assert len(kernel.plans) == 2


@can_run
def test_strided_tensors_are_packed_unless_strides_are_asked_for():
    x = vector(200)[::2]
    assert torch.equal(made(triton_ops.scaled, "blocks", x, 2.0)(x, 2.0)[0], 2 * x)
    turned = torch.arange(12.0, device=DEVICE).reshape(3, 4).t()
    kernel = made(triton_ops.row_sums, "by_rows", turned)
    assert torch.equal(kernel(turned)[0], turned.sum(-1))
    (plan,) = kernel.plans.values()
    assert plan.arguments[-2:] == (1, 4)


@can_run
def test_what_is_updated_is_a_copy():
    x = vector(10)
    (out,) = made(triton_ops.doubled, "over", x)(x)
    assert torch.equal(out, 2 * vector(10))
    assert torch.equal(x, vector(10))


def test_a_grid_is_one_to_three_numbers():
    assert as_grid(5, "k") == (5,)
    assert as_grid([5, 2], "k") == (5, 2)
    with pytest.raises(DeviceError, match="k: a launch has 70000 programs along y, and CUDA takes 65535"):
        as_grid((1, 70000), "k")
    for wrong in ((), (1, 2, 3, 4), 2.5, (-1,), (True,), "n"):
        with pytest.raises(SignatureError, match="in triton it gives programs along one to three axes"):
            as_grid(wrong, "op[k]")


def test_without_a_gpu_a_named_one_is_assumed():
    assert device_properties(torch.device("cpu")) is GPU
    assert "assumed" in GPU.model
    if not torch.cuda.is_available():
        assert where() == ""


@pytest.mark.skipif(is_interpreted(triton_ops.blocks), reason="triton interprets here")
def test_tensors_of_the_cpu_are_refused():
    x = torch.arange(3.0)
    with pytest.raises(UnsupportedError, match="its tensors lie on the CPU; move them to a GPU, or set"):
        made(triton_ops.scaled, "blocks", x, 2.0)(x, 2.0)


@pytest.mark.gpu
def test_a_tuner_chooses_on_a_gpu():
    x = vector(1000)
    assert torch.equal(made(triton_ops.scaled, "tuned", x, 2.0)(x, 2.0)[0], 2 * x)
    assert device_properties(x.device).sm_count == torch.cuda.get_device_properties(0).multi_processor_count


def test_an_array_stands_in_for_a_tensor_of_its_memory():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tensor, twin = HostTensor(array.T), torch.from_numpy(array).T
    assert (tensor.shape, tensor.stride(), tensor.stride(1)) == (twin.shape, twin.stride(), twin.stride(1))
    assert (tensor.data_ptr(), tensor.device.type, tensor.numel()) == (twin.data_ptr(), "cpu", 12)
    assert not tensor.is_contiguous()
    spread = HostTensor(np.broadcast_to(array[:, :1], (3, 5)))
    assert (spread.shape, spread.stride()) == ((3, 5), (1, 0))  # packed, of what it sees once
    assert spread.data_ptr() != array.__array_interface__["data"][0]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tensor.nothing  # noqa: B018
