"""Inputs for each op of the catalogue, and what it computes written anew, in float64 and without noyau."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from noyau import nn
from noyau.ops.op import Op

Array = np.ndarray
ULP = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
DTYPES = [np.dtype(name) for name in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)]


@dataclass(frozen=True)
class Case:
    """An op on inputs of some sizes; `truth` takes the inputs in float64 and gives the results."""

    op: Op[..., Any]
    inputs: Callable[[np.random.Generator], tuple[Array, ...]]
    truth: Callable[..., Any]
    constants: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.op.name, *(str(value) for value in self.constants.values())])

    def arrays(self, dtype: np.dtype[Any], seed: int = 0) -> tuple[Array, ...]:
        """The inputs, floats in a dtype."""
        made = self.inputs(np.random.default_rng(seed))
        return tuple(array.astype(dtype) if array.dtype.kind == "f" else array for array in made)

    def wanted(self, arrays: tuple[Array, ...]) -> list[Array]:
        wide = [array if array.dtype.kind in "iu" else array.astype(np.float64) for array in arrays]
        with np.errstate(invalid="ignore"):  # the mean of no losses
            found = self.truth(*wide, **self.constants)
        return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


def results(found: Any) -> list[Array]:
    return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: tuple(rng.standard_normal(shape) for shape in shapes)


def labelled(rng: np.random.Generator) -> tuple[Array, ...]:
    labels = rng.integers(0, 37, (3, 4))
    labels[1, 2] = -100
    return rng.standard_normal((3, 4, 37)), labels


def tables(rng: np.random.Generator) -> tuple[Array, ...]:
    angles = np.outer(np.arange(5.0), 0.7 ** np.arange(4))
    return rng.standard_normal((2, 3, 5, 8)), np.cos(np.tile(angles, 2)), np.sin(np.tile(angles, 2))


def paired_tables(rng: np.random.Generator) -> tuple[Array, ...]:
    x, cos, sin = tables(rng)
    return x, np.repeat(cos[:, :4], 2, axis=1), np.repeat(sin[:, :4], 2, axis=1)


def rms(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    length = np.sqrt(np.einsum("...n,...n->...", x, x) / x.shape[-1] + eps)
    return np.einsum("...n,...,n->...n", x, 1 / length, weight)


def layer(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Array:
    return (x - x.mean(-1)[..., None]) * weight / np.sqrt(x.var(-1)[..., None] + eps) + bias


def soft(x: Array, axis: int = -1) -> Array:
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


def losses(logits: Array, labels: Array) -> Array:
    rows = np.log(soft(logits)).reshape(-1, logits.shape[-1])
    flat = [0.0 if label == -100 else -row[label] for row, label in zip(rows, labels.reshape(-1), strict=True)]
    return np.array(flat).reshape(labels.shape)


def gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "none":
        return x * np.vectorize(lambda cell: math.erfc(-cell / math.sqrt(2)) / 2, [float])(x)
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def turned(x: Array, cos: Array, sin: Array, interleaved: bool = False) -> Array:
    """By complex numbers: each pair of cells is one, and is multiplied by e^(i angle)."""
    k = x.shape[-1] // 2
    one, other = (np.s_[..., ::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :k], np.s_[..., k:])
    product = (x[one] + 1j * x[other]) * (cos[one] + 1j * sin[one])
    out = np.empty_like(x)
    out[one], out[other] = product.real, product.imag
    return out


CASES = [
    Case(nn.rms_norm, normal((3, 4, 37), (37,)), rms),
    Case(nn.add_rms_norm, normal((4, 37), (4, 37), (37,)), lambda x, y, w: (rms(x + y, w), x + y)),
    Case(nn.layer_norm, normal((3, 4, 37), (37,), (37,)), layer),
    Case(nn.add_layer_norm, normal((4, 37), (4, 37), (37,), (37,)), lambda x, y, w, b: (layer(x + y, w, b), x + y)),
    Case(nn.softmax, normal((3, 4, 37)), soft),
    Case(nn.softmax, normal((3, 4, 37)), soft, {"axis": 1}),
    Case(nn.log_softmax, normal((3, 4, 37)), lambda x: np.log(soft(x))),
    Case(nn.cross_entropy_mean, labelled, lambda x, k: losses(x, k).sum() / (k != -100).sum()),
    Case(nn.cross_entropy_sum, labelled, lambda x, k: losses(x, k).sum()),
    Case(nn.cross_entropy_each, labelled, losses),
    Case(nn.gelu, normal((5, 37)), gelu),
    Case(nn.gelu, normal((5, 37)), gelu, {"approximate": "tanh"}),
    Case(nn.silu, normal((5, 37)), lambda x: x / (1 + np.exp(-x))),
    Case(nn.swiglu, normal((5, 37), (5, 37)), lambda x, y: x * y / (1 + np.exp(-x))),
    Case(nn.geglu, normal((5, 37), (5, 37)), lambda x, y: gelu(x) * y),
    Case(
        nn.geglu, normal((5, 37), (5, 37)), lambda x, y, approximate: gelu(x, approximate) * y, {"approximate": "tanh"}
    ),
    Case(nn.rope, tables, turned),
    Case(nn.rope, paired_tables, turned, {"interleaved": True}),
    Case(nn.piecewise_linear, normal((5, 37), (), ()), lambda x, a, b: np.maximum(x, 0) * b + np.minimum(x, 0) * a),
    Case(nn.log_sigmoid_mul_sum, normal((5, 37), (5, 37)), lambda x, y: -(np.log1p(np.exp(-x)) * y).sum(-1)),
]
