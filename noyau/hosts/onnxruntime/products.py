"""Products of a model with constant weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.dtypes import DType
from noyau.frontends.onnx.tensors import array_of
from noyau.frontends.onnx_messages import CORE_DOMAINS
from noyau.hosts.onnxruntime.function_bodies import ModelValues

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

LEAST_BYTES, MOST_BYTES = 1 << 16, 1 << 30  # of the weights in float32: smaller ones are in a cache anyway
MOST_TOTAL_BYTES = 5 << 30  # of all: a file ends at 2 GB, and in 8 bits they take at most 9 / 32 of that
_ON_THE_WAY = ("Identity", "Transpose")
FEW_BITS = ("MatMulNBits", "MatMulBnb4", "DynamicQuantize", "MatMulInteger", "QLinear", "DequantizeLinear")  # prefixes


@dataclass(frozen=True, slots=True)
class Product:
    """A MatMul or Gemm whose second operand is a constant matrix f32[depth, width], the extents of `shape`.

    `output`, its result, identifies it. `tensor` holds the matrix, or the transposed one where `swapped`.
    `bias`: the value that a Gemm adds, or nothing."""

    node: NodeProto
    tensor: TensorProto
    swapped: bool
    shape: tuple[int, int]
    operand: str
    bias: str
    output: str
    folder: Path | None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DType.F32.bytes

    def weights(self) -> np.ndarray:
        """f32[depth, width]"""
        array = array_of(self.tensor, self.folder)
        assert array is not None
        return np.ascontiguousarray(array.T if self.swapped else array)


def products_of(model: ModelProto, folder: Path | None) -> tuple[list[Product], dict[str, str]]:
    """The products of a model's main graph; and the reasons against others, by their outputs."""
    values, products, refused = ModelValues.of(model, folder), list[Product](), dict[str, str]()
    stored, total_bytes = {tensor.name: tensor for tensor in model.graph.initializer}, 0
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in CORE_DOMAINS or len(node.input) < 2:
            continue
        name, tensor, swapped = _origin(node.input[1], values)
        tensor = stored.get(name, tensor)
        is_matrix = tensor is not None and len(tensor.dims) == 2 and tensor.data_type == DType.F32.onnx
        if tensor is None or not is_matrix or math.prod(tensor.dims) * DType.F32.bytes < LEAST_BYTES:
            continue
        swapped ^= bool(_number(node, "transB", 0))
        depth, width = map(int, reversed(tensor.dims) if swapped else tensor.dims)
        operand, _, bias = (*node.input, "")[:3]
        product = Product(node, tensor, swapped, (depth, width), operand, bias, node.output[0], folder)
        reason = _refusal(product, values)
        if name in stored and name not in values.constants:
            reason = "its weights are an input of the model too, which a caller may replace"
        elif product.bytes > MOST_BYTES or total_bytes + product.bytes > MOST_TOTAL_BYTES:
            reason = "in few bits it would lie in the model's file, which ends at 2 GB"
        if reason:
            refused[product.output] = reason
        else:
            products.append(product)
            total_bytes += product.bytes
    return products, refused


def _origin(name: str, values: ModelValues) -> tuple[str, TensorProto | None, bool]:
    """The constant behind views of a matrix: its name, its tensor if in a Constant, and whether it is transposed."""
    swapped, tensor = False, None
    while (at := values.producers.get(name)) is not None and values.nodes[at].op_type in _ON_THE_WAY:
        node = values.nodes[at]
        turn = [list(each.ints) for each in node.attribute if each.name == "perm"]
        swapped ^= node.op_type == "Transpose" and turn != [[0, 1]]
        name = str(node.input[0])
    if at is not None and values.nodes[at].op_type == "Constant":
        tensor = next((each.t for each in values.nodes[at].attribute if each.name == "value"), None)
    return name, tensor, swapped


def _number(node: NodeProto, name: str, usual: float) -> float:
    """A number among the attributes of a node, or `usual`."""
    return next((float(each.f or each.i) for each in node.attribute if each.name == name), usual)


def _refusal(product: Product, values: ModelValues) -> str:
    """Why onnxruntime has no product like this in few bits, or an empty text."""
    node, bias = product.node, values.constants.get(product.bias)
    if node.op_type == "Gemm" and (_number(node, "transA", 0), _number(node, "alpha", 1)) != (0, 1):
        return "a Gemm that scales or transposes its first operand"
    is_row = bias is not None and list(bias.dims) == [product.shape[1]] and _number(node, "beta", 1) == 1
    return "" if not product.bias or is_row else "a Gemm that adds something else than a constant row"
