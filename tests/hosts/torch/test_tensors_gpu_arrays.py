"""Arrays of other packages on a GPU: what is asked of them, and what is told where they cannot be taken."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import noyau
from noyau.errors import MissingExtraError, UnsupportedError
from noyau.hosts.numpy.dlpack import lies_on_gpu
from noyau.hosts.torch import tensors as torch_tensors
from tests.hosts.torch.kinds import softmax


class OnCuda:
    """An array that says by DLPack that it lies on a GPU, and hands over what is there instead."""

    def __init__(self, tensor):
        self.tensor, self.streams = tensor, []

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None, **_):
        self.streams.append(stream)
        raise BufferError("its memory is gone")


class ByInterface:
    """An array that has the CUDA array interface alone."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (0, False), "version": 3, "stream": None}  # noqa: RUF012


def test_what_lies_on_a_gpu():
    assert lies_on_gpu(OnCuda(None))
    assert lies_on_gpu(ByInterface())
    assert not any(map(lies_on_gpu, (np.ones(3), 1.0, True, "x", [1], torch.ones(3), np.float32(1))))


@pytest.mark.parametrize("array", [OnCuda(None), ByInterface()])
def test_one_that_cannot_be_taken(array):
    with pytest.raises(UnsupportedError, match=f"argument 0, of {type(array).__name__}, cannot be taken as a tensor: "):
        softmax(array)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "noyau.hosts.torch.tensors", None)
    monkeypatch.delattr("noyau.hosts.torch.tensors", raising=False)
    with pytest.raises(MissingExtraError, match=r"softmax: .* run: pip install 'noyau-kernels\[triton\]'"):
        softmax(OnCuda(None))


def test_results_are_of_the_package_of_the_first(monkeypatch):
    package = ModuleType("package_of_arrays")
    package.from_dlpack = lambda tensor: ("theirs", tensor.shape)
    monkeypatch.setitem(sys.modules, "package_of_arrays", package)
    kind = type("Array", (), {"__module__": "package_of_arrays.core"})
    made = torch.ones(2, 3), torch.ones(4)
    assert torch_tensors.gpu_result_like(made, kind()) == (("theirs", (2, 3)), ("theirs", (4,)))
    package.from_dlpack = lambda tensor: 1 / 0 if tensor.dtype is not torch.bfloat16 else int("no such dtype")
    assert torch_tensors.gpu_result_like(made[0].bfloat16(), kind()).dtype is torch.bfloat16
    del package.from_dlpack
    assert torch_tensors.gpu_result_like(made[1], kind()) is made[1]


def test_arrays_on_a_gpu_are_taken_as_tensors_and_given_back(monkeypatch):
    class Theirs:
        __cuda_array_interface__ = None

        def __init__(self, tensor):
            self.tensor = tensor

    x = torch.randn(3, 5)
    monkeypatch.setattr(torch_tensors, "gpu_tensor", lambda name, array: array.tensor)
    monkeypatch.setattr(torch_tensors, "gpu_result_like", lambda made, like: type(like)(made))
    made = softmax(Theirs(x))
    assert isinstance(made, Theirs)
    assert torch.allclose(made.tensor, torch.softmax(x, -1))
    out = Theirs(torch.empty(3, 5))
    assert softmax(Theirs(x), out=out) is out
    assert torch.equal(out.tensor, made.tensor)
    assert noyau.reference is not None


def test_without_triton_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "noyau.toolchain.triton.module", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(
        MissingExtraError, match=r"triton, or torch, is not installed; run: pip install 'noyau-kernels\[triton\]'"
    ):
        importlib.import_module("noyau.toolchain.triton.module")
