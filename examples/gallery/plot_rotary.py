"""Session 4: rotary embedding, a pair at a time
================================================

Rotary embedding turns pairs of cells by an angle that grows with the position: (a, b) becomes (a cos - b sin, b cos + a
sin). Half of the models pair the first half of a row with the second; the other half pair neighbours. Either way each
result reads two places of a row. In NumPy that is a copy with the halves exchanged; in a kernel it is an index. Two
broken twins: in one the sign is on the wrong half, in the other the halves are exchanged without a sign.

Run it: ``python examples/gallery/plot_rotary.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau
from noyau import nn


def tables(n, d, base=10000.0):
    """cos and sin of each position times each rate, once for each cell of a pair: f32[n, d]."""
    angles = np.outer(np.arange(n), base ** -(np.arange(d // 2) / max(d // 2, 1)))
    return tuple(f(np.tile(angles, 2)).astype(np.float32) for f in (np.cos, np.sin))


def inputs(rng, heads=3, n=5, k=4):
    return rng.standard_normal((heads, n, 2 * k), np.float32), *tables(n, 2 * k)


SIGNATURE = "f32[heads, n, 2 * k], f32[n, 2 * k], f32[n, 2 * k] -> f32[heads, n, 2 * k]"


@noyau.op(SIGNATURE, inputs=inputs)
def rope(x, cos, sin):
    k = x.shape[-1] // 2
    return x * cos + np.concatenate([-x[..., k:], x[..., :k]], -1) * sin


# %%
# By hand
# -------
# Each pair is read once, and both of its cells are written. The value of `k` follows from the shapes.
PAIRS = """
#include <stdint.h>

void pairs(const float *x, const float *cos, const float *sin, float *out, int64_t n, int64_t k, int64_t begin,
           int64_t end)
{
    for (int64_t head = begin; head < end; head++)
        for (int64_t at = 0; at < n; at++) {
            const float *cell = x + (head * n + at) * 2 * k, *c = cos + at * 2 * k, *s = sin + at * 2 * k;
            float *turned = out + (head * n + at) * 2 * k;
            for (int64_t i = 0; i < k; i++) {
                turned[i] = cell[i] * c[i] FIRST cell[k + i] * s[i];
                turned[k + i] = cell[k + i] * c[k + i] SECOND cell[i] * s[k + i];
            }
        }
}
"""
rope.kernel(PAIRS.replace("FIRST", "-").replace("SECOND", "+"), language="c", name="pairs")


def twins() -> noyau.Op:
    """The same op with a turn in the opposite direction, and with no sign at all."""
    broken = noyau.op(SIGNATURE, inputs=inputs, name="rope")(rope.reference)
    wrong = {"wrong_way": ("+", "-"), "no_sign": ("+", "+")}
    for name, (first, second) in wrong.items():
        text = PAIRS.replace("FIRST", first).replace("SECOND", second)
        broken.kernel(text, language="c", name=name, entry="pairs")
    return broken


def gradient() -> None:
    """The gradient of a turn is the inverse turn."""
    import torch

    x = torch.randn(3, 50, 64, requires_grad=True)
    cos, sin = map(torch.from_numpy, tables(50, 64))
    upstream = torch.randn(3, 50, 64)
    (found,) = torch.autograd.grad(nn.rope(x, cos, sin), x, upstream)
    error = float((found - nn.rope(upstream, cos, -sin)).abs().max())
    print(f"the gradient is the turn back, within {error:.0e}: {'right' if error < 1e-5 else 'wrong'}")


def main() -> None:
    # %%
    # Right
    # -----
    found = noyau.check(rope, budget_s=1)
    print(found)
    found.raise_if_bad()

    # %%
    # The broken twins
    # ----------------
    # At position 0 all angles are 0, and both look right. Lengths are a weak test: a turn keeps the length of a pair,
    # which the twin without a sign does not, but the turn in the wrong direction does.
    print(noyau.check(twins(), budget_s=1, generated=False))

    # %%
    # The scores of attention
    # -----------------------
    # The product of a query and a key depends on the distance of their positions, and on nothing else.
    rng = np.random.default_rng(0)
    q, k = (np.broadcast_to(each, (100, 64)) for each in rng.standard_normal((2, 64), np.float32))
    turned = [nn.rope(each, *tables(100, 64)) for each in (q, k)]
    print("7 apart, at 10 and at 80:", *(f"{turned[0][at + 7] @ turned[1][at]:.3f}" for at in (10, 80)))

    # %%
    # The clock
    # ---------
    print(noyau.bench(rope, inputs(rng, 16, 128, 32), budget_s=0.5))
    print("neighbours as pairs:", nn.rope(np.float32([[1, 0]]), *np.float32([[[0, 0]], [[1, 1]]]), interleaved=True))
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
