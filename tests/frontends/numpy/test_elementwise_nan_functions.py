from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.numpy.traces import agrees, x


def with_nans(dtype=np.float32) -> np.ndarray:
    array = x(4, 5, dtype=dtype)
    if array.dtype.kind == "f":
        array[0, 1] = array[2, 3] = array[1] = np.nan
        array[3, 0] = -np.inf
    return array


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "nancumsum"])
def test_nan_is_passed_over(name, axis, dtype):
    agrees(lambda a: getattr(np, name)(a, axis=axis), with_nans(dtype))
    if name != "nancumsum":
        agrees(lambda a: getattr(np, name)(a, axis=axis, keepdims=True), with_nans(dtype))


def test_places_and_replacements():
    agrees(lambda a: (np.nanargmax(a, axis=0), np.nanargmin(a), np.nancumprod(a[:, 1:], 0)), with_nans())
    agrees(lambda a: np.nan_to_num(a, nan=7, neginf=-1) + np.nan_to_num(a), with_nans())

    def in_place(a):
        out = a.copy()
        np.nan_to_num(out, copy=False)
        return out

    agrees(in_place, with_nans(np.float64))
