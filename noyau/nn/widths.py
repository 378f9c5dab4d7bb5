"""In which dtypes the ops compute, and what they return."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


def wide(x: Floats) -> Floats:
    """x as it is computed with: halves as float32, all else as it is. So a result is rounded to a half type once."""
    return x.astype(np.promote_types(x.dtype, np.float32))


def cast_like(result: Any, like: Floats) -> Floats:
    """The result in the dtype of an input."""
    narrow: Floats = result.astype(like.dtype)
    return narrow
