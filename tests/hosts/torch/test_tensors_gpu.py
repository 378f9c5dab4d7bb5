"""Arrays of CuPy and Numba on a GPU: run by hand where there is one, pytest -m gpu."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noyau.errors import SignatureError, UnsupportedError
from tests.hosts.torch import kinds

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
X = np.random.default_rng(0).standard_normal((33, 65)).astype(np.float32)
WANT = np.exp(X - X.max(-1, keepdims=True))
WANT /= WANT.sum(-1, keepdims=True)


def test_cupy_in_and_out():
    cupy = pytest.importorskip("cupy", reason="CuPy is of no extra")
    made = kinds.softmax(cupy.asarray(X))
    assert isinstance(made, cupy.ndarray)
    assert np.allclose(cupy.asnumpy(made), WANT, atol=1e-6)
    out = cupy.empty_like(made)
    assert kinds.softmax(cupy.asarray(X), out=out) is out
    assert np.allclose(cupy.asnumpy(out), WANT, atol=1e-6)
    most, at = kinds.peak(cupy.asarray(X[0]))
    assert float(most) == X[0].max()
    assert int(at) == X[0].argmax()


def test_cupy_on_a_stream_of_its_own():
    cupy = pytest.importorskip("cupy", reason="CuPy is of no extra")
    stream = cupy.cuda.Stream(non_blocking=True)
    base = cupy.asarray(X)
    kinds.softmax(base)
    with stream:
        later = base
        for _ in range(200):
            later = later + 1
        made = kinds.softmax(later - 200) + 0
    stream.synchronize()
    assert np.allclose(cupy.asnumpy(made), WANT, atol=1e-4)


def test_numba_in_and_out():
    from numba import cuda

    made = kinds.softmax(cuda.to_device(X))
    assert hasattr(made, "copy_to_host")
    assert np.allclose(made.copy_to_host(), WANT, atol=1e-6)
    stream = cuda.stream()
    made = kinds.softmax(cuda.to_device(X, stream=stream))
    assert np.allclose(made.copy_to_host(), WANT, atol=1e-6)


def test_host_arrays_beside_arrays_on_the_gpu():
    cupy = pytest.importorskip("cupy", reason="CuPy is of no extra")
    with pytest.raises(SignatureError, match="weight is of NumPy, and x a tensor on cuda:0"):
        kinds.rmsnorm(cupy.asarray(X), np.ones(65, np.float32))
    with pytest.raises(UnsupportedError, match="x on cpu and weight on cuda:0"):
        kinds.rmsnorm(torch.from_numpy(X), cupy.ones(65, np.float32))
