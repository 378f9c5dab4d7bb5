"""Every op of `noyau.nn`, for who goes through all of them."""

from __future__ import annotations

from typing import Any

from noyau.nn.activations import geglu, gelu, silu, swiglu
from noyau.nn.expressions import log_sigmoid_mul_sum, piecewise_linear
from noyau.nn.losses import cross_entropy_each, cross_entropy_mean, cross_entropy_sum
from noyau.nn.norms import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from noyau.nn.positions import rope
from noyau.nn.softmaxes import log_softmax, softmax
from noyau.ops.op import Op

CATALOGUE: tuple[Op[..., Any], ...] = (
    rms_norm,
    add_rms_norm,
    layer_norm,
    add_layer_norm,
    softmax,
    log_softmax,
    cross_entropy_mean,
    cross_entropy_sum,
    cross_entropy_each,
    gelu,
    silu,
    swiglu,
    geglu,
    rope,
    piecewise_linear,
    log_sigmoid_mul_sum,
)
