"""`noyau.stream`: an op or a reduction over data larger than memory, by a named engine or that of the collection."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from noyau.engines.laws import require_laws
from noyau.engines.partitions import Answer, Task, over
from noyau.engines.processes_engine import IDLE, START_S, choose
from noyau.engines.reading import Chunk, Reading, require_columns, with_ahead
from noyau.engines.reduction import Reduction, as_reduction
from noyau.engines.sinks import END, Fold, Progress, RowFile, replace_file
from noyau.engines.sources import Arrays, open_source
from noyau.engines.sql.places import place_of
from noyau.engines.work import Work
from noyau.errors import CheckError, InputError, MissingExtraError, SignatureError
from noyau.ops.op import Op
from noyau.text import TextRecord
from noyau.workers.resources import processors

NAMES = ("local", "threads", "processes", "cuda", "dask", "spark")
_HERE = ("local", "threads", "cuda")  # engines of this process; each of the others is a module NAME_engine.py
_PACKAGES = {"dask": ("dask", "dask"), "spark": ("pyspark", "spark"), "cuda": ("torch", "torch")}  # with their extras
_FEW = 2  # parts for each thread, at least, if threads are to read parts of their own
CHUNK, CHUNKS = 1 << 21, {"cuda": 1 << 25}  # bytes of the largest chunk, which fits the cache of a core; by engine


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine. `address`: of its scheduler; `is_own`: the source is its collection; `why`: reason of the choice."""

    name: str
    address: str = ""
    is_own: bool = False
    why: str = ""

    def open(self, source: Any, columns: Sequence[str]) -> Any:
        """Make a source of a value. InputError for chunks of an iterable, which other processes cannot read."""
        if self.is_own:
            return self._module.open_collection(source, columns)
        if self.name in _HERE:
            return open_source(source, columns)
        if isinstance(source, str | Path) and "::" not in str(source) and "://" not in str(source):
            source = Path(source).absolute()  # workers may run in another folder
        origin = open_source(source, columns)
        if hasattr(origin, "cut_parts") or isinstance(origin, Arrays):
            return origin
        remedy = "name files or arrays, or say engine='local'"
        raise InputError(f"{self.name}: chunks that come one after the other cannot go to other processes; {remedy}")

    def settle(self, work: Work, origin: Any, size: int | None, sink: Any, workers: int | None) -> Engine:
        """The engine; "local" becomes threads or processes by a trial. `size`: the number of rows, if known."""
        one, count = work.reduction, workers or processors()
        is_one_process = one.sequential if one else Path(sink.output).suffix != ".parquet"
        if self.name != "local" or is_one_process:
            return self
        start_s = START_S / (10 if len(IDLE.get(os.getpid(), ())) >= count else 1)  # idle workers still take some time
        first = list(islice(origin.parts(work.reading.columns), 2))
        name, why = choose(work, first, lambda: size or origin.size or origin.estimate, count, start_s)
        return replace(self, name=name, why=f"{name}: {why}")

    def run(self, work: Work, origin: Any, sink: Any, workers: int | None, answers: list[Answer]) -> Iterator[int]:
        """Run the work on each part; yield each number of rows done. CheckError for a sequential reduction on several
        processes, InputError there for a sink that only one process can write, or a source that cannot be cut."""
        count, one = workers or processors(), work.reduction
        cuts = self.name not in _HERE and not self.why and hasattr(origin, "cut_parts")  # parts are those of threads
        parts: Iterator[Any] = iter((origin.cut_parts if cuts else origin.parts)(work.reading.columns))
        if self.name == "cuda":
            return iter(self._module.over(work, parts, sink, self.address))
        if self.name in _HERE:
            first = list(islice(parts, _FEW * count))
            parts = chain(first, parts)
            is_many = len(first) == _FEW * count and all(getattr(part, "format", "csv") != "csv" for part in first)
            if one is None or one.sequential or not is_many:  # Arrow's own threads parse texts
                return work.over(parts, sink, count)
            return over(Task(work, packs=False), partial(in_threads, count=count), parts, sink, answers)
        if one is not None and one.sequential:
            remedy = "say engine='local', or make it a monoid"
            raise CheckError(f"{self.name}: {work.value.name} takes its rows in order, and parts run at once; {remedy}")
        folder = None if one else Path(sink.output).absolute()
        if folder is not None and folder.suffix != ".parquet":
            remedy = "name x.parquet, or say engine='local'"
            raise InputError(f"{self.name}: {sink.output} is written by one process: {remedy}")
        task = Task(work, folder, 1 if self.name == "processes" else workers or 1)
        return over(task, partial(self._module.run, address=self.address, count=count), parts, sink, answers)

    @property
    def _module(self) -> Any:
        return import_module(f"noyau.engines.{self.name}_engine")


def in_threads(task: Task, parts: Iterable[tuple[int, Any]], count: int) -> Iterator[Answer]:
    """The answers of all parts, each read and folded by one thread, so that its data stays in the cache of a core."""
    if count == 1:  # a second thread would only add a switch for each part
        yield from (task.run(number, part) for number, part in parts)
        return
    with ThreadPoolExecutor(count, "noyau-stream") as pool:
        try:
            for answer in with_ahead((pool.submit(task.run, number, part) for number, part in parts), count):
                yield answer.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def choose_engine(engine: str | None, source: Any) -> Engine:
    """The engine of a name, `"dask:ADDRESS"` with its scheduler; without a name that of the source. InputError for an
    unknown engine, or one that does not read the source; MissingExtraError where it is not installed."""
    first = source[0] if isinstance(source, list) and source else source
    own = {"dask": "dask", "pyspark": "spark"}.get(type(first).__module__.partition(".")[0], "")
    name, _, address = str(engine or own or "local").partition(":")
    if name not in NAMES:
        raise InputError(f"there is no engine {name!r}: say {', '.join(NAMES)}")
    if own and name != own:
        raise InputError(f"engine={name!r} does not read a collection of {own}: say engine={own!r}, or name files")
    package, extra = _PACKAGES.get(name, ("", ""))
    if package and find_spec(package) is None:
        raise MissingExtraError(f"engine={name!r} needs {package}; run: pip install 'noyau-kernels[{extra}]'")
    return Engine(name, address, bool(own))


_IN_FLIGHT = 24  # chunks that exist at once, counting the intermediate copies of their columns
_TEXT_BYTES = 96  # of a text as a Python object
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


@dataclass(frozen=True, slots=True, repr=False)
class StreamResult(TextRecord):
    """The result of a stream. `value`: of a reduction; `output`: the place of the value or the rows; `rows`: processed;
    `chunk_rows`: rows of a chunk by the memory limit; `counts`: rows and lines left out, by kind; `parts`: label, rows
    and seconds of each part that an engine ran; `compiled`: runs of a compiler by its workers; `engine`: its name, with
    the reason if it was chosen by a trial."""

    value: Any
    output: Path | str | None
    rows: int
    time_s: float
    chunk_rows: int
    counts: Mapping[str, int]
    parts: Sequence[tuple[str, int, float]] = ()
    compiled: int = 0
    engine: str = ""

    def __str__(self) -> str:
        facts = f"{self.rows / max(self.time_s, 1e-9):.3g} rows/s, {self.chunk_rows} at once; {self.engine}"
        lines = [f"{self.rows} rows in {self.time_s:.2f} s: {facts}"]
        lines += [f"left out: {number} {name}" for name, number in self.counts.items()]
        lines += [skew(self.parts)] if len(self.parts) > 1 else []
        # Numbers without the names of their types, as NumPy 1.26 prints them, which knows no legacy of its own.
        with np.printoptions(legacy="1.25" if np.__version__ >= "2" else False):
            lines += [] if self.value is None else [str(self.value)]
        return "\n".join(lines + ([] if self.output is None else [f"wrote {self.output}"]))


def skew(parts: Sequence[tuple[str, int, float]]) -> str:
    """A line on the imbalance of the parts, by the slowest one."""
    label, rows, time_s = max(parts, key=lambda part: part[2])
    ratio = time_s * len(parts) / max(1e-9, sum(part[2] for part in parts))
    return f"{len(parts)} parts; the longest, {label} ({rows} rows), took {ratio:.1f} times the mean"


def stream(
    op: Op[..., Any] | Reduction | type,
    source: Any,
    sink: str | Path | None = None,
    *,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    arguments: Mapping[str, Any] | None = None,
    where: Any = None,
    keep: Sequence[str] = (),
    engine: str | None = None,
    workers: int | None = None,
    memory: int | str = "1G",
    nulls: str = "refuse",
    bad_lines: str | Path | None = None,
    in_order: bool = False,
    resume: bool = True,
    tell: Callable[[int, int | None], object] = lambda rows, size: None,
) -> StreamResult:
    """Run an op or a reduction over a source that need not fit into memory; docs/streams.md describes each option.

    A reduction, or an op whose reference folds its rows, gives `.value`, and may write it to .npz or .json; an op with
    a result for each row writes it to .parquet, .csv, .npy or URL::TABLE. `tell` is called with each number of rows
    done, and of all if known. InputError: arguments; CheckError: laws; RaisedError: steps; OutputError: the sink."""
    begin_s, value, runner = time.perf_counter(), _value(op, arguments, in_order), choose_engine(engine, source)
    bound, every = _columns(value, columns, arguments or {}, keep)
    origin = runner.open(source, every)
    room = bytes_of(memory), CHUNKS.get(runner.name, CHUNK), workers
    reading = _reading(origin, every, where, room, nulls, bad_lines)
    make = partial(Work, value, bound, dict(arguments or {}), tuple(keep), reading, engine=runner.name)
    work = _work(make, origin, every)
    size, total, answers = origin.size if where is None else None, 0, list[Answer]()
    with closing(_sink(work, sink, origin, resume)) as target:
        runner, is_new = runner.settle(work, origin, size, target, workers), not target.has((0, END))
        for number in runner.run(work, origin, target, workers, answers):
            total += number
            tell(number, size)
        result = _finish(work, target, sink, is_empty=is_new and not total)
    return _result((result, target.output, total, time.perf_counter() - begin_s), reading, answers, runner)


def _result(
    facts: tuple[Any, Any, int, float], reading: Reading, answers: Sequence[Answer], runner: Engine
) -> StreamResult:
    counts = {name: number for name, number in reading.counts.items() if number}
    parts, compiled = [part for each in answers for part in each.parts], sum(each.compiled for each in answers)
    return StreamResult(*facts, reading.rows, counts, parts, compiled, runner.why or runner.name)


def _work(make: Callable[..., Work], origin: Any, columns: Sequence[str]) -> Work:
    """Make the work. InputError, with the source, where the dtypes of its columns do not fit the op."""
    sample = origin.sample(columns)
    try:
        return make(sample=sample)
    except InputError as error:
        raise error.reword(f"{getattr(origin, 'label', 'the source')}: {error}") from error


def _reading(
    origin: Any, columns: tuple[str, ...], where: Any, room: tuple[int, int, Any], nulls: str, bad_lines: Any
) -> Reading:
    """The options of reading. `room`: bytes in all and of a chunk, and workers. InputError where they do not fit."""
    memory, chunk, workers = room
    if workers is not None and (not isinstance(workers, int | np.integer) or workers < 1):
        raise InputError(f"workers={workers!r} is no number of workers: say 1 or more")
    require_columns(origin.names, columns, "the source")
    if nulls not in ("refuse", "skip", "nan"):
        raise InputError(f"nulls={nulls!r} is nothing to do with nulls: say 'refuse', 'skip' or 'nan'")
    if isinstance(where, str) and hasattr(origin, "files"):
        from noyau.engines.arrow_files import condition

        where = condition(where)
    if where is not None and not isinstance(where, getattr(origin, "condition", ())):
        usage = "of files, a text or an expression of pyarrow's, and of databases, a text"
        raise InputError(f"where= is {usage}: of others choose the rows before")
    arrays = origin.sample(columns).values()
    size = sum(_TEXT_BYTES if x.dtype.hasobject else x.itemsize * math.prod(x.shape[1:]) for x in arrays) or 1
    share = memory // _IN_FLIGHT
    rows, whole = (max(256, each // size) for each in (min(share, chunk), share))
    block = max(1 << 16, min(1 << 21, share // 4))
    mapped = memory // (3 * (workers or processors()))  # a third; chunks of 16 threads take the rest
    aside = None if bad_lines is None else Path(bad_lines)
    return Reading(columns, rows, where, nulls, aside, block, whole, mapped=mapped)


def _value(op: Any, parameters: Any, in_order: bool) -> Op[..., Any] | Reduction:
    """The op, or the reduction after a test of its laws. SignatureError for anything else."""
    if isinstance(op, Op):
        return op
    if (reduction := as_reduction(op, parameters)) is None:
        raise SignatureError(f"noyau.stream takes an op or a reduction, and {op!r} is neither; put @noyau.op on it")
    if in_order:
        reduction = copy(reduction)
        reduction.sequential = True
    elif not reduction.sequential:
        require_laws(reduction)
    return reduction


def _columns(
    value: Op[..., Any] | Reduction, columns: Any, arguments: Mapping[str, Any], keep: Sequence[str]
) -> tuple[dict[str, str | Sequence[str]], tuple[str, ...]]:
    """The columns of each argument with rows; and all columns to read, without repetition."""
    inputs = () if isinstance(value, Reduction) else value.require_signature().inputs
    open_terms = [term for term in inputs if term.name not in arguments]
    names = [*getattr(value, "columns", ()), *(term.name for term in open_terms if term.dims)]
    bound = dict(columns or dict(zip(names, names, strict=True)))
    if wrong := sorted(set(bound) ^ set(names) | {term.name for term in open_terms if not term.dims}):
        usage = f"columns= names a column for each of {', '.join(names)}, and arguments= has what has no rows"
        raise InputError(f"{value.name}: {', '.join(wrong)} is wrong or lacking: {usage}")
    return bound, tuple(dict.fromkeys(np.hstack([*bound.values(), *keep, []]).tolist()))


def bytes_of(memory: int | str) -> int:
    """The bytes of a number or a text: 500_000_000, "500M", "2Gi". InputError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?)B?", str(memory).upper())
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise InputError(f"memory={memory!r} is no size: say 500_000_000, '500M' or '2G'")
    return int(float(match[1]) * _UNITS[match[2]])


def _sink(work: Work, sink: str | Path | None, origin: Any, resume: bool) -> Any:
    """The sink of a path or a table. InputError where it is missing, of an unfit kind, or what is read."""
    if sink is None and work.reduction:
        return Fold(work.reduction, None)
    if twice := set(work.keep) & set(work.outputs):
        raise InputError(f"{work.value.name} has a result {twice.pop()}, and keep= a column of that name: leave it out")
    code = (work.value.reference if isinstance(work.value, Op) else type(work.value).step).__code__
    own = {} if isinstance(work.value, Op) else vars(work.value)
    wishes = work.columns, work.arguments, work.keep, str(work.reading)
    plan = repr((work.value.name, code.co_code, code.co_consts, own, origin.identity, *wishes))
    plan = hashlib.sha256(plan.encode()).hexdigest()
    kinds = (".npz", ".json") if work.reduction else (".parquet", ".csv", ".npy")
    table = None if work.reduction else place_of(sink)
    if table is not None:
        from noyau.engines.sql.adbc_tables import TableSink

        return TableSink(table, plan, resume=resume)
    path = Path(str(sink or ""))
    for file in getattr(origin, "files", ()):
        if path.absolute() in (Path(file.path).absolute(), *Path(file.path).absolute().parents) and sink:
            raise InputError(f"{path} is what is read, or a folder of it: name another sink")
    if path.suffix not in kinds:
        results = "one result" if work.reduction else "a result for each row"
        named = None if sink is None else path
        raise InputError(f"{work.value.name} has {results}: name a sink that is {' or '.join(kinds)}, not {named}")
    if path.suffix == ".npy" and len(work.outputs) + len(work.keep) != 1:
        raise InputError(f"{path} holds one array, and {work.value.name} gives more columns: name a .parquet or .csv")
    progress = Progress(path, plan, resume=resume)
    if work.reduction:
        return Fold(work.reduction, progress)
    if path.suffix == ".npy":
        return RowFile(progress, npy_rows, count_rows)
    if find_spec("pyarrow") is None:
        raise MissingExtraError(f"{path} needs pyarrow; run: pip install 'noyau-kernels[stream]'")
    from noyau.engines.arrow_files import ParquetFolder, csv_rows

    return RowFile(progress, csv_rows) if path.suffix == ".csv" else ParquetFolder(progress)


def _finish(work: Work, target: Any, sink: str | Path | None, *, is_empty: bool) -> Any:
    """Finish the sink; write and return the result of a reduction. Without rows a map writes its empty columns."""
    one, content = work.reduction, io.BytesIO()
    if one is None and is_empty:
        target.write((0, 0), work.run({name: array[:0] for name, array in work.sample.items()}))
        target.write((0, END), None)
    value = result = one.finish(target.state) if one else None
    if one and sink is not None:
        if isinstance(value, tuple):
            value = dict(zip(work.outputs or map(str, range(len(value))), value, strict=True))
        if Path(sink).suffix == ".npz":
            np.savez(content, **(value if isinstance(value, dict) else {"result": np.asarray(value)}))
        else:
            text = json.dumps(value, default=lambda part: getattr(part, "tolist", part.__str__)(), indent=1)
            content.write(text.encode())
        replace_file(Path(sink), content.getvalue())
    target.finish()
    return result


def npy_rows(columns: Chunk, first: bool) -> bytes:
    """The bytes of rows in an .npy file; the first follow a header with 0 rows."""
    (column,) = columns.values()
    return (_npy_head(column.dtype, (0, *column.shape[1:])) if first else b"") + column.tobytes()


def count_rows(file: Any) -> None:
    """Write the number of rows into the header of an .npy file, whose length does not depend on it."""
    if not file.tell():
        file.write(npy_rows({"": np.zeros(0)}, True))
    file.seek(np.lib.format.MAGIC_LEN)
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    row = math.prod(shape[1:]) * dtype.itemsize
    rows = (os.fstat(file.fileno()).st_size - file.tell()) // max(row, 1)
    file.seek(0)
    file.write(_npy_head(dtype, (rows, *shape[1:])))


def _npy_head(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    content, facts = io.BytesIO(), {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    np.lib.format.write_array_header_1_0(content, {**facts, "shape": shape})
    return content.getvalue()
