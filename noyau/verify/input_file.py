"""The inputs of a model from a file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Graph, Node
from noyau.ir.sizes import bind
from noyau.text import printable
from noyau.verify.inputs import Inputs, describe, require_memory


def load_inputs(path: Path, graph: Graph, *, without: Collection[str] = ()) -> Inputs:
    """The inputs of a graph from an .npz file of one array each, by name; never pickled objects.

    Raises InputError that names every array that is missing, unknown, or of another dtype or rank; and where the file
    cannot be read or the shapes disagree."""
    nodes = {node.output: node for node in graph.inputs if node.output not in without}
    contents = _read(path)
    faults = [f"{printable(name)} is missing" for name in nodes if name not in contents]
    faults += [f"the model has no input {printable(name)}" for name in contents if name not in nodes]
    arrays = {name: _native(contents[name], node.dtype) for name, node in nodes.items() if name in contents}
    faults += [fault for name, array in arrays.items() if (fault := _misfit(nodes[name], array))]
    if faults:
        raise InputError(f"{path} does not fit the model: {'; '.join(faults)}")
    shaped = [name for name, node in nodes.items() if node.dtype is not DType.OTHER]
    names = [printable(name) for name in shaped]
    sizes = bind([nodes[name].shape for name in shaped], [arrays[name].shape for name in shaped], names)
    notes = tuple(f"{describe(node, arrays[name])}: from {printable(path.name)}" for name, node in nodes.items())
    return Inputs(arrays, sizes, notes)


def _read(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file, by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            require_memory(sum(member.file_size for member in archive.infolist()), f"{path}: its arrays")
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{path} is no .npz file of named arrays: write it with np.savez")
        with file:
            arrays = {name: file[name] for name in file.files}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = printable(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read as an .npz file of plain arrays: {reason}") from error
    strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strange:
        raise InputError(f"{path}: {printable(strange[0])} is no array: write the file with np.savez")
    return arrays


def _native(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The array in this machine's byte order; NumPy writes bfloat16 as two raw bytes, so these are taken for it."""
    if dtype is DType.BF16 and array.dtype == np.dtype("V2"):
        return array.view(dtype.numpy)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _misfit(node: Node, array: np.ndarray) -> str | None:
    name = printable(node.output)
    if node.dtype is DType.OTHER:
        return None
    if array.dtype != node.dtype.numpy:
        return f"{name} is {array.dtype}, not {node.dtype.numpy}"
    if array.ndim != len(node.shape):
        return f"{name} has rank {array.ndim}, not {len(node.shape)}"
    return None
