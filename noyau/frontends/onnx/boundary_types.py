"""The types of a boundary's outputs, merged from a rule, the model's declarations and ONNX's inference.

Rules exist for library calls and for frequent operators; None stands for an unknown extent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

import numpy as np
import onnx

from noyau.dtypes import DType, from_numpy, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.function_bodies import ModelContext
from noyau.frontends.onnx.model_values import ModelValues
from noyau.frontends.onnx.reductions import terms
from noyau.frontends.onnx.sites import OnnxSite
from noyau.ir.dims import Dim, Shape
from noyau.workers.worker import Channel, spawn

Outcome: TypeAlias = "tuple[DType, tuple[Dim | None, ...]]"
Rule: TypeAlias = "Callable[[OnnxSite], list[Outcome]]"


def unknown(rank: int) -> tuple[Dim | None, ...]:
    return (None,) * rank


def _matmul(site: OnnxSite) -> list[Outcome]:
    left, right = site.input(0), site.input(1)
    if not left.shape or not right.shape:
        return []
    batch = site.broadcast([left.shape[:-2], right.shape[:-2]])
    return [(left.dtype, (*batch, *left.shape[-2:-1], *(right.shape[-1:] if len(right.shape) > 1 else ())))]


def _gemm(site: OnnxSite) -> list[Outcome]:
    left, right = site.input(0), site.input(1)
    if len(left.shape) != 2 or len(right.shape) != 2:
        return []
    rows = left.shape[1 if site.attribute("transA", 0) else 0]
    return [(left.dtype, (rows, right.shape[0 if site.attribute("transB", 0) else 1]))]


def _fused_matmul(site: OnnxSite) -> list[Outcome]:
    """onnxruntime's FusedMatMul: either operand may be transposed; with transBatchA or B extents are unknown."""
    left, right = site.input(0).shape, site.input(1).shape
    if site.attribute("transBatchA", 0) or site.attribute("transBatchB", 0) or min(len(left), len(right)) < 2:
        return [(site.input(0).dtype, unknown(max(len(left), len(right))))] if min(len(left), len(right)) > 1 else []
    batch = site.broadcast([left[:-2], right[:-2]])
    row, column = left[-1 if site.attribute("transA", 0) else -2], right[-2 if site.attribute("transB", 0) else -1]
    return [(site.input(0).dtype, (*batch, row, column))]


def _attention(site: OnnxSite) -> list[Outcome]:
    """onnxruntime's Attention: queries, keys and values are one product of the input with the weights."""
    value, weights, sizes = site.input(0), site.input(1), site.attribute("qkv_hidden_sizes", [])
    if len(value.shape) != 3 or len(weights.shape) != 2:
        return []
    width = Dim.of(sizes[2]) if len(sizes) == 3 else weights.shape[1] // 3
    return [(value.dtype, (*value.shape[:2], width)), (value.dtype, unknown(5))][: len(site.outputs)]


def _multi_head_attention(site: OnnxSite) -> list[Outcome]:
    """onnxruntime's attention of several inputs: as wide as the values, with grouped queries as the queries."""
    query = site.input(0)
    if len(query.shape) != 3:
        return [(query.dtype, unknown(3))]
    value = site.input(2).shape if site.has(2) else ()
    same = site.op == "GroupQueryAttention" and site.has(1)
    width = query.shape[2] if same else value[2] if len(value) == 3 and site.op == "MultiHeadAttention" else None
    outcomes: list[Outcome] = [(query.dtype, (*query.shape[:2], width))]
    return [*outcomes, *[(query.dtype, unknown(4))] * 2][: len(site.outputs)]


def _einsum(site: OnnxSite) -> list[Outcome]:
    inputs, output = terms(site.attribute("equation", ""))
    operands = site.all_inputs()
    extents = dict[str, Dim]()
    for term, value in zip(inputs, operands, strict=False):
        extents.update(zip(term, value.shape, strict=False))
    return [(operands[0].dtype, tuple(extents.get(letter) for letter in output))]


def _conv(site: OnnxSite, weights: int = 1, dtype: DType | None = None) -> list[Outcome]:
    value, weight = site.input(0), site.input(weights)
    kernel = [Dim.of(size) for size in site.attribute("kernel_shape", [])] or list(weight.shape[2:])
    return [(dtype or value.dtype, (value.shape[0], weight.shape[0], *_windows(site, value.shape[2:], kernel)))]


def _transposed_conv(site: OnnxSite) -> list[Outcome]:
    """Each cell of the input adds a window to the result, and windows overlap."""
    value, weight, rank = site.input(0), site.input(1), site.rank() - 2
    kernel = [Dim.of(size) for size in site.attribute("kernel_shape", [])] or list(weight.shape[2:])
    steps, dilations = (site.attribute(name, []) or [1] * rank for name in ("strides", "dilations"))
    more, pads = site.attribute("output_padding", []) or [0] * rank, site.attribute("pads", []) or [0] * (2 * rank)
    extents = unknown(rank)
    is_plain = "output_shape" not in site.attributes and site.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    if is_plain and len(kernel) == len(steps) == len(dilations) == len(more) == rank and len(pads) == 2 * rank:
        offsets = [more[k] - pads[k] - pads[k + rank] + 1 for k in range(rank)]
        reach = [(size - 1) * step + offset for size, step, offset in zip(kernel, dilations, offsets, strict=True)]
        extents = tuple((dim - 1) * step + far for dim, step, far in zip(value.shape[2:], steps, reach, strict=True))
    return [(value.dtype, (value.shape[0], weight.shape[1] * site.attribute("group", 1), *extents))]


def _stft(site: OnnxSite) -> list[Outcome]:
    """Batch, frames, bins, and a real and an imaginary part; a frame has the length of input 3, or of the window."""
    length = site.contents(3)
    frame = length.dims[0] if length is not None else site.input(2).shape[0] if site.has(2) else None
    bins = None if frame is None else frame // 2 + 1 if site.attribute("onesided", 1) else frame
    step = site.contents(1)
    known = frame is not None and step is not None and step.dims[0].constant
    frames = (site.input().shape[1] - frame) // known + 1 if frame is not None and known else None
    return [(site.input().dtype, (site.input().shape[0], frames, bins, Dim.of(2)))]


def _pool(site: OnnxSite) -> list[Outcome]:
    value, kernel = site.input(), [Dim.of(size) for size in site.attribute("kernel_shape", [])]
    shape = (*value.shape[:2], *_windows(site, value.shape[2:], kernel))
    return [(value.dtype, shape), (DType.I64, shape)][: max(len(site.outputs), 1)]


def _windows(site: OnnxSite, extents: Shape, kernel: Sequence[Dim]) -> tuple[Dim | None, ...]:
    """The number of windows of a convolution or a pool along each axis."""
    rank = len(extents)
    strides = site.attribute("strides", []) or [1] * rank
    dilations = site.attribute("dilations", []) or [1] * rank
    pads, auto = site.attribute("pads", []) or [0] * (2 * rank), site.attribute("auto_pad", "NOTSET")
    fits = len(kernel) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    if not fits or min(strides, default=1) < 1:
        return unknown(rank)
    if auto.startswith("SAME"):
        return tuple((dim + (step - 1)) // step for dim, step in zip(extents, strides, strict=True))
    if site.attribute("ceil_mode", 0):
        return unknown(rank)
    padded = [dim + (0 if auto == "VALID" else pads[k] + pads[k + rank]) for k, dim in enumerate(extents)]
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    return tuple((dim - size) // step + 1 for dim, size, step in zip(padded, reach, strides, strict=True))


def _same(site: OnnxSite) -> list[Outcome]:
    """The dtype and the extents of the first input, with unknown extents along the axes `open`."""
    axes = site.attribute("open", [])
    return [(site.input().dtype, tuple(None if k in axes else dim for k, dim in enumerate(site.input().shape)))]


def _same_rank(site: OnnxSite) -> list[Outcome]:
    """The rank of the first input, with unknown extents."""
    return [(site.input().dtype, unknown(site.rank()))]


CONTRIBUTED_RULES: dict[str, Rule] = {
    "Attention": _attention,
    # All states of a recurrence, and the last ones.
    "DynamicQuantizeLSTM": lambda site: [(site.input().dtype, unknown(k)) for k in (4, 3, 3)][: len(site.outputs)],
    "DynamicQuantizeMatMul": _matmul,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _fused_matmul,
    "GroupQueryAttention": _multi_head_attention,
    "MatMulNBits": lambda site: [(site.input().dtype, (*site.input().shape[:-1], Dim.of(site.attribute("N", 0))))],
    "MatMulIntegerToFloat": lambda site: [(site.input(2).dtype, dims) for _, dims in _matmul(site)],
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": lambda site: [(site.input(3).dtype, dims) for _, dims in _attention(site)],
    "QGemm": lambda site: [(site.input(8).dtype if site.has(8) else DType.F32, unknown(2))],
    **dict.fromkeys(  # each operand is followed by its scale and its zero point
        ("QLinearAdd", "QLinearMul"),
        lambda site: [(site.input().dtype, site.broadcast([site.input(0).shape, site.input(3).shape]))],
    ),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), _same_rank),
    "QLinearConcat": lambda site: [(site.input(1).dtype, unknown(site.rank(2)))],
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"), _same),
    "TransposeMatMul": _fused_matmul,
}


def outcome_of(site: OnnxSite, domain: str = "") -> list[Outcome]:
    """The dtypes and extents of the outputs by the operator's rule; empty without a rule, or where it fails."""
    rule = _DOMAINS.get(domain, {}).get(site.op)
    try:
        return rule(site) if rule else []
    except UnsupportedError:
        return []


def _reduction(site: OnnxSite) -> list[Outcome]:
    return _same_rank(site) if site.attribute("keepdims", 1) == 1 else []


def _from_extents(position: int, dtype: Callable[[OnnxSite], DType], site: OnnxSite) -> list[Outcome]:
    """A result whose rank is the length of the vector of extents at `position`."""
    count = site.input(position).shape[0].constant if site.rank(position) == 1 else None
    return [] if count is None else [(dtype(site), unknown(count))]


def _filler(site: OnnxSite) -> DType:
    value = site.attributes.get("value", np.float32(0))
    return (from_numpy(value.dtype) if isinstance(value, np.ndarray | np.generic) else None) or DType.OTHER


def _of_datatype(rank: int, site: OnnxSite) -> list[Outcome]:
    return [(from_onnx(site.attribute("output_datatype", 1)) or DType.OTHER, unknown(rank))]


def _top_k(site: OnnxSite) -> list[Outcome]:
    count = site.contents(1)
    shape = _along_axis(site, -1, count.dims[0] if count is not None and len(count.dims) == 1 else None)
    return [(site.input().dtype, shape), (DType.I64, shape)]


def _along_axis(site: OnnxSite, default: int, length: Dim | None) -> tuple[Dim | None, ...]:
    """The shape of the first input with another extent along the axis of the node."""
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", default), len(shape))
    return (*shape[:axis], length, *shape[axis + 1 :])


_RULES: dict[str, Rule] = {
    "AffineGrid": partial(_from_extents, 1, lambda site: site.input().dtype),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), partial(_of_datatype, 1)),
    "Col2Im": lambda site: [(d, (None, None, *e)) for d, e in _from_extents(1, lambda at: at.input().dtype, site)],
    "Conv": _conv,
    "ConvInteger": partial(_conv, dtype=DType.I32),
    "ConvTranspose": _transposed_conv,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MelWeightMatrix": partial(_of_datatype, 2),
    **dict.fromkeys(("CumProd", "CumSum", "LRN", "ReverseSequence", "TensorScatter"), _same),
    **dict.fromkeys(("CenterCropPad", "MaxUnpool", "Pad", "Resize", "Slice", "Tile", "Upsample"), _same_rank),
    "QLinearConv": lambda site: _conv(site, 3, site.input(7).dtype),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), _reduction),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), _reduction),
    "Compress": lambda site: [
        (site.input().dtype, _along_axis(site, 0, None) if "axis" in site.attributes else (None,))
    ],
    "ConstantOfShape": partial(_from_extents, 0, _filler),
    "NonZero": lambda site: [(DType.I64, (Dim.of(site.rank()), None))],
    "Range": lambda site: [(site.input().dtype, (None,))],
    "Reshape": partial(_from_extents, 1, lambda site: site.input().dtype),
    "STFT": _stft,
    "Split": lambda site: [(site.input().dtype, _along_axis(site, 0, None))] * len(site.outputs),
    "TopK": _top_k,
}


def _step(site: OnnxSite) -> list[Outcome]:
    """One step of a Scan: the scanned input without the axis of the scan."""
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", 0), len(shape))
    return [(site.input().dtype, (*shape[:axis], *shape[axis + 1 :]))]


def _scores(site: OnnxSite) -> list[Outcome]:
    """Numbers for each row of a table; a classifier gives a label for each before."""
    rows, has_texts = site.input().shape[0] if site.rank() == 2 else None, "classlabels_strings" in site.attributes
    labels: Outcome = (DType.OTHER if has_texts else DType.I64, (rows,))
    return [*[labels] * site.op.endswith("Classifier"), (DType.F32, (rows, None))]


_TABLE_RULES: dict[str, Rule] = {  # operators of scikit-learn's converter and of others
    **dict.fromkeys(("Binarizer", "Imputer"), _same),
    **dict.fromkeys(("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"), _scores),
    **dict.fromkeys(("LinearRegressor", "SVMRegressor", "TreeEnsembleRegressor"), _scores),
    **dict.fromkeys(("Normalizer", "Scaler"), lambda site: [(DType.F32, site.input().shape)]),
    "OneHotEncoder": lambda site: [(DType.F32, (*site.input().shape, None))],
}
ENTRIES = "noyau_body"  # the domain of nodes that stand for inputs of a body behind the main graph; `Open` has no rule
_ENTRY_RULES: dict[str, Rule] = {"Same": _same, "Step": _step}
_DOMAINS = {"": _RULES, "ai.onnx.ml": _TABLE_RULES, "com.microsoft": CONTRIBUTED_RULES, ENTRIES: _ENTRY_RULES}


Types = Mapping[str, onnx.TypeProto]
_PREFIX = "noyau "  # of the dimension names that carry extents to ONNX's inference and back


class BoundaryTypes:
    """Inference of the dtype and the shape of each output of a boundary; unknown extents become fresh sizes."""

    def __init__(self, values: ModelValues, declared: Types, around: ModelContext, inference: Inference) -> None:
        self.values, self.declared, self.around, self.inference = values, dict(declared), around, inference

    def of(self, node: onnx.NodeProto, names: Sequence[str], ruled: list[Outcome]) -> list[tuple[DType, Shape]]:
        """For each output its dtype and shape; DType.OTHER where either is unknown. `names`: the values it reads."""
        dims: dict[str, Dim] = {}
        # The operator's rule, ONNX's inference, the file's own declaration: the first that knows an extent.
        own = [_type_of(ruled[k], dims) if k < len(ruled) else onnx.TypeProto() for k in range(len(node.output))]
        candidates = [[kind] for kind in own]
        for name, types in zip(node.output, candidates, strict=True):
            types.append(self.declared.get(name, onnx.TypeProto()))
        if any(name and not any(map(_is_complete, types)) for name, types in zip(node.output, candidates, strict=True)):
            inferred = self._infer(node, names, dims)
            for name, types in zip(node.output, candidates, strict=True):
                types.insert(1, inferred.get(name, onnx.TypeProto()))
                self.declared.setdefault(name, types[1])  # types of sequences and strings, from which others follow
        return [self._merge(types, dims) for types in candidates]

    def _infer(self, node: onnx.NodeProto, names: Sequence[str], dims: dict[str, Dim]) -> dict[str, onnx.TypeProto]:
        if not self.around.has_schema(node):
            return {}
        tensors, inputs = [], []
        for name in dict.fromkeys(names):
            contents = self.values.contents.get(name)
            if contents is not None and contents.integers is not None:
                tensors.append(onnx.helper.make_tensor(name, contents.dtype.onnx, contents.shape, contents.integers))
            else:
                each = self.values.node(name)
                kind = self.declared.get(name, onnx.TypeProto())
                kind = kind if each.dtype is DType.OTHER else _type_of((each.dtype, each.shape), dims)
                inputs.append(onnx.helper.make_value_info(name, kind))
        return self.inference.types(self.around.model(node, inputs, [], tensors))

    def _merge(self, types: Sequence[onnx.TypeProto], extents: Mapping[str, Dim]) -> tuple[DType, Shape]:
        tensors = [kind.tensor_type for kind in types if kind.HasField("tensor_type")]
        dtypes = (from_onnx(tensor.elem_type) for tensor in tensors)
        dtype = next((dtype for dtype in dtypes if dtype not in (None, DType.OTHER)), None)
        shapes = [tensor.shape.dim for tensor in tensors if tensor.HasField("shape")]
        if dtype is None or not shapes:
            return DType.OTHER, ()
        alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
        return dtype, tuple(self._dim(dims, extents) for dims in zip(*alike, strict=True))

    def _dim(self, candidates: Sequence[onnx.TensorShapeProto.Dimension], dims: Mapping[str, Dim]) -> Dim:
        """The first known extent. A 0 is not one: exporters write it for unknown extents."""
        for dim in candidates:
            if dim.dim_value > 0:
                return Dim.of(dim.dim_value)
            if dim.dim_param in dims:
                return dims[dim.dim_param]
            if dim.dim_param and not dim.dim_param.startswith(("unk__", _PREFIX)):
                return self.values.sizes.dim_of(dim.dim_param)
        return self.values.sizes.fresh()


def _type_of(outcome: Outcome, extents: dict[str, Dim]) -> onnx.TypeProto:
    """An outcome as an ONNX type; the Dim of each dimension name is added to `extents`."""
    dtype, dims = outcome
    extents.update((f"{_PREFIX}{dim}", dim) for dim in dims if dim is not None and not dim.constant)
    words = [None if dim is None else dim.constant or f"{_PREFIX}{dim}" for dim in dims]
    return onnx.helper.make_tensor_type_proto(dtype.onnx, words)


def _is_complete(kind: onnx.TypeProto) -> bool:
    """Whether a type says the element type and the rank of a tensor."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")


_LONGEST_S = 30.0
# The process imports onnx alone: an import of noyau's front end would take as long again.
_PROGRAM = """
import onnx
while True:
    model = onnx.ModelProto.FromString(channel.receive())
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:
        graph = onnx.GraphProto()
    nodes = [node for node in graph.node if any(each.HasField("g") for each in node.attribute)]
    channel.send(onnx.GraphProto(value_info=graph.value_info, node=nodes).SerializeToString())
"""


class Inference(AbstractContextManager["Inference"]):
    """ONNX's shape inference in a process of its own, since some malformed nodes crash it. A context manager.

    The process starts with the first model, and again after a crash."""

    def __init__(self) -> None:
        self._process: tuple[subprocess.Popen[bytes], Channel] | None = None

    def __exit__(self, *fault: object) -> None:
        self._end()

    def types(self, model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
        """The types of the values that the nodes of a model compute; empty where inference fails."""
        return {value.name: value.type for value in self.graph(model).value_info}

    def graph(self, model: onnx.ModelProto) -> onnx.GraphProto:
        """The types of a graph's values, and its nodes with subgraphs, which hold their own; empty where it fails."""
        if self._process is None:
            self._process = spawn(_PROGRAM, subprocess.DEVNULL)
        _, channel = self._process
        try:
            channel.send(model.SerializeToString(), _LONGEST_S)
            return onnx.GraphProto.FromString(channel.receive(_LONGEST_S))
        except (OSError, EOFError):
            self._end()
            return onnx.GraphProto()

    def _end(self) -> None:
        if self._process is None:
            return
        (process, channel), self._process = self._process, None
        process.kill()
        process.wait()
        channel.close()
