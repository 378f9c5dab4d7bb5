"""Writes of a model, its library and its external data to a folder, all of them or none.

Also the metadata of a model that noyau has written, and the replacement of its fused nodes by their bodies."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from noyau.errors import ModelError, OutputError, output_errors
from noyau.frontends.onnx_messages import core, every_node, subgraphs, tensors_of
from noyau.hosts.onnxruntime import function_bodies
from noyau.version import __version__

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

_CHUNK_BYTES, _RANGE_BYTES = 1 << 20, 1 << 30
_PREFIX = "noyau."


def library_path(path: Path) -> Path:
    """Path of the library of a model file: beside it, with the same stem."""
    try:
        return path.with_suffix(".so")
    except ValueError:
        raise OutputError(f"{str(path)!r} is not the name of a file; end it in .onnx") from None


# Raises an error where a model file, and its library, are not fit for use.
Trial = Callable[[Path, "Path | None"], None]


def save(
    model: ModelProto, library: Path | None, path: Path, source: Path | None = None, trial: Trial = lambda *_: None
) -> None:
    """Write the model to `path` and a copy of its library beside it, with the same stem.

    `source` is the folder of the original model. Its external data stays there when `path` is in that folder, else it
    is copied into the new one, without being loaded: onnx refuses data that has a second link, in both places.
    `trial` is called with the files before they get their names. All files appear or none does, and former files
    are restored. OutputError where the folder is missing, read-only or full, or holds other
    data under the same name; ModelError where the data points outside `source` or the model is too large for a file."""
    library_file = library_path(path)
    if library_file == path:
        raise OutputError(f"{path} cannot be written: that name is for the library; end the model's in .onnx")
    try:
        data = bytes(model.SerializeToString())
    except Exception as error:
        raise ModelError("the model takes more than 2 GB; save its weights as external data first") from error
    copies = _data_files(model, source, path.parent)
    with output_errors(path), contextlib.ExitStack() as leftovers, contextlib.ExitStack() as undo:
        for origin, target in copies:
            _make_folders(target.parent, path.parent, leftovers)
            _install(_write_beside(partial(_copy_into, origin), target.parent, leftovers), target, undo, leftovers)
        fresh = _write_beside(partial(_pour, data), path.parent, leftovers)
        library_copy = None if library is None else _write_beside(partial(_copy_into, library), path.parent, leftovers)
        trial(fresh, library_copy)
        if library_copy is not None:
            _install(library_copy, library_file, undo, leftovers)
        _install(fresh, path, undo, leftovers)
        _settle(path.parent)
        undo.pop_all()


def save_files(contents: Mapping[Path, bytes], path: Path) -> None:
    """Write some files of one folder, all of them or none; former files are restored where one fails.

    OutputError, which names `path`, where the folder is missing, read-only or full."""
    with output_errors(path), contextlib.ExitStack() as leftovers, contextlib.ExitStack() as undo:
        for final, data in contents.items():
            _install(_write_beside(partial(_pour, data), final.parent, leftovers), final, undo, leftovers)
        _settle(path.parent)
        undo.pop_all()


def _data_files(model: ModelProto, source: Path | None, folder: Path) -> list[tuple[Path, Path]]:
    """The data files to bring into `folder`: from where, to where."""
    every = chain.from_iterable(map(tensors_of, (model.graph, *model.functions)))
    external = [tensor for tensor in every if tensor.data_location == tensor.EXTERNAL]
    facts = ({entry.key: entry.value for entry in tensor.external_data} for tensor in external)
    tensors = {str(each.get("location", "")): tensor for each, tensor in zip(facts, external, strict=True)}
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
    with output_errors(target):
        if target.is_file() and (os.path.samefile(origin, target) or filecmp.cmp(origin, target, shallow=False)):
            return True
    raise OutputError(f"{target} is there already and is not this model's data; remove it or choose another folder")


def _make_folders(folder: Path, within: Path, leftovers: contextlib.ExitStack) -> None:
    """Make the folders of a data file that `within` lacks; `leftovers` removes those that are empty in the end."""
    missing = [each for each in (folder, *folder.parents) if each.is_relative_to(within) and not each.exists()]
    for each in reversed(missing):
        if each == within:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(within))
        each.mkdir()
        leftovers.callback(_try, each.rmdir)


def _write_beside(pour: Callable[[int], None], folder: Path, leftovers: contextlib.ExitStack) -> Path:
    """A new file in the folder, filled and synced to the disk; `leftovers` removes it unless it was renamed."""
    fresh = _fresh(folder, leftovers)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb", buffering=0) as file:
        pour(file.fileno())
        os.fsync(file)
    return fresh


def _pour(data: bytes, file: int) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view[:_CHUNK_BYTES]) :]


def _copy_into(origin: Path, file: int) -> None:
    """Copy a file, sharing its blocks where the file system does that."""
    with open(origin, "rb", buffering=0) as reader, open(file, "wb", buffering=0, closefd=False) as writer:
        with contextlib.suppress(OSError, AttributeError):  # from another file system, or of a system without the call
            while os.copy_file_range(reader.fileno(), file, _RANGE_BYTES):
                pass
        shutil.copyfileobj(reader, writer, _CHUNK_BYTES)  # the rest


def _install(fresh: Path, final: Path, undo: contextlib.ExitStack, leftovers: contextlib.ExitStack) -> None:
    """Rename a new file to its place; `undo` restores the former file."""
    if final.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(final))
    if final.exists() and not final.is_file():
        raise ValueError("it is no plain file")  # a device or a pipe would be lost
    if not os.path.lexists(final):
        undo.callback(_try, final.unlink)
    else:
        before = _fresh(final.parent, leftovers)
        undo.callback(_restore, before, final)
        try:
            os.link(final, before, follow_symlinks=False)
        except OSError:
            final.rename(before)  # no hard links on this file system
    fresh.replace(final)


def _restore(before: Path, final: Path) -> None:
    if os.path.lexists(before):
        before.replace(final)


def _fresh(folder: Path, leftovers: contextlib.ExitStack) -> Path:
    """A new name in the folder; `leftovers` removes a file of that name."""
    path = folder / f".noyau-{secrets.token_hex(8)}.tmp"
    leftovers.callback(_try, path.unlink)
    return path


def _try(removal: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        removal()


def _settle(folder: Path) -> None:
    """Sync the renames to the disk, where the system can."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Origin of a written model: noyau's version, the CPU level that its kernels need, and digests (SHA-256, in
    hexadecimal) of the file that was optimised and of the library; "" where they are unknown."""

    version: str
    target: str
    source_sha256: str
    library_sha256: str = ""


def sign(model: ModelProto, source: Path | None, target: str, texts: Mapping[str, str], library: Path | None) -> None:
    """Write the origin of a model into its metadata: this version of noyau, the CPU level `target`, the file `source`
    (None: no file) and the library; into each fused function the level and the SHA-256 of its kernel's text, from
    `texts` by the function's name. A model without a library is unchanged."""
    if library is None:
        return
    result = Provenance(__version__, target, sha256_of(source) if source else "", sha256_of(library))
    _write(model, {name: getattr(result, name) for name in Provenance.__slots__})
    for function in model.functions:
        if function_bodies.is_own(function.domain) and function.name in texts:
            digest = hashlib.sha256(texts[function.name].encode()).hexdigest()
            _write(function, {"target": target, "text_sha256": digest})


def provenance_of(model: ModelProto) -> Provenance | None:
    """Origin that a model states; None where noyau has not written it."""
    entries = {entry.key: entry.value for entry in model.metadata_props}
    facts = {key.removeprefix(_PREFIX): entry for key, entry in entries.items() if key.startswith(_PREFIX)}
    if "version" not in facts:
        return None
    return Provenance(**{name: facts.get(name, "") for name in Provenance.__slots__})


def sha256_of(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def library_state(path: Path, provenance: Provenance) -> str:
    """State of the library of a written model: "as written", "another one" or "missing"."""
    try:
        return "as written" if sha256_of(library_path(path)) == provenance.library_sha256 else "another one"
    except OSError:
        return "missing"


def take_apart(model: ModelProto) -> ModelProto:
    """Replace each fused node by its body, so that the model can be optimised anew; the model itself where no node is
    fused. The metadata about its origin is removed."""
    values = function_bodies.ModelValues.of(model)
    fused = (node for node in every_node(model.graph.node) if function_bodies.is_own(node.domain))
    if not any(_is_plain(node, model, values) for node in fused):
        return model
    occupied, shared = function_bodies.value_names(model.graph), dict[bytes, str]()
    result = deepcopy(model)

    def fill(graph: GraphProto, source: GraphProto) -> None:
        del graph.node[:]
        for node in source.node:
            if function_bodies.is_own(node.domain) and _is_plain(node, model, values):
                body = function_bodies.unfuse(node, values, occupied)
                graph.node.extend(_with_shared(body, node, result.graph, shared))
            else:
                graph.node.append(node)
                for pair in zip(*map(subgraphs, (graph.node[-1], node)), strict=True):
                    fill(*pair)

    fill(result.graph, model.graph)
    _drop_functions(result)
    _write(result, {})
    return result


def _with_shared(
    body: Iterable[NodeProto], node: NodeProto, graph: GraphProto, shared: dict[bytes, str]
) -> Iterator[NodeProto]:
    """The nodes of a body, with constants as initializers, of which equal ones of several bodies are one. `shared`: the
    initializers so far, by content."""
    names: dict[str, str] = {}
    for each in body:
        tensor = each.attribute[0].t if each.op_type == "Constant" and len(each.attribute) == 1 else None
        if tensor is not None and tensor.data_type and each.output[0] not in node.output:
            tensor.ClearField("name")
            content = tensor.SerializeToString(deterministic=True)
            if content not in shared:
                shared[content] = each.output[0]
                graph.initializer.add().CopyFrom(tensor)
                graph.initializer[-1].name = each.output[0]
            names[each.output[0]] = shared[content]
        else:
            for number, name in enumerate(each.input):
                each.input[number] = names.get(name, name)
            yield each


def _is_plain(node: NodeProto, model: ModelProto, values: function_bodies.ModelValues) -> bool:
    """Whether a fused node has a body that noyau could have written, in the operator sets of the model."""
    if function_bodies.is_foreign(node, values):
        return False
    own = {core(entry.domain): entry.version for entry in model.opset_import}
    imported = values.fused[node.domain, node.op_type].opset_import
    return all(own.get(core(entry.domain)) == entry.version for entry in imported)


def _drop_functions(model: ModelProto) -> None:
    """Remove the fused functions that no node calls any more, and the domain with the last of them."""
    nodes = chain(model.graph.node, *(function.node for function in model.functions))
    names = {node.op_type for node in every_node(nodes) if function_bodies.is_own(node.domain)}
    function_bodies.drop(model.functions, lambda each: function_bodies.is_own(each.domain) and each.name not in names)
    if not names:
        function_bodies.drop(model.opset_import, lambda entry: function_bodies.is_own(entry.domain))


def _write(message: ModelProto | FunctionProto, facts: Mapping[str, str]) -> None:
    """Replace noyau's metadata by these facts; a function of an old release of onnx has no metadata."""
    if not hasattr(message, "metadata_props"):
        return
    function_bodies.drop(message.metadata_props, lambda entry: entry.key.startswith(_PREFIX))
    for key, fact in facts.items():
        message.metadata_props.add(key=_PREFIX + key, value=fact)
