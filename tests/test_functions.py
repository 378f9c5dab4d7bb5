"""The functions that references use beside NumPy's own."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from noyau import functions
from noyau.errors import InputError
from noyau.ir.operators import OPERATORS

BF16 = ml_dtypes.bfloat16


def test_a_cast_goes_to_the_dtype_and_where_the_truth_is_asked_for_to_float64():
    x = np.array([1.1, 2.7], np.float64)
    assert functions.cast(x, "f32").dtype == np.float32
    assert functions.cast(x, "bf16").dtype == BF16
    assert functions.cast(x, "i64").tolist() == [1, 2]
    assert functions.cast(x - 1.1, "bool").tolist() == [False, True]
    with functions.widen_floats():
        assert functions.cast(x, "bf16").tolist() == x.tolist()
        assert functions.cast(0.1, "f32") == np.float64(np.float32(0.1))
        assert functions.cast(x, "i64").tolist() == [1, 2]
        with functions.widen_floats(False):
            assert functions.cast(x, "f16").dtype == np.float16
    assert functions.cast(x, "f32").dtype == np.float32


def test_what_is_no_dtype_is_refused():
    with pytest.raises(InputError, match="there is no dtype 'f8'; the dtypes are: bool, i8,"):
        functions.cast(1, "f8")
    with pytest.raises(InputError, match="an array of complex128 has a dtype that noyau does not have"):
        functions.sigmoid(np.ones(2, complex))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
def test_functions_keep_the_dtype_and_round_once(dtype):
    x = np.array([-100, -1, 0, 1, 100], dtype)
    wide = x.astype(np.float64)
    for function, want in ((functions.sigmoid, 1 / (1 + np.exp(-wide))), (functions.softplus, np.logaddexp(0, wide))):
        got = function(x)
        assert got.dtype == dtype
        ulp = OPERATORS[function.__name__].ulp if dtype in (np.float32, np.float64) else 1
        assert np.allclose(got.astype(np.float64), want, ulp * float(ml_dtypes.finfo(dtype).eps), 1e-40)
    assert functions.erf(x).astype(float).tolist()[::4] == [-1, 1]


def test_integers():
    a, b = np.array([7, -7, 1], np.int32), np.array([2, 2, 40], np.int32)
    assert functions.truncate_divide(a, b).tolist() == [3, -3, 0]
    assert functions.truncate_divide(7, b).dtype == np.int32
    assert functions.power(a, np.array([2, 2, -1], np.int32)).tolist() == [49, 49, 1]
    assert functions.shift_left(a, b).tolist() == [28, -28, 0]
    assert functions.shift_right(a, b).tolist() == [1, -2, 0]


def test_reductions_also_of_nothing():
    x = np.array([[1.0, 2.0], [np.nan, 4.0]], np.float32)
    assert functions.reduce("argmax", x, -1).tolist() == [1, 0]
    assert functions.reduce("max", x, (0, 1), keepdims=True).shape == (1, 1)
    assert functions.reduce("variance", x, 1).tolist()[0] == 0.25
    assert functions.reduce("logsumexp", np.zeros((2, 0), np.float32), 1).tolist() == [-np.inf, -np.inf]
    halves = np.full(4096, 1, np.float16)
    assert functions.reduce("sum", halves, 0) == 4096


def test_running_results():
    x = np.array([1, 2, 3], np.int32)
    assert functions.scan("sum", x, 0).tolist() == [1, 3, 6]
    assert functions.scan("sum", x, -1, exclusive=True).tolist() == [0, 1, 3]
    assert functions.scan("prod", x, 0, reverse=True).tolist() == [6, 6, 3]


def test_the_catalogue_needs_no_import_of_its_own():
    code = "import sys, noyau; assert 'noyau.nn' not in sys.modules; noyau.nn.softmax"
    subprocess.run([sys.executable, "-c", code], check=True)
