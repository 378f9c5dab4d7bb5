"""ONNX files: read and verified without their external data; types that ONNX itself infers, in a process of its own;
the tensors of a model, which are mapped when they are asked for."""

from __future__ import annotations

import math
import os
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from noyau.dtypes import DType, from_onnx
from noyau.errors import ModelError
from noyau.frontends.onnx.function_bodies import opsets_of
from noyau.frontends.onnx.opaque import captures
from noyau.workers.channel import Channel
from noyau.workers.worker import spawn

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


_LONGEST_S = 30.0
# onnx alone is imported there: noyau's front end would take as long again.
_PROGRAM = """
import onnx
while True:
    model = onnx.ModelProto.FromString(channel.receive())
    try:
        types = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
    except Exception:
        types = []
    channel.send(onnx.GraphProto(value_info=types).SerializeToString())
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
        if self._process is None:
            self._process = spawn(_PROGRAM, subprocess.DEVNULL)
        _, channel = self._process
        try:
            channel.send(model.SerializeToString(), _LONGEST_S)
            graph = onnx.GraphProto.FromString(channel.receive(_LONGEST_S))
        except (OSError, EOFError):
            self._end()
            return {}
        return {value.name: value.type for value in graph.value_info}

    def _end(self) -> None:
        if self._process is None:
            return
        (process, channel), self._process = self._process, None
        process.kill()
        process.wait()
        channel.close()


OLDEST_OPSET = 13


def verify(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model itself; ModelError with one line where it is not well formed."""
    opset = opsets_of(list(model.opset_import)).get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET:
        raise ModelError(
            f"the model has opset {opset}; noyau reads {OLDEST_OPSET} and later: convert it with "
            f"onnx.version_converter.convert_version(model, {OLDEST_OPSET})"
        )
    for value in model.graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim if dim.HasField("dim_value")]
        check_dims(f"the input {value.name!r}", dims)
    for tensor in model.graph.initializer:
        check_dims(f"the initializer {tensor.name!r}", list(tensor.dims))
    for sparse in model.graph.sparse_initializer:
        check_dims(f"the initializer {sparse.values.name!r}", list(sparse.dims))
    _check_names(model.graph)
    _check_order(model.graph)
    return model


def _graph_inputs(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the values that no node makes; initializers may be listed as inputs too."""
    yield from dict.fromkeys(
        [*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)]
        + [tensor.values.name for tensor in graph.sparse_initializer]
    )


def _check_names(graph: onnx.GraphProto) -> None:
    for what, values in (("input", graph.input), ("initializer", graph.initializer), ("output", graph.output)):
        name, count = max(Counter(value.name for value in values).items(), key=lambda item: item[1], default=("", 0))
        if count > 1:
            raise ModelError(f"{count} {what}s are called {name!r}")
    names = set(_graph_inputs(graph))
    if "" in names:
        raise ModelError("an input or an initializer has no name")
    for place, node in enumerate(graph.node):
        for name in node.output:
            if name in names:
                raise ModelError(f"{name!r} is made twice; the second time by {_spell(place, node)}")
            if name:
                names.add(name)


def _check_order(graph: onnx.GraphProto) -> None:
    ready = set(_graph_inputs(graph))
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    for place, node in enumerate(graph.node):
        for name in [*node.input, *captures(node)]:
            if not name or name in ready:
                continue
            if name not in makers:
                raise ModelError(f"{_spell(place, node)} uses {name!r}, which nothing makes")
            cycle = _cycle(graph, makers)
            if cycle:
                raise ModelError(f"the graph has a cycle through {' -> '.join(cycle)}")
            raise ModelError(
                f"the nodes are not in order: {_spell(place, node)} uses {name!r}, which "
                f"{_spell(makers[name], graph.node[makers[name]])} makes later; sort them topologically"
            )
        ready.update(node.output)
    absent = next((value.name for value in graph.output if value.name not in ready), None)
    if absent is not None:
        raise ModelError(f"the output {absent!r} is never made")


def _cycle(graph: onnx.GraphProto, makers: dict[str, int]) -> list[str]:
    """The places of one cycle, or nothing: what is left when every node that can run has run."""
    needs = {
        place: {makers[name] for name in [*node.input, *captures(node)] if name in makers}
        for place, node in enumerate(graph.node)
    }
    left = set(needs)
    users: dict[int, list[int]] = {}
    for place, sources in needs.items():
        for source in sources:
            users.setdefault(source, []).append(place)
    waiting = {place: len(sources) for place, sources in needs.items()}
    free = [place for place, count in waiting.items() if not count]
    while free:
        place = free.pop()
        left.discard(place)
        for user in users.get(place, []):
            waiting[user] -= 1
            if not waiting[user]:
                free.append(user)
    if not left:
        return []
    path = [min(left)]
    while path[-1] not in path[:-1]:
        path.append(min(needs[path[-1]] & left))
    return [_spell(place, graph.node[place]) for place in path[path.index(path[-1]) :]]


def _spell(place: int, node: onnx.NodeProto) -> str:
    return f"{node.op_type}#{place}"


MOST_ELEMENTS = 2**48
Tensor: TypeAlias = "onnx.TensorProto | onnx.SparseTensorProto"


def check_dims(what: str, dims: list[int]) -> None:
    """ModelError where an extent is negative or the cells are more than any memory holds."""
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
        whole = len(tensor.raw_data) // dtype.bytes * dtype.bytes
        flat = np.frombuffer(tensor.raw_data[:whole], dtype.numpy)
    else:
        flat = _typed_cells(tensor, dtype)
    if flat.size != math.prod(dims):
        raise ModelError(f"the tensor {tensor.name!r} of shape {dims} holds {flat.size} elements")
    return flat.reshape(dims)


_FIELDS: dict[DType, tuple[str, type]] = {  # of a tensor without raw bytes, where they are not int32
    DType.F32: ("float_data", np.float32),
    DType.F64: ("double_data", np.float64),
    DType.I64: ("int64_data", np.int64),
    **dict.fromkeys((DType.U32, DType.U64), ("uint64_data", np.uint64)),
}


def _typed_cells(tensor: onnx.TensorProto, dtype: DType) -> np.ndarray:
    """The cells of a tensor that has no raw bytes."""
    field, wide = _FIELDS.get(dtype, ("int32_data", np.int32))
    cells: np.ndarray = np.array(getattr(tensor, field), wide)
    return cells.astype(np.uint16).view(dtype.numpy) if dtype.is_half else cells.astype(dtype.numpy, copy=False)


def _external_array(tensor: onnx.TensorProto, dtype: DType, dims: list[int], folder: Path | None) -> np.ndarray:
    path, offset, length = external_slice(tensor, folder)
    wanted = math.prod(dims) * dtype.bytes
    if length is not None and length != wanted:
        raise ModelError(f"the tensor {tensor.name!r} of shape {dims} has {length} external bytes, not {wanted}")
    if not wanted:
        return np.empty(dims, dtype.numpy)
    mapped = np.memmap(path, np.uint8, "r", offset, (wanted,))
    return np.frombuffer(mapped, dtype.numpy).reshape(dims)


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
    """A file in the folder of the model, also once links are followed."""
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


def _dense(tensor: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray | None:
    """A sparse tensor with its zeros; its indices are positions in C order, or one row for each cell."""
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
    """The tensors that a model holds, by name; `load` makes an array of one."""

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
        read = _dense if isinstance(tensor, onnx.SparseTensorProto) else array_of
        array = read(tensor, self._folder)
        if array is None:
            raise ModelError(f"the type of the tensor {name!r} is none that noyau has")
        return array
