"""Softmax and its logarithm."""

from __future__ import annotations

import numpy as np

from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


@op("float[*batch, n] -> float[*batch, n]")
def softmax(x: Floats, *, axis: int = -1) -> Floats:
    """exp(x - max) / sum(exp(x - max)) along an axis: without the maximum, exp(89) is infinite in float32.

    x: float[*batch, n]; gives float[*batch, n]. A line of -inf alone is NaN, as in torch. SignatureError for a scalar,
    or for an axis that x has not."""
    wide_x = wide(x)
    powers = np.exp(wide_x - np.max(wide_x, axis=axis, keepdims=True, initial=-np.inf))
    return cast_like(powers / np.sum(powers, axis=axis, keepdims=True), x)


@op("float[*batch, n] -> float[*batch, n]")
def log_softmax(x: Floats, *, axis: int = -1) -> Floats:
    """x - max - log(sum(exp(x - max))) along an axis: the logarithm of `softmax`, also where that underflows.

    x: float[*batch, n]; gives float[*batch, n]. Errors as for `softmax`."""
    wide_x = wide(x)
    shifted = wide_x - np.max(wide_x, axis=axis, keepdims=True, initial=-np.inf)
    return cast_like(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)), x)
