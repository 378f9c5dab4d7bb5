"""Norms over the last axis, alone or of the sum with a residual."""

from __future__ import annotations

import numpy as np

from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


@op("float[*batch, n], float[n] -> float[*batch, n]")
def rms_norm(x: Floats, weight: Floats, *, eps: float = 1e-6) -> Floats:
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last axis (Zhang and Sennrich 2019).

    x: float[*batch, n]; weight: float[n]; gives float[*batch, n]. SignatureError where the shapes do not fit, or the
    dtypes are not alike."""
    return cast_like(_rms_norm(wide(x), weight, eps), x)


@op("float[*batch, n], float[*batch, n], float[n] -> out: float[*batch, n], total: float[*batch, n]")
def add_rms_norm(x: Floats, residual: Floats, weight: Floats, *, eps: float = 1e-6) -> tuple[Floats, Floats]:
    """`rms_norm` of total = x + residual, and total, which the next residual is.

    x, residual: float[*batch, n]; weight: float[n]; gives (normed, total), both float[*batch, n]. Of halves the norm
    is of the sum before it is rounded. SignatureError as for `rms_norm`."""
    total = wide(x) + residual
    return cast_like(_rms_norm(total, weight, eps), x), cast_like(total, x)


@op("float[*batch, n], float[n], float[n] -> float[*batch, n]")
def layer_norm(x: Floats, weight: Floats, bias: Floats, *, eps: float = 1e-5) -> Floats:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axis (Ba, Kiros and Hinton 2016).

    The variance is the mean of (x - mean(x))^2, never E[x^2] - E[x]^2. x: float[*batch, n]; weight, bias: float[n];
    gives float[*batch, n]. SignatureError where the shapes do not fit, or the dtypes are not alike."""
    return cast_like(_layer_norm(wide(x), weight, bias, eps), x)


@op("float[*batch, n], float[*batch, n], float[n], float[n] -> out: float[*batch, n], total: float[*batch, n]")
def add_layer_norm(
    x: Floats, residual: Floats, weight: Floats, bias: Floats, *, eps: float = 1e-5
) -> tuple[Floats, Floats]:
    """`layer_norm` of total = x + residual, and total, which the next residual is.

    x, residual: float[*batch, n]; weight, bias: float[n]; gives (normed, total), both float[*batch, n]. The norm is of
    total as it is returned, rounded to its dtype. SignatureError as for `layer_norm`."""
    total = wide(x) + residual
    return cast_like(_layer_norm(total, weight, bias, eps), x), cast_like(total, x)


def _rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    mean = np.mean(x * x, axis=-1, keepdims=True)
    normed: Floats = x / np.sqrt(mean + eps) * weight
    return normed


def _layer_norm(x: Floats, weight: Floats, bias: Floats, eps: float) -> Floats:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    normed: Floats = centred / np.sqrt(variance + eps) * weight + bias
    return normed
