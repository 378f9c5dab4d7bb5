from __future__ import annotations

import textwrap

import numpy as np
import pytest

import noyau
from noyau.scripts.running import check_script
from tests.defects import watch_on

pytest.importorskip("numba")
from numba import cuda, float32


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
twice.kernel(waiting, name="of_blocks", launch=lambda n: (n, 64))


def told(name, size):
    return [str(each) for each in watch_on(twice, twice.kernels[name], np.ones(size, np.float32)).findings]


def test_a_block_for_each_cell():
    (message,) = told("a_block_for_each", 20)
    assert message.startswith("launch: [20, 64] starts 1280 threads, and 1260 of them touch nothing: a block for each")
    assert told("a_block_for_each", 3) == []
    assert told("a_thread_for_each", 20) == []
    assert told("of_blocks", 20) == []


SCRIPT = """
    import numpy as np
    from numba import cuda

    @cuda.jit
    def add(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = x[i] + 1

    x = np.ones(1600, np.float32)
    out = np.zeros_like(x)
    add[50, 32](x, out)  # small
    add[13, 128](x, out)
    add[16, 100](x, out)  # noyau: allow(launch) to show it
"""


def test_launches_of_a_script_by_their_lines(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    found = check_script(path)
    assert found.ok
    (warning,) = found.findings
    assert (warning.severity, warning.place) == ("warning", f"{path}:13")
    assert warning.message.startswith("[50, 32] has blocks of 32 threads: a multiprocessor holds 32 blocks")
