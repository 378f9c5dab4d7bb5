"""Tensors of a model as arrays: raw bytes, typed cells, and external data, which stays in the folder of the model."""

import math
import os
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
import onnx
from onnx import helper

from noyau.dtypes import DType, from_onnx
from noyau.errors import ModelError

MOST_ELEMENTS = 2**48


def check_dims(what: str, dims: list[int]) -> None:
    """Raise ModelError where an extent is negative, or where no memory could hold the cells."""
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{what} has a negative extent: {dims}")
    if math.prod(dims) > MOST_ELEMENTS:
        raise ModelError(f"{what} has more than 2^48 elements: {dims}")


def is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def array_of(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray | None:
    """The array of a tensor, read-only; None where noyau has no such type.

    External data is mapped, not read: its pages come from the file when they are touched."""
    dtype = from_onnx(tensor.data_type)
    if dtype is None or dtype is DType.OTHER:
        return None
    dims = list(tensor.dims)
    check_dims(f"the tensor {tensor.name!r}", dims)
    if is_external(tensor):
        return _external_array(tensor, dtype, dims, folder)
    if tensor.HasField("raw_data"):
        flat = np.frombuffer(tensor.raw_data[: len(tensor.raw_data) // dtype.bytes * dtype.bytes], dtype.numpy)
    else:
        flat = _typed_cells(tensor, dtype)
    if flat.size != math.prod(dims):
        raise ModelError(f"the tensor {tensor.name!r} of shape {dims} holds {flat.size} elements")
    return flat.reshape(dims)


def _typed_cells(tensor: onnx.TensorProto, dtype: DType) -> np.ndarray:
    """The cells of a tensor that has no raw bytes."""
    wide = helper.tensor_dtype_to_np_dtype(helper.tensor_dtype_to_storage_tensor_dtype(tensor.data_type))
    cells: np.ndarray = np.array(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)), wide)
    return cells.astype(np.uint16).view(dtype.numpy) if dtype.is_half else cells.astype(dtype.numpy, copy=False)


def _external_array(tensor: onnx.TensorProto, dtype: DType, dims: list[int], folder: Path | None) -> np.ndarray:
    path, offset, length = external_slice(tensor, folder)
    wanted = math.prod(dims) * dtype.bytes
    if length is not None and length != wanted:
        raise ModelError(f"the tensor {tensor.name!r} of shape {dims} has {length} external bytes, not {wanted}")
    if not wanted:
        return np.empty(dims, dtype.numpy)
    return np.frombuffer(np.memmap(path, np.uint8, "r", offset, (wanted,)), dtype.numpy).reshape(dims)


def external_slice(tensor: onnx.TensorProto, folder: Path | None) -> tuple[Path, int, int | None]:
    """The place of the bytes of an external tensor: file, offset, length (None: as its shape says).

    ModelError where the file is missing, too short, or outside the folder of the model."""
    what = f"the external data of {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if folder is None:
        raise ModelError(f"{what} cannot be found: the folder of the model is not given")
    path = _inside(folder, entries.get("location", ""), what)
    offset, length = _count(entries.get("offset", "0"), what), entries.get("length")
    bytes_ = None if length is None else _count(length, what)
    dtype = from_onnx(tensor.data_type)
    wanted = bytes_ if bytes_ is not None else math.prod(tensor.dims) * (dtype.bytes if dtype else 0)
    size = path.stat().st_size
    if offset + wanted > size:
        raise ModelError(f"{what} ends at byte {offset + wanted}, but {path.name} has {size}: is the file cut off?")
    return path, offset, bytes_


def _inside(folder: Path, location: str, what: str) -> Path:
    """The path of a file in the folder of the model, with links resolved. ModelError for any other location."""
    if not location or "\0" in location:
        raise ModelError(f"{what} names no file")
    if PurePosixPath(location).is_absolute() or PureWindowsPath(location).is_absolute() or location.startswith("~"):
        raise ModelError(f"{what} is at the absolute path {location!r}: it must be in the folder of the model")
    if ".." in PurePosixPath(location.replace("\\", "/")).parts:
        raise ModelError(f"{what} points outside the folder of the model: {location!r}")
    path, root = Path(os.path.realpath(folder / location)), Path(os.path.realpath(folder))
    if not path.is_relative_to(root):
        raise ModelError(f"{what} leaves the folder of the model through the link {location!r}: copy the file there")
    if not os.path.isfile(path):  # False for any name that no file can have
        raise ModelError(f"{what} is missing: {os.fspath(folder / location)} is no file")
    return path


def _count(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{what} has no valid offset or length: {text!r}")
    return int(text)
