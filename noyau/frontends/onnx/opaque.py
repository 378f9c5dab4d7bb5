"""Reasons why noyau does not look into a node, and the nodes that onnxruntime computes once."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

LIBRARY = frozenset(
    "Attention AveragePool Conv ConvInteger ConvTranspose DeformConv Einsum FlexAttention GRU Gemm GlobalLpPool LSTM "
    "LpPool MatMul MatMulInteger MaxPool QLinearConv QLinearMatMul RNN".split()
)
CONTROL_FLOW = frozenset("If Loop Scan SequenceMap".split())
RANDOM = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())
ALREADY_FUSED = "already fused by onnxruntime"
# Of onnxruntime's own domain: what its optimizer makes of library calls with what surrounds them, and of the rest.
FUSED_CALLS = frozenset(
    """Attention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention DynamicQuantizeMatMul FusedConv FusedGemm
    FusedMatMul FusedMatMulActivation GemmFastGelu GroupQueryAttention LinearAttention MatMulBnb4 MatMulFpQ4
    MatMulIntegerToFloat MatMulNBits MoE MultiHeadAttention NhwcConv NhwcFusedConv PackedAttention
    PackedMultiHeadAttention QAttention QGemm QMoE SparseAttention TransposeMatMul""".split()
)
FUSED_OTHERS = frozenset(
    """BiasAdd BiasDropout BiasSoftmax BiasSplitGelu GatedRMSNorm GroupNorm QEmbedLayerNormalization SkipGroupNorm
    """.split()
)


def reason_for(node: onnx.NodeProto) -> str:
    """Why noyau does not look into a node of an operator for which it has no meaning."""
    if node.domain in ("", "ai.onnx"):
        kinds = ((LIBRARY, "is a library call"), (CONTROL_FLOW, "is control flow"), (RANDOM, "draws random numbers"))
        reasons = (f"{node.op_type} {reason}" for ops, reason in kinds if node.op_type in ops)
        return next(reasons, f"no meaning for operator {node.op_type} yet")
    if node.domain == "com.microsoft.nchwc":
        return f"{ALREADY_FUSED}: {node.op_type} in the memory layout of its convolutions"
    if node.domain == "com.microsoft" and node.op_type in FUSED_CALLS:
        return f"{ALREADY_FUSED}: {node.op_type} is a library call with what surrounds it"
    if node.domain == "com.microsoft" and node.op_type in FUSED_OTHERS:
        return f"{ALREADY_FUSED}: {node.op_type}"
    return f"no meaning for operator {node.op_type} of domain {node.domain}"


def captures(node: onnx.NodeProto) -> list[str]:
    """The outer values that the subgraphs of a node use, in order."""
    names: dict[str, None] = {}
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {tensor.values.name for tensor in graph.sparse_initializer}
        for inner in graph.node:
            names.update((name, None) for name in [*inner.input, *captures(inner)] if name and name not in own)
            own.update(inner.output)
        names.update((value.name, None) for value in graph.output if value.name and value.name not in own)
    return list(names)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


FOLDED = "onnxruntime computes it once, when it loads the model: it reads nothing but tensors of the model"
# onnxruntime leaves these be, for its quantised operators are found by them.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})


def foldable_nodes(model: onnx.ModelProto) -> frozenset[int]:
    """The positions of the nodes that read tensors of the model alone, through others such or directly; Constants are
    not among them. A tensor that an input may override is none."""
    inputs = {value.name for value in model.graph.input} if model.ir_version >= 4 else set()
    constants = {tensor.name for tensor in model.graph.initializer} - inputs
    places = set[int]()
    for place, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx") or node.op_type in _KEPT | RANDOM | CONTROL_FLOW:
            continue
        if all(name in constants for name in node.input if name):
            constants.update(node.output)
            if any(node.input):
                places.add(place)
    return frozenset(places)
