"""Session 4: attention as a fused expression
============================================

Attention is two products with a softmax between them. The array between them grows with the square of the sequence. It
is written to memory, and read for the maximum, for the sum, for the quotient, and for the second product. noyau fuses
the mask, the scale and the softmax into one kernel and leaves the products to BLAS. The kernel by hand computes
everything row by row, and keeps no row of scores at all: when a larger score comes, the results so far are scaled down
to it (Milakov and Gimelshein 2018; Dao and others 2022). Its broken twin scales the sum down but forgets the row of
results.

Run it: ``python examples/gallery/plot_attention.py`` (needs a C compiler; the gradient also ``torch``).
"""

from __future__ import annotations

import importlib.util

import numpy as np

import noyau


def inputs(rng, heads=2, n=33, d=16):
    """Finite numbers: the reference multiplies an infinity behind the mask by 0, which gives NaN; a kernel that skips
    masked cells never reads it."""
    return tuple(rng.standard_normal((3, heads, n, d), np.float32))


@noyau.op("f32[heads, n, d], f32[heads, n, d], f32[heads, n, d] -> f32[heads, n, d]", inputs=inputs)
def attention(q, k, v):
    """Attention of each position to itself and to earlier positions."""
    n, d = q.shape[-2:]
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(d))
    scores = np.where(np.arange(n)[:, None] >= np.arange(n), scores, np.float32(-np.inf))
    powers = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True) @ v


# %%
# In steps
# --------
@attention.kernel(returns=True)
def step_by_step(q, k, v):
    """The scores of one row at a time, in NumPy."""
    made = np.empty_like(q)
    for head in range(len(q)):
        for row in range(q.shape[1]):
            scores = k[head, : row + 1] @ q[head, row] / np.sqrt(np.float32(q.shape[2]))
            powers = np.exp(scores - scores.max(initial=-np.inf))
            made[head, row] = powers @ v[head, : row + 1] / powers.sum()
    return made


# %%
# No row of scores
# ----------------
ONLINE = """
#include <math.h>
#include <stdint.h>

void online(const float *q, const float *k, const float *v, float *out, int64_t heads, int64_t n, int64_t d,
            int64_t begin, int64_t end)
{
    for (int64_t head = begin; head < end; head++)
        for (int64_t row = 0; row < n; row++) {
            const float *own = q + (head * n + row) * d;
            float *result = out + (head * n + row) * d, top = -INFINITY, total = 0;
            for (int64_t at = 0; at < d; at++) result[at] = 0;
            for (int64_t other = 0; other <= row; other++) {
                const float *key = k + (head * n + other) * d, *value = v + (head * n + other) * d;
                float score = 0;
                for (int64_t at = 0; at < d; at++) score += own[at] * key[at];
                score /= sqrtf((float)d);
                if (score > top) {
                    float less = expf(top - score);
                    total *= less;
                    RESCALE
                    top = score;
                }
                float power = expf(score - top);
                total += power;
                for (int64_t at = 0; at < d; at++) result[at] += power * value[at];
            }
            for (int64_t at = 0; at < d; at++) result[at] /= total;
        }
}
"""
attention.kernel(
    ONLINE.replace("RESCALE", "for (int64_t at = 0; at < d; at++) result[at] *= less;"), language="c", name="online"
)


def twin() -> noyau.Op:
    """The same op with a kernel whose results keep the scale at which they were added."""
    broken = noyau.op(str(attention.signature), name="attention", inputs=inputs)(attention.reference)
    broken.kernel(ONLINE.replace("RESCALE", ""), language="c", name="never_rescaled", entry="online")
    return broken


def gradient() -> None:
    """The derived gradient: the gradients of products are products, and the gradient of the softmax between is one
    kernel."""
    import torch

    leaves = [torch.randn(2, 33, 16, requires_grad=True) for _ in range(3)]
    exact = [each.detach().double().requires_grad_() for each in leaves]
    found = torch.autograd.grad(attention(*leaves).square().sum(), leaves)
    wanted = torch.nn.functional.scaled_dot_product_attention(*exact, is_causal=True)
    pairs = zip(found, torch.autograd.grad(wanted.square().sum(), exact), strict=True)
    error = max(float((one - other).abs().max() / other.abs().max()) for one, other in pairs)
    told = "right" if error < 1e-5 else "wrong"
    print(f"the gradient of attention is within {error:.0e} of float64's: {told}")


def main() -> None:
    # %%
    # Right, and the twin
    # -------------------
    # The first position attends to itself alone. Its first score is the largest so far, so the twin is right there.
    found = noyau.check(attention, budget_s=1)
    print(found)
    found.raise_if_bad()
    print(noyau.check(twin(), budget_s=1, generated=False))

    # %%
    # What is fused
    # -------------
    print(attention.explain(*np.zeros((3, 2, 5, 4), np.float32)))
    heads, n, d = 4, 128, 32
    print(f"scores: {heads * n * n * 4} bytes, each row of them {n * 4}; q, k, v and the result: {16 * heads * n * d}")

    # %%
    # The clock
    # ---------
    rng = np.random.default_rng(0)
    given = rng.standard_normal((3, heads, n, d), np.float32)
    print(noyau.bench(attention, tuple(given), budget_s=0.5, cold=False))

    # %%
    # The gradient
    # ------------
    if importlib.util.find_spec("torch"):
        gradient()
    else:
        print("the gradient is left out: torch is not installed")


if __name__ == "__main__":
    main()
