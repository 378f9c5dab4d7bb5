"""Parquet, CSV and Arrow IPC files as a source, by pyarrow's datasets: folders, globs, compressed files, on any file
system of pyarrow or fsspec. Columns and conditions are pushed down to the files. Sinks of rows: a folder of Parquet
files, each written atomically, or lines of a CSV file.

Arrow's batches become NumPy columns, without a copy if there are no nulls; texts become objects. Conditions on rows are
texts, `price > 3 and shop in ('a', 'b')`, which are parsed as Python but never evaluated."""

import ast
import hashlib
import io
import mmap
import operator
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from glob import glob
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import csv, parquet
from pyarrow.fs import LocalFileSystem

from noyau.engines.reading import Chunk, Reading, flatten_columns, require_columns, with_ahead
from noyau.engines.sinks import CHUNKS, Piece, Progress, replace_file, writing
from noyau.errors import InputError, NoyauError, reason_of

_BLOCK = 1 << 16  # bytes of text that are read for names and types
_BUFFER = 1 << 18  # bytes buffered for a column of a Parquet file by each reader
_RANGE = 1 << 25  # bytes of a part of a text that is cut
_OPEN = 16  # files that are opened at once for their schemas
FORMATS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".arrow": "ipc", ".feather": "ipc"}
_COMPRESSED = (".gz", ".bz2", ".zstd", ".lz4")
Handler = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """A file, a row group of a file, or the lines of a text that begin in a byte range (`span`). `schema`: of the
    columns common to all files, once known; `footer`: of a Parquet file; `idle`: memory-mapped readers for reuse."""

    path: str
    filesystem: Any
    format: str
    schema: Any = None
    group: int | None = None
    footer: Any = field(default=None, repr=False)
    span: tuple[int, int] | None = None
    idle: list[tuple[mmap.mmap, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def label(self) -> str:
        if self.span is not None:
            return f"{self.path} (bytes {self.span[0]} to {self.span[1]})"
        return self.path + ("" if self.group is None else f" (row group {self.group})")

    def chunks(self, reading: Reading) -> Iterator[Chunk]:
        lines: list[str] = []

        def skip(row: Any) -> str:
            lines.append(str(row.text).rstrip("\r\n"))
            return "skip"

        with self.errors():
            for batch in self.batches(reading, None if reading.bad_lines is None else skip):
                yield from chunks_of(batch, reading, self.label)
        if lines and reading.bad_lines is not None:  # a file for each part, so that a second reading replaces it
            reading.counts["bad lines"] += len(lines)
            place = reading.bad_lines / f"{Path(self.path).name}-{hashlib.sha256(self.label.encode()).hexdigest()[:8]}"
            with writing(place):
                place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, "\n".join([*lines, ""]).encode())

    def batches(self, reading: Reading, handler: Handler | None) -> Iterator[Any]:
        """Batches of the wanted columns. A Parquet file without a condition is decoded while it is read, a small row
        group as one batch; a dataset's scanner would take twice as long."""
        names = list(reading.columns)
        if self.format == "parquet" and reading.where is None:
            with self._reader(names, reading.mapped) as file:
                own = file.schema_arrow
                if all(own.field(name).type == self.schema.field(name).type for name in names):
                    groups, (rows, _) = None if self.group is None else [self.group], self._extent(file.metadata, names)
                    rows = rows if rows <= reading.whole else reading.rows
                    yield from file.iter_batches(rows, groups, names, use_threads=reading.threads)
                    return
        wishes = {"columns": names, "batch_size": reading.rows, "use_threads": reading.threads, "filter": reading.where}
        if self.span is not None:
            with self.filesystem.open_input_file(self.path) as file, self._lines(file, reading.block, handler) as lines:
                yield from ds.Scanner.from_batches(lines, **wishes).to_batches()
            return
        fragment = self.fragment(reading.block, handler)
        yield from fragment.scanner(schema=self.schema, batch_readahead=4, **wishes).to_batches()

    @contextmanager
    def _reader(self, names: Sequence[str], mapped: int) -> Iterator[Any]:
        """A reader of the Parquet file, memory-mapped if these columns have at most `mapped` bytes. A mapped reader is
        kept for reuse: to make one takes as long as reading some 50,000 rows."""
        footer = self.footer
        if isinstance(self.filesystem, LocalFileSystem):
            try:
                memory, file = self.idle.pop()
            except IndexError:
                with open(self.path, "rb") as stream:
                    memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                file = parquet.ParquetFile(pa.BufferReader(pa.py_buffer(memory)), metadata=footer, pre_buffer=False)
            footer = file.metadata
            if is_small := self._extent(footer, names)[1] <= mapped:
                yield file
                if hasattr(mmap, "MADV_DONTNEED"):  # absent on Windows
                    memory.madvise(mmap.MADV_DONTNEED)  # pages that were read count as the process's memory until now
            self.idle.append((memory, file))
            if is_small:
                return
        with self.filesystem.open_input_file(self.path) as stream:
            yield parquet.ParquetFile(stream, metadata=footer, buffer_size=_BUFFER, pre_buffer=False)

    def head(self) -> tuple[Any, int | None, Any]:
        """The schema, the number of rows (None for texts), and the footer of a Parquet file (else None)."""
        with self.errors():
            if self.format == "parquet":
                footer = parquet.read_metadata(self.path, filesystem=self.filesystem)
                return footer.schema.to_arrow_schema(), footer.num_rows, footer
            fragment = self.fragment()
            return fragment.physical_schema, None if self.format == "csv" else fragment.count_rows(), None

    def _extent(self, footer: Any, names: Sequence[str]) -> tuple[int, int]:
        """The rows of a Parquet file, or of its row group, and the compressed bytes of these columns in it."""
        numbers = range(footer.num_row_groups) if self.group is None else [self.group]
        groups = [footer.row_group(at) for at in numbers]
        parts = (group.column(at) for group in groups for at in range(group.num_columns))
        wanted = (part for part in parts if part.path_in_schema.partition(".")[0] in names)
        return max(1, sum(group.num_rows for group in groups)), sum(part.total_compressed_size for part in wanted)

    def _lines(self, file: Any, block: int, handler: Handler | None) -> Any:
        """A reader of the lines that begin in the range. InputError where a quoted value crosses its end: the number of
        quotes is then odd in some range; if it is even in all, no cut is within quotes."""
        start, stop = (_line_after(file, at) for at in self.span or ())
        text, quotes = file.get_stream(start, stop - start), 0
        while piece := text.read(block):
            quotes += piece.count(b'"')
        if quotes % 2:
            remedy = "say engine='local', which reads the file as one part"
            raise InputError(f"{self.label} has a newline within quotes, or a lone quote, and cannot be cut; {remedy}")
        parsing, converting = self._text_options(handler)
        names = None if start == 0 else self.schema.names
        reading = csv.ReadOptions(block_size=block, column_names=names, use_threads=False)
        if start == stop:
            return pa.RecordBatchReader.from_batches(self.schema, [])
        return csv.open_csv(file.get_stream(start, stop - start), reading, parsing, converting)

    def _text_options(self, handler: Handler | None) -> tuple[Any, Any]:
        """The options for parsing a text, with the most frequent delimiter of its first line, and for its types."""
        compression = "zstd" if self.path.endswith(".zstd") else "detect"  # which detects only the suffix .zst
        with self.filesystem.open_input_stream(self.path, compression) as stream:
            head = stream.read(_BLOCK).split(b"\n")[0].decode("utf-8", "replace")
        types = {field.name: field.type for field in self.schema or ()}
        parsing = csv.ParseOptions(delimiter=max(",;\t|", key=head.count), invalid_row_handler=handler)
        return parsing, csv.ConvertOptions(column_types=types, strings_can_be_null=True)

    def fragment(self, block: int = _BLOCK, handler: Handler | None = lambda row: "skip") -> Any:
        """The pyarrow fragment of the file, or of its row group."""
        kind: Any = self.format
        if kind == "csv":
            parsing, converting = self._text_options(handler)
            kind = ds.CsvFileFormat(parsing, convert_options=converting, read_options=csv.ReadOptions(block_size=block))
        if kind == "parquet":
            scanning = ds.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=_BUFFER, pre_buffer=False)
            kind = ds.ParquetFileFormat(default_fragment_scan_options=scanning)
        data = ds.dataset([self.path], filesystem=self.filesystem, format=kind, schema=self.schema)
        (fragment,) = data.get_fragments()
        return fragment if self.group is None else fragment.subset(row_group_ids=[self.group])

    @contextmanager
    def errors(self) -> Iterator[None]:
        """A block in which pyarrow's errors on the file become InputErrors."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as fault:
            if isinstance(fault, NoyauError):
                raise
            message = reason_of(fault)[:240]
            if "conversion error" in message:
                message += "; the first rows say what a column is: 2.0 there makes it one of floats"
            raise InputError(f"{self.path} cannot be read as {self.format}: {message}") from fault


def _line_after(file: Any, at: int) -> int:
    """The offset of the first line that begins at the offset `at` or after it."""
    if at == 0:
        return 0
    file.seek(at - 1)
    while (piece := file.read(_BLOCK)) and b"\n" not in piece:
        pass
    return int(file.tell() - len(piece.partition(b"\n")[2]))


@dataclass(frozen=True, eq=False)
class ArrowFiles:
    """Files of one format and one set of columns."""

    files: tuple[ArrowFile, ...]
    condition = ds.Expression

    @cached_property
    def heads(self) -> list[tuple[Any, int | None, int]]:
        """The schema, the rows and the number of row groups of each file. Equal successive schemas are one object."""
        heads, last = list[tuple[Any, int | None, int]](), None
        with ThreadPoolExecutor(_OPEN) as pool:
            # Only a few footers of many files are in memory at once.
            for future in with_ahead((pool.submit(ArrowFile.head, file) for file in self.files), _OPEN):
                schema, rows, footer = future.result()
                last = last if schema == last else schema
                heads.append((last, rows, footer.num_row_groups if footer else 1))
        return heads

    @property
    def label(self) -> str:
        return self.files[0].path

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.files[0].head()[0].names)

    @property
    def size(self) -> int | None:
        rows = [rows for _, rows, _ in self.heads if rows is not None]
        return sum(rows) if len(rows) == len(self.files) else None

    @property
    def estimate(self) -> int:
        """An estimate of the rows of texts, by eight bytes a value."""
        infos = (each.filesystem.get_file_info(each.path) for each in self.files)
        return int(sum(each.size or 0 for each in infos) // (8 * len(self.names)))

    @property
    def identity(self) -> str:
        infos = [file.filesystem.get_file_info(file.path) for file in self.files]
        return str([(info.path, info.size, info.mtime_ns) for info in infos])

    def sample(self, columns: Sequence[str]) -> Chunk:
        types = {field.name: field.type for field in self._common(columns)}
        return {name: column_of(pa.array([], kind), name, self.label) for name, kind in types.items()}

    def parts(self, columns: Sequence[str]) -> Iterator[ArrowFile]:
        wanted = {field.name: field for field in self._common(columns)}
        schema = pa.schema([wanted.get(field.name, field) for field in self.heads[0][0]])  # a condition may read others
        for file, (_, _, count) in zip(self.files, self.heads, strict=True):
            footer, idle = file.head()[2] if count > 1 else None, list[tuple[mmap.mmap, Any]]()
            groups = range(count) if count > 1 else (None,)
            yield from (replace(file, schema=schema, group=at, footer=footer, idle=idle) for at in groups)

    def cut_parts(self, columns: Sequence[str]) -> Iterator[ArrowFile]:
        """The `parts` for several workers: large uncompressed texts are cut into ranges of lines."""
        for part in self.parts(columns):
            is_whole = part.format != "csv" or part.path.endswith(_COMPRESSED)
            size = 0 if is_whole else part.filesystem.get_file_info(part.path).size or 0
            starts = range(0, size, _RANGE) if size > _RANGE else ()
            yield from (replace(part, span=(start, min(start + _RANGE, size))) for start in starts)
            if not starts:
                yield replace(part, footer=None)  # the footer of a file grows with its row groups: too long to send

    def _common(self, columns: Sequence[str]) -> Any:
        """The schema of the columns in all files. InputError where a file lacks one, or has it in an unfit type."""
        common = last = None
        for file, (schema, _, _) in zip(self.files, self.heads, strict=True):
            if schema is last:
                continue
            require_columns(schema.names, columns, file.path)
            own, last = pa.schema([schema.field(name).remove_metadata() for name in columns]), schema
            if file.format == "csv" and (strange := [field.name for field in own if pa.types.is_binary(field.type)]):
                raise InputError(f"{file.path}: the column {strange[0]} is no text in UTF-8: convert the file")
            try:
                common = own if common is None else pa.unify_schemas([common, own], promote_options="permissive")
            except pa.ArrowException as fault:
                raise InputError(f"{file.path} has other types than {self.label}: {fault}") from fault
        return common


def open_files(location: str) -> ArrowFiles:
    """The files of a path, a folder, a glob or a URL. InputError where there are none, or not of one known format."""
    usage = "name files of one format, Parquet, CSV (also .gz, .bz2, .lz4 or .zstd) or Arrow (.arrow)"
    try:
        filesystem, place = None, unquote(location[7:]) if location.startswith("file://") else location
        if "://" in location and location.partition("://")[0] not in ("file", "s3", "gs", "gcs", "hdfs", "abfs"):
            import fsspec

            filesystem, place = fsspec.core.url_to_fs(location)
        every = glob if filesystem is None else filesystem.glob
        places = (sorted(every(place)) if any(each in place for each in "*?[") else place) or place
        data = ds.dataset(places, format="parquet", schema=pa.schema([]), filesystem=filesystem)  # nothing is read
    except (pa.ArrowException, OSError, ValueError, ImportError) as fault:
        reason = "it is not there" if isinstance(fault, FileNotFoundError) else reason_of(fault)
        raise InputError(f"{location} names no file that can be read: {reason}; {usage}") from fault
    bare = [each.removesuffix(next(filter(each.endswith, _COMPRESSED), "")) for each in data.files]
    kinds = {FORMATS.get(Path(each).suffix) for each in bare}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise InputError(f"{location} names no files of one format: {usage}")
    return ArrowFiles(tuple(ArrowFile(each, data.filesystem, kind) for each in sorted(data.files)))


def even(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """The rows of batches, in batches of `rows` rows; the last may be shorter."""
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= rows:
            table = pa.Table.from_batches(held).combine_chunks()
            whole = table.num_rows // rows * rows
            yield from table.slice(0, whole).to_batches(rows)
            held = table.slice(whole).to_batches()
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def chunks_of(value: Any, reading: Reading, label: str) -> Iterator[Chunk]:
    """The columns of a value with Arrow's C interface, batch by batch; `reading.nulls` decides on nulls. InputError for
    a refused null, and for a column that is neither numbers, texts nor times."""
    batches: Iterable[Any] = [
        value
    ]  # a RecordBatch skips Arrow's C interface, which takes longer than all that follows
    if not isinstance(value, pa.RecordBatch):
        batches = [pa.record_batch(value)] if not hasattr(value, "__arrow_c_stream__") else _batches(value)
    for batch in batches:
        require_columns(batch.schema.names, reading.columns, label)
        batch = batch.select(list(reading.columns))
        nulls = {name: batch.column(name).null_count for name in reading.columns}
        if any(nulls.values()) and reading.nulls == "refuse":
            name = max(nulls, key=nulls.__getitem__)
            remedy = "say nulls='skip' to leave these rows out, or 'nan' in columns of numbers"
            raise InputError(f"{label}: the column {name} has {nulls[name]} nulls in a chunk; {remedy}")
        if any(nulls.values()) and reading.nulls == "skip":
            rows, batch = batch.num_rows, batch.drop_null()
            reading.counts["rows with nulls"] += rows - batch.num_rows
        yield {name: column_of(batch.column(name), name, label) for name in reading.columns}


def _batches(stream: Any) -> Iterator[Any]:
    """The batches of a value with Arrow's C interface; one of no rows where there is none."""
    reader = pa.RecordBatchReader.from_stream(stream)
    yield next(reader, None) or pa.RecordBatch.from_pylist([], reader.schema)
    yield from reader


def column_of(column: Any, name: str, label: str) -> np.ndarray:
    """A column as a NumPy array. InputError for nested types other than lists of a fixed size."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
    if pa.types.is_fixed_size_list(kind):
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), kind.list_size))
    if pa.types.is_null(kind) and not len(column):  # of a file without rows, whose types are unknown
        return np.empty(0, bool)
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise InputError(f"{label}: the column {name} is {kind}: choose columns of numbers, texts or times")
    column = column.cast(pa.float64()) if pa.types.is_decimal(kind) else column
    return np.asarray(column.to_numpy(zero_copy_only=False))


_NODES = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.And, ast.Or)
_NAMES = "add sub mul truediv lt le gt ge eq ne and_ or_".split()
_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    **{node: getattr(operator, name) for node, name in zip(_NODES, _NAMES, strict=True)},
    ast.In: lambda value, choices: value.isin(choices),
    ast.NotIn: lambda value, choices: ~value.isin(choices),
    ast.Is: lambda value, other: value.is_null() if other is None else value.no_comparison,
    ast.IsNot: lambda value, other: value.is_valid() if other is None else value.no_comparison,
}
_USAGE = "compare columns with numbers or texts, as in \"price > 3 and shop in ('a', 'b') and day is not None\""


def condition(text: str) -> Any:
    """Parse a text to a pyarrow expression, in which names are columns. InputError where it is no condition."""
    try:
        expression = _expression(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, KeyError, AttributeError, RecursionError, pa.ArrowException) as fault:
        raise InputError(f"where={text!r} is no condition: {_USAGE}") from fault
    if not isinstance(expression, ds.Expression):
        raise InputError(f"where={text!r} names no column: {_USAGE}")
    return expression


def _expression(node: ast.expr) -> Any:
    match node:
        case ast.Name(id=name):
            return ds.field(name)
        case ast.Constant(value=value):
            return value
        case ast.Tuple() | ast.List():
            return ast.literal_eval(node)
        case ast.UnaryOp(op=ast.USub()):
            return _expression(node.operand) * -1
        case ast.UnaryOp(op=ast.Not()):
            return ~_expression(node.operand)
        case ast.BoolOp():
            return reduce(_BINARY[type(node.op)], map(_expression, node.values))
        case ast.BinOp():
            left = _expression(node.left)
            left = left if isinstance(left, ds.Expression) else ds.scalar(left)  # int + Expression is not defined
            return _BINARY[type(node.op)](left, _expression(node.right))
        case ast.Compare():
            sides = [_expression(each) for each in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides, sides[1:], strict=False)
            return reduce(operator.and_, [_BINARY[type(each)](left, right) for each, left, right in pairs])
        case _:
            raise ValueError(f"{type(node).__name__} is no part of a condition")


_NAME = re.compile(r"(?:\.[0-9a-f]+-)?part-(\d{5})-(\d{6})\.parquet")


class ParquetFolder:
    """Sink of a folder of Parquet files. A file in progress has a hidden name, and is written again after a crash.
    `progress`: None in a worker of an engine, whose caller keeps it."""

    def __init__(self, progress: Progress | None, path: Path = Path()) -> None:
        self.progress = progress
        self.path = self.output = path = progress.sink if progress else path
        self.writer: Any = None
        if progress is None:
            return
        self.has = progress.has
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            for file in path.iterdir():
                name = _NAME.fullmatch(file.name)
                if name and (file.name[0] == "." or not progress.has((int(name[1]), int(name[2])))):
                    file.unlink()

    def write(self, piece: Piece, content: Any) -> None:
        with writing(self.path):
            if content is not None:
                table = pa.table(flatten_columns(content))
                if self.writer is None:
                    self.place = self.path / f"part-{piece[0]:05d}-{piece[1]:06d}.parquet"
                    self.hidden = self.path / f".{secrets.token_hex(4)}-{self.place.name}"  # unique to this writer
                    self.writer = parquet.ParquetWriter(self.hidden, table.schema)
                self.writer.write_table(table)
            if content is None or piece[1] % CHUNKS == CHUNKS - 1:
                if self.writer is not None:
                    self.writer.close()
                    self.writer = None
                    os.replace(self.hidden, self.place)
                if self.progress is not None:
                    self.progress.note(piece)

    def finish(self) -> None:
        assert self.progress is not None
        self.progress.path.unlink()

    def close(self) -> None:
        if self.writer is not None:  # a file in progress is no part: it is written again
            self.writer.close()
            self.hidden.unlink(missing_ok=True)


def csv_rows(columns: Chunk, first: bool) -> bytes:
    """The bytes of lines of a CSV file; `first`: after a line of the names."""
    content = io.BytesIO()
    csv.write_csv(pa.table(flatten_columns(columns)), content, csv.WriteOptions(include_header=first))
    return content.getvalue()
