"""Samples of a user's own inputs: one from an .npz file, or those that a script yields."""

import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError, reason_of
from noyau.ir.graph import Graph, Node
from noyau.ir.sizes import bind
from noyau.text import printable, several
from noyau.verify.inputs import Inputs, describe, require_memory
from noyau.verify.lookup_tables import Arrays
from noyau.workers.import_path import run_file

MOST = 16  # samples that are used
_SCRIPT = "a function that yields dicts of arrays, by the names of the model's inputs"


def load_samples(path: Path, graph: Graph, without: Collection[str] = (), dims: Collection[str] = ()) -> list[Inputs]:
    """Load samples of the inputs of a graph: one from an .npz file of arrays by name, without pickled objects, or those
    that `inputs` of a .py file yields: at most 16, and a 17th to show that there are more.

    InputError names every array that is missing, unknown, or of another dtype or rank; it is also raised if `dims` are
    given, the file cannot be read, the script fails or yields nothing, or the shapes of a sample disagree."""
    if dims:
        raise InputError(f"{path} gives every size: leave out --dim {printable(min(dims))}=N, or the arrays")
    if path.suffix != ".py":
        return [_fit(read_arrays(path), graph, without, str(path), path.name)]
    samples = []
    for number, contents in enumerate(islice(_yield_samples(path), MOST + 1), 1):
        place = f"sample {number} of {printable(path.name)}"
        samples.append(_fit(contents, graph, without, place, place))
    if not samples:
        raise InputError(f"{path}: its inputs yield no sample; give {_SCRIPT}")
    return samples


def note_of(samples: Collection[Inputs], path: Path) -> tuple[str, ...]:
    """The line of a report on the number of samples; none for one sample."""
    if len(samples) < 2:
        return ()
    more = f"; it yields more than the {MOST} that are taken" if len(samples) > MOST else ""
    count = several(min(len(samples), MOST), "sample")
    return (f"{count} of {printable(path.name)}: each is checked, and of each sizes the first is timed{more}",)


def first_sample(path: Path, graph: Graph, without: Collection[str] = (), dims: Collection[str] = ()) -> Inputs:
    """The first sample, for jobs that use only one; its notes say if there are others."""
    first, *others = load_samples(path, graph, without=without, dims=dims)
    more = (f"the first sample of {printable(path.name)}: others are not looked at",) if others else ()
    return replace(first, notes=(*first.notes, *more))


def _yield_samples(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of each sample of a script, copied because the script may reuse them."""
    maker: Any = run_file(path).get("inputs")
    if maker is None:
        raise InputError(f"{path} has no `inputs`: name so {_SCRIPT}")
    number = 0
    try:
        for number, sample in enumerate(maker() if callable(maker) else maker, 1):
            if not isinstance(sample, Mapping):
                raise InputError(f"{path}: sample {number} is {type(sample).__name__}, no dict: inputs is {_SCRIPT}")
            yield {str(name): np.array(value) for name, value in sample.items()}
    except InputError:
        raise
    except Exception as fault:  # of a user's function
        message = f"{type(fault).__name__}: {printable(str(fault))}"
        raise InputError(f"{path}: its inputs fail after {several(number, 'sample')} with {message}") from fault


def _fit(contents: Arrays, graph: Graph, without: Collection[str], place: str, source: str) -> Inputs:
    nodes = {node.output: node for node in graph.inputs if node.output not in without}
    faults = [f"{printable(name)} is missing" for name in nodes if name not in contents]
    faults += [f"the model has no input {printable(name)}" for name in contents if name not in nodes]
    arrays = {name: _native(contents[name], node.dtype) for name, node in nodes.items() if name in contents}
    faults += [fault for name, array in arrays.items() if (fault := _misfit(nodes[name], array))]
    if faults:
        raise InputError(f"{place} does not fit the model: {'; '.join(faults)}")
    shaped = [name for name, node in nodes.items() if node.dtype is not DType.OTHER]
    names = [printable(name) for name in shaped]
    try:
        sizes = bind([nodes[name].shape for name in shaped], [arrays[name].shape for name in shaped], names)
    except InputError as fault:
        raise InputError(f"{place} does not fit the model: {fault}") from fault
    return Inputs(arrays, sizes, tuple(_note(node, arrays[name], source) for name, node in nodes.items()))


def _note(node: Node, array: np.ndarray, source: str) -> str:
    """A line on the origin of an array, with a remark on NaN and infinite cells, which are allowed but rarely meant."""
    count = int(np.count_nonzero(~np.isfinite(array.astype(np.float64)))) if node.dtype.is_float else 0
    strange = f", of which {several(count, 'cell')} {'is' if count == 1 else 'are'} NaN or infinite" if count else ""
    return f"{describe(node, array)}: from {printable(source)}{strange}"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file, by name, in its order. InputError where it cannot be read."""
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
        form = "" if isinstance(error, OSError) else " as an .npz file of plain arrays"
        raise InputError(f"{path} cannot be read{form}: {printable(reason_of(error))}") from error
    strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if strange:
        raise InputError(f"{path}: {printable(strange[0])} is no array: write the file with np.savez")
    return arrays


def _native(array: np.ndarray, dtype: DType) -> np.ndarray:
    """The array in native byte order; two raw bytes become bfloat16, since NumPy writes it so."""
    if dtype is DType.BF16 and array.dtype == np.dtype("V2"):
        return array.view(dtype.numpy)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _misfit(node: Node, array: np.ndarray) -> str | None:
    name = printable(node.output)
    if node.dtype is DType.OTHER:
        return None
    if array.dtype != node.dtype.numpy:
        return f"{name} is {array.dtype}, not {node.dtype.numpy}"
    return f"{name} has rank {array.ndim}, not {len(node.shape)}" if array.ndim != len(node.shape) else None
