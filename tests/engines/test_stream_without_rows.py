"""Streams of no rows, and options that are of no use to any."""

import numpy as np
import pyarrow as pa
import pytest

import noyau
from noyau.errors import InputError


@pytest.mark.parametrize(
    "source",
    [
        lambda: pa.table({"x": pa.array([], pa.float64())}),
        lambda: pa.RecordBatchReader.from_batches(pa.schema([("x", pa.float64())]), []),
        lambda: iter([pa.table({"x": pa.array([], pa.float64())})]),
        lambda: pa.table({"x": pa.array([], pa.float64())}).to_pandas(),
    ],
    ids=["a table", "a reader", "chunks", "a DataFrame"],
)
def test_arrow_data_without_batches_has_columns(source, tmp_path):
    @noyau.op("f64[n] -> f64")
    def total(x):
        return x.sum()

    @noyau.op("f64[n] -> y: f64[n]")
    def twice(x):
        return 2 * x

    result = noyau.stream(total, source())
    assert (result.value, result.rows) == (0.0, 0)
    assert noyau.stream(twice, source(), tmp_path / "y.npy").rows == 0
    assert np.load(tmp_path / "y.npy").shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2.5}, "workers=2.5 is no number of workers"),
        ({"workers": "two"}, "workers='two' is no number of workers"),
        ({"engine": 3}, "there is no engine '3'"),
    ],
)
def test_options_of_another_type_are_one_clear_error(options, message):
    with pytest.raises(InputError, match=message):
        noyau.stream(noyau.reductions.Top(2), np.arange(3.0), **options)
