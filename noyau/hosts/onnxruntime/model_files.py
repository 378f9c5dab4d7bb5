"""A model, its library and its external data written to a folder, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import ModelError, NoyauError, OutputError
from noyau.hosts.onnxruntime.function_bodies import subgraphs

if TYPE_CHECKING:
    import onnx

_CHUNK_BYTES = 1 << 20


def library_path(path: Path) -> Path:
    """Path of the library of a model file: beside it, with the same stem."""
    try:
        return path.with_suffix(".so")
    except ValueError:
        raise OutputError(f"{str(path)!r} is not the name of a file; end it in .onnx") from None


def save(model: onnx.ModelProto, library: Path | None, path: Path, source: Path | None = None) -> None:
    """Write the model to `path` and a copy of its library beside it, with the same stem.

    `source` is the folder that the model came from. Its external data is left there when `path` is in that folder, else
    it is linked into the new one, or copied where it cannot be; it is never loaded. All files appear or none does, and
    those that were there before come back. OutputError where the folder is missing, read-only or full, or holds other
    data under the same name; ModelError where the data points outside `source` or the model is too large for a file.
    """
    library_file = library_path(path)
    if library_file == path:
        raise OutputError(f"{path} cannot be written: that name is for the library; end the model's in .onnx")
    data = _serialized(model)
    links = _data_files(model, source, path.parent)
    with _output_errors(path), contextlib.ExitStack() as leftovers, contextlib.ExitStack() as undo:
        for origin, target in links:
            _make_folders(target.parent, path.parent, undo)
            _install(_linked(origin, target, leftovers), target, undo, leftovers)
        fresh = _written(lambda file: _pour(data, file), path.parent, leftovers)
        if library is not None:
            copied = _written(lambda file: _copy_into(library, file), path.parent, leftovers)
            _install(copied, library_file, undo, leftovers)
        _install(fresh, path, undo, leftovers)
        _settle(path.parent)
        undo.pop_all()


def save_files(contents: Mapping[Path, bytes], path: Path) -> None:
    """Write some files of one folder, all of them or none; those that were there before come back where one fails.

    OutputError, which names `path`, where the folder is missing, read-only or full."""
    with _output_errors(path), contextlib.ExitStack() as leftovers, contextlib.ExitStack() as undo:
        for final, data in contents.items():
            fresh = _written(partial(_pour, data), final.parent, leftovers)
            _install(fresh, final, undo, leftovers)
        _settle(path.parent)
        undo.pop_all()


def _location(tensor: onnx.TensorProto) -> str:
    """The file that a tensor lies in, as the model spells it; of several the last, as it is read."""
    return str({entry.key: entry.value for entry in tensor.external_data}.get("location", ""))


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop()
        for node in graph.node:
            pending.extend(subgraphs(node))
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
                yield from _parts((attribute.sparse_tensor, *attribute.sparse_tensors))
        if hasattr(graph, "initializer"):
            yield from graph.initializer
            yield from _parts(graph.sparse_initializer)


def _parts(tensors: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)


def _serialized(model: onnx.ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:
        raise ModelError("the model takes more than 2 GB; save its weights as external data first") from error


def _data_files(model: onnx.ModelProto, source: Path | None, folder: Path) -> list[tuple[Path, Path]]:
    """The data files to bring into `folder`: from where, to where."""
    tensors = {_location(tensor): tensor for tensor in _tensors(model) if tensor.data_location == tensor.EXTERNAL}
    if not tensors:
        return []
    if source is None:
        raise OutputError("the model has external data, and it was not said which folder that lies in")
    from noyau.frontends.onnx.tensors import external_slice

    pairs = [(external_slice(tensor, source)[0], folder / location) for location, tensor in tensors.items()]
    return [(origin, target) for origin, target in pairs if not _same_data(origin, target)]


def _same_data(origin: Path, target: Path) -> bool:
    """Whether the data is there already; OutputError where the target is something else."""
    if not os.path.lexists(target):
        return False
    with _output_errors(target):
        if target.is_file() and (os.path.samefile(origin, target) or filecmp.cmp(origin, target, shallow=False)):
            return True
    raise OutputError(f"{target} is there already and is not this model's data; remove it or choose another folder")


def _make_folders(folder: Path, within: Path, undo: contextlib.ExitStack) -> None:
    """Make the folders of a data file that `within` does not have yet."""
    missing = [each for each in (folder, *folder.parents) if each.is_relative_to(within) and not each.exists()]
    for each in reversed(missing):
        if each == within:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(within))
        each.mkdir()
        undo.callback(_remove_folder, each)


def _linked(origin: Path, target: Path, leftovers: contextlib.ExitStack) -> Path:
    """A hard link to the data beside its target, or a copy on another file system."""
    fresh = _fresh(target.parent)
    leftovers.callback(_remove, fresh)
    try:
        os.link(origin, fresh)
    except OSError:
        return _written(lambda file: _copy_into(origin, file), target.parent, leftovers)
    return fresh


def _written(pour: Callable[[int], None], folder: Path, leftovers: contextlib.ExitStack) -> Path:
    """A new file in the folder, filled and on the disk; it goes with `leftovers` unless it was renamed."""
    fresh = _fresh(folder)
    leftovers.callback(_remove, fresh)
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        pour(file)
        os.fsync(file)
    finally:
        os.close(file)
    return fresh


def _pour(data: bytes, file: int) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view[:_CHUNK_BYTES]) :]


def _copy_into(origin: Path, file: int) -> None:
    with open(origin, "rb") as reader, open(file, "wb", closefd=False) as writer:
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)


def _install(fresh: Path, final: Path, undo: contextlib.ExitStack, leftovers: contextlib.ExitStack) -> None:
    """Rename a new file to its place; `undo` puts back what was there."""
    if final.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(final))
    if final.exists() and not final.is_file():
        raise ValueError("it is no plain file")  # a device or a pipe would be gone
    if not os.path.lexists(final):
        undo.callback(_remove, final)
    else:
        before = _fresh(final.parent)
        leftovers.callback(_remove, before)
        undo.callback(_restore, before, final)
        try:
            os.link(final, before, follow_symlinks=False)
        except OSError:
            final.rename(before)  # no hard links on this file system
    fresh.replace(final)


def _restore(before: Path, final: Path) -> None:
    if os.path.lexists(before):
        before.replace(final)


def _fresh(folder: Path) -> Path:
    return folder / f".noyau-{secrets.token_hex(8)}.tmp"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _settle(folder: Path) -> None:
    """Have the renames on the disk too, where the system can."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextlib.contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except NoyauError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"{path} cannot be written: {reason}; give a folder that exists, with room in it") from error
