"""Session 4: activations and gates, and the end of a row
=========================================================

gelu, silu and their gated forms take a handful of operations per cell. Written in NumPy, each operation is a pass over
memory; fused, they are one pass. silu(x) = x / (1 + exp(-x)) and gelu(x) = x / 2 * (1 + erf(x / sqrt(2))); a gate
multiplies another array by that. There are two broken twins. One computes the sigmoid as exp(x) / (1 + exp(x)), which
is infinity over infinity from 89 on. The other goes through a row eight cells at a time and forgets the remainder at
its end.

Run it: ``python examples/gallery/plot_activations.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn


@noyau.op("f32[n], f32[n] -> f32[n]")
def swiglu(gate, up):
    return gate / (1 + np.exp(-gate)) * up


# %%
# By hand
# -------
GATE = """
#include <math.h>
#include <stdint.h>

void loop(const float *gate, const float *up, float *out, int64_t begin, int64_t end)
{
    for (int64_t k = begin; k < end; k++) out[k] = gate[k] * SIGMOID * up[k];
}
"""
swiglu.kernel(GATE.replace("SIGMOID", "(1 / (1 + expf(-gate[k])))"), language="c", name="loop")

BY_EIGHT = """
#include <math.h>

void by_eight(const float *gate, const float *up, float *out, long n)
{
    for (long k = 0; k + 8 <= n; k += 8)
        for (long lane = k; lane < k + 8; lane++) out[lane] = gate[lane] / (1 + expf(-gate[lane])) * up[lane];
}
"""


def twins() -> noyau.Op:
    """The same op with an exp that overflows, and without the remainder of a row, on large numbers."""

    def large(rng, n=61):
        return tuple(100 * rng.standard_normal((2, n), np.float32))

    broken = noyau.op("f32[n], f32[n] -> f32[n]", inputs=large, name="swiglu")(swiglu.reference)
    overflow = GATE.replace("SIGMOID", "(expf(gate[k]) / (1 + expf(gate[k])))")
    broken.kernel(overflow, language="c", name="overflow", entry="loop")
    broken.kernel(BY_EIGHT, language="c", name="by_eight")
    return broken


def catalogue() -> None:
    """The ops of the catalogue: one kernel each, in every float dtype."""
    x = np.linspace(-4, 4, 5, dtype=np.float32)
    for name, op in {"gelu": nn.gelu, "silu": nn.silu}.items():
        print(f"{name}: {op(x).round(3)}, in float16 {op(x.astype(np.float16)).round(3)}")
    print("gelu by tanh:", nn.gelu(x, approximate="tanh").round(3))
    print("geglu:", nn.geglu(x, x).round(3), "swiglu:", nn.swiglu(x, x).round(3))


def gradient() -> None:
    import torch

    for name in ("gelu", "silu"):
        x = torch.randn(1000, requires_grad=True)
        (found,) = torch.autograd.grad(getattr(nn, name)(x).sum(), x)
        exact = x.detach().double().requires_grad_()
        (wanted,) = torch.autograd.grad(getattr(torch.nn.functional, name)(exact).sum(), exact)
        error = float((found - wanted).abs().max())
        print(f"the gradient of {name} is within {error:.0e} of float64's: {'right' if error < 1e-5 else 'wrong'}")


def main() -> None:
    # %%
    # Right, also far from zero
    # -------------------------
    found = noyau.check(swiglu, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twins
    # ----------------
    print(noyau.check(twins(), budget_s=1, generated=False))

    # %%
    # The clock
    # ---------
    # The C library's expf is a call for each cell; the generated kernel has an exp that vectorises.
    gate, up = np.random.default_rng(0).standard_normal((2, 1 << 18), np.float32)
    print(noyau.bench(swiglu, (gate, up), budget_s=0.5))

    # %%
    # The others
    # ----------
    catalogue()
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
