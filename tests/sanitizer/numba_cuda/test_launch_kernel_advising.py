from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

import noyau
from noyau.sanitizer.numba_cuda.launch import WatchedArgument, configuration_of, launch_kernel, lint_call
from tests.defects import watch_on
from tests.sanitizer.numba_cuda.tutorials import TUTORIALS


@noyau.op("f32[n] -> f32[n]")
def twice(x):
    return x + x


@cuda.jit
def strided(x, out):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        out[i] = x[i] + x[i]


@cuda.jit
def waiting(x, out):
    own = cuda.shared.array(64, float32)
    if cuda.threadIdx.x == 0:
        own[0] = x[cuda.blockIdx.x]
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = 2 * own[0]


twice.kernel(strided, name="a_block_for_each", launch=lambda n: (n, 64))
twice.kernel(strided, name="a_thread_for_each", launch=lambda n: ((n + 63) // 64, 64))
twice.kernel(strided, name="of_any_size", launch=(128, 64))
twice.kernel(waiting, name="of_blocks", launch=lambda n: (n, 64))


def told(name, size):
    return [str(each) for each in watch_on(twice, twice.kernels[name], np.ones(size, np.float32)).findings]


def test_a_block_for_each_cell():
    (message,) = told("a_block_for_each", 20)
    assert message.startswith("launch: [20, 64] starts 1280 threads, and 1260 of them touch nothing: a block for each")
    assert told("a_block_for_each", 3) == []
    assert told("a_thread_for_each", 20) == []
    assert told("of_blocks", 20) == []
    assert told("of_any_size", 20) == []  # a grid stride, tried on fewer cells than it is for


@pytest.mark.parametrize("name", TUTORIALS)
def test_silence_on_launches_of_tutorials(name):
    kernel, given, values, _ = TUTORIALS[name]
    arguments = [
        WatchedArgument(str(k), each.copy() if isinstance(each, np.ndarray) else each) for k, each in enumerate(values)
    ]
    made = launch_kernel(kernel.py_func, configuration_of(given), arguments)
    assert lint_call(made, kernel.py_func, "op", name, f"{__file__}:1", "", is_whole=True) == []
