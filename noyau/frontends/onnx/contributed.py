"""Composite operators of onnxruntime's own domain."""

from __future__ import annotations

import math

from noyau.errors import UnsupportedError
from noyau.frontends.onnx.activations import swish
from noyau.frontends.onnx.composites import epsilon_of, normalize_rows, rescale, root_mean_square, with_attributes
from noyau.frontends.onnx.creation import CREATION
from noyau.frontends.onnx.embeddings import embed_layer_normalization, rotary_embedding
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.graph import Node


def _gelu(site: OnnxSite) -> Node:
    """x / 2 * (1 + erf(x / sqrt(2))), of the sum of the inputs."""
    value = _add_bias(site)
    inner = site.call("erf", site.call("multiply", value, site.like(math.sqrt(0.5), value)))
    return _gate(site, value, inner)


def _fast_gelu(site: OnnxSite) -> Node:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))), of the sum of the inputs."""
    value = _add_bias(site)
    square = site.call("multiply", site.call("multiply", value, value), site.like(0.044715, value))
    cubic = site.call("multiply", value, site.call("add", square, site.like(1, value)))
    inner = site.call("tanh", site.call("multiply", cubic, site.like(math.sqrt(2 / math.pi), value)))
    return _gate(site, value, inner)


def _add_bias(site: OnnxSite) -> Node:
    value = site.input()
    if not site.has(1):
        return value
    bias = site.input(1)
    if len(bias.shape) != 1:
        raise UnsupportedError(f"{site.op} is given a bias that is no vector")
    return site.call("add", value, bias)


def _gate(site: OnnxSite, value: Node, inner: Node) -> Node:
    half = site.call("multiply", value, site.like(0.5, value))
    return site.call("multiply", half, site.call("add", inner, site.like(1, value)))


def _add_skip(site: OnnxSite, bias: int) -> tuple[Node, Node]:
    """Input, skip and bias together, in the type that sums are made in; and as the sum that is an output."""
    value = site.input(0)
    total = site.call("add", *(site.cast(site.input(k), value.dtype.compute) for k in (0, 1)))
    if total.shape != value.shape:
        raise UnsupportedError(f"{site.op} is given a skip of another shape")
    if site.has(bias):
        total = site.call("add", total, site.cast(site.input(bias), total.dtype))
    return total, site.cast(total, value.dtype)


def _skip_layer_normalization(site: OnnxSite) -> list[Node]:
    """LayerNormalization of input + skip + bias over the last axis; outputs: it, mean, 1 / spread, the sum."""
    total, summed = _add_skip(site, 4)
    result, centre, inverse = normalize_rows(site, total, (site.rank() - 1,), epsilon_of(site))
    result = rescale(site, site.cast(result, summed.dtype), 2, 3)
    return [result, centre, inverse, site.call("identity", summed)]


def _skip_simplified(site: OnnxSite) -> list[Node]:
    """RMSNormalization of input + skip + bias over the last axis; its second output is never made."""
    total, summed = _add_skip(site, 3)
    result, inverse = root_mean_square(site, total, (site.rank() - 1,), epsilon_of(site))
    if len(site.outputs) > 1 and site.outputs[1]:
        raise UnsupportedError(f"{site.op} gives no mean")
    result = rescale(site, site.cast(result, summed.dtype), 2)
    return [result, inverse, inverse, site.call("identity", summed)]


CONTRIBUTED: dict[str, Importer] = {
    "BiasGelu": with_attributes(_gelu),
    "EmbedLayerNormalization": with_attributes(embed_layer_normalization, "epsilon", "mask_index_type"),
    "FastGelu": with_attributes(_fast_gelu),
    "Gelu": with_attributes(_gelu),
    "QuickGelu": with_attributes(swish(1.702), "alpha"),
    "RotaryEmbedding": with_attributes(
        rotary_embedding, "interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"
    ),
    "SkipLayerNormalization": with_attributes(_skip_layer_normalization, "epsilon"),
    "SkipSimplifiedLayerNormalization": with_attributes(_skip_simplified, "epsilon"),
    "Trilu": with_attributes(CREATION["Trilu"], "upper"),
}
