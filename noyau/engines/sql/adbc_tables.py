"""Tables of PostgreSQL, SQLite and DuckDB as sources and sinks, by ADBC, which transfers columns as Arrow batches."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from adbc_driver_manager import dbapi

from noyau.engines.arrow_files import chunks_of, column_of, even
from noyau.engines.reading import Chunk, Reading, flatten_columns, require_columns
from noyau.engines.sinks import CHUNKS, Piece
from noyau.engines.sql.places import Place, quote_name
from noyau.errors import InputError, NoyauError, OutputError

# Settings that make the order of rows reproducible: resumed work skips the rows that are done.
_STEADY = {"postgresql": ("SET synchronize_seqscans = off", "SET max_parallel_workers_per_gather = 0")}

# A table or a schema that is not there: PostgreSQL's states, SQLite's and DuckDB's words.
_NO_TABLE = re.compile(r"^(42P01|3F000) |no such table|Catalog Error: Table with name .* does not exist", re.DOTALL)
_CUT = 1 << 20  # approximate rows of a part of a table that is cut


def connect(place: Place, *, is_shared: bool = False) -> Any:
    """A connection to the database of a place, in a transaction; `is_shared`: with readers in other processes.
    InputError where it cannot be reached."""
    if place.kind == "duckdb":  # its library is its ADBC driver
        spec = find_spec(place.driver)
        settings = {"path": place.path, **({"access_mode": "read_only"} if is_shared else {})}
        options = {"driver": spec and spec.origin, "entrypoint": "duckdb_adbc_init", "db_kwargs": settings}
    else:
        uri = place.url if place.kind == "postgresql" else place.path
        options = {"driver": import_module(place.driver)._driver_path(), "db_kwargs": {"uri": uri}}
    with _errors(place, InputError, "cannot be reached"):
        connection = dbapi.connect(**options)
        for statement in _STEADY.get(place.kind, ()):
            with connection.cursor() as cursor:
                cursor.execute(statement)
    return connection


@contextlib.contextmanager
def _errors(place: Place, kind: type[NoyauError], fault: str) -> Iterator[None]:
    """A block in which a driver's error becomes one of `kind`, without its cause, which may contain the URL."""
    try:
        yield
    except dbapi.Error as error:
        message = " ".join(place.without_secrets(str(error)).split())[:300]
        raise kind(f"{place.label} {fault}: {message}") from None


class TableSource:
    """A table or a query as a source, read once by one statement, in chunks of `reading.rows` rows. `span`: the SQL
    condition of the rows of a part."""

    condition: type | tuple[type, ...] = str
    span = ""

    def __init__(self, place: Place) -> None:
        self.place, self.label = place, place.label
        if place.kind != "postgresql" and not place.path.startswith("file:") and not Path(place.path).exists():
            # its driver would create an empty database
            raise InputError(f"{self.label} cannot be read: there is no file {place.path}")
        queries = [f"SELECT * FROM {place.sql} LIMIT 64"]
        queries += [] if place.is_query else [f"SELECT count(*) FROM {place.sql}"]
        self.head, *counts = self._tables(*queries)
        self.schema, self.names = self.head.schema, tuple(self.head.schema.names)
        self.size = int(counts[0][0][0].as_py()) if counts else None
        self.identity = f"{self.label} {self.size} {self.schema}"

    @lru_cache(maxsize=1)  # noqa: B019  of one source
    def sample(self, columns: tuple[str, ...]) -> Chunk:
        chosen = self._column_list(columns)
        table = self._tables(f"SELECT {chosen} FROM {self.place.sql} LIMIT 64")[0] if "CAST" in chosen else self.head
        table = table.select(columns).drop_null()  # integers with nulls would become floats
        return {name: column_of(table.column(name), name, self.label) for name in columns}

    def parts(self, columns: Sequence[str]) -> list[TableSource]:
        require_columns(self.names, columns, self.label)
        return [self]

    def cut_parts(self, columns: Sequence[str]) -> list[TableSource]:
        """The table in ranges of rowid, or of PostgreSQL's blocks. InputError where its rows have no numbers."""
        low, high = self._numbers()
        count = max(1, -(-(self.size or 0) // _CUT))
        ends = [low + (high + 1 - low) * at // count for at in range(count + 1)]
        number, form = ("ctid", "'({},0)'::tid") if self.place.kind == "postgresql" else ("rowid", "{}")
        parts = [copy(self) for _ in range(count)]
        for part, start, stop in zip(parts, ends, ends[1:], strict=False):
            part.span = f"{number} >= {form.format(start)} AND {number} < {form.format(stop)}"
            part.place, part.head = self.place.absolute, self.head.slice(0, 0)
            part.label = f"{self.label} ({part.span})"
        return parts

    def _numbers(self) -> tuple[int, int]:
        """The least and the largest rowid, or block of PostgreSQL."""
        query = f"SELECT min(rowid) AS low, max(rowid) AS high FROM {self.place.sql}"
        if self.place.kind == "postgresql":
            name = self.place.sql.replace("'", "''")
            query = "SELECT 0 AS low, pg_relation_size(oid) / current_setting('block_size')::int AS high"
            query += f" FROM pg_class WHERE oid = '{name}'::regclass AND relkind IN ('r', 'm')"
        with contextlib.suppress(InputError):
            for row in [] if self.place.is_query else self._tables(query)[0].to_pylist():
                if row["high"] is not None or not self.size:
                    return int(row["low"] or 0), int(row["high"] or 0)
        fault = "cannot be cut: nothing numbers the rows of a query, or of a view; say engine='local'"
        raise InputError(f"{self.label} {fault}")

    def chunks(self, reading: Reading) -> Iterator[Chunk]:
        conditions = [f"({each})" for each in (reading.where, self.span) if each]
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        chosen = self._column_list(reading.columns)
        reads = _errors(self.place, InputError, "cannot be read")
        with reads, connect(self.place, is_shared=bool(self.span)) as connection, connection.cursor() as cursor:
            if self.place.kind == "sqlite":  # its driver infers types from the rows of a batch
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(reading.rows)})
            cursor.execute(f"SELECT {chosen} FROM {self.place.sql}{where}")
            for batch in even(cursor.fetch_record_batch(), reading.rows):
                yield from chunks_of(batch, reading, self.label)

    def _column_list(self, columns: Sequence[str]) -> str:
        """The columns as SQL, with PostgreSQL's NUMERIC, which is transferred as text, cast to a float."""
        numeric = [name for name in columns if "numeric" in str(self.schema.field(name).type)]
        cast = "CAST({0} AS DOUBLE PRECISION) AS {0}"
        return ", ".join(cast.format(quote_name(name)) if name in numeric else quote_name(name) for name in columns)

    def _tables(self, *queries: str) -> list[Any]:
        tables = []
        with connect(self.place) as connection, connection.cursor() as cursor:
            for query in queries:
                with _errors(self.place, InputError, "cannot be read"):
                    cursor.execute(query)
                    tables.append(cursor.fetch_arrow_table())
        return tables


class TableSink:
    """A table as a sink. Until the work is done, a second table records the progress; both change in one transaction,
    so that an interruption at any moment neither loses nor repeats rows."""

    def __init__(self, place: Place, plan: str, *, resume: bool) -> None:
        if place.is_query:
            raise InputError(f"{place.label} is a query, and rows go into a table: write URL::TABLE")
        self.place, self.output, self.piece = place, place.label, (-1, -1)
        with contextlib.ExitStack() as undo:
            if place.kind != "postgresql" and not Path(place.path).exists():
                undo.callback(Path(place.path).unlink, missing_ok=True)  # the driver creates an empty database
            self.open = connect(place)
            undo.callback(self.close)
            self._begin(plan, resume)
            undo.pop_all()

    def _begin(self, plan: str, resume: bool) -> None:
        """Read the progress, or record that work begins. InputError where the table is of other work."""
        place = self.place
        self.record = f"{place.what}_noyau_progress"
        *schema, self.name = place.what.rsplit(".", 1)
        self.options = {"db_schema_name": schema[0]} if schema else {}
        if not resume:
            self._run(f"DROP TABLE IF EXISTS {place.sql}", f"DROP TABLE IF EXISTS {quote_name(self.record)}")
        earlier = self._rows(f"SELECT part, chunk, plan FROM {quote_name(self.record)}")
        fault = "is of other work, by its op, source or options" if earlier and earlier[0][2] != plan else ""
        if earlier is None and self._rows(f"SELECT 1 FROM {place.sql} LIMIT 1") is not None:
            fault = "is there already"
        if fault:
            raise InputError(f"{place.label} {fault}: name another table, or say resume=False, which replaces it")
        if earlier:
            self.piece = earlier[0][:2]
        else:
            self._run(f"CREATE TABLE {quote_name(self.record)} (part BIGINT, chunk BIGINT, plan VARCHAR(64))")
            self._run(f"INSERT INTO {quote_name(self.record)} VALUES (-1, -1, '{plan}')")

    def has(self, piece: Piece) -> bool:
        return piece <= tuple(self.piece)

    def write(self, piece: Piece, content: Any) -> None:
        with _errors(self.place, OutputError, "cannot be written"), self.open.cursor() as cursor:
            if content is not None:
                cursor.adbc_ingest(self.name, pa.table(flatten_columns(content)), mode="create_append", **self.options)
        if content is None or piece[1] % CHUNKS == CHUNKS - 1:
            self._run(f"UPDATE {quote_name(self.record)} SET part = {piece[0]}, chunk = {piece[1]}")

    def finish(self) -> None:
        self._run(f"DROP TABLE {quote_name(self.record)}")

    def close(self) -> None:
        """Disconnect; the database rolls back what is not committed."""
        self.open.close()

    def _run(self, *statements: str) -> None:
        with _errors(self.place, OutputError, "cannot be written"), self.open.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            self.open.commit()

    def _rows(self, query: str) -> Any:
        """The rows of a query; None without the table, or its schema. InputError for any other fault."""
        with _errors(self.place, InputError, "cannot be read"), self.open.cursor() as cursor:
            try:
                cursor.execute(query)
                return cursor.fetchall()
            except dbapi.Error as fault:
                self.open.rollback()
                if not _NO_TABLE.search(f"{fault.sqlstate} {fault}"):
                    raise
                return None
