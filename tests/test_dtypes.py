from __future__ import annotations

import warnings

import numpy as np
import pytest

import noyau
from noyau.dtypes import DType, from_number, from_numpy, from_onnx
from noyau.errors import UnsupportedError

FLOAT8 = [dtype for dtype in DType if dtype.is_float8]
of_each = pytest.mark.parametrize("dtype", FLOAT8, ids=lambda dtype: dtype.value)


def test_every_dtype_is_found_by_its_names():
    for dtype in DType:
        assert from_number(dtype.onnx) is dtype and from_numpy(dtype.numpy) is dtype
        assert from_onnx(dtype.onnx) is (None if dtype.is_float8 else dtype)
        assert dtype.compute in (dtype, DType.F32)


@pytest.fixture(autouse=True)
def _no_reference():
    """A kernel runs, never the reference."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def alike(got, wanted) -> bool:
    same = np.array_equal(got.astype(np.float64), wanted.astype(np.float64), equal_nan=True)
    return bool(got.dtype == wanted.dtype and same)


@of_each
def test_what_numpy_does_with_float8_an_op_does(dtype):
    """Computed in float32 and rounded after each step; casts go by way of float32."""
    name = dtype.value

    def several(x, y):
        chosen = np.where(x < y, x, -y)
        turned = np.concatenate([chosen[::-1], x])
        return x + y, turned, y.astype(np.float64), x.astype(np.float16), (x * np.float32(0.5)), y.astype(x.dtype)

    results = f"a: {name}[n], b: {name}[2 * n], c: f64[n], d: f16[n], e: f32[n], f: {name}[n]"
    op = noyau.op(f"{name}[n], {name}[n] -> {results}")(several)
    x = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    y = x[np.random.default_rng(0).permutation(256)]
    with np.errstate(all="ignore"):
        wanted = several(x, y)
    for got, want in zip(op(x, y), wanted, strict=True):
        assert alike(got, want)


@of_each
def test_integers_become_float8_and_back(dtype):
    op = noyau.op(f"i32[n] -> y: {dtype.value}[n], z: i32[n], most: {dtype.value}")(
        lambda x: (x.astype(dtype.numpy), x.astype(dtype.numpy).astype(np.int32), x.astype(dtype.numpy).max())
    )
    x = np.arange(-20, 20, dtype=np.int32)
    y, z, most = op(x)
    assert alike(y, x.astype(dtype.numpy)) and np.array_equal(z, y.astype(np.int32))
    assert float(most) == max(y.astype(float))


@of_each
def test_rows_are_quantised(dtype):
    """Rows scaled to the largest number of the dtype, and their scales; then what they stand for."""
    largest = {DType.F8E4M3FN: 448.0, DType.F8E4M3FNUZ: 240.0}.get(dtype, 57344.0)

    def quantised(x):
        scale = np.maximum(np.abs(x).max(-1, keepdims=True), np.float32(1e-12)) / np.float32(largest)
        stored = (x / scale).astype(dtype.numpy)
        return stored, stored.astype(np.float32) * scale

    op = noyau.op(f"f32[m, n] -> stored: {dtype.value}[m, n], meant: f32[m, n]", name="quantised")(quantised)
    x = np.random.default_rng(1).standard_normal((7, 100)).astype(np.float32)
    stored, meant = op(x)
    assert np.count_nonzero(stored != quantised(x)[0]) <= 1
    assert np.array_equal(meant, stored.astype(np.float32) * (np.abs(x).max(-1, keepdims=True) / np.float32(largest)))


def test_a_sum_that_is_rounded_after_each_step_is_not_traced():
    op = noyau.op("f8e5m2[n] -> f8e5m2")(lambda x: x.sum())
    with pytest.raises(
        UnsupportedError, match=r"the sum of f8e5m2 is rounded after each step.*; cast it to float32 first"
    ):
        op.source("c")


def test_the_check_obeys_the_rounding_in_every_language():
    """A kernel that leaves it out is wrong."""
    op = noyau.op("f32[n] -> f32[n]", name="rounded")(lambda x: x.astype(DType.F8E4M3FN.numpy).astype(np.float32))
    op.kernel(
        "void k(const float *x, float *out, long n) { for (long i = 0; i < n; i++) out[i] = x[i]; }", language="c"
    )
    found = {kernel.name: kernel.ok for kernel in noyau.check(op, budget_s=0.05).kernels if not kernel.skipped}
    assert found.pop("k") is False
    assert found["c"] and all(found.values())


def test_where_float8_does_not_go_is_told(tmp_path):
    op = noyau.op("f32[n] -> f8e5m2[n]", name="stored")(lambda x: x.astype(DType.F8E5M2.numpy))
    with pytest.raises(UnsupportedError, match="stored: triton has no float8 here yet; cast outside of the op"):
        op.source("triton")
    with pytest.raises(UnsupportedError, match="a cast from f32 to f8e5m2 does not go into ONNX, where it saturates"):
        op.to_onnx(tmp_path / "stored.onnx")
