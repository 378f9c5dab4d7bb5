"""Models that are timed for a kernel: a group's operators alone, the kernel alone, and one that does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.compiler.partition.cut import Group
from noyau.dtypes import DType, from_numpy
from noyau.hosts.onnxruntime.function_bodies import ValueType
from noyau.hosts.onnxruntime.source_model import SourceModel
from noyau.hosts.onnxruntime.submodel import extract
from noyau.hosts.onnxruntime.write_back import value_type

if TYPE_CHECKING:
    import onnx

Arrays = Mapping[str, np.ndarray]


def stamps(model: onnx.ModelProto, folder: Path) -> Iterator[str]:
    """The files of a model's external data, with when they were changed."""
    names = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    for name in sorted(names):
        try:
            status = (folder / name).stat()
        except (OSError, ValueError):
            continue
        yield f"{name} {status.st_size} {status.st_mtime_ns}"


def idle_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that copies one number, of the versions of another."""
    result = type(model)(ir_version=model.ir_version)
    result.opset_import.extend(each for each in model.opset_import if not each.domain)
    result.graph.name = "idle"
    result.graph.node.add(op_type="Identity", input=["x"], output=["y"])
    for name, ends in (("x", result.graph.input), ("y", result.graph.output)):
        tensor = ends.add(name=name).type.tensor_type
        tensor.elem_type = DType.F32.onnx
        tensor.shape.dim.add(dim_value=1)
    return result


def parts(
    group: Group, original: SourceModel, fused: onnx.ModelProto, arrays: Arrays
) -> tuple[onnx.ModelProto, onnx.ModelProto, Arrays]:
    """A group's operators as a model, its kernel as one, and what both read of some arrays."""
    position = next(k for k, node in enumerate(fused.graph.node) if set(group.outputs) <= set(node.output))
    tensors = original.imported.initializers
    names = dict.fromkeys(fused.graph.node[position].input)
    read = {name: arrays[name] for name in names if name in arrays and name not in tensors}
    types = {name: ValueType(dtype, (None,) * a.ndim) for name, a in read.items() if (dtype := from_numpy(a.dtype))}
    types |= {node.output: value_type(node) for node in group.graph.nodes}
    before = extract(original.model, group.positions, tuple(read), group.outputs, types)
    after = extract(fused, [position], tuple(read), group.outputs, types)
    return before, after, read
