from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import CheckError, InputError, UnansweredError, UnsupportedError
from noyau.kernels.call import library_of
from noyau.kernels.certificates import call_guarded, pack
from noyau.verify.trial import kind_of
from noyau.workers.worker import Worker
from tests.kernels.written import attached, op_of

DEEDS = """
#include <stdlib.h>
#include <unistd.h>
int f(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];
    if (n == 3) *(volatile int *)0 = 1;
    if (n == 4) for (volatile int k = 0;; ++k) ;
    if (n == 5) out[n] = 1;
    if (n == 6) _exit(7);
    if (n == 7) out[-1] = 1;
    return n == 8;
}
"""


@pytest.fixture(scope="module")
def op():
    return op_of("f32[n] -> f32[n]")


@pytest.fixture(scope="module")
def library(op):
    return library_of(attached(op, DEEDS), op.instance([DType.F32], [1]), {})


@pytest.fixture(scope="module")
def isolated(library):
    with Worker("op[f]", patience_s=3.0) as worker:
        yield lambda array: worker.ask(call_guarded, *library, pack([array]))


def f32(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32)


def test_it_runs_elsewhere_and_gives_its_results(isolated):
    assert np.array_equal(isolated(f32(9))[0], 2 * f32(9))
    assert isolated(f32(0))[0].shape == (0,)


@pytest.mark.parametrize(
    ("n", "error", "told", "kind"),
    [
        (3, CheckError, r"^op\[f\] crashed \(SIGSEGV\)", "crash"),
        (4, UnansweredError, r"^op\[f\] did not answer within 3 s and was ended$", "crash"),
        (5, CheckError, r"^op\[f\]: .* wrote outside output 0, 1 cells after its end", "out-of-bounds"),
        (6, CheckError, r"^op\[f\] ended its process with status 7", "crash"),
        (7, CheckError, r"^op\[f\]: .* wrote outside output 0, 1 cells before its start", "negative-index"),
        (8, InputError, r"^op\[f\]: ", "wrong-value"),
    ],
)
def test_what_goes_wrong_is_one_reason_and_the_next_run_is_fine(isolated, n, error, told, kind):
    with pytest.raises(error, match=told) as caught:
        isolated(f32(n))
    assert kind_of(caught.value) == kind
    assert np.array_equal(isolated(f32(2))[0], 2 * f32(2))


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int8, ml_dtypes.bfloat16])
def test_arrays_go_over_as_they_are_and_packed(dtype):
    arrays = np.arange(6).astype(dtype).reshape(2, 3).T, np.array(1).astype(dtype), np.zeros((0, 3), dtype)
    for array, back in zip(arrays, pickle.loads(pickle.dumps(pack(arrays))), strict=True):
        assert back.dtype == array.dtype
        assert back.flags.c_contiguous
        assert np.array_equal(back, array)


def test_what_cannot_go_to_another_process():
    with pytest.raises(UnsupportedError, match="an array of complex128 cannot go to another process"):
        pack([np.zeros(3, complex)])


def test_the_other_end_runs_between_guards(library):
    (doubled,) = call_guarded(*library, [f32(2)])
    assert np.array_equal(doubled, 2 * f32(2))
