"""Boundaries, the nodes that noyau does not import: the reasons, and models of single nodes for the interpreter."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import onnx

from noyau.dtypes import from_numpy
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.function_bodies import ModelContext
from noyau.frontends.onnx_messages import every_node, subgraphs, tensors_of

LIBRARY = frozenset(
    "Attention AveragePool Conv ConvInteger ConvTranspose DeformConv Einsum FlexAttention GRU Gemm GlobalLpPool LSTM "
    "LpPool MatMul MatMulInteger MaxPool QLinearConv QLinearMatMul RNN".split()
)
CONTROL_FLOW = frozenset("If Loop Scan SequenceMap".split())
_SHORTER = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
DTYPES = ("to", "dtype", "output_dtype", "output_datatype")  # attributes that hold a dtype
RANDOM = frozenset("Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())
ALREADY_FUSED = "already fused by onnxruntime"
# Operators of onnxruntime's domain that its optimizer emits: library calls fused with their neighbours, and others.
FUSED_CALLS = frozenset(
    """Attention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention DynamicQuantizeMatMul FusedConv FusedGemm
    FusedMatMul FusedMatMulActivation GemmFastGelu GroupQueryAttention LinearAttention MatMulBnb4 MatMulFpQ4
    MatMulIntegerToFloat MatMulNBits MoE MultiHeadAttention NhwcConv NhwcFusedConv PackedAttention
    PackedMultiHeadAttention QAttention QGemm QMoE SparseAttention TransposeMatMul""".split()
)
FUSED_OTHERS = frozenset(
    "BiasAdd BiasDropout BiasSoftmax BiasSplitGelu GatedRMSNorm GroupNorm QEmbedLayerNormalization "
    "SkipGroupNorm".split()
)


def reason_for(node: onnx.NodeProto) -> str:
    """The reason, as text, for which a node without an importer is a boundary."""
    if node.domain in ("", "ai.onnx"):
        kinds = ((LIBRARY, "is a library call"), (CONTROL_FLOW, "is control flow"), (RANDOM, "draws random numbers"))
        reasons = (f"{node.op_type} {reason}" for ops, reason in kinds if node.op_type in ops)
        return next(reasons, f"no meaning for operator {node.op_type} yet")
    if node.domain == "com.microsoft.nchwc":
        return f"{ALREADY_FUSED}: {node.op_type} in the memory layout of its convolutions"
    if node.domain == "com.microsoft" and node.op_type in FUSED_CALLS | FUSED_OTHERS:
        is_call = node.op_type in FUSED_CALLS
        return f"{ALREADY_FUSED}: {node.op_type}{' is a library call with what surrounds it' * is_call}"
    return f"no meaning for operator {node.op_type} of domain {node.domain}"


Run = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Sequence[Any]]
_FAULTS = (NotImplementedError, RuntimeError, TypeError, ValueError, AttributeError, KeyError, IndexError)


class Boundary:
    """Callable for one node: runs it by `run` if that can, else by ONNX's reference evaluator."""

    def __init__(self, node: onnx.NodeProto, names: Sequence[str], around: ModelContext, run: Run | None) -> None:
        self._node, self._names, self._around, self._run = node, tuple(names), around, run

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        """The results of the named outputs; UnsupportedError if neither can run the node."""
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
        """The key that distinguishes boundaries of one operator: attributes, and positions where runs may differ."""
        texts = [f"{a.name}:{hashlib.sha256(a.SerializeToString()).hexdigest()[:16]}" for a in self._node.attribute]
        alone = self._node.op_type in RANDOM or self._node.domain not in ("", "ai.onnx") or any(subgraphs(self._node))
        outputs = "".join("1" if name else "0" for name in self._node.output)
        return (self._node.domain, f"outputs:{outputs}", *sorted(texts), *((f"#{position}",) if alone else ()))

    @cached_property
    def _reference(self) -> Any:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(self._model({}))

    def _model(self, feeds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """A model of the node alone, with the types of the inputs that `feeds` has."""
        names = dict.fromkeys(self._names)
        inputs = [onnx.helper.make_value_info(name, _array_type(feeds.get(name))) for name in names]
        outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in self._node.output if name]
        is_wide = any(isinstance(each, np.ndarray) and each.dtype == np.float64 for each in feeds.values())
        return self._around.model(widen_node(self._node) if is_wide else self._node, inputs, outputs)


def widen_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy of a node in whose subgraphs shorter floats are float64."""
    result = onnx.NodeProto()
    result.CopyFrom(node)
    for graph in subgraphs(result):
        widen_types(graph, _SHORTER, onnx.TensorProto.DOUBLE)
    return result


def widen_types(
    graph: onnx.GraphProto | onnx.FunctionProto, shorter: Sequence[int], wide: int, exempt: Collection[str] = ()
) -> None:
    """Replace shorter floats by wide ones in the types, attributes and tensors of a graph and its subgraphs; values
    that are `exempt` keep their type."""
    nodes = [*every_node(graph.node)]
    ends = [(*each.input, *each.output, *each.value_info) for each in (graph, *chain(*map(subgraphs, nodes)))]
    for value in (each for each in chain(*ends) if isinstance(each, onnx.ValueInfoProto)):  # a function has names
        inner = value.type
        while inner.WhichOneof("value") in ("sequence_type", "optional_type"):
            inner = (inner.sequence_type if inner.HasField("sequence_type") else inner.optional_type).elem_type
        if inner.tensor_type.elem_type in shorter and value.name not in exempt:
            inner.tensor_type.elem_type = wide
    for each in chain(*(node.attribute for node in nodes if not {*exempt}.intersection(node.output))):
        if each.name in DTYPES and each.i in shorter:
            each.i = wide
        elif each.name in ("value_float", "value_floats") and onnx.TensorProto.FLOAT in shorter:
            cells = each.f if each.name == "value_float" else each.floats
            each.CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(np.float64(cells))))
    for tensor in tensors_of(graph):
        if tensor.data_type in shorter:
            cells = onnx.numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(wide))
            tensor.CopyFrom(onnx.numpy_helper.from_array(cells, tensor.name))


def _narrow(value: Any) -> Any:
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


def _array_type(array: np.ndarray | None) -> onnx.TypeProto:
    if not isinstance(array, np.ndarray):
        return onnx.TypeProto()
    dtype = from_numpy(array.dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype) if dtype is None else dtype.onnx
    return onnx.helper.make_tensor_type_proto(number, array.shape)
