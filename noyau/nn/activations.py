"""Activations, and their gated forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.functions import erf, sigmoid, softplus
from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


@op("float[...] -> float[...]")
def gelu(x: Floats, *, approximate: str = "none") -> Floats:
    """x * P(X <= x) of a standard normal X (Hendrycks and Gimpel 2016): x / 2 * (1 + erf(x / sqrt(2))).

    approximate="tanh": x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), of the same paper. x: float[...]; gives
    float[...]. InputError for another approximation."""
    return cast_like(_gelu(wide(x), approximate), x)


@op("float[...] -> float[...]")
def silu(x: Floats) -> Floats:
    """x * sigmoid(x) (Elfwing, Uchibe and Doya 2017). x: float[...]; gives float[...]."""
    wide_x = wide(x)
    return cast_like(wide_x * sigmoid(wide_x), x)


@op("float[...], float[...] -> float[...]")
def swiglu(gate: Floats, up: Floats) -> Floats:
    """silu(gate) * up (Shazeer 2020). gate, up: float[...] of one shape; gives float[...].

    SignatureError where the shapes or the dtypes are not alike."""
    wide_gate = wide(gate)
    return cast_like(wide_gate * sigmoid(wide_gate) * up, gate)


@op("float[...], float[...] -> float[...]")
def geglu(gate: Floats, up: Floats, *, approximate: str = "none") -> Floats:
    """gelu(gate) * up (Shazeer 2020), the `approximate` of `gelu`. gate, up: float[...] of one shape; gives float[...].

    SignatureError where the shapes or the dtypes are not alike, InputError for an approximation that there is not."""
    return cast_like(_gelu(wide(gate), approximate) * up, gate)


def _gelu(x: Floats, approximate: str) -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    raise InputError(f"gelu: approximate is {approximate!r}; there are 'none' and 'tanh'")


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
