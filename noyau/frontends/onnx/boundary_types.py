"""The types of a boundary's outputs: what a rule says, then what the model declares, then ONNX's inference."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import onnx

from noyau.dtypes import DType, from_onnx
from noyau.frontends.onnx.boundaries import ModelContext
from noyau.frontends.onnx.library_shapes import Outcome
from noyau.frontends.onnx.model_values import ModelValues
from noyau.ir.dims import Dim, Shape
from noyau.workers.channel import Channel
from noyau.workers.worker import spawn

Types = Mapping[str, onnx.TypeProto]
_PREFIX = "noyau "  # begins the names by which extents go to ONNX's inference and come back


class BoundaryTypes:
    """Finds the dtype and the shape of each output of a boundary; extents that nobody knows are fresh sizes."""

    def __init__(self, values: ModelValues, declared: Types, around: ModelContext, inference: Inference) -> None:
        self.values, self.declared, self.around, self.inference = values, dict(declared), around, inference

    def of(self, node: onnx.NodeProto, names: Sequence[str], ruled: list[Outcome]) -> list[tuple[DType, Shape]]:
        """For each output its dtype and shape; DType.OTHER where either is unknown. `names` are what the node uses."""
        dims: dict[str, Dim] = {}
        candidates = [[_type_of(ruled[k], dims)] if k < len(ruled) else [] for k in range(len(node.output))]
        for name, types in zip(node.output, candidates, strict=True):
            types.append(self.declared.get(name, onnx.TypeProto()))
        if any(name and not any(map(_is_complete, types)) for name, types in zip(node.output, candidates, strict=True)):
            inferred = self._infer(node, names, dims)
            for name, types in zip(node.output, candidates, strict=True):
                types.insert(1, inferred.get(name, onnx.TypeProto()))
                self.declared.setdefault(name, types[1])  # sequences, strings: others follow from them
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


_LONGEST_S = 30.0
# onnx alone is imported there: noyau's front end would take as long again.
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
    """ONNX's shape inference in a process of its own, which some malformed nodes end. Use it in a `with`.

    The process starts with the first model, and again where a node has ended it."""

    def __init__(self) -> None:
        self._process: tuple[subprocess.Popen[bytes], Channel] | None = None

    def __exit__(self, *fault: object) -> None:
        self._end()

    def types(self, model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
        """The types of the values that the nodes of a model make; nothing where inference fails."""
        return {value.name: value.type for value in self.graph(model).value_info}

    def graph(self, model: onnx.ModelProto) -> onnx.GraphProto:
        """The types of a graph, and its nodes with bodies, which have those of the bodies; nothing where it fails."""
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
