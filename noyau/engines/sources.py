"""Sources: arrays, .npy files, files by Arrow, and iterables of DataFrames, Arrow batches or dicts of arrays.

A source has the `names` of its columns, the `size` in rows (None if unknown), an `identity` as text, a `sample` of its
columns, and `parts` in order, each of which has a `label` and yields `chunks`."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from noyau.engines.reading import Chunk, Reading, require_columns
from noyau.engines.sql.places import place_of
from noyau.errors import InputError, MissingExtraError, reason_of

ROWS = 1 << 20  # of a part of arrays, and of a batch of a DuckDB relation


@dataclass(frozen=True)
class Arrays:
    """Columns as arrays, in memory or mapped, from row `start` on. `path`: of a mapped .npy file."""

    columns: Chunk
    label: str
    start: int = 0
    path: str = ""

    def __post_init__(self) -> None:
        sizes = {name: len(array) if array.ndim else "no rows" for name, array in self.columns.items()}
        if len(set(sizes.values())) != 1 or "no rows" in sizes.values():
            raise InputError(f"{self.label} needs columns of one length, not {sizes}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def size(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def identity(self) -> str:
        return f"{self.label} {[(name, array.shape, str(array.dtype)) for name, array in self.columns.items()]}"

    def sample(self, columns: Sequence[str]) -> Chunk:
        return {name: self.columns[name][:64] for name in columns}

    def parts(self, columns: Sequence[str]) -> Iterator[Arrays]:
        starts = range(0, self.size, ROWS)
        labels = (f"{self.label} from row {start} on" if start else self.label for start in starts)
        return (Arrays(self.columns, label, start, self.path) for label, start in zip(labels, starts, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a part as its rows, or as the path of its file."""
        if self.path:
            return _map_file, (self.path, next(iter(self.columns)), self.label, self.start)
        own = {name: array[self.start : self.start + ROWS] for name, array in self.columns.items()}
        return Arrays, (own, self.label)

    def chunks(self, reading: Reading) -> Iterator[Chunk]:
        stop = min(self.start + ROWS, self.size)
        for start in range(self.start, stop, reading.rows):
            yield {name: self.columns[name][start : min(start + reading.rows, stop)] for name in reading.columns}


class Chunks:
    """Chunks of an iterable, which can be read once only: a source and its only part."""

    size, label = None, "chunks"

    def __init__(self, values: Any) -> None:
        if hasattr(values, "fetch_arrow_reader"):
            values = values.fetch_arrow_reader(ROWS)
        pieces = iter([values] if hasattr(values, "columns") or hasattr(values, "to_batches") else values)
        of_none = getattr(getattr(values, "schema", None), "empty_table", lambda: None)  # of Arrow: no batch has it too
        self.first = next(pieces, of_none())
        if self.first is None:
            raise InputError("the source yields no chunk")
        self.pieces = itertools.chain([self.first], pieces)
        names = getattr(getattr(self.first, "schema", None), "names", None)  # a method, of polars
        self.names = tuple((names() if callable(names) else names) or _table(self.first))
        self.identity = f"chunks of {self.names}"

    def sample(self, columns: Sequence[str]) -> Chunk:
        return next(columns_of(self.first, Reading(tuple(columns), 64, nulls="skip"), "chunk 0"))

    def parts(self, columns: Sequence[str]) -> list[Chunks]:
        return [self]

    def chunks(self, reading: Reading) -> Iterator[Chunk]:
        for number, piece in enumerate(self.pieces):
            yield from columns_of(piece, reading, f"chunk {number}")


def columns_of(piece: Any, reading: Reading, label: str) -> Iterator[Chunk]:
    """The columns of a chunk: Arrow data, a DataFrame, a dict of arrays, or one array as the first column."""
    if hasattr(piece, "__arrow_c_stream__") or hasattr(piece, "__arrow_c_array__"):
        from noyau.engines.arrow_files import chunks_of

        yield from chunks_of(piece, reading, label)
        return
    table = {reading.columns[0]: piece} if isinstance(piece, np.ndarray) else _table(piece)
    require_columns(tuple(table), reading.columns, label)
    yield {name: table[name] for name in reading.columns}


def _table(value: Any) -> Chunk:
    if not isinstance(value, Mapping) and not hasattr(value, "columns"):
        remedy = "yield DataFrames, Arrow batches or dicts of arrays; several files are a glob"
        raise InputError(f"a chunk is a {type(value).__name__}: {remedy}")
    return {str(name): np.asarray(value[name]) for name in (value if isinstance(value, Mapping) else value.columns)}


def _map_file(path: str, column: str, label: str, start: int = 0) -> Arrays:
    try:
        return Arrays({column: np.load(path, mmap_mode="r", allow_pickle=False)}, label, start, path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as fault:
        raise InputError(f"{path} cannot be mapped: {reason_of(fault)}") from fault


def open_source(source: Any, columns: Sequence[str]) -> Any:
    """Make a source of a value; a lone array is the first of `columns`. InputError where it cannot be a source,
    MissingExtraError where its format needs pyarrow."""
    if (table := place_of(source)) is not None:
        from noyau.engines.sql.adbc_tables import TableSource

        return TableSource(table)
    if isinstance(source, str | PathLike):
        if Path(source).suffix == ".npy":
            return _map_file(str(source), columns[0], str(source))
        if find_spec("pyarrow") is None:
            raise MissingExtraError(f"{source} needs pyarrow; run: pip install 'noyau-kernels[stream]'")
        from noyau.engines.arrow_files import open_files

        return open_files(str(source))
    if isinstance(source, np.ndarray):
        return Arrays({columns[0]: source}, "the array")
    if isinstance(source, Mapping):
        return Arrays({str(name): np.asarray(array) for name, array in source.items()}, "the arrays")
    if isinstance(source, Iterable) or hasattr(source, "__arrow_c_stream__"):
        return Chunks(source)
    raise InputError(f"a {type(source).__name__} is no source: give arrays, a path, or what yields DataFrames")
