"""The options of reading a source, chunks of columns, and columns and counts as reductions take them."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from noyau.errors import InputError
from noyau.text import few

Chunk = Mapping[str, np.ndarray]
T = TypeVar("T")


@dataclass
class Reading:
    """The options of reading a source. `columns`: to yield; `rows`: of a chunk, except the last of a part; `where`: a
    pyarrow expression, or SQL text; `nulls`: "refuse", "skip" rows with one, or "nan"; `bad_lines`: the folder for
    malformed lines, None if one is an error; `block`: bytes of text parsed at once; `whole`: rows of the largest row
    group that is read as one chunk; `threads`: decode with Arrow's threads, False if each part has its own thread;
    `mapped`: the most bytes of a part of a file that may be memory-mapped. `counts`: rows and lines left out."""

    columns: tuple[str, ...]
    rows: int
    where: Any = None
    nulls: str = "refuse"
    bad_lines: Path | None = None
    block: int = 1 << 20
    whole: int = 0
    threads: bool = field(default=True, repr=False)
    mapped: int = field(default=0, repr=False)
    counts: Counter[str] = field(default_factory=Counter, repr=False)


def require_columns(names: Sequence[str], wanted: Iterable[str], place: str) -> None:
    """InputError where a column is missing."""
    if missing := [name for name in wanted if name not in names]:
        remedy = "say columns={'argument': 'column'} where they are called otherwise"
        raise InputError(f"{place} has no column {', '.join(missing)}; it has {few(names, 12)}; {remedy}")


def with_ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield the items in order, `count` items behind their creation, so that later ones are computed meanwhile."""
    waiting = deque[T]()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


def rows_in(chunk: Chunk) -> int:
    return len(next(iter(chunk.values()), ()))


def cast_column(array: np.ndarray, dtype: np.dtype | None, place: str, column: object) -> np.ndarray:
    """The column in the dtype of the signature. InputError where its values do not fit."""
    if dtype is None or array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        kind = "texts: name one of numbers" if array.dtype.kind in "OUS" else f"{array.dtype}: cast it, or declare that"
        raise InputError(f"{place} is declared {dtype}, and its column {column} is {kind}")
    converted = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted, array):
        raise InputError(f"{place} is declared {dtype}, and a value of its column {column} overflows that")
    return converted


def flatten_columns(columns: Chunk) -> dict[str, np.ndarray]:
    """The columns of a table; those of a matrix x are named x_0, x_1..."""
    flat: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        cells = column.reshape(len(column), math.prod(column.shape[1:])).T
        flat |= {name: column} if column.ndim == 1 else {f"{name}_{at}": each for at, each in enumerate(cells)}
    return flat


def numbers(x: Any, name: str) -> np.ndarray:
    """A column of numbers or times as an array. InputError for texts, with the reduction's name."""
    if (column := np.asarray(x)).dtype.kind in "OUS":
        raise InputError(f"{name} takes numbers, and its column is of texts")
    return column


def matrix_of(x: Any) -> np.ndarray:
    """A column as float64 with one axis beside the rows, also of no rows."""
    rows = np.asarray(x, np.float64)
    return rows.reshape(len(rows), math.prod(rows.shape[1:]))


def require_count(count: Any, least: int, what: str) -> int:
    """An integer from `least` on. ValueError for anything else."""
    if not isinstance(count, int | np.integer) or count < least:
        raise ValueError(f"{what} is {count!r}; give an integer from {least} on")
    return int(count)
