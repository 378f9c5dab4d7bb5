"""ONNX files, read and verified without their external data; the tensors of a model, memory-mapped on access."""

import math
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from noyau.errors import ModelError, reason_of
from noyau.frontends.onnx.tensors import array_of, check_dims, external_slice, is_external
from noyau.frontends.onnx.upgrade import upgrade
from noyau.frontends.onnx.verifier import verify
from noyau.frontends.onnx_messages import tensors_of

LARGEST = 2**31 - 1  # bytes of one protobuf message
Tensor: TypeAlias = "onnx.TensorProto | onnx.SparseTensorProto"


def read(path: Path) -> onnx.ModelProto:
    """Read a model, upgraded to IR 4 and opset 13 or later. ModelError, in one line, where it is not usable."""
    return verify(upgrade(parse(path)))


def parse(path: Path) -> onnx.ModelProto:
    """Parse a file as it is; external data stays on disk. ModelError, in one line, where it is no ONNX model."""
    try:
        status = path.stat()
        if status.st_size > LARGEST:
            raise ModelError(f"{path} has more than 2 GB, which no ONNX file can: save its weights as external data")
        if not stat.S_ISREG(status.st_mode) and not path.is_dir():
            raise ModelError(f"{path} is no plain file")
        content = path.read_bytes()
    except (OSError, ValueError) as fault:
        raise ModelError(f"{path} cannot be read: {reason_of(fault)}") from fault
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
    return model


def _dense(tensor: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray | None:
    """A sparse tensor expanded; its indices are flat indices in C order, or one row of indices for each cell."""
    dims, values, places = list(tensor.dims), array_of(tensor.values, folder), array_of(tensor.indices, folder)
    check_dims(f"the tensor {tensor.values.name!r}", dims)
    if values is None or places is None:
        return None
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), tuple(dims), mode="clip")
    if flat.shape != values.shape or (flat.size and not 0 <= flat.min() <= flat.max() < math.prod(dims)):
        raise ModelError(f"the sparse tensor {tensor.values.name!r} names cells that it has not")
    result = np.zeros(math.prod(dims), values.dtype)
    result[flat] = values
    return result.reshape(dims)


class Initializers(Mapping[str, Tensor]):
    """The tensors of a model by name; `load` returns the array of one."""

    def __init__(self, tensors: Mapping[str, Tensor], folder: Path | None) -> None:
        self._tensors, self._folder = dict(tensors), folder

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def load(self, name: str) -> np.ndarray:
        """The array of one tensor, read-only and mapped where it is external; ModelError where it cannot be read."""
        tensor = self._tensors[name]
        array = (_dense if isinstance(tensor, onnx.SparseTensorProto) else array_of)(tensor, self._folder)
        if array is None:
            raise ModelError(f"the type of the tensor {name!r} is none that noyau has")
        return array
