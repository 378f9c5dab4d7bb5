from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType
from noyau.errors import CheckError, InputError
from noyau.jobs.check.isolated_kernels import KernelProcesses, limit_threads
from noyau.ops.op_files import load_op
from noyau.toolchain.guard_zones import End, Guards, How
from noyau.workers.resources import processors
from noyau.workers.worker import ForkedWorker
from tests.kernels.written import attached

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(noyau.__file__).parent.parent)}
PACKED = How()
FILE = """
import os
import sys
import time
import noyau

@noyau.op("f32[n] -> f32[n]")
def double(x):
    return x + x

@double.kernel
def deeds(x, out):
    out[...] = 2 * x
    if len(x) == 3: os._exit(3)
    if len(x) == 4: time.sleep(60)
    if len(x) == 5: raise ValueError("five")
    if len(x) == 6: out[...] = os.getpid()
    if len(x) == 7: x[0] = 1
    if len(x) == 8: out[...] = __name__ == "__main__"
"""


def local_op():
    scope: dict[str, object] = {}
    exec(FILE, scope)
    return scope["double"]


@pytest.fixture(params=["loaded again", "copied"])
def op(request, tmp_path):
    if request.param == "copied":
        return local_op()
    (tmp_path / "ops.py").write_text(FILE)
    return load_op(str(tmp_path / "ops.py"))


def f32(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def run(apart, n, how=PACKED):
    op = apart.op
    return apart.run(op.kernels["deeds"], op.instance([DType.F32], [1]), [f32(n)], how)


def test_what_python_calls_runs_elsewhere(op):
    with KernelProcesses(op, 5.0) as apart:
        assert np.array_equal(run(apart, 2)[0], [0, 2])
        assert run(apart, 6)[0][0] != np.float32(os.getpid())
        assert (apart.way.home is not None) == ("__file__" in op.reference.__globals__)
    assert not apart.way.worker.is_running


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (3, "double ended its process with status 3"),
        (4, "double did not answer within 1 s and was ended"),
        (5, "raised ValueError: five"),
        (7, "changed its input x"),
    ],
)
def test_what_goes_wrong_is_one_reason_and_the_next_run_is_fine(op, n, told):
    with KernelProcesses(op, 1.0) as apart:
        with pytest.raises(CheckError, match=told):
            run(apart, n)
        assert np.array_equal(run(apart, 2)[0], [0, 2])


@pytest.mark.parametrize(
    ("arrays", "cells", "limit_s"),
    [
        ([f32(4000)], 4, 5.0),
        ([f32(4000)], 4000, 20.0),
        ([f32(5000)], 4, 20.0),
        ([f32(4), np.int64(10**6)], 4, 20.0),
        ([f32(4), np.float32(1e6)], 4, 5.0),
    ],
)
def test_a_run_with_little_to_do_has_little_time(op, arrays, cells, limit_s, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (0.5 * processors(), 0, 0))
    guards = Guards(lambda *_: [], "double[deeds]", (), (End("out", DType.F32, (cells,)),))
    for patience_s in (20.0, 1.0):
        with KernelProcesses(op, patience_s) as apart:
            assert apart.limit_s(guards, [np.asarray(each) for each in arrays]) == min(limit_s, patience_s)
    monkeypatch.setattr("os.getloadavg", lambda: (3.0 * processors(), 0, 0))  # others compute: three times as much
    with KernelProcesses(op, 20.0) as apart:
        assert apart.limit_s(guards, [np.asarray(each) for each in arrays]) == min(3 * limit_s, 20.0)


def test_a_new_process_begins_when_it_is_asked_for(op):
    with KernelProcesses(op, 5.0) as apart:
        first = run(apart, 6)[0][0]
        assert run(apart, 6)[0][0] == first
        apart.renew()
        assert run(apart, 6)[0][0] != first


def test_strides_go_along(op):
    with KernelProcesses(op, 5.0) as apart:
        assert np.array_equal(run(apart, 9, How("flipped"))[0], 2 * f32(9))


def test_a_kernel_in_c_runs_elsewhere_too(op):
    text = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = 2 * x[i];"
    text += "if (n == 3) *(volatile int *)0 = 1; }"
    kernel = attached(op, text)
    instance = op.instance([DType.F32], [1])
    with KernelProcesses(op, 5.0) as apart:
        with pytest.raises(CheckError, match=r"double crashed \(SIGSEGV\)"):
            apart.run(kernel, instance, [f32(3)], How())
        assert np.array_equal(apart.run(kernel, instance, [f32(4)], How())[0], 2 * f32(4))
        assert apart.way is None


def test_what_a_kernel_in_c_refuses():
    op = noyau.op("f32[n] -> f32[n]")(lambda x: x)
    kernel = attached(op, "int f(const float *x, float *out, long n) { return n == 2; }", name="f")
    with KernelProcesses(op, 5.0) as apart, pytest.raises(InputError, match="an index is outside"):
        apart.run(kernel, op.instance([DType.F32], [1]), [f32(2)], How())


def test_without_a_file_and_without_a_copy_it_runs_here(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with KernelProcesses(local_op(), 5.0) as apart:
        assert run(apart, 6)[0][0] == np.float32(os.getpid())
        assert apart.way.note == "it ran in this process, which it could have ended"


def test_what_may_call_a_library_with_threads_of_its_own_is_not_copied():
    torch = ModuleType("torch")

    @noyau.op("f32[n] -> f32[n]")
    def double(x):
        return 2 * x

    @double.kernel
    def deeds(x, out):
        out[:] = 2 * x if torch else x

    with KernelProcesses(double, 5.0) as apart:
        run(apart, 2)
        assert apart.way.worker is None


def test_a_library_that_no_kernel_calls_is_no_hindrance(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    with KernelProcesses(local_op(), 5.0) as apart:
        run(apart, 2)
        assert isinstance(apart.way.worker, ForkedWorker)


def test_a_file_that_was_changed_is_copied_instead(tmp_path):
    (tmp_path / "ops.py").write_text(FILE)
    op = load_op(str(tmp_path / "ops.py"))
    (tmp_path / "ops.py").write_text("1 / 0")
    with KernelProcesses(op, 5.0) as apart:
        assert np.array_equal(run(apart, 2)[0], [0, 2])
        assert isinstance(apart.way.worker, ForkedWorker)


def test_a_script_is_not_run_again(tmp_path):
    lines = [
        "print('once', flush=True)",
        "found = noyau.check(double, patience_s=1.0, budget_s=0.5, generated=False)",
        "print(found.findings[0].kind)",
    ]
    (tmp_path / "ops.py").write_text("\n".join([FILE, *lines]))
    found = subprocess.run(
        [sys.executable, str(tmp_path / "ops.py")], capture_output=True, check=True, text=True, env=ENVIRONMENT
    )
    assert found.stdout.splitlines() == ["once", "crash"]


def test_threads_are_left_alone_without_numba():
    with limit_threads(3):
        assert ctypes.CDLL(None) is not None
