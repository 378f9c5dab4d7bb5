"""Spark as an engine: `mapInArrow` maps parts, or the partitions of a DataFrame, to rows (number, answer), whose states
are merged in a tree of neighbours. It runs on the active session."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

from noyau.engines.arrow_files import column_of, even
from noyau.engines.partitions import Answer, Partition, Task
from noyau.engines.reading import Chunk
from noyau.errors import InputError, RaisedError

_FAN, _JOB = 16, 64  # states that one merge takes, parts of one job
_TYPES = "number long, answer binary"
Batches = Iterator[pa.RecordBatch]


def run(task: Task, parts: Iterable[tuple[int, Any]], address: str, count: int) -> Iterator[Answer]:
    """The answers of all parts, merged for neighbours if they have states. Files run in jobs of _JOB parts, so that the
    answers of a job are stored before the next one begins."""
    left = list(parts)
    for _, part in left:
        if isinstance(part, FrameParts):
            rows = part.frame.select(*task.work.reading.columns).mapInArrow(partial(_of_partition, task), _TYPES)
            yield replace(task.merge(_collect(task, rows, is_many=True)), last=0)
            return
    for at in range(0, len(left), _JOB):
        some = left[at : at + _JOB]
        rows = session(address).range(0, len(some), 1, len(some)).mapInArrow(partial(_of_parts, task, some), _TYPES)
        yield from _collect(task, rows, is_many=len(some) > _FAN)


def _collect(task: Task, rows: Any, *, is_many: bool) -> list[Answer]:
    """Run a job and return its answers in order."""
    try:
        if task.work.reduction is not None and is_many:
            neighbours = rows.groupBy((rows.number / _FAN).cast("long"))
            rows = neighbours.applyInArrow(lambda table: _merge(task, table), _TYPES)  # Spark inspects type hints
        collected = sorted((number, bytes(content)) for number, content in rows.collect())
    except PySparkException as fault:
        message = str(fault).strip().split("\n", maxsplit=1)[0]
        raise RaisedError(f"spark: {task.work.value.name} failed: {type(fault).__name__}: {message}") from fault
    return [pickle.loads(content) for _, content in collected]  # noqa: S301  of a worker that runs the same ops


def session(master: str = "") -> SparkSession:
    """The active session, or a new one. InputError where none can be created, as without Java."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers of this machine have the same packages
    try:
        builder = SparkSession.builder.master(master) if master else SparkSession.builder
        return SparkSession.getActiveSession() or builder.getOrCreate()
    except (PySparkException, OSError) as fault:
        message = str(fault).strip().split("\n", maxsplit=1)[0]
        remedy = "it needs Java 17 or later (JAVA_HOME), or a session that is connected already"
        raise InputError(f"spark: no session of {master or 'its own'} can be had: {message}; {remedy}") from fault


def _of_parts(task: Task, parts: Sequence[tuple[int, Any]], batches: Batches) -> Batches:
    for batch in batches:
        for place in batch.column("id").to_pylist():
            yield _row(task.run(*parts[place]))


def _of_partition(task: Task, batches: Batches) -> Batches:
    number = TaskContext.get().partitionId()
    part = Partition(f"partition {number}", even(batches, task.work.reading.rows))  # Spark's batches have 10,000 rows
    yield _row(task.run(number, part))


def _merge(task: Task, table: pa.Table) -> pa.Table:
    rows = sorted(zip(table["number"].to_pylist(), table["answer"].to_pylist(), strict=True))
    answers = [pickle.loads(content) for _, content in rows]  # noqa: S301  of a worker that runs the same ops
    return pa.Table.from_batches([_row(task.merge(answers))])


def _row(answer: Answer) -> pa.RecordBatch:
    number, content = pa.array([answer.last], pa.int64()), pa.array([pickle.dumps(answer)], pa.binary())
    return pa.record_batch({"number": number, "answer": content})


@dataclass(frozen=True)
class FrameParts:
    """A Spark DataFrame as a source of one part: Spark determines the number of its partitions at run time."""

    frame: Any

    size = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.frame.columns)

    @property
    def identity(self) -> str:
        return f"spark {self.frame.schema.json()}"

    def sample(self, columns: Sequence[str]) -> Chunk:
        table = self.frame.select(*columns).limit(0).toArrow()
        return {name: column_of(table.column(name), name, "the DataFrame") for name in columns}

    def parts(self, columns: Sequence[str]) -> list[FrameParts]:
        return [self]


def open_collection(source: Any, columns: Sequence[str]) -> FrameParts:
    return FrameParts(source)
