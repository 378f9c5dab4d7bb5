"""The types of a boundary's outputs: what a rule says, then what the model declares, then ONNX's inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from noyau.dtypes import DType, from_onnx
from noyau.frontends.onnx.building import Values
from noyau.frontends.onnx.inferring import Inference
from noyau.frontends.onnx.opaque import Surroundings
from noyau.frontends.onnx.outcomes import Outcome
from noyau.ir.dims import Dim, Shape

_SPELT = "noyau "  # begins the names by which extents go to ONNX's inference and come back


class Settling:
    """Finds the dtype and the shape of each output of a boundary; extents that nobody knows are fresh sizes."""

    def __init__(
        self, values: Values, declared: Mapping[str, onnx.TypeProto], around: Surroundings, inference: Inference
    ) -> None:
        self.values, self.declared, self.around, self.inference = values, dict(declared), around, inference

    def of(self, node: onnx.NodeProto, names: Sequence[str], ruled: list[Outcome]) -> list[tuple[DType, Shape]]:
        """For each output its dtype and shape; DType.OTHER where either is unknown. `names` are what the node uses."""
        spelt: dict[str, Dim] = {}
        said = [[_said(ruled[k], spelt)] if k < len(ruled) else [] for k in range(len(node.output))]
        for name, types in zip(node.output, said, strict=True):
            types.append(self.declared.get(name, onnx.TypeProto()))
        if any(name and not any(map(_is_complete, types)) for name, types in zip(node.output, said, strict=True)):
            inferred = self._inferred(node, names, spelt)
            for name, types in zip(node.output, said, strict=True):
                types.insert(1, inferred.get(name, onnx.TypeProto()))
                self.declared.setdefault(name, types[1])  # sequences, strings: others follow from them
        return [self._settled(types, spelt) for types in said]

    def _inferred(self, node: onnx.NodeProto, names: Sequence[str], spelt: dict[str, Dim]) -> dict[str, onnx.TypeProto]:
        if not self.around.has_schema(node):
            return {}
        known, inputs = [], []
        for name in dict.fromkeys(names):
            contents = self.values.contents.get(name)
            if contents is not None and contents.integers is not None:
                tensor = onnx.helper.make_tensor(name, contents.dtype.onnx, contents.shape, contents.integers)
                known.append(tensor)
            else:
                inputs.append(onnx.helper.make_value_info(name, self._type(name, spelt)))
        return self.inference.types(self.around.model(node, inputs, [], known))

    def _type(self, name: str, spelt: dict[str, Dim]) -> onnx.TypeProto:
        node = self.values.node(name)
        if node.dtype is DType.OTHER:
            return self.declared.get(name, onnx.TypeProto())
        return _said((node.dtype, node.shape), spelt)

    def _settled(self, said: Sequence[onnx.TypeProto], spelt: Mapping[str, Dim]) -> tuple[DType, Shape]:
        tensors = [kind.tensor_type for kind in said if kind.HasField("tensor_type")]
        known = (from_onnx(tensor.elem_type) for tensor in tensors)
        dtype = next((dtype for dtype in known if dtype not in (None, DType.OTHER)), None)
        shapes = [tensor.shape.dim for tensor in tensors if tensor.HasField("shape")]
        if dtype is None or not shapes:
            return DType.OTHER, ()
        alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
        return dtype, tuple(self._dim(dims, spelt) for dims in zip(*alike, strict=True))

    def _dim(self, said: Sequence[onnx.TensorShapeProto.Dimension], spelt: Mapping[str, Dim]) -> Dim:
        """The first extent that is known. A 0 says nothing: exporters write it for what they do not know."""
        for dim in said:
            if dim.dim_value > 0:
                return Dim.of(dim.dim_value)
            if dim.dim_param in spelt:
                return spelt[dim.dim_param]
            if dim.dim_param and not dim.dim_param.startswith(("unk__", _SPELT)):
                return self.values.sizes.named(dim.dim_param)
        return self.values.sizes.fresh()


def _said(outcome: Outcome, spelt: dict[str, Dim]) -> onnx.TypeProto:
    """An outcome as an ONNX type; `spelt` is given the extent that each name stands for."""
    dtype, dims = outcome
    spelt.update((f"{_SPELT}{dim}", dim) for dim in dims if dim is not None and not dim.constant)
    words = [None if dim is None else dim.constant or f"{_SPELT}{dim}" for dim in dims]
    return onnx.helper.make_tensor_type_proto(dtype.onnx, words)


def _is_complete(kind: onnx.TypeProto) -> bool:
    """Whether a type says the element type and the rank of a tensor."""
    if not kind.HasField("tensor_type"):
        return kind.WhichOneof("value") is not None
    return bool(kind.tensor_type.elem_type) and kind.tensor_type.HasField("shape")
