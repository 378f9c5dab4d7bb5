"""Weights of products in few bits, as onnxruntime packs them, and a model in which some products have them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.onnx import onnx
from noyau.frontends.onnx_messages import CORE_DOMAINS
from noyau.hosts.onnxruntime.products import Product, products_of
from noyau.hosts.onnxruntime.sessions import load_onnxruntime
from noyau.hosts.onnxruntime.write_back import drop_unread, live
from noyau.text import unused

MICROSOFT = "com.microsoft"
_BLOCKED_SINCE = 21  # the first opset whose DequantizeLinear has blocks and 4 bits
_INT8, _INT4 = 3, 22  # types of tensors; of 4 bits, two cells are in a byte


@dataclass(frozen=True, slots=True)
class Variant:
    """A form of weights in few bits. `block`: rows of a column that share a scale, 0 for all of them; the activations
    are then in 8 bits, with one scale. `level` as onnxruntime has it: 4 rounds activations to 8 bits, 0 does not."""

    bits: int
    block: int = 0
    level: int = 0

    def __str__(self) -> str:
        scales = f"in blocks of {self.block}, level {self.level}" if self.block else "by column"
        return f"{self.bits} bits {scales}"


_IN_BLOCKS = [Variant(bits, block, level) for bits in (8, 4) for block in (32, 128) for level in (0, 4)]
# By column with 7 bits too: sums of 8 signed bits saturate where the processor has no VNNI, and a file goes from one
# machine to others; the 8 here are not signed, which never saturates and is slower there.
VARIANTS = (*_IN_BLOCKS, Variant(8), Variant(7))


def pack(weights: np.ndarray, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    """Weights f32[depth, width] as cells and scales: by column as i8 or u8[depth, width] and f32[width]; in blocks as
    u8[width, blocks, bytes] and f32[width, blocks]. UnsupportedError where this onnxruntime packs none so."""
    if not variant.block:
        largest = 2 ** (variant.bits - 1) - 1
        scales = np.abs(weights).max(axis=0) / np.float32(largest)
        scales[scales == 0] = 1
        cells = np.rint(weights / scales).clip(-largest, largest)
        return (cells + 128).astype(np.uint8) if variant.bits == 8 else cells.astype(np.int8), scales
    bits, block, (depth, width) = variant.bits, variant.block, weights.shape
    # Its function in C: the one in Python around it wants packages that onnxruntime does not need.
    if (function := getattr(load_onnxruntime().capi._pybind_state, f"quantize_matmul_{bits}bits", None)) is None:
        raise UnsupportedError(f"this onnxruntime does not pack weights in {bits} bits")
    blocks = -(-depth // block)
    whole = np.zeros((blocks * block, width), np.float32)
    whole[:depth] = weights
    cells = np.zeros((width, blocks, block * bits // 8), np.uint8)
    scales, middles = np.zeros(width * blocks, np.float32), np.zeros(width * -(-blocks * bits // 8), np.uint8)
    function(cells, whole, scales, middles, block, width, depth, True)
    return cells, scales.reshape(width, blocks)


def with_variants(model: onnx.ModelProto, variants: Mapping[str, Variant], folder: Path | None) -> onnx.ModelProto:
    """The model with the weights of some products, by what they make, in few bits; all else is as it was."""
    result = deepcopy(model)
    occupied = {each.name for each in (*model.graph.initializer, *model.graph.input, *model.graph.node)}
    occupied.update(name for node in model.graph.node for name in node.output)
    opset = max((each.version for each in model.opset_import if each.domain in CORE_DOMAINS), default=1)
    products = {each.output: each for each in products_of(model, folder)[0] if each.output in variants}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        product = products.get(node.output[0]) if node.output else None
        if product is None:
            nodes.append(node)
            continue
        variant = variants[product.output]
        stem = unused(f"{product.output}_int{variant.bits}", occupied)
        tensors, several = _in_few_bits(product, variant, opset, stem)
        result.graph.initializer.extend(tensors)
        nodes += several
    alive = live(nodes, {value.name for value in model.graph.output})  # a view of weights goes with its last reader
    del result.graph.node[:]
    pairs = zip(nodes, alive, strict=True)
    result.graph.node.extend(node for node, is_live in pairs if is_live or not any(node.output))
    drop_unread(result.graph, model.graph)
    if MICROSOFT not in {each.domain for each in result.opset_import}:
        result.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return result


def _in_few_bits(
    product: Product, variant: Variant, opset: int, stem: str
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """Tensors and nodes in place of a product, whose names begin with `stem`.

    Blocks at level 4 are standard DequantizeLinear and MatMul where the model's opset has them, of which onnxruntime
    makes MatMulNBits as it loads them, with the same bits, at that level. All else are its own operators."""
    (depth, width), bias, (cells, scales) = product.shape, product.bias, pack(product.weights(), variant)
    names = [f"{stem}_cells", f"{stem}_scales", f"{stem}_middles"]
    node, tensor = partial(onnx.helper.make_node, name=stem), onnx.numpy_helper.from_array
    if not variant.block:
        middles = np.full(width, 128 if variant.bits == 8 else 0, cells.dtype)
        tensors = [tensor(array, name) for array, name in zip((cells, scales, middles), names, strict=True)]
        inputs = [product.operand, *names, *([bias] if bias else [])]
        return tensors, [node("DynamicQuantizeMatMul", inputs, [product.output], domain=MICROSOFT)]
    if opset < _BLOCKED_SINCE or variant.level != 4 or depth % variant.block or bias:
        numbers = {"K": depth, "N": width, "bits": variant.bits, "block_size": variant.block}
        numbers["accuracy_level"] = variant.level
        inputs = [product.operand, *names[:2], *(["", "", bias] if bias else [])]
        own = node("MatMulNBits", inputs, [product.output], domain=MICROSOFT, **numbers)
        return [tensor(cells, names[0]), tensor(scales, names[1])], [own]
    # The middle of unsigned cells is 8 or 128, so a signed one has the other topmost bit.
    flat = cells if variant.bits == 8 else np.stack([cells & 15, cells >> 4], axis=-1)
    flat = (flat ^ (1 << (variant.bits - 1))).reshape(width, depth).T.reshape(-1)
    kind, flat = (_INT8, flat) if variant.bits == 8 else (_INT4, flat[0::2] | (flat[1::2] << 4))
    first = onnx.helper.make_tensor(names[0], kind, product.shape, flat.tobytes(), raw=True)
    plain = onnx.helper.make_node("DequantizeLinear", names[:2], [f"{stem}_plain"], axis=0, block_size=variant.block)
    tensors = [first, tensor(np.ascontiguousarray(scales.T), names[1])]
    return tensors, [plain, node("MatMul", [product.operand, f"{stem}_plain"], [product.output])]
