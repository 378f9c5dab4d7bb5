"""Positions as rotations."""

from __future__ import annotations

import numpy as np

from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


def _inputs(rng: np.random.Generator, batch: int = 2, heads: int = 3, n: int = 7, half: int = 8) -> tuple[Floats, ...]:
    """Tables of all positions from 0 on, with the usual base, for every head of a batch."""
    rates = 10000.0 ** -(np.arange(half) / max(half, 1))
    angles = np.tile(np.outer(np.arange(n), rates), 2)
    x = rng.standard_normal((batch, heads, n, 2 * half), np.float32)
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@op(
    "float[*batch, n, 2 * k], float[*tables, n, 2 * k], float[*tables, n, 2 * k] -> float[*batch, n, 2 * k]",
    inputs=_inputs,
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
