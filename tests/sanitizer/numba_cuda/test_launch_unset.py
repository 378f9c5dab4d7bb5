from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, float32

from noyau.sanitizer.numba_cuda.launch import WatchedArgument, configuration_of, launch_kernel


def seen_of(kernel, launch, *values):
    """A launch and what was seen in it."""
    names = kernel.py_func.__code__.co_varnames
    arguments = [WatchedArgument(name, value) for name, value in zip(names, values, strict=False)]
    launch = launch_kernel(kernel, configuration_of(launch), arguments)
    return launch, launch.recorder.shadow.observations()


@cuda.jit
def sums_of_warps(x, out, stored):
    sums, own = cuda.shared.array(32, float32), cuda.local.array(2, float32)
    i, lane, warp = cuda.threadIdx.x, cuda.threadIdx.x % 32, cuda.threadIdx.x // 32
    if lane == 31:
        sums[warp] = x[i]
    cuda.syncthreads()
    if warp == 0:
        sums[lane] += 1 + own[1]
    cuda.syncthreads()
    own[0] = sums[lane]
    out[i] = x[i] + sums[warp] * 0 + (own[0] if stored == 1 else 0)
    if stored == 2 and own[0] > 5:
        out[i] = x[0]


@pytest.mark.parametrize(("stored", "severity"), [(0, "warning"), (1, "error"), (2, "error")])
def test_a_read_of_unset_memory_is_an_error_where_something_depends_on_it(stored, severity):
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run, _ = seen_of(sums_of_warps, (2, 64), x, out, stored)
    findings = run.report_run("", "sums_of_warps", "").findings
    assert {each.severity for each in findings if each.kind == "uninitialised"} == {severity}
    assert stored or out.tolist() == x.tolist()


@cuda.jit
def tiles(out):
    first = 1
    a, b, c = (
        cuda.shared.array(32, float32),
        cuda.shared.array(
            shape=32,
            dtype=float32,
        ),
        cuda.shared.array(32, float32),
    )
    (d, e) = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    out[0] = a[first] + b[0] + c[0] + d[0] + e[0] + added(cuda.shared.array(32, float32))


@cuda.jit(device=True)
def added(x):
    return x[0]


def test_shared_arrays_have_the_names_of_their_statement():
    run, seen = seen_of(tiles, (1, 1), np.zeros(1, np.float32))
    names = [run.recorder.memories[each.memory].name for each in seen]
    assert sorted(names[:5]) == ["a", "b", "c", "d", "e"]
    assert names[5] == "shared"  # the argument of a call has none


@cuda.jit
def bits_of(x, out):
    for k in range(x.size):
        out[k, 0], out[k, 1], out[k, 2] = cuda.clz(x[k]), cuda.popc(x[k]), cuda.ffs(x[k])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_narrow_integers_are_counted_in_32_bits(dtype):
    x, out = np.array([1, -1, 96], dtype), np.zeros((3, 3), np.int32)
    seen_of(bits_of, (1, 1), x, out)
    bits = max(32, x.itemsize * 8)
    assert out.tolist() == [[bits - 1, 1, 1], [0, bits, 1], [bits - 7, 2, 6]]


@cuda.jit
def prints(x, out):
    own = cuda.local.array(2, float32)
    out[0] = x[0] + own[0] * 0
    print(own[1])


def test_what_a_launch_prints_depends_on_unset_memory_too_and_is_printed_once(capsys):
    x, out = np.ones(1, np.float32), np.zeros(1, np.float32)
    x.flags.writeable = False
    run, _ = seen_of(prints, (1, 1), x, out)
    assert {each.severity for each in run.report_run("", "prints", "").findings} == {"error"}
    assert (capsys.readouterr().out, out.tolist()) == ("0.0\n", [1.0])


def test_of_large_arrays_no_copies_are_made(monkeypatch):
    monkeypatch.setattr("noyau.sanitizer.numba_cuda.launch._MOST_KEPT_BYTES", 16)
    run, _ = seen_of(sums_of_warps, (2, 64), np.arange(64, dtype=np.float32), np.zeros(64, np.float32), 0)
    assert run.uses_unset
