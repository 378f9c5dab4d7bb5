from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.compiler.lowering.input_layouts import STRIDED, Layout, Order, lie
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.hosts.numpy import fast_calls
from noyau.hosts.numpy.fast_calls import MISS, Argument, in_python
from tests.hosts.numpy.kernels import fast_call_of


def scaled(x, a):
    return a * x + x[0, 0]


def total(x):
    return x.sum()


@pytest.mark.parametrize("layout", [Layout(), Layout(Order.PERMUTED, (1, 0)), STRIDED], ids=str)
def test_a_call_in_python_is_one_in_c(layout):
    fast_call = fast_call_of(scaled, "f32[m, n], f32 -> f32[m, n]", layouts=[layout], numbers=(float,))
    call = in_python(fast_call)
    x = lie(np.random.default_rng(3).random((4, 5), np.float32), layout)
    assert call((x, 2.5)).tobytes() == fast_call((x, 2.5)).tobytes()
    assert call((x.astype(np.float64), 2.5)) is MISS
    assert call((np.ones((2, 2, 2), np.float32), 2.5)) is MISS


def test_a_scalar_result_is_numpy_s():
    made = in_python(fast_call_of(total, "f32[n] -> f32"))((np.ones(6, np.float32),))
    assert type(made) is np.float32 and made == 6


def test_where_the_c_is_not_there_fast_calls_are_of_python(monkeypatch):
    monkeypatch.setattr(fast_calls, "library", lambda: None)
    fast_call = fast_call_of(total, "f32[n] -> f32")
    assert not fast_call.in_c
    assert fast_call((np.ones(6, np.float32),)) == 6


def test_an_index_out_of_bounds():
    fast_call = fast_call_of(lambda x, at: x[at], "f32[n], i64[m] -> f32[m]")
    with pytest.raises(InputError, match="an index is outside the axis that it looks into"):
        in_python(fast_call)((np.ones(3, np.float32), np.array([3])))


@pytest.mark.parametrize(
    ("dtype", "given", "made"),
    [
        (np.float32, 0.1, np.float32(0.1)),
        (np.float16, 1e9, np.float16(np.inf)),
        (ml_dtypes.bfloat16, 3, ml_dtypes.bfloat16(3)),
        (np.bool_, True, np.True_),
        (np.uint8, 255, np.uint8(255)),
        (np.uint8, 256, None),
        (np.int64, -(1 << 63), np.int64(-(1 << 63))),
        (np.int64, 1 << 63, None),
        (np.int64, 1.0, None),
        (np.int64, True, None),
        (np.float32, True, None),
        (np.float32, 1 << 80, None),
        (np.bool_, 1, None),
    ],
)
def test_numbers(dtype, given, made):
    found = fast_calls.cell_of_number(np.dtype(dtype), given)
    assert found == made if made is None else (found.dtype, found.tobytes()) == (np.dtype(dtype), made.tobytes())


def test_what_an_argument_may_be():
    end = Argument(DType.I64, 0, numbers=(int,), equals=7)
    assert fast_calls.read_argument(end, 7) == 7
    assert fast_calls.read_argument(end, np.int64(7)) == 7
    assert fast_calls.read_argument(end, 8) is None
    assert fast_calls.read_argument(Argument(DType.I64, 1), 7) is None
    assert fast_calls.read_argument(Argument(DType.I64, 1, ones=(True,)), np.array([7])) == 7
    assert fast_calls.read_argument(Argument(DType.I64, 1, ones=(True,)), np.array([7, 8])) is None
