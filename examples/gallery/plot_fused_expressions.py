"""Session 4: fused expressions, from the boxes to one kernel
=============================================================

An expression is boxes, each with arrays in and an array out; fusing makes one loop of them. Two to learn by: a
piecewise linear function, whose slopes may be learnt, and the sum of log(sigmoid(x)) * y, a log-likelihood. And the
twenty fused operators that collections write by hand, AddMul, MulSigmoid, NegXplus1 and the like: none of them is
anywhere in noyau. Each is derived from its plain subgraph, with broadcasting, at any size. The broken twin takes the
logarithm of a sigmoid that is 0.

Run it: ``python examples/gallery/plot_fused_expressions.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn
from noyau.functions import cast, sigmoid, softplus


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


# %%
# The twenty operators
# --------------------
# Each as it would be written in NumPy, with the shapes of what it reads: all of them broadcast.
def rotary(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def scattered(rows, at, *, n=8):
    out = np.zeros((n, rows.shape[-1]), np.float32)
    np.add.at(out, at, rows)
    return out


def scattered_masked(rows, at, *, n=8, masked=-1):
    out = np.zeros((n, rows.shape[-1]), np.float32)
    np.add.at(out, np.where(at == masked, 0, at), np.where((at == masked)[:, None], np.float32(0), rows))
    return out


A, B, C = (3, 4, 6), (4, 6), (6,)
TWENTY = {
    "AddAdd": (lambda x, y, z: x + y + z, (A, B, C)),
    "AddAddAdd": (lambda x, y, z, w: x + y + z + w, (A, B, C, A)),
    "MulMul": (lambda x, y, z: x * y * z, (A, B, C)),
    "MulMulMul": (lambda x, y, z, w: x * y * z * w, (A, B, C, A)),
    "AddMul": (lambda x, y, z: (x + y) * z, (A, B, C)),
    "AddMul, transposed": (lambda x, y, z: ((x + y) * z).transpose(0, 2, 1), (A, B, C)),
    "MulAdd": (lambda x, y, z: x * y + z, (A, B, C)),
    "SubMul": (lambda x, y, z: (x - y) * z, (A, B, C)),
    "SubMul, negative": (lambda x, y, z: (y - x) * z, (A, B, C)),
    "MulSub": (lambda x, y, z: x * y - z, (A, B, C)),
    "AddSharedInput": (lambda x, y, z: (x + y, x + z), (A, B, C)),
    "MulSharedInput": (lambda x, y, z: (x * y, x * z), (A, B, C)),
    "MulSigmoid": (lambda x: x * sigmoid(x), (A,)),
    "MulMulSigmoid": (lambda x, y: x * y * sigmoid(y), (A, B)),
    "NegXplus1": (lambda x: 1 - x, (A,)),
    "ReplaceZero": (lambda x: np.where(x == 0, np.float32(7), x), (A,)),
    "Rotary": (rotary, (A,)),
    "Transpose2DCast to float16": (lambda x: cast(x.T, "f16"), (B,)),
    "TriMatrix": (lambda x: np.tril(x) + np.triu(np.ones_like(x), 1) * 9, ((5, 5),)),
}
FROM_HALF = {"Transpose2DCast from float16": lambda x: cast(x.T, "f32")}
SCATTERED = {"ScatterNDOfShape": scattered, "MaskedScatterNDOfShape": scattered_masked}


def twenty() -> None:
    """Each by its kernel, against NumPy."""
    rng = np.random.default_rng(0)
    for name, (function, shapes) in TWENTY.items():
        tell(name, function, [rng.standard_normal(shape, np.float32).round(1) for shape in shapes])
    for name, function in FROM_HALF.items():
        tell(name, function, [rng.standard_normal(B).astype(np.float16)])
    for name, function in SCATTERED.items():
        tell(name, function, [rng.standard_normal((9, 4), np.float32), rng.integers(-1, 8, 9)])


def tell(name, function, arrays) -> None:
    """Whether an operator gives what NumPy gives, and by what."""
    op = noyau.op(function)
    pairs = [np.atleast_1d(each) for each in (op(*arrays), function(*arrays))]
    same = np.allclose(*(each.astype(np.float64) for each in pairs), rtol=1e-5, atol=1e-6)
    how = str(op.explain(*arrays)).splitlines()[1].split(",")[0].strip()
    print(f"{name:30} {'right' if same else 'WRONG'}: {how}")


def gradient() -> None:
    """The gradient of a slope is the sum of the x on its side."""
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
    # Derived, each of them
    # ---------------------
    twenty()
    print("piecewise linear:", nn.piecewise_linear(np.float32([-2, -1, 0, 1, 2]), 0.5, 3.0))
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
