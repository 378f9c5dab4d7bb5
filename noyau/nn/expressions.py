"""Small expressions, by which fusion is taught."""

from __future__ import annotations

import numpy as np

from noyau.functions import softplus
from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


@op("float[...], float, float -> float[...]")
def piecewise_linear(x: Floats, negative: Floats, positive: Floats) -> Floats:
    """positive * x where x > 0, negative * x elsewhere: a line with a knee at 0 whose two slopes may be learnt.

    x: float[...]; negative, positive: scalars; gives float[...]. The gradient of a slope is the sum of the x on its
    side. At 0 it is `negative`, as of torch's leaky_relu."""
    wide_x = wide(x)
    return cast_like(np.where(x > 0, wide_x * positive, wide_x * negative), x)


@op("float[*batch, n], float[*batch, n] -> float[*batch]")
def log_sigmoid_mul_sum(x: Floats, y: Floats) -> Floats:
    """sum(log(sigmoid(x)) * y) over the last axis: a log-likelihood of a logistic model, y the weights.

    log(sigmoid(x)) is -log(1 + exp(-x)), which is finite wherever x is. x, y: float[*batch, n]; gives float[*batch].
    SignatureError where the shapes or the dtypes are not alike."""
    return cast_like(np.sum(-softplus(-wide(x)) * y, axis=-1), x)
