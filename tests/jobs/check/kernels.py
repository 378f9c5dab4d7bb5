"""Kernels in NumPy, right and wrong, for the groups of tests/jobs/check/groups.py. Support for tests, not a test.

Each takes the inputs of its group, f32, and gives its outputs. The right ones do what generated kernels do: lanes,
blocks, one pass, other spellings. The wrong ones have the faults that kernels have.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

F = np.float32


def lanes(x, count=16):
    """The sum along the last axis as a vectorised loop has it: partial sums side by side, then joined."""
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % count), x.dtype)], -1)
    total = np.zeros((*x.shape[:-1], count), x.dtype)
    for start in range(0, padded.shape[-1], count):
        total = total + padded[..., start : start + count]
    while total.shape[-1] > 1:
        total = total[..., ::2] + total[..., 1::2]
    return total


def largest(x):
    return x.max(-1, keepdims=True, initial=-np.inf)


# Softmax.


def softmax(x):
    e = np.exp(x - largest(x))
    return [e / lanes(e)]


def softmax_by_reciprocal(x):
    e = np.exp(x - largest(x))
    return [e * (F(1) / lanes(e))]


def softmax_backwards(x):
    e = np.exp(x - largest(x))
    return [e / np.cumsum(e[..., ::-1], -1, dtype=F)[..., -1:] if x.shape[-1] else e]


def softmax_online(x, block=16):
    """Block after block, the sum scaled again whenever the maximum grows."""
    top, total = np.full((*x.shape[:-1], 1), -np.inf, F), np.zeros((*x.shape[:-1], 1), F)
    for start in range(0, x.shape[-1], block):
        part = x[..., start : start + block]
        grown = np.maximum(top, largest(part))
        scale = np.where(top == grown, F(1), np.exp(top - grown))
        total = total * scale + np.exp(part - grown).sum(-1, keepdims=True)
        top = grown
    return [np.exp(x - top) / total]


def softmax_in_double(x):
    e = np.exp(x.astype(float) - largest(x))
    return [(e / e.sum(-1, keepdims=True)).astype(F)]


def softmax_exp2(x):
    scale = np.float64(1.4426950408889634)
    e = np.exp2((x - largest(x)).astype(float) * scale).astype(F)
    return [e / lanes(e)]


def softmax_zeros(x):
    return [np.zeros_like(x)]


def softmax_constant(x):
    return [np.full_like(x, 1 / max(1, x.shape[-1]))]


def softmax_missed_column(x):
    e = np.exp(x - largest(x))
    return [e / lanes(e[..., :-1] if x.shape[-1] > 1 else e)]


def softmax_only_full_blocks(x, block=16):
    made = softmax(x)[0]
    made[..., x.shape[-1] // block * block :] = 0
    return [made]


def softmax_last_row_missing(x):
    made = softmax(x)[0]
    made[-1:] = 0
    return [made]


def softmax_flushed_tails(x):
    made = softmax(x)[0]
    return [np.where(np.abs(made) < np.finfo(F).tiny, F(0), made)]


def softmax_without_max(x):
    e = np.exp(x)
    return [e / lanes(e)]


def softmax_nan_dropped(x):
    top = np.fmax.reduce(x, -1, keepdims=True, initial=-np.inf)
    e = np.exp(x - top)
    return [e / np.nansum(e, -1, keepdims=True)]


def softmax_masked_rows_zero(x):
    top = largest(x)
    e = np.exp(x - np.where(np.isinf(top), F(0), top))
    return [e / np.maximum(lanes(e), np.finfo(F).tiny)]


def softmax_in_bfloat16(x):
    return [softmax(x)[0].astype(ml_dtypes.bfloat16).astype(F)]


def softmax_sum_in_half(x):
    e = np.exp(x - largest(x))
    return [e / e.astype(np.float16).sum(-1, keepdims=True, dtype=np.float16).astype(F)]


def softmax_shifted(x):
    return [np.roll(softmax(x)[0], 1, -1)]


def softmax_first_axis(x):
    e = np.exp(x - x.max(0, keepdims=True, initial=-np.inf))
    return [e / e.sum(0, keepdims=True)]


def softmax_exp_of_few_terms(x):
    """exp by a polynomial of degree 4: about 3e-6 off."""
    y = (x - largest(x)).astype(float) / np.log(2)
    whole = np.floor(y)
    t = (y - whole - 0.5) * np.log(2)
    e = np.ldexp(np.sqrt(2) * (1 + t + t**2 / 2 + t**3 / 6 + t**4 / 24), np.nan_to_num(whole).astype(int)).astype(F)
    e = np.where(np.isfinite(y), e, np.where(np.isnan(y), F(np.nan), F(0)))
    return [e / lanes(e)]


class Stale:
    """Gives its first result of each shape again and again."""

    def __init__(self):
        self.first = {}

    def __call__(self, x):
        return self.first.setdefault(x.shape, softmax(x))


# Layer norm.


def normed(x, w, b, mean, variance, eps=1e-5):
    return [(x - mean) / np.sqrt(variance + F(eps)) * w + b]


def layer_norm(x, w, b, eps=1e-5):
    n = F(x.shape[-1])
    mean = lanes(x) / n
    return normed(x, w, b, mean, lanes((x - mean) ** 2) / n, eps)


def layer_norm_backwards(x, w, b):
    flipped = layer_norm(x[..., ::-1], w[::-1], b[::-1])[0]
    return [flipped[..., ::-1]]


def layer_norm_rsqrt(x, w, b):
    n = F(x.shape[-1])
    mean = lanes(x) / n
    scale = F(1) / np.sqrt(lanes((x - mean) ** 2) / n + F(1e-5))
    return [(x - mean) * (scale * w) + b]


def layer_norm_one_pass(x, w, b, block=32):
    """Count, mean and squares of blocks, merged as Chan, Golub and LeVeque."""
    first = x[..., :block]
    count = F(first.shape[-1])
    mean = lanes(first) / count
    square = lanes((first - mean) ** 2)
    for start in range(block, x.shape[-1], block):
        part = x[..., start : start + block]
        size = F(part.shape[-1])
        own = lanes(part) / size
        delta, joined = own - mean, count + size
        square = square + lanes((part - own) ** 2) + delta * delta * (count * (size / joined))
        mean, count = mean + delta * (size / joined), joined
    return normed(x, w, b, mean, square / count)


def layer_norm_of_squares(x, w, b):
    n = F(x.shape[-1])
    mean = lanes(x) / n
    return normed(x, w, b, mean, np.maximum(lanes(x * x) / n - mean * mean, F(0)))


def layer_norm_wrong_eps(x, w, b):
    return layer_norm(x, w, b, 1e-6)


def layer_norm_swapped(x, w, b):
    return layer_norm(x, b, w)


def layer_norm_unbiased(x, w, b):
    n = F(x.shape[-1])
    mean = lanes(x) / n
    return normed(x, w, b, mean, lanes((x - mean) ** 2) / np.maximum(n - 1, F(1)))


def layer_norm_bias_lost(x, w, b):
    return layer_norm(x, w, np.zeros_like(b))


def layer_norm_in_half(x, w, b):
    return [layer_norm(x, w, b)[0].astype(np.float16).astype(F)]


def layer_norm_missed_column(x, w, b):
    n = F(x.shape[-1])
    mean = lanes(x[..., : max(1, x.shape[-1] - 1)]) / n
    return normed(x, w, b, mean, lanes((x - mean) ** 2) / n)


RIGHT = {
    "softmax": (
        softmax,
        softmax_by_reciprocal,
        softmax_backwards,
        softmax_online,
        softmax_in_double,
        softmax_exp2,
    ),
    "layer_norm": (layer_norm, layer_norm_backwards, layer_norm_rsqrt, layer_norm_one_pass),
}
WRONG = {
    "softmax": (
        softmax_zeros,
        softmax_constant,
        softmax_missed_column,
        softmax_only_full_blocks,
        softmax_last_row_missing,
        softmax_flushed_tails,
        softmax_without_max,
        softmax_nan_dropped,
        softmax_masked_rows_zero,
        softmax_in_bfloat16,
        softmax_sum_in_half,
        softmax_shifted,
        softmax_first_axis,
        softmax_exp_of_few_terms,
        Stale(),
    ),
    "layer_norm": (
        layer_norm_of_squares,
        layer_norm_wrong_eps,
        layer_norm_swapped,
        layer_norm_unbiased,
        layer_norm_bias_lost,
        layer_norm_in_half,
        layer_norm_missed_column,
    ),
}
