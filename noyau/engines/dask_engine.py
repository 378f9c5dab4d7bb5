"""Dask as an engine: parts are delayed tasks, whose states are merged in a tree of neighbours; Dask's collections are
sources. It runs on the default client, else on Dask's scheduler in this process."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import dask
import numpy as np
from dask.delayed import Delayed, delayed

from noyau.engines.partitions import Answer, Task
from noyau.engines.reading import Chunk
from noyau.errors import InputError, MissingExtraError, RaisedError, dependency

_FAN = 16  # states that one merge takes
_PATIENCE_S = 10


def run(task: Task, parts: Iterable[tuple[int, Any]], address: str, count: int) -> Iterator[Answer]:
    """The answers of all parts in order, merged for neighbours if they have states; by a client as they finish, without
    one in batches of _FAN parts for each processor."""
    client, content = _client(address), delayed(pickle.dumps(task), pure=False)
    rest = iter(parts)
    try:
        if client is not None:
            for future in client.compute(_level(task, content, rest)):
                yield future.result()
        while client is None and (some := list(islice(rest, _FAN * count))):
            yield from dask.compute(*_level(task, content, some))
    except Exception as fault:  # of Dask itself: a worker was lost too often, or the scheduler
        message = str(fault).strip().split("\n", maxsplit=1)[0]
        raise RaisedError(f"dask: {task.work.value.name} failed: {type(fault).__name__}: {message}") from fault
    finally:
        if address:
            client.close()


def _level(task: Task, content: Delayed, parts: Iterable[tuple[int, Any]]) -> list[Delayed]:
    """Delayed answers of parts, merged in a tree if they have states. Dask passes a delayed part as its value."""
    do = delayed(_call, pure=False)
    level = [do(content, "run_value" if isinstance(part, Delayed) else "run", at, part) for at, part in parts]
    while task.work.reduction is not None and len(level) > _FAN:
        level = [do(content, "merge", level[at : at + _FAN]) for at in range(0, len(level), _FAN)]
    return level


def _call(content: bytes, method: str, *arguments: Any) -> Any:
    """Call a method of a pickled task, which Dask's scheduler transports as bytes without unpickling it."""
    return getattr(pickle.loads(content), method)(*arguments)  # noqa: S301  of the process that asks


def _client(address: str) -> Any:
    """A client for an address, else the default one, else None. InputError where its scheduler cannot be reached."""
    try:
        with dependency(f"dask: distributed, which connects to {address},", "noyau-kernels[dask]"):
            from distributed import Client, default_client
    except MissingExtraError:
        if address:
            raise
        return None  # Dask's scheduler in this process then runs all tasks
    try:
        client = Client(address, timeout=_PATIENCE_S, set_as_default=False) if address else default_client()
    except (OSError, ValueError) as fault:  # default_client raises ValueError if there is none
        if not address:
            return None
        raise InputError(f"dask: no scheduler can be reached at {address}: {fault}; start one") from fault
    if client.status not in ("running", "running" if address else "closed"):
        raise InputError(f"dask: the client in use is {client.status}; connect it, or make another")
    return None if client.status == "closed" else client


@dataclass(frozen=True)
class DaskParts:
    """A Dask DataFrame, bag or array, or delayed partitions, as a source; `first`: a chunk with its columns."""

    collection: Any
    first: Chunk

    size = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(getattr(self.first, "column_names", self.first))

    @property
    def identity(self) -> str:
        return f"dask {dask.base.tokenize(self.collection)}"

    def sample(self, columns: Sequence[str]) -> Chunk:
        return {name: np.asarray(self.first[name])[:0] for name in columns}

    def parts(self, columns: Sequence[str]) -> Sequence[Delayed]:
        chosen = self.collection[list(columns)] if hasattr(self.collection, "columns") else self.collection
        return list(np.ravel(chosen.to_delayed())) if hasattr(chosen, "to_delayed") else list(chosen)


def open_collection(source: Any, columns: Sequence[str]) -> DaskParts:
    """Make a source of a Dask collection; an array is the first of `columns`. The first partition of a bag or of
    delayed partitions is computed to find the columns."""
    if isinstance(source, list):  # of delayed partitions
        return DaskParts([delayed(_table)(each) for each in source], _table(source[0].compute()))
    if hasattr(source, "columns"):
        return DaskParts(source, _table(source._meta))
    if hasattr(source, "chunks"):
        whole = source.rechunk(dict.fromkeys(range(1, source.ndim), -1))
        return DaskParts(whole, {columns[0]: np.empty((0, *source.shape[1:]), source.dtype)})
    bag = source.map_partitions(_table)
    return DaskParts(bag, next((table for each in bag.to_delayed() if (table := each.compute())), {}))


def _table(value: Any) -> Any:
    """A partition as a chunk; the records of a bag become columns."""
    if isinstance(value, Mapping) or hasattr(value, "columns") or hasattr(value, "dtype"):
        return value
    records = list(value)
    if records and not isinstance(records[0], Mapping):
        remedy = "let it hold dicts, or make a DataFrame of it"
        raise InputError(f"dask: a partition holds {type(records[0]).__name__}: {remedy}")
    return {name: np.array([record[name] for record in records]) for name in (records[0] if records else ())}
