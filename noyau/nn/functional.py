"""The ops of the catalogue: activations and their gated forms, norms, the cross-entropy, rotary embedding.

Halves are computed in float32, and rounded once."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noyau.errors import InputError
from noyau.functions import erf, sigmoid, softplus
from noyau.ops.op import op

__all__ = [
    "add_layer_norm", "add_rms_norm", "cross_entropy", "cross_entropy_each", "cross_entropy_mean", "cross_entropy_sum",
    "geglu", "gelu", "layer_norm", "log_sigmoid_mul_sum", "log_softmax", "piecewise_linear", "rms_norm", "rope", "silu",
    "softmax", "swiglu",
]  # fmt: skip
Floats = NDArray[Any]
Labels = NDArray[Any]


def wide(x: Floats) -> Floats:
    """Widen halves to float32, in which they are computed, so that a result is rounded to a half type once."""
    return x.astype(np.promote_types(x.dtype, np.float32))


def cast_like(result: Any, like: Floats) -> Floats:
    """The result in the dtype of an input."""
    narrow: Floats = result.astype(like.dtype)
    return narrow


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

    SignatureError where the shapes or the dtypes differ."""
    wide_gate = wide(gate)
    return cast_like(wide_gate * sigmoid(wide_gate) * up, gate)


@op("float[...], float[...] -> float[...]")
def geglu(gate: Floats, up: Floats, *, approximate: str = "none") -> Floats:
    """gelu(gate) * up (Shazeer 2020), the `approximate` of `gelu`. gate, up: float[...] of one shape; gives float[...].

    SignatureError where the shapes or the dtypes differ, InputError for an unknown approximation."""
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
    SignatureError where the shapes or the dtypes differ."""
    return cast_like(np.sum(-softplus(-wide(x)) * y, axis=-1), x)


@op("float[*batch, n] -> float[*batch, n]")
def softmax(x: Floats, *, axis: int = -1) -> Floats:
    """exp(x - max) / sum(exp(x - max)) along an axis: without the maximum, exp(89) is infinite in float32.

    x: float[*batch, n]; gives float[*batch, n]. A line of only -inf gives NaN, as in torch. SignatureError for a
    scalar, or for an axis that x does not have."""
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


@op("float[*batch, n], float[n] -> float[*batch, n]")
def rms_norm(x: Floats, weight: Floats, *, eps: float = 1e-6) -> Floats:
    """x / sqrt(mean(x^2) + eps) * weight, the mean over the last axis (Zhang and Sennrich 2019).

    x: float[*batch, n]; weight: float[n]; gives float[*batch, n]. SignatureError where shapes or dtypes do not fit."""
    return cast_like(_rms_norm(wide(x), weight, eps), x)


@op("float[*batch, n], float[*batch, n], float[n] -> out: float[*batch, n], total: float[*batch, n]")
def add_rms_norm(x: Floats, residual: Floats, weight: Floats, *, eps: float = 1e-6) -> tuple[Floats, Floats]:
    """`rms_norm` of total = x + residual, and total, which is the next residual.

    x, residual: float[*batch, n]; weight: float[n]; gives (normed, total), both float[*batch, n]. For halves the norm
    is of the sum before it is rounded. SignatureError as for `rms_norm`."""
    total = wide(x) + residual
    return cast_like(_rms_norm(total, weight, eps), x), cast_like(total, x)


@op("float[*batch, n], float[n], float[n] -> float[*batch, n]")
def layer_norm(x: Floats, weight: Floats, bias: Floats, *, eps: float = 1e-5) -> Floats:
    """(x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axis (Ba, Kiros and Hinton 2016).

    The variance is the mean of (x - mean(x))^2, never E[x^2] - E[x]^2. x: float[*batch, n]; weight, bias: float[n];
    gives float[*batch, n]. SignatureError where the shapes do not fit, or the dtypes differ."""
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


def _loss_inputs(rng: np.random.Generator, rows: int = 6, classes: int = 11) -> tuple[Floats, Labels]:
    """Logits, and labels of which some are ignored."""
    labels = rng.integers(0, max(classes, 1), rows)
    return rng.standard_normal((rows, classes), np.float32), np.where(rng.random(rows) < 0.2, -100, labels)


@op("float[*batch, classes], int[*batch] -> float[*batch]", inputs=_loss_inputs)
def cross_entropy_each(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """log(sum(exp(logits))) - logits[label] of each row, 0 where the label is `ignore_index`.

    logits: float[*batch, classes]; labels: int[*batch]; gives float[*batch]. InputError for a label that is neither
    `ignore_index` nor from 0 to classes - 1."""
    return cast_like(_losses(logits, labels, ignore_index), logits)


@op("float[*batch, classes], int[*batch] -> float", inputs=_loss_inputs)
def cross_entropy_sum(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """The sum of `cross_entropy_each`: a scalar in the dtype of the logits. InputError as for that."""
    return cast_like(np.sum(_losses(logits, labels, ignore_index)), logits)


@op("float[*batch, classes], int[*batch] -> float", inputs=_loss_inputs)
def cross_entropy_mean(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """The mean of `cross_entropy_each` over the labels that are not ignored, NaN if all are: a scalar in the dtype of
    the logits. InputError as for that."""
    losses = _losses(logits, labels, ignore_index)
    counted = np.sum(labels != ignore_index).astype(losses.dtype)
    return cast_like(np.sum(losses) / counted, logits)


def _losses(logits: Floats, labels: Labels, ignore_index: int) -> Floats:
    """The loss of each row, in the dtype of the computation."""
    wide_logits, classes = wide(logits), logits.shape[-1]
    top = np.max(wide_logits, axis=-1, initial=-np.inf)
    normaliser = top + np.log(np.sum(np.exp(wide_logits - top[..., None]), axis=-1))
    ignored = labels == ignore_index
    inside = np.where(labels < 0, classes, labels)  # NumPy would count -1 from the end; here it is outside
    picked = np.take_along_axis(wide_logits, np.where(ignored, 0, inside)[..., None], axis=-1)[..., 0]
    return cast_like(np.where(ignored, 0, normaliser - picked), wide_logits)


_REDUCED = {"mean": cross_entropy_mean, "sum": cross_entropy_sum, "none": cross_entropy_each}


def cross_entropy(logits: Any, labels: Any, *, reduction: str = "mean", ignore_index: int = -100) -> Any:
    """The cross-entropy by its reduction: `cross_entropy_mean`, `cross_entropy_sum`, or "none", `cross_entropy_each`.

    Classes are the last axis, in torch the second; for logits of two axes these are the same. InputError for another
    reduction, and for labels out of range."""
    if reduction not in _REDUCED:
        raise InputError(f"cross_entropy: reduction is {reduction!r}; there are 'mean', 'sum' and 'none'")
    return _REDUCED[reduction](logits, labels, ignore_index=ignore_index)


def _rope_inputs(
    rng: np.random.Generator, batch: int = 2, heads: int = 3, n: int = 7, half: int = 8
) -> tuple[Floats, ...]:
    """Tables of all positions from 0 on, with the usual base, for every head of a batch."""
    rates = 10000.0 ** -(np.arange(half) / max(half, 1))
    angles = np.tile(np.outer(np.arange(n), rates), 2)
    x = rng.standard_normal((batch, heads, n, 2 * half), np.float32)
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@op(
    "float[*batch, n, 2 * k], float[*tables, n, 2 * k], float[*tables, n, 2 * k] -> float[*batch, n, 2 * k]",
    inputs=_rope_inputs,
)
def rope(x: Floats, cos: Floats, sin: Floats, *, interleaved: bool = False) -> Floats:
    """Rotary embedding: x * cos + rotated(x) * sin, each pair of cells turned by its angle (Su and others 2021).

    Pairs are cell k of the first half with cell k of the second (LLaMA, GPT-NeoX), or cells 2k and 2k + 1 where
    `interleaved` (the paper, GPT-J). x: float[*batch, n, d], d even; cos, sin: float[*tables, n, d], whose leading axes
    are broadcast to those of x, each angle there for both cells of its pair; gives float[*batch, n, d]. SignatureError
    where d is odd or the shapes do not fit."""
    wide_x = wide(x)
    half = x.shape[-1] // 2
    if interleaved:
        pairs = wide_x.reshape(*x.shape[:-1], half, 2)
        turned = np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1).reshape(x.shape)
    else:
        turned = np.concatenate([-wide_x[..., half:], wide_x[..., :half]], axis=-1)
    return cast_like(wide_x * cos + turned * sin, x)
