"""Boundaries: nodes that noyau does not look into, why, and single ones as models, which the interpreter runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from noyau.dtypes import from_numpy
from noyau.errors import UnsupportedError
from noyau.frontends.onnx_messages import subgraphs

LIBRARY = frozenset(
    "Attention AveragePool Conv ConvInteger ConvTranspose DeformConv Einsum FlexAttention GRU Gemm GlobalLpPool LSTM "
    "LpPool MatMul MatMulInteger MaxPool QLinearConv QLinearMatMul RNN".split()
)
CONTROL_FLOW = frozenset("If Loop Scan SequenceMap".split())
_SHORTER = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
ENTRIES = "noyau_body"  # the domain of what stands for the inputs of a body that lies in the main graph
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


Infos = Sequence[onnx.ValueInfoProto]
Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Sequence[Any]]
_FAULTS = (NotImplementedError, RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)


@dataclass(frozen=True)
class ModelContext:
    """The part of its model that a node needs to stand alone."""

    opsets: Sequence[onnx.OperatorSetIdProto]
    functions: Sequence[onnx.FunctionProto]
    ir_version: int

    def model(
        self, node: onnx.NodeProto, inputs: Infos, outputs: Infos, initializers: Sequence[onnx.TensorProto] = ()
    ) -> onnx.ModelProto:
        graph = onnx.helper.make_graph([node], "one_node", list(inputs), list(outputs), list(initializers))
        model = onnx.helper.make_model(graph, opset_imports=list(self.opsets), functions=list(self.functions))
        model.ir_version = self.ir_version
        return model

    def has_schema(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX or a function of the model says what the node's operator is."""
        if any(f.domain == node.domain and f.name == node.op_type for f in self.functions):
            return True
        version = next((entry.version for entry in self.opsets if entry.domain == node.domain), 0)
        return bool(onnx.defs.has(node.op_type, version, node.domain))


class Boundary:
    """Runs one node: by `run` where that is given and can, else by ONNX's reference evaluator."""

    def __init__(self, node: onnx.NodeProto, names: Sequence[str], around: ModelContext, run: Run | None) -> None:
        self._node, self._names, self._around, self._run = node, tuple(names), around, run

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        """The results of the named outputs; UnsupportedError where nothing here can run the node."""
        feeds = dict(zip(self._names, operands, strict=True))
        outputs = [name for name in self._node.output if name]
        if self._node.op_type == "MatMul" and self._node.domain == "":
            return (np.matmul(*operands),)
        for arrays in (feeds, {name: _narrow(value) for name, value in feeds.items()}):
            with suppress(UnsupportedError):
                if self._run is not None:
                    return tuple(self._run(self._model(arrays), arrays))
        try:
            return tuple(self._reference.run(outputs, feeds))
        except _FAULTS as fault:
            hint = "" if self._run else "; give onnxruntime as `run`"
            raise UnsupportedError(f"the interpreter cannot run {self._node.op_type}: {fault}{hint}") from fault

    def texts(self, position: int) -> tuple[str, ...]:
        """The key that tells two boundaries of one operator apart: attributes, and the place where runs may differ."""
        texts = [f"{a.name}:{hashlib.sha256(a.SerializeToString()).hexdigest()[:16]}" for a in self._node.attribute]
        alone = self._node.op_type in RANDOM or self._node.domain not in ("", "ai.onnx") or any(subgraphs(self._node))
        outputs = "".join("1" if name else "0" for name in self._node.output)
        return (self._node.domain, f"outputs:{outputs}", *sorted(texts), *((f"#{position}",) if alone else ()))

    @cached_property
    def _reference(self) -> Any:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(self._model({}))

    def _model(self, feeds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """The node alone; with the types of the inputs where arrays are given."""
        names = dict.fromkeys(self._names)
        inputs = [onnx.helper.make_value_info(name, _array_type(feeds.get(name))) for name in names]
        outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self._node.output if name]
        is_wide = any(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in feeds.values())
        return self._around.model(widen_node(self._node) if is_wide else self._node, inputs, outputs)


def widen_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy of a node in whose bodies shorter floats are float64."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    graphs = list(subgraphs(result))
    for graph in graphs:  # it grows meanwhile
        graphs += [inner for each in graph.node for inner in subgraphs(each)]
        attributes = [attribute for each in graph.node for attribute in each.attribute]
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type in _SHORTER:
                value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        for each in attributes:
            if each.name == "to" and each.i in _SHORTER:
                each.i = onnx.TensorProto.DOUBLE
            elif each.name in ("value_float", "value_floats"):
                cells = each.f if each.name == "value_float" else each.floats
                each.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.float64(cells))))
        for tensor in (*graph.initializer, *(each.t for each in attributes if each.HasField("t"))):
            if tensor.data_type in _SHORTER:
                cells = onnx.numpy_helper.to_array(tensor).astype(np.float64)
                tensor.CopyFrom(onnx.numpy_helper.from_array(cells, tensor.name))
    return result


def _narrow(value: Any) -> Any:
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


def _array_type(array: np.ndarray | None) -> onnx.TypeProto:
    if not isinstance(array, np.ndarray):
        return onnx.TypeProto()
    dtype = from_numpy(array.dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype) if dtype is None else dtype.onnx
    return onnx.helper.make_tensor_type_proto(number, array.shape)
