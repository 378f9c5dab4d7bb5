"""Kernels of language cuda where no GPU is needed: what a device must have."""

from __future__ import annotations

import pytest
import torch

from noyau import nn
from noyau.dtypes import DType
from noyau.errors import BuildError
from noyau.hosts.torch.cuda.cuda_kernel import CudaKernel
from noyau.kernels.programs.generate import generate_usual
from noyau.toolchain.cuda import compiler


def test_a_cluster_needs_a_device_that_has_them(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    monkeypatch.setattr(compiler, "load", lambda text, architecture: None)
    made = generate_usual(nn.softmax.description, nn.softmax.usual([DType.BF16], [2]), "cuda")
    kernel = CudaKernel(made.text, *made.program.kernels)
    x = torch.zeros(3, 20000, dtype=torch.bfloat16)
    with pytest.raises(
        BuildError, match=r"^softmax_2 runs on clusters of blocks, which sm_86 has not; sm_90 has them$"
    ):
        kernel.plan([x], torch.device("cuda"))
