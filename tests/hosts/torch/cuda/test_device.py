"""What goes wrong on a GPU: one line each, and no GPU is needed to read them."""

from __future__ import annotations

import re
import warnings

import pytest
import torch

import noyau
from noyau.errors import DeviceError, UnsupportedError
from noyau.hosts.torch.cuda import device as cuda_device

CUDA = torch.device("cuda:0")


class OutOfResources(Exception):
    """As Triton has it."""

    def __init__(self, required, limit, name):
        self.required, self.limit, self.name = required, limit, name


def test_out_of_memory_names_the_op_and_its_bytes():
    made = [((1 << 20, 1 << 10), torch.float32), ((7,), torch.bool)]
    want = r"softmax needs 4 GiB \(4294967303 bytes\) on cuda:0 for float32\[1048576, 1024\], bool\[7\], and they "
    with pytest.raises(torch.OutOfMemoryError, match=want), cuda_device.device_errors("softmax", CUDA, made):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has ...")


def test_out_of_memory_is_told_once_by_what_asked_for_it():
    with (
        pytest.raises(torch.OutOfMemoryError) as caught,
        cuda_device.device_errors("a compiled graph", CUDA),
        cuda_device.device_errors("softmax", CUDA),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has ...")
    assert str(caught.value) == (
        "softmax needs more memory than cuda:0 has (CUDA out of memory. Tried to allocate 4.00 GiB); "
        "free tensors, or give it a part at a time"
    )


def test_another_allocators_words_are_told_up_to_their_first_end():
    want = r"cuda:0 has \(nothing is left\); free tensors"
    with pytest.raises(torch.OutOfMemoryError, match=want), cuda_device.device_errors("softmax", CUDA):
        raise torch.OutOfMemoryError("nothing is left. Ask again.")


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (
            OutOfResources(300000, 232448, "shared memory"),
            "300000 bytes of shared memory a program, and cuda:0 has 232448",
        ),
        (OutOfResources(2048, 1024, "threads"), "2048 threads a program, and cuda:0 has 1024; give smaller tiles"),
        (OutOfResources(9, 8, "tensor memory"), "9 of tensor memory a program, and cuda:0 has 8"),
        (
            RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
            r"trapped \(illegal memory access\), and the context of this process is lost: .* started again.*sanitizer",
        ),
        (
            RuntimeError("Triton Error [CUDA]: operation not supported on global/shared address space"),
            r"trapped \(operation not supported on global/shared address space\), and the context",
        ),
        (
            RuntimeError("CUDA error: device-side assert triggered"),
            r"f: .* on cuda:0 before trapped \(device-side",
        ),
    ],
)
def test_limits_and_lost_contexts(error, want):
    with pytest.raises(DeviceError, match=want), cuda_device.device_errors("f", CUDA):
        raise error


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match=r"^something else$"), cuda_device.device_errors("f", CUDA):
        raise RuntimeError("something else")


def test_a_lost_context_is_told_in_an_ops_first_call(monkeypatch):
    @noyau.op("f32[n] -> f32[n]")
    def lost(x):
        return x * 2

    def fails(called):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(cuda_device, "require_free", fails)
    monkeypatch.setattr("noyau.ops.torch.calls.device_of", lambda given: "cuda:0")
    with pytest.raises(DeviceError, match=r"lost: a kernel that ran on cuda:0 before trapped .* until the process is"):
        lost(torch.ones(3))


def test_a_lost_context_is_told_where_a_gradient_is_first_asked_for(monkeypatch):
    @noyau.op("f32[n] -> f32[n]")
    def lost(x):
        return x * x

    def fails(called):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    x = torch.ones(3, requires_grad=True)
    made = lost(x)
    monkeypatch.setattr(cuda_device, "require_free", fails)
    monkeypatch.setattr("noyau.ops.torch.graph_kernels.device_of", lambda given: "cuda:0")
    with pytest.raises(
        DeviceError, match=r"lost_backward: a kernel that ran on cuda:0 before trapped .* started again"
    ):
        made.sum().backward()


def test_errors_of_noyaus_own_stay_as_they_are():
    with pytest.raises(UnsupportedError, match=r"^illegal memory access$"), cuda_device.device_errors("f", CUDA):
        raise UnsupportedError("illegal memory access")


def test_a_grid_beyond_what_cuda_takes():
    cuda_device.require_grid("f", (2**31 - 1, 65535, 65535))
    with pytest.raises(DeviceError, match="f: a launch has 65536 programs along y, and CUDA takes 65535; give"):
        cuda_device.require_grid("f", (1, 65536))


def test_nothing_is_built_during_a_capture(monkeypatch):
    cuda_device.require_free("f")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(
        UnsupportedError, match=r"f: a CUDA graph is being captured, .* call it once before the capture"
    ):
        cuda_device.require_free("f")


def test_without_a_device_one_line_says_why():
    if torch.cuda.is_available():
        assert cuda_device.absence() == ""
    else:
        assert re.fullmatch(
            "this torch .* is built without CUDA.*|no CUDA device can be used by .*", cuda_device.absence()
        )
        assert cuda_device.missing_device(CUDA) == cuda_device.absence()


REASONS = {
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading": (
        "The NVIDIA driver on your system is too old (found version 11040)"
    ),
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver": (
        "Found no NVIDIA driver on your system"
    ),
    "No CUDA GPUs are available": "No CUDA GPUs are available",
}


@pytest.mark.parametrize("reason", REASONS)
def test_torchs_own_reason_is_told_in_one_line_and_its_warning_is_not(reason, monkeypatch):
    """That comes where torch is asked whether there is a device."""

    def fails():
        raise RuntimeError(reason)

    def warns():
        warnings.warn(f"CUDA initialization: {reason}", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", fails)
    monkeypatch.setattr(torch.cuda, "is_available", warns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = cuda_device.missing_device(CUDA)
    assert told == f"no CUDA device can be used by torch {torch.__version__}: {REASONS[reason]}"


def test_a_device_of_a_number_that_there_is_not_is_named(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda_device.absence() == cuda_device.absence(1) == ""
    assert cuda_device.missing_device(torch.device("cuda:2")) == "there is no cuda:2: the last one is cuda:1"


def test_a_torch_without_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    assert "is built without CUDA; install one that has it" in cuda_device.absence()


def test_a_gpu_that_triton_does_not_compile_for(monkeypatch):
    monkeypatch.setattr(cuda_device, "absence", lambda index: "")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (6, 1))
    properties = type("Properties", (), {"name": "NVIDIA P40"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    told = cuda_device.missing_device(CUDA)
    assert told == "cuda:0 is an NVIDIA P40 of compute capability 6.1, and Triton compiles for 7.0 and later"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert not cuda_device.missing_device(CUDA)
