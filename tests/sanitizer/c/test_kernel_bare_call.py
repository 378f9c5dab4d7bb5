from __future__ import annotations

import re

import numpy as np
import pytest

import noyau
from noyau.errors import SignatureError

C = """\
#include <math.h>
double norm(const double *x, int n) {
    double s = 0;
#pragma omp parallel for
    for (int i = 0; i < n; i++)
        s += x[i] * x[i];
    return sqrt(s);
}
void scale(double *x, double by, long n) {
#pragma omp parallel for
    for (long i = 0; i < n; i++) x[i] *= by;
}
void shift(double *y, const double *x, int n) {
#pragma omp parallel for
    for (int i = 0; i < n - 1; i++) y[i] += x[i + 1];
}
unsigned long same(unsigned long n) { return n; }
int main() { return 0; }
"""
CUDA = """\
template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] += a * x[i];
}
"""
X = np.arange(1.0, 21.0)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "k.c").write_text(C, encoding="utf-8")
    (tmp_path / "k.cu").write_text(CUDA, encoding="utf-8")
    return tmp_path


def test_a_function_of_a_file_is_checked_on_ones_own_arguments(files):
    found = noyau.check(f"{files}/k.c::norm", (X, 20), reference=lambda x: np.sqrt((x * x).sum()))
    assert [each.kind for each in found.findings] == ["race"]
    assert found.findings[0].place == f"{files}/k.c:6"
    mine = X.copy()
    right = noyau.check(f"{files}/k.c::scale", (mine, 3.0, 20), reference=lambda x, by: x * by)
    assert right.ok
    assert right.kernels[0].certificate is not None
    assert right.place == f"{files}/k.c:9"
    assert np.array_equal(mine, X)  # left as it was
    wrong = noyau.check(f"{files}/k.c::scale", (X.copy(), 3.0, 20), reference=lambda x, by: x + by)
    assert [each.kind for each in wrong.findings] == ["wrong-value"]
    fixed = X.copy()
    fixed.flags.writeable = False
    assert noyau.check(f"{files}/k.c::shift", (mine, fixed, 20), reference=lambda y, x: shifted(y, x)).ok
    assert [each.kind for each in noyau.check(f"{files}/k.c::shift", (mine, mine, 20)).findings] == ["race"]
    most = 2**64 - 1
    assert noyau.check(f"{files}/k.c::same", (most,), reference=lambda n: np.uint64(n)).ok


def shifted(y, x):
    y[:-1] += x[1:]


def test_a_kernel_of_a_file_is_launched(files):
    x, y = X.astype(np.float32), np.ones(20, np.float32)
    found = noyau.check(f"{files}/k.cu::saxpy<float>", (2.0, x, y, 20), launch=(1, 32))
    assert {(each.kind, each.place.rpartition(":")[2]) for each in found.findings} == {("out-of-bounds", "3")}
    assert "thread 20 of block 0" in found.findings[0].message


@pytest.mark.parametrize(
    ("name", "args", "launch", "told"),
    [
        ("k.c::norm", (X,), None, "norm takes x, n; it was given 1 arguments"),
        ("k.c::norm", (X, 20), (1, 32), "norm is called, not launched: it takes no launch="),
        ("k.c::norm", (X, "n"), None, "norm takes int n; it was given str, which is no number"),
        ("k.c::norm", (3.0, 20), None, "norm takes const double *x; it was given float, which is no array of NumPy"),
        ("k.c::norm", (np.ones(3, "f4"), 3), None, "norm takes const double *x; it was given an array of float32"),
        ("k.c::norm", (X[::2], 10), None, "which is packed; give numpy.ascontiguousarray(x)"),
        (
            "k.c::norm",
            (X, 2**33),
            None,
            "takes int n; it was given 8589934592, which is not within -2147483648 to 21474",
        ),
        ("k.c::norm", (X, 2.5), None, "norm takes int n; it was given 2.5, which is no integer"),
        ("k.c::shift", (X, X[1:], 19), None, "takes const double *x, which shares a part of its memory with y; give"),
        ("k.cu::saxpy<float>", (2.0, X, X, 20), None, "saxpy needs a launch: noyau.check('k.cu::saxpy<float>', args"),
    ],
)
def test_what_does_not_fit_is_refused(files, name, args, launch, told):
    with pytest.raises(SignatureError, match=re.escape(told)):
        noyau.check(f"{files}/{name}", args, launch=launch)


def test_headers_of_the_author_beside_a_kernel_are_found_and_rewritten(files):
    (files / "parts").mkdir()
    (files / "parts/tile.h").write_text('#include "wait.h"\nextern __shared__ float tile[];\n', encoding="utf-8")
    (files / "parts/wait.h").write_text("#define WAIT __syncthreads();\n", encoding="utf-8")
    kernel = """#include "parts/tile.h"
__global__ void reverse(float *x) {
    tile[threadIdx.x] = x[threadIdx.x];
    WAIT
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""
    (files / "reverse.cu").write_text(kernel, encoding="utf-8")
    x, launch = np.arange(8, dtype="f4"), (1, 8, 32)
    right = noyau.check(f"{files}/reverse.cu::reverse", (x,), launch=launch, reference=lambda x: x[::-1])
    assert right.ok
    (files / "parts/wait.h").write_text("#define WAIT\n", encoding="utf-8")  # which is another text
    (race, *_) = noyau.check(f"{files}/reverse.cu::reverse", (x,), launch=launch).findings
    assert (race.kind, race.place) in [("race", f"{files}/reverse.cu:{line}") for line in (3, 5)]
