"""One of the tasks of minitorch's Module 3 as a script: `minitorch_task.py FOLDER TASK`, where FOLDER is that of a
checkout and TASK one of `TASKS`, of the backend with prange or of the one with CUDA. Its results are compared with
NumPy's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Tensors = Callable[..., Any]


def run_map(rand: Tensors) -> None:
    x = rand(5, 7)
    _compare(-x, -_numbers(x))
    _compare(x.permute(1, 0).sigmoid(), 1 / (1 + np.exp(-_numbers(x).T)))


def run_zip(rand: Tensors) -> None:
    x, y, row = rand(5, 7), rand(5, 7), rand(7)
    _compare(x + y, _numbers(x) + _numbers(y))
    _compare(x * row, _numbers(x) * _numbers(row))
    _compare(x.permute(1, 0) + y.permute(1, 0), _numbers(x).T + _numbers(y).T)


def run_reduce(rand: Tensors) -> None:
    x = rand(3, 37)
    for axis in (0, 1):
        _compare(x.sum(axis), _numbers(x).sum(axis, keepdims=True))


def run_matmul(rand: Tensors) -> None:
    for first, second in (((2, 5, 7), (2, 7, 4)), ((35, 33), (33, 34)), ((2, 3, 4), (1, 4, 5))):
        a, b = rand(*first), rand(*second)
        _compare(a @ b, _numbers(a) @ _numbers(b))


def run_practice(rand: Tensors) -> None:
    import minitorch

    x, a, b = rand(40), rand(6, 6), rand(6, 6)
    sums = minitorch.sum_practice(x)
    np.testing.assert_allclose(np.asarray(sums._storage).sum(), _numbers(x).sum(), rtol=1e-4)
    product = minitorch.mm_practice(a, b)
    got = np.asarray(product._storage).reshape(6, 6)
    np.testing.assert_allclose(got, _numbers(a) @ _numbers(b), rtol=1e-4)


_RUNS = {"map": run_map, "zip": run_zip, "reduce": run_reduce, "matmul": run_matmul, "practice": run_practice}
TASKS = (*(f"fast_{each}" for each in _RUNS if each != "practice"), *(f"cuda_{each}" for each in _RUNS))


def _numbers(tensor: Any) -> np.ndarray:
    """The numbers of a tensor, whose storage may be an array of the device by now."""
    return np.asarray(tensor.to_numpy())


def _compare(got: Any, want: np.ndarray) -> None:
    np.testing.assert_allclose(_numbers(got), want, rtol=1e-4, atol=1e-6)


def main(folder: str, task: str) -> None:
    """Run a task of the minitorch in a folder."""
    sys.path.insert(0, folder)
    import minitorch

    backend, name = task.split("_")
    tensors = minitorch.TensorBackend(minitorch.FastOps if backend == "fast" else minitorch.CudaOps)
    _RUNS[name](lambda *shape: minitorch.rand(shape, backend=tensors))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
