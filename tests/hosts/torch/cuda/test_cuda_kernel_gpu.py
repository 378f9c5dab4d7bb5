"""Kernels of language cuda on a GPU: certified, of any layout, and on the current stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import noyau
from noyau.kernels.programs.generate import build

pytestmark = pytest.mark.gpu


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@noyau.op("bf16[n, m] -> bf16[m]")
def column_sums(x):
    return x.sum(axis=0)


@pytest.fixture(scope="module")
def kernel():
    return build(softmax.generated("cuda")).kernels[0]


@pytest.mark.parametrize("shape", [(1, 1), (3, 1024), (5, 1025), (0, 8), (70000, 3)])
def test_its_numbers_are_right(kernel, shape):
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    (got,) = kernel.call_guarded(x)
    np.testing.assert_allclose(got, softmax.reference(x.astype("f8")), rtol=2e-6)


def test_a_launch_waits_for_what_its_stream_does(kernel):
    x = torch.zeros(64, 4096, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(10_000_000)
        x[:, 0] = 1
        got = kernel.function(x)
        wanted = torch.softmax(x, -1)
    torch.cuda.synchronize()
    torch.testing.assert_close(got, wanted)


def test_a_check_tries_it():
    report = noyau.check(column_sums, seed=1)
    assert report.ok
    assert any("cuda" in str(each) for each in report.kernels)
