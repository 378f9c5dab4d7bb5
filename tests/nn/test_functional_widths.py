from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from noyau.nn.functional import cast_like, wide


@pytest.mark.parametrize(
    ("dtype", "computed"),
    [(np.float16, "float32"), (ml_dtypes.bfloat16, "float32"), (np.float32, "float32"), (np.float64, "float64")],
)
def test_halves_are_computed_with_as_float32_and_rounded_back(dtype, computed):
    x = np.zeros(2, dtype)
    assert wide(x).dtype == computed
    assert cast_like(wide(x), x).dtype == dtype
