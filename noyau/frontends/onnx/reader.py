"""Reading a model file, without its external data."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from noyau.errors import ModelError
from noyau.frontends.onnx.model_checks import verify
from noyau.frontends.onnx.tensors import external_slice, is_external

LARGEST = 2**31 - 1  # bytes of one protobuf message


def read(path: Path) -> onnx.ModelProto:
    """The model of a file; its external data stays on disk. ModelError, one line, where it is no usable model."""
    try:
        status = path.stat()
        if status.st_size > LARGEST:
            raise ModelError(f"{path} has more than 2 GB, which no ONNX file can: save its weights as external data")
        if not stat.S_ISREG(status.st_mode) and not path.is_dir():
            raise ModelError(f"{path} is no plain file")
        content = path.read_bytes()
    except (OSError, ValueError) as fault:
        raise ModelError(f"{path} cannot be read: {getattr(fault, 'strerror', None) or fault}") from fault
    if not content:
        raise ModelError(f"{path} is empty")
    try:
        model = onnx.ModelProto.FromString(content)
    except DecodeError as fault:
        raise ModelError(f"{path} is no ONNX model, or it is cut off") from fault
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{path} is no ONNX model: it has no graph or no opset")
    for tensor in tensors_of(model.graph):
        if is_external(tensor):
            external_slice(tensor, path.parent)
    return verify(model)


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that a graph holds, those of its subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from tensors_of(inner)
