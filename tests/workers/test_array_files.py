from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.errors import UnsupportedError
from noyau.workers.array_files import is_text, read_arrays, write_arrays

ARRAYS = {
    "f": np.arange(6, dtype=np.float32).reshape(2, 3),
    "strided": np.arange(6, dtype=np.int64).reshape(2, 3).T,
    "half": np.ones((3,), ml_dtypes.bfloat16),
    "scalar": np.array(True),
    "empty": np.zeros((0, 4), np.float64),
    "../evil name": np.array(7, np.uint8),
}


def test_arrays_come_back_as_they_were(tmp_path):
    back = read_arrays(write_arrays(ARRAYS, tmp_path))
    assert list(back) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == np.ascontiguousarray(array).tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{k}.bin" for k in range(len(ARRAYS))]


@pytest.mark.parametrize(
    "texts", [np.array([["a", "\u00e9\n"]]), np.array("x"), np.array([], "U1"), np.array(["a", "b"], object)]
)
def test_strings_come_back(texts, tmp_path):
    (back,) = read_arrays(write_arrays({"s": texts}, tmp_path)).values()
    assert is_text(back)
    assert back.tolist() == texts.tolist()
    assert back.shape == texts.shape


def test_a_dtype_that_noyau_does_not_have_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="the input 'z' holds complex64, which cannot go to another process"):
        write_arrays({"z": np.ones(2, np.complex64)}, tmp_path)
