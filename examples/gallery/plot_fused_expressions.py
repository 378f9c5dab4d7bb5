"""Session 4: fused expressions, from the boxes to one kernel
=============================================================

An expression is a chain of boxes, each with arrays in and an array out; fusing makes one loop of them. The page has two
examples: a piecewise linear function, whose slopes may be learnt, and the sum of log(sigmoid(x)) * y, a log-likelihood.
The broken twin takes the logarithm of a sigmoid that is 0. The fused operators that collections write by hand have a
page of their own, ``plot_twenty_operators.py``.

Run it: ``python examples/gallery/plot_fused_expressions.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn
from noyau.functions import softplus


@noyau.op("f32[rows, n], f32[rows, n] -> f32[rows]")
def log_sigmoid_mul_sum(x, y):
    return (-softplus(-x) * y).sum(-1)


# %%
# By hand
# -------
# log(sigmoid(x)) is -log(1 + exp(-x)), and for a negative x that is x - log(1 + exp(x)): no power is above 1.
SUMS = """
#include <math.h>
#include <stdint.h>

void sums(const float *x, const float *y, float *out, int64_t n, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        double sum = 0;
        for (int64_t k = row * n; k < (row + 1) * n; k++) sum += (double)(LOG_SIGMOID) * y[k];
        out[row] = sum;
    }
}
"""
STABLE = "(x[k] < 0 ? x[k] : 0) - log1pf(expf(-fabsf(x[k])))"
log_sigmoid_mul_sum.kernel(SUMS.replace("LOG_SIGMOID", STABLE), language="c", name="sums")


def twin() -> noyau.Op:
    """The same op by the logarithm of the sigmoid, which is 0 below -88, on large numbers."""

    def large(rng, rows=3, n=64):
        return tuple(100 * rng.standard_normal((2, rows, n), np.float32))

    signature = str(log_sigmoid_mul_sum.signature)
    broken = noyau.op(signature, inputs=large, name="log_sigmoid_mul_sum")(log_sigmoid_mul_sum.reference)
    text = SUMS.replace("LOG_SIGMOID", "logf(1 / (1 + expf(-x[k])))")
    broken.kernel(text, language="c", name="log_of_sigmoid", entry="sums")
    return broken


def gradient() -> None:
    """The gradient of a slope: the sum of the x on its side."""
    import torch

    x = torch.randn(1000)
    negative, positive = (torch.tensor(slope, requires_grad=True) for slope in (0.1, 2.0))
    found = torch.autograd.grad(nn.piecewise_linear(x, negative, positive).sum(), (negative, positive))
    wanted = x[x <= 0].sum(), x[x > 0].sum()
    close = all(torch.allclose(one, other, rtol=1e-4) for one, other in zip(found, wanted, strict=True))
    print(f"the gradients of the slopes are the sums of each side: {'right' if close else 'wrong'}")


def main() -> None:
    # %%
    # Right for every number, and the twin
    # ------------------------------------
    found = noyau.check(log_sigmoid_mul_sum, budget_s=1)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    x, y = np.random.default_rng(0).standard_normal((2, 256, 1024), np.float32)
    print(noyau.bench(log_sigmoid_mul_sum, (x, y), budget_s=0.5))

    # %%
    # Slopes that are learnt
    # ----------------------
    print("piecewise linear:", nn.piecewise_linear(np.float32([-2, -1, 0, 1, 2]), 0.5, 3.0))
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
