"""Shapes of the results of boundaries, by rules for frequent operators; None where an extent is unknown.

ONNX's own inference knows more operators, but loses every formula over sizes.

The types of a boundary's outputs: what a rule says, then what the model declares, then ONNX's inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from noyau.dtypes import DType, from_numpy, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.calculations import terms
from noyau.frontends.onnx.opaque import ModelContext
from noyau.frontends.onnx.reader import Inference
from noyau.frontends.onnx.sites import ModelValues, OnnxSite
from noyau.ir.dims import Dim, Shape

Outcome: TypeAlias = "tuple[DType, tuple[Dim | None, ...]]"
Rule: TypeAlias = "Callable[[OnnxSite], list[Outcome]]"


def outcome_of(site: OnnxSite, domain: str = "") -> list[Outcome]:
    """The dtypes and extents of the outputs, as far as a rule says; nothing where there is none."""
    rule = _DOMAINS.get(domain, {}).get(site.op)
    try:
        return rule(site) if rule else []
    except UnsupportedError:
        return []


def _unknown(rank: int) -> tuple[None, ...]:
    return (None,) * rank


def _same_rank(site: OnnxSite) -> list[Outcome]:
    """As many axes as the first input, and nothing known of them."""
    return [(site.input().dtype, _unknown(site.rank()))]


def _reduction(site: OnnxSite) -> list[Outcome]:
    return _same_rank(site) if site.attribute("keepdims", 1) == 1 else []


def _from_extents(position: int, dtype: Callable[[OnnxSite], DType]) -> Rule:
    """As many axes as a vector of extents has cells."""

    def rule(site: OnnxSite) -> list[Outcome]:
        count = site.input(position).shape[0].constant if site.rank(position) == 1 else None
        return [] if count is None else [(dtype(site), _unknown(count))]

    return rule


def _filler(site: OnnxSite) -> DType:
    value = site.attributes.get("value", np.float32(0))
    return (from_numpy(value.dtype) if isinstance(value, np.ndarray | np.generic) else None) or DType.OTHER


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
    """onnxruntime's own: either operand may be transposed; the batch is the middle axes where that is."""
    left, right = site.input(0).shape, site.input(1).shape
    if site.attribute("transBatchA", 0) or site.attribute("transBatchB", 0) or min(len(left), len(right)) < 2:
        return [(site.input(0).dtype, _unknown(max(len(left), len(right))))] if min(len(left), len(right)) > 1 else []
    batch = site.broadcast([left[:-2], right[:-2]])
    row, column = left[-1 if site.attribute("transA", 0) else -2], right[-2 if site.attribute("transB", 0) else -1]
    return [(site.input(0).dtype, (*batch, row, column))]


def _attention(site: OnnxSite) -> list[Outcome]:
    """onnxruntime's own: queries, keys and values are one product of the input with the weights."""
    value, weights, sizes = site.input(0), site.input(1), site.attribute("qkv_hidden_sizes", [])
    if len(value.shape) != 3 or len(weights.shape) != 2:
        return []
    width = Dim.of(sizes[2]) if len(sizes) == 3 else weights.shape[1] // 3
    return [(value.dtype, (*value.shape[:2], width)), (value.dtype, _unknown(5))][: len(site.outputs)]


def _multi_head_attention(site: OnnxSite) -> list[Outcome]:
    """onnxruntime's own: the width of what is looked at times the heads; that of grouped queries is the queries'."""
    query = site.input(0)
    if len(query.shape) != 3:
        return [(query.dtype, _unknown(3))]
    value = site.input(2).shape if site.has(2) else ()
    same = site.op == "GroupQueryAttention" and site.has(1)
    width = query.shape[2] if same else value[2] if len(value) == 3 and site.op == "MultiHeadAttention" else None
    outcomes: list[Outcome] = [(query.dtype, (*query.shape[:2], width))]
    return [*outcomes, *[(query.dtype, _unknown(4))] * 2][: len(site.outputs)]


def _einsum(site: OnnxSite) -> list[Outcome]:
    inputs, output = terms(site.attribute("equation", ""))
    operands = site.all_inputs()
    pairs = [
        pair for term, value in zip(inputs, operands, strict=False) for pair in zip(term, value.shape, strict=False)
    ]
    extents = dict(pairs)
    return [(operands[0].dtype, tuple(extents.get(letter) for letter in output))]


def _conv(site: OnnxSite) -> list[Outcome]:
    value, weight = site.input(0), site.input(1)
    kernel = [Dim.of(size) for size in site.attribute("kernel_shape", [])] or list(weight.shape[2:])
    return [(value.dtype, (value.shape[0], weight.shape[0], *_windows(site, value.shape[2:], kernel)))]


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
    if (
        not len(kernel) == len(strides) == len(dilations) == rank
        or len(pads) != 2 * rank
        or min(strides, default=1) < 1
    ):
        return _unknown(rank)
    if auto.startswith("SAME"):
        return tuple((dim + (step - 1)) // step for dim, step in zip(extents, strides, strict=True))
    if site.attribute("ceil_mode", 0):
        return _unknown(rank)
    padded = [dim + (0 if auto == "VALID" else pads[k] + pads[k + rank]) for k, dim in enumerate(extents)]
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    return tuple((dim - size) // step + 1 for dim, size, step in zip(padded, reach, strides, strict=True))


def _global_pool(site: OnnxSite) -> list[Outcome]:
    shape = site.input().shape
    return [(site.input().dtype, (*shape[:2], *[Dim.of(1)] * (len(shape) - 2)))]


def _top_k(site: OnnxSite) -> list[Outcome]:
    count = site.contents(1)
    shape = _along_axis(site, -1, count.dims[0] if count is not None and len(count.dims) == 1 else None)
    return [(site.input().dtype, shape), (DType.I64, shape)]


def _along_axis(site: OnnxSite, default: int, length: Dim | None) -> tuple[Dim | None, ...]:
    """The shape of the first input with another extent along the axis of the node."""
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", default), len(shape))
    return (*shape[:axis], length, *shape[axis + 1 :])


def _one_hot(site: OnnxSite) -> list[Outcome]:
    shape = site.input().shape
    axis = site.axis(site.attribute("axis", -1), len(shape) + 1)
    return [(site.input(2).dtype, (*shape[:axis], None, *shape[axis:]))]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("CumProd", "CumSum", "LRN", "ReverseSequence", "TensorScatter"),
        lambda site: [(site.input().dtype, site.input().shape)],
    ),
    **dict.fromkeys(("Pad", "Resize", "Slice", "Tile", "Upsample"), _same_rank),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"), _reduction),
    **dict.fromkeys(("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"), _reduction),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    "Compress": lambda site: [
        (site.input().dtype, _along_axis(site, 0, None) if "axis" in site.attributes else (None,))
    ],
    "ConstantOfShape": _from_extents(0, _filler),
    "Conv": _conv,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalLpPool": _global_pool,
    "MatMul": _matmul,
    "NonZero": lambda site: [(DType.I64, (Dim.of(site.rank()), None))],
    "OneHot": _one_hot,
    "Range": lambda site: [(site.input().dtype, (None,))],
    "Reshape": _from_extents(1, lambda site: site.input().dtype),
    "Split": lambda site: [(site.input().dtype, _along_axis(site, 0, None))] * len(site.outputs),
    "TopK": _top_k,
}
_CONTRIBUTED: dict[str, Rule] = {
    "Attention": _attention,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _fused_matmul,
    "GroupQueryAttention": _multi_head_attention,
    "MatMulNBits": lambda site: [(site.input().dtype, (*site.input().shape[:-1], Dim.of(site.attribute("N", 0))))],
    "MultiHeadAttention": _multi_head_attention,
    "TransposeMatMul": _fused_matmul,
}
_DOMAINS = {"": _RULES, "com.microsoft": _CONTRIBUTED}


_PREFIX = "noyau "  # begins the names by which extents go to ONNX's inference and come back


class BoundaryTypes:
    """Finds the dtype and the shape of each output of a boundary; extents that nobody knows are fresh sizes."""

    def __init__(
        self, values: ModelValues, declared: Mapping[str, onnx.TypeProto], around: ModelContext, inference: Inference
    ) -> None:
        self.values, self.declared, self.around, self.inference = values, dict(declared), around, inference

    def of(self, node: onnx.NodeProto, names: Sequence[str], ruled: list[Outcome]) -> list[tuple[DType, Shape]]:
        """For each output its dtype and shape; DType.OTHER where either is unknown. `names` are what the node uses."""
        dims: dict[str, Dim] = {}
        said = [[_type_of(ruled[k], dims)] if k < len(ruled) else [] for k in range(len(node.output))]
        for name, types in zip(node.output, said, strict=True):
            types.append(self.declared.get(name, onnx.TypeProto()))
        if any(name and not any(map(_is_complete, types)) for name, types in zip(node.output, said, strict=True)):
            inferred = self._infer(node, names, dims)
            for name, types in zip(node.output, said, strict=True):
                types.insert(1, inferred.get(name, onnx.TypeProto()))
                self.declared.setdefault(name, types[1])  # sequences, strings: others follow from them
        return [self._merge(types, dims) for types in said]

    def _infer(self, node: onnx.NodeProto, names: Sequence[str], dims: dict[str, Dim]) -> dict[str, onnx.TypeProto]:
        if not self.around.has_schema(node):
            return {}
        tensors, inputs = [], []
        for name in dict.fromkeys(names):
            contents = self.values.contents.get(name)
            if contents is not None and contents.integers is not None:
                tensor = onnx.helper.make_tensor(name, contents.dtype.onnx, contents.shape, contents.integers)
                tensors.append(tensor)
            else:
                inputs.append(onnx.helper.make_value_info(name, self._type(name, dims)))
        return self.inference.types(self.around.model(node, inputs, [], tensors))

    def _type(self, name: str, dims: dict[str, Dim]) -> onnx.TypeProto:
        node = self.values.node(name)
        if node.dtype is DType.OTHER:
            return self.declared.get(name, onnx.TypeProto())
        return _type_of((node.dtype, node.shape), dims)

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
        """The first extent that is known. A 0 says nothing: exporters write it for what they do not know."""
        for dim in candidates:
            if dim.dim_value > 0:
                return Dim.of(dim.dim_value)
            if dim.dim_param in dims:
                return dims[dim.dim_param]
            if dim.dim_param and not dim.dim_param.startswith(("unk__", _PREFIX)):
                return self.values.sizes.dim_of(dim.dim_param)
        return self.values.sizes.fresh()


def _type_of(outcome: Outcome, extents: dict[str, Dim]) -> onnx.TypeProto:
    """An outcome as an ONNX type; `extents` is given the extent that each name stands for."""
    dtype, dims = outcome
    extents.update((f"{_PREFIX}{dim}", dim) for dim in dims if dim is not None and not dim.constant)
    words = [None if dim is None else dim.constant or f"{_PREFIX}{dim}" for dim in dims]
    return onnx.helper.make_tensor_type_proto(dtype.onnx, words)


def _is_complete(kind: onnx.TypeProto) -> bool:
    """Whether a type says the element type and the rank of a tensor."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
