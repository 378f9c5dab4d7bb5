"""The cross-entropy of logits and integer labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from noyau.errors import InputError
from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op

Labels = NDArray[Any]


def _inputs(rng: np.random.Generator, rows: int = 6, classes: int = 11) -> tuple[Floats, Labels]:
    """Logits, and labels of which some are ignored."""
    labels = rng.integers(0, max(classes, 1), rows)
    return rng.standard_normal((rows, classes), np.float32), np.where(rng.random(rows) < 0.2, -100, labels)


@op("float[*batch, classes], int[*batch] -> float[*batch]", inputs=_inputs)
def cross_entropy_each(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """log(sum(exp(logits))) - logits[label] of each row, 0 where the label is `ignore_index`.

    logits: float[*batch, classes]; labels: int[*batch]; gives float[*batch]. InputError for a label that is neither
    `ignore_index` nor from 0 to classes - 1."""
    return cast_like(_losses(logits, labels, ignore_index), logits)


@op("float[*batch, classes], int[*batch] -> float", inputs=_inputs)
def cross_entropy_sum(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """The sum of `cross_entropy_each`: a scalar of the dtype of the logits. InputError as there."""
    return cast_like(np.sum(_losses(logits, labels, ignore_index)), logits)


@op("float[*batch, classes], int[*batch] -> float", inputs=_inputs)
def cross_entropy_mean(logits: Floats, labels: Labels, *, ignore_index: int = -100) -> Floats:
    """The mean of `cross_entropy_each` over the labels that are not ignored, NaN where all are: a scalar of the dtype
    of the logits. InputError as there."""
    losses = _losses(logits, labels, ignore_index)
    counted = np.sum(labels != ignore_index).astype(losses.dtype)
    return cast_like(np.sum(losses) / counted, logits)


def _losses(logits: Floats, labels: Labels, ignore_index: int) -> Floats:
    """The loss of each row, in the dtype in which it is computed."""
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

    Classes are the last axis, where torch has them second; for logits of two axes that is one. InputError for another
    reduction, and for labels out of range."""
    if reduction not in _REDUCED:
        raise InputError(f"cross_entropy: reduction is {reduction!r}; there are 'mean', 'sum' and 'none'")
    return _REDUCED[reduction](logits, labels, ignore_index=ignore_index)
