"""Session 4: norms, and the variance that cancels
==================================================

A layer of a transformer adds its result to its input, and normalises the sum. Written in NumPy that is a dozen passes
over memory. One kernel makes one pass: a row is read, added, and stays in the cache while its mean, its variance and
its result are computed. The variance is the mean of the squared distances from the mean. The broken twin saves a pass
with E[x^2] - E[x]^2, which is equal on paper, but in float32 is the difference of two large numbers.

Run it: ``python examples/gallery/plot_norms.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn


@noyau.op("f32[rows, n], f32[rows, n], f32[n], f32[n] -> out: f32[rows, n], total: f32[rows, n]")
def add_layer_norm(x, residual, weight, bias, *, eps=1e-5):
    total = x + residual
    centred = total - total.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias, total


# %%
# By hand
# -------
# One row after another, from `begin` to `end`, so that threads share them. The sums are in double: one chain in float
# would lose more digits than NumPy does.
HEAD = """
#include <math.h>
#include <stdint.h>

void by_rows(const float *x, const float *residual, const float *weight, const float *bias, float *out, float *total,
             int64_t n, float eps, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        float *sums = total + row * n, *normed = out + row * n;
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < n; k++) sums[k] = x[row * n + k] + residual[row * n + k];
"""
TAIL = """
        const float mean = sum / n, scale = 1 / sqrt(variance + eps);
        for (int64_t k = 0; k < n; k++) normed[k] = (sums[k] - mean) * scale * weight[k] + bias[k];
    }
}
"""
TWO_PASSES = """
        for (int64_t k = 0; k < n; k++) sum += sums[k];
        for (int64_t k = 0; k < n; k++) squares += (sums[k] - sum / n) * (sums[k] - sum / n);
        const double variance = squares / n;
"""
add_layer_norm.kernel(HEAD + TWO_PASSES + TAIL, language="c", name="by_rows")

ONE_PASS = """
        for (int64_t k = 0; k < n; k++) sum += sums[k], squares += sums[k] * sums[k];
        const float variance = (float)squares / n - (float)(sum / n) * (float)(sum / n);
"""


def twin() -> noyau.Op:
    """The same op with E[x^2] - E[x]^2, on numbers far from 0."""

    def far(rng, rows=3, n=256):
        x, residual = rng.standard_normal((2, rows, n), np.float32) + np.float32(1000)
        return x, residual, np.ones(n, np.float32), np.zeros(n, np.float32)

    broken = noyau.op(str(add_layer_norm.signature), inputs=far, name="add_layer_norm")(add_layer_norm.reference)
    broken.kernel(HEAD + ONE_PASS + TAIL, language="c", name="one_pass", entry="by_rows")
    return broken


def gradient() -> None:
    """The op of the catalogue on tensors: its gradient is derived from the same reference."""
    import torch

    x, weight = torch.randn(64, 512, requires_grad=True), torch.rand(512, requires_grad=True)
    rows = nn.rms_norm(x, weight)
    found = torch.autograd.grad((rows * rows).sum(), (x, weight))
    exact = [each.detach().double().requires_grad_() for each in (x, weight)]
    squares = torch.nn.functional.rms_norm(exact[0], (512,), exact[1], 1e-6) ** 2
    wanted = torch.autograd.grad(squares.sum(), exact)
    error = max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(found, wanted, strict=True))
    print(f"the gradient of rms_norm is within {error:.0e} of float64's: {'right' if error < 1e-5 else 'wrong'}")


def main() -> None:
    # %%
    # Right, also where the mean is large
    # -----------------------------------
    found = noyau.check(add_layer_norm, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twin
    # ---------------
    # With numbers around 0 it looks right. Around 1000 no digit of the variance is left.
    rng = np.random.default_rng(0)
    far = (rng.standard_normal((1, 256)) + 1000).astype(np.float32)
    print("std", far.std(dtype=np.float64), "by two means", np.sqrt(abs((far * far).mean() - far.mean() ** 2)))
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    # NumPy, the loop by hand, and the generated kernel, against the bytes that must move: four arrays.
    given = [rng.standard_normal((256, 1024), np.float32) for _ in range(2)]
    weights = [np.ones(1024, np.float32), np.zeros(1024, np.float32)]
    print(noyau.bench(add_layer_norm, (*given, *weights), budget_s=0.5))

    # %%
    # The gradient
    # ------------
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
