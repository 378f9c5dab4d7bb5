"""Activations, and their gated forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.functions import erf, sigmoid
from noyau.nn.widths import Floats, cast_like, wide
from noyau.ops.op import op


@op("float[...] -> float[...]")
def gelu(x: Floats, *, approximate: str = "none") -> Floats:
    """x * P(X <= x) of a standard normal X (Hendrycks and Gimpel 2016): x / 2 * (1 + erf(x / sqrt(2))).

    approximate="tanh": x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), of the same paper. x: float[...]; gives
    float[...]. InputError for another approximation."""
    return cast_like(_gelu(wide(x), approximate), x)


@op("float[...] -> float[...]")
def silu(x: Floats) -> Floats:
    """x * sigmoid(x) (Elfwing, Uchibe and Doya 2017). x: float[...]; gives float[...]."""
    wide_x = wide(x)
    return cast_like(wide_x * sigmoid(wide_x), x)


@op("float[...], float[...] -> float[...]")
def swiglu(gate: Floats, up: Floats) -> Floats:
    """silu(gate) * up (Shazeer 2020). gate, up: float[...] of one shape; gives float[...].

    SignatureError where the shapes or the dtypes are not alike."""
    wide_gate = wide(gate)
    return cast_like(wide_gate * sigmoid(wide_gate) * up, gate)


@op("float[...], float[...] -> float[...]")
def geglu(gate: Floats, up: Floats, *, approximate: str = "none") -> Floats:
    """gelu(gate) * up (Shazeer 2020), the `approximate` of `gelu`. gate, up: float[...] of one shape; gives float[...].

    SignatureError where the shapes or the dtypes are not alike, InputError for an approximation that there is not."""
    return cast_like(_gelu(wide(gate), approximate) * up, gate)


def _gelu(x: Floats, approximate: str) -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))))
    raise InputError(f"gelu: approximate is {approximate!r}; there are 'none' and 'tanh'")
