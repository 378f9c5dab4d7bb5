"""Tensors as arrays: every way that a dtype's cells can be written."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from noyau.errors import ModelError
from noyau.frontends.onnx.reader import Initializers
from noyau.frontends.onnx.tensors import array_of

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.bool_]
DTYPES += [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("raw", [True, False])
def test_cells_as_bytes_and_as_numbers(dtype, raw):
    values = np.array([[0, 1, 2], [3, 4, 100]]).astype(dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if raw:
        tensor = onnx.helper.make_tensor("w", number, values.shape, values.tobytes(), raw=True)
    else:
        tensor = onnx.helper.make_tensor("w", number, values.shape, values.astype(np.float64).ravel().tolist())
    got = array_of(tensor, None)
    assert got is not None
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("dims", [[5], [2, 2], []])
def test_more_or_fewer_cells_than_the_shape_says(dims):
    tensor = onnx.helper.make_tensor("w", 1, [3], [1.0, 2.0, 3.0])
    del tensor.dims[:]
    tensor.dims.extend(dims)
    with pytest.raises(ModelError, match="holds 3 elements"):
        array_of(tensor, None)


def test_bytes_that_are_no_whole_cells():
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[2], raw_data=b"1234567")
    with pytest.raises(ModelError, match="'w'"):
        array_of(tensor, None)


def test_a_type_that_noyau_has_not():
    tensor = onnx.helper.make_tensor("w", onnx.TensorProto.STRING, [1], [b"a"])
    assert array_of(tensor, None) is None
    with pytest.raises(ModelError, match="none that noyau has"):
        Initializers({"w": tensor}, None).load("w")


def test_a_sparse_tensor_by_coordinates():
    values = onnx.helper.make_tensor("w", 1, [2], [5.0, 7.0])
    places = onnx.helper.make_tensor("i", 7, [2, 2], [0, 1, 1, 2])
    sparse = onnx.helper.make_sparse_tensor(values, places, [2, 3])
    np.testing.assert_array_equal(Initializers({"w": sparse}, None).load("w"), [[0, 5, 0], [0, 0, 7]])


@pytest.mark.parametrize("place", [-1, 6, 2**62])
def test_a_sparse_tensor_that_names_cells_it_has_not(place):
    values = onnx.helper.make_tensor("w", 1, [1], [5.0])
    places = onnx.helper.make_tensor("i", 7, [1], [place])
    sparse = onnx.helper.make_sparse_tensor(values, places, [2, 3])
    with pytest.raises(ModelError, match="names cells that it has not"):
        Initializers({"w": sparse}, None).load("w")
