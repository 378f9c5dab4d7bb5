"""Ops on columns of pandas and arrays of xarray, by themselves and where these packages call them."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import noyau
from noyau.errors import InputError, SignatureError


@noyau.op("f64[n], f64 -> f64[n]")
def scaled(x, by):
    return x * by


@noyau.op("f64[n], f64[n] -> low: f64[n], high: f64[n]")
def sorted_pair(x, w):
    return np.minimum(x, w), np.maximum(x, w)


@noyau.op("f64[*b, n] -> f64[*b]")
def energy(v):
    return (v * v).sum(-1)


@noyau.op("f64[*b, n] -> f64[*b, n]")
def centred(v):
    return v - v.mean(-1, keepdims=True)


FRAME = pd.DataFrame({"x": [1.0, 5, 3], "w": [4.0, 2, 6]}, index=pd.date_range("2026-01-01", periods=3))
CUBE = xr.DataArray(np.random.default_rng(0).normal(size=(4, 5, 6)), dims=("t", "y", "x"), coords={"t": [3, 1, 4, 2]})


def test_a_column_gives_a_column():
    got = scaled(FRAME["x"], 2.0)
    pd.testing.assert_series_equal(got, FRAME["x"] * 2)
    low, high = sorted_pair(FRAME["x"], w=FRAME["w"])
    pd.testing.assert_series_equal(low, FRAME.min(axis=1), check_names=False)
    assert low.name == high.name == "sorted_pair"
    assert energy(FRAME["x"]) == 35.0


def test_pipe_takes_columns_by_their_names():
    pd.testing.assert_series_equal(FRAME.pipe(scaled, by=2.0), FRAME["x"] * 2)
    low, _ = FRAME.pipe(sorted_pair)
    assert low.tolist() == [1, 2, 3] and low.index.equals(FRAME.index)
    assert FRAME.assign(y=lambda frame: scaled(frame["x"], 3.0))["y"].tolist() == [3, 15, 9]
    assert FRAME["x"].rolling(2).apply(energy, raw=True).tolist()[1:] == [26, 34]


def test_a_frame_without_such_columns_is_a_matrix():
    pd.testing.assert_frame_equal(FRAME.pipe(centred), FRAME.sub(FRAME.mean(axis=1), axis=0))
    pd.testing.assert_series_equal(FRAME.pipe(energy), (FRAME**2).sum(axis=1).rename("energy"))


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]"])
def test_nulls_of_nullable_columns_are_nan(dtype):
    got = scaled(pd.Series([1, None, 3], dtype=dtype), 2.0)
    np.testing.assert_array_equal(got.to_numpy(), [2, np.nan, 6])


def test_arrays_of_xarray():
    xr.testing.assert_allclose(centred(CUBE), CUBE - CUBE.mean("x"))
    assert isinstance(energy(CUBE), np.ndarray)
    want = (CUBE**2).sum("x")
    xr.testing.assert_allclose(xr.apply_ufunc(energy, CUBE, input_core_dims=[["x"]]), want)
    parallel = xr.apply_ufunc(
        energy, CUBE.chunk(t=2, y=3), input_core_dims=[["x"]], dask="parallelized", output_dtypes=[float]
    )
    assert parallel.chunks is not None
    xr.testing.assert_allclose(parallel.compute(), want)
    ends = {"input_core_dims": [["x"]], "output_core_dims": [["x"]]}
    rows = xr.apply_ufunc(centred, CUBE.chunk(t=1), dask="parallelized", output_dtypes=[float], **ends)
    xr.testing.assert_allclose(rows.compute(), CUBE - CUBE.mean("x"))


def refusals():
    moved = FRAME.shift(1, freq="D")
    yield InputError, "x and w are labelled otherwise: align them first$", lambda: sorted_pair(FRAME["x"], moved["w"])
    yield (
        InputError,
        "x and w are labelled otherwise",
        lambda: sorted_pair(CUBE[:, 0, 0], CUBE[::-1, 0, 0]),
    )
    yield InputError, "labelled otherwise: align them first, or xarray.apply_ufunc", lambda: sorted_pair(
        CUBE[:, 0, 0], CUBE[0, :4, 0])  # fmt: skip
    yield InputError, "labelled otherwise", lambda: sorted_pair(CUBE[:3, 0, 0], FRAME["x"])
    yield SignatureError, "sorted_pair takes 2 inputs", lambda: FRAME[["x"]].pipe(sorted_pair)
    yield SignatureError, r"x: i64\[2\] does not fit f64\[n\]; cast it", lambda: scaled(pd.Series([1, 2]), 1.0)


@pytest.mark.parametrize(
    ("kind", "message", "run"), list(refusals()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_bad_input_is_one_clear_error(kind, message, run):
    with pytest.raises(kind, match=message):
        run()
