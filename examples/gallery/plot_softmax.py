"""Session 4: softmax and the cross-entropy, without overflow
=============================================================

exp(89) is infinite in float32, so softmax first subtracts the maximum: the result is the same on paper, and every power
is at most 1. The cross-entropy of a label needs the logarithm of one cell of the softmax, log(sum(exp(x))) - x at the
label. It reads one row of logits and gives one number, and stores nothing as large as the logits in between. The broken
twin does not subtract the maximum.

Run it: ``python examples/gallery/plot_softmax.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn
from noyau.errors import InputError


@noyau.op("f32[rows, n] -> f32[rows, n]")
def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# %%
# By hand
# -------
# Three passes over a row that stays in the cache: its maximum, its powers and their sum, its quotients. A maximum by
# `>` loses a NaN, which the sum then brings back; a row of -inf gives NaN, as in NumPy.
PASSES = """
#include <math.h>
#include <stdint.h>

void by_rows(const float *x, float *out, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *cells = x + row * n;
        float *powers = out + row * n, top = TOP;
        double sum = 0;
        for (int64_t k = 0; k < n; k++) top = cells[k] > top ? cells[k] : top;
        for (int64_t k = 0; k < n; k++) sum += powers[k] = expf(cells[k] - SHIFT);
        for (int64_t k = 0; k < n; k++) powers[k] /= sum;
    }
}
"""
softmax.kernel(PASSES.replace("TOP", "-INFINITY").replace("SHIFT", "top"), language="c", name="by_rows")


def twin() -> noyau.Op:
    """The same op without the maximum, on large numbers."""

    def large(rng, rows=3, n=64):
        return (100 * rng.standard_normal((rows, n), np.float32),)

    broken = noyau.op("f32[rows, n] -> f32[rows, n]", inputs=large, name="softmax")(softmax.reference)
    text = PASSES.replace("TOP", "0").replace("SHIFT", "0 * top")
    broken.kernel(text, language="c", name="no_maximum", entry="by_rows")
    return broken


def losses() -> None:
    """The cross-entropy of the catalogue, with labels to be ignored, and with labels out of range."""
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((6, 10), np.float32), np.array([0, 9, -100, 3, 3, -100])
    print("each:", nn.cross_entropy(logits, labels, reduction="none").round(2))
    print("mean of those that count:", nn.cross_entropy(logits, labels).round(4))
    try:
        nn.cross_entropy(logits, labels + 1)
    except InputError as refusal:
        print(refusal)


def gradient() -> None:
    """softmax - one_hot(label), divided by the number of rows that count: derived, never written down."""
    import torch

    logits, labels = torch.randn(64, 1000, requires_grad=True), torch.randint(0, 1000, (64,))
    (found,) = torch.autograd.grad(nn.cross_entropy(logits, labels), logits)
    exact = logits.detach().double()
    wanted = (exact.softmax(-1) - torch.nn.functional.one_hot(labels, 1000)) / 64
    error = float((found - wanted).abs().max() / wanted.abs().max())
    told = "right" if error < 1e-5 else "wrong"
    print(f"the gradient of cross_entropy is within {error:.0e} of float64's: {told}")


def main() -> None:
    # %%
    # Right for every number
    # ----------------------
    found = noyau.check(softmax, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twin
    # ---------------
    # Right for small numbers, and NaN from 89 on: infinity over infinity.
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    x = np.random.default_rng(0).standard_normal((256, 1024), np.float32)
    print(noyau.bench(softmax, (x,), budget_s=0.5))

    # %%
    # The cross-entropy
    # -----------------
    losses()

    # %%
    # The gradient
    # ------------
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
