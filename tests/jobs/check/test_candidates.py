from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import BuildError, CheckError
from noyau.jobs.check.candidates import ByHand, is_parallel
from noyau.jobs.check.isolated_kernels import KernelProcesses
from noyau.toolchain.guard_zones import How
from tests.kernels.written import attached, op_of, written

TEXT = "void f(const float *x, float *out, long n) { for (long i = 0; i < n; ++i) out[i] = x[i]; }"


def by_hand(op, name):
    return ByHand(op.kernels[name], op.description.reference, KernelProcesses(op, 5.0))


def test_a_kernel_in_c():
    op = op_of("f32[n] -> f32[n]")
    attached(op, TEXT)
    attached(op, TEXT, name="many", options={"flags": ["-fopenmp"]})
    one = by_hand(op, "f")
    assert (one.name, one.language, one.called, one.place) == ("f", "c", "op[f]", "a text")
    assert (one.threads, one.layouts, one.skipped) == ((), (), "")
    assert by_hand(op, "many").threads[:2] == (1, 2)
    assert one.notes() == ["on packed arrays"]
    instance = op.instance([DType.F32], [1])
    one.open(instance)
    with one.apart:
        assert np.array_equal(one.run(instance, [np.ones(3, np.float32)], How())[0], [1, 1, 1])


def test_what_runs_only_while_it_is_watched_says_so():
    op = op_of("f32[n] -> f32[n]")
    op.kernel(f'extern "C" {TEXT}', language="cpp", name="threads", entry="f")
    op.kernel(f"__global__ {TEXT}", language="cuda", name="grid", entry="f", launch=(1, 1))
    ways = [by_hand(op, name).notes()[-1] for name in ("threads", "grid")]
    assert ways == ["run in its watched build alone", "run as a GPU would, on this machine"]


def test_a_text_that_does_not_build():
    op = op_of("f32[n] -> f32[n]")
    attached(op, TEXT.replace("x[i];", "oops;"))
    with pytest.raises(BuildError, match="does not compile it"):
        by_hand(op, "f").open(op.instance([DType.F32], [1]))


def test_a_file_has_the_line_of_its_function(tmp_path):
    op = op_of("f32[n] -> f32[n]")
    path = written(tmp_path, "f.c", f"#include <math.h>\n\n{TEXT}\n")
    op.kernel(path)
    assert by_hand(op, "f").place == f"{path}:3"


def test_a_python_callable():
    op = op_of("f32[n] -> f32[n]")

    def fails(x, out):
        raise ValueError("no")

    op.kernel(fails)
    one = by_hand(op, "fails")
    assert one.place.startswith(__file__)
    assert set(one.layouts) == {"transposed", "sliced", "offset", "flipped", "expanded"}
    with one.apart, pytest.raises(CheckError) as error:
        one.run(op.instance([DType.F32], [1]), [np.ones(3, np.float32)], How())
    assert str(error.value) == "raised ValueError: no"


def test_what_needs_a_gpu_is_skipped(monkeypatch):
    monkeypatch.setattr("noyau.jobs.check.candidates.is_watched", lambda language: False)
    op = op_of("f32[n] -> f32[n]")
    op.kernel("__global__ void f(float *x, float *out) {}", language="cuda", entry="f")
    assert "it is in cuda, which needs a GPU" in by_hand(op, "f").skipped
    monkeypatch.setattr("noyau.sanitizer.routes.find_spec", lambda name: None)
    assert by_hand(op, "f").skipped == "pyelftools is not installed; run: pip install 'noyau-kernels[check-c]'"


def test_numba_says_itself_whether_it_is_parallel():
    def kernel_of(**options):
        op = op_of("f32[n] -> f32[n]")
        kernel = type("Dispatcher", (), {"targetoptions": options, "__module__": "numba.core"})
        made = kernel()
        made.py_func = lambda x, out: None
        kernel.__call__ = lambda self, x, out: None
        op.kernel(made, name="k")
        return op.kernels["k"]

    assert is_parallel(kernel_of(parallel=True))
    assert not is_parallel(kernel_of())
