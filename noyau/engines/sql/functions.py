"""`noyau.create_function`: an op or a reduction as a function of SQL. Rows of SQLite are buffered to whole chunks."""

import json
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.engines.derived import OpReduction, RowPlan, derive
from noyau.engines.laws import require_laws
from noyau.engines.reduction import Reduction, as_reduction
from noyau.engines.sql.kernel_reduction import KernelReduction
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.ops.op import Op
from noyau.signatures.types import Family
from noyau.text import TextRecord

BATCH = 4096  # rows that are buffered
_TYPECODES = "bBhHiIlLqQfd"
Arrays = Mapping[str, Any]


@dataclass(slots=True, repr=False)
class SqlFunction(TextRecord):
    """A function of a database. `kind`: "scalar", "aggregate", or "aggregate and window"; `note`: on its execution;
    `fault`: the error of the last failed call, which sqlite3 hides."""

    name: str
    kind: str
    parameters: tuple[str, ...]
    note: str
    fault: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.parameters)}): {self.kind} function; {self.note}"

    def noting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a callback so that its error is kept in `fault`: sqlite3 does not report it."""

        @wraps(call)
        def noting(*values: Any) -> Any:
            try:
                return call(*values)
            except Exception as fault:
                self.fault = fault
                raise

        return noting


def create_function(
    connection: Any,
    op: Op[..., Any] | Reduction | type,
    name: str | None = None,
    *,
    arguments: Arrays | None = None,
    window: bool = True,
) -> SqlFunction:
    """Make an op a function of SQL in a connection of sqlite3 or duckdb, by default with the op's name.

    An op with a result for each row is a scalar function; one whose reference folds the rows, or a reduction, is an
    aggregate function, also in windows. Its parameters are the op's with rows, in order; `arguments` has the others.
    A row with a null gives null, or is skipped by an aggregate; a group without rows gives null. An array is a JSON
    text in SQLite, an ARRAY in DuckDB; so are several results in SQLite. `window=False`: SQLite keeps no rows, and
    the function works in no window.

    SignatureError: it does not take numbers by rows; UnsupportedError: DuckDB needs kernels in C; InputError: the
    connection is of another kind or does not load extensions, or the name is invalid; CheckError: a law is broken."""
    package, others = type(connection).__module__.partition(".")[0].lstrip("_"), arguments or {}
    if package not in ("duckdb", "sqlite3"):
        raise InputError(f"a {type(connection).__name__} is no connection of sqlite3 or duckdb, which take functions")
    one = op if isinstance(op, Op) else as_reduction(op)
    if one is None:
        raise SignatureError(f"{op!r} is no op and no reduction; put @noyau.op on it")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name := name or one.name):
        raise InputError(f"{name!r} is no name of a function in SQL: say name=, of letters, digits and _")
    columns: Arrays = columns_of(one, others) if isinstance(one, Op) else dict.fromkeys(one.columns)
    plan = derive(one, {**others, **columns}) if isinstance(one, Op) else one
    kind = "scalar" if isinstance(plan, RowPlan) else "aggregate and window"
    function = SqlFunction(name, kind, tuple(columns), "generated C, in every thread of DuckDB")
    if package == "duckdb":
        from noyau.engines.sql.duckdb_extension import load_function

        load_function(connection, name, plan, others)
    elif isinstance(plan, RowPlan):
        _create_scalar(connection, function, one, columns, others)
    else:
        _create_aggregate(connection, function, plan, columns, window)
    return function


def columns_of(op: Op[..., Any], others: Arrays) -> Arrays:
    """An empty column for each parameter that `others` lacks; f64 for any family but integers. SignatureError for a
    parameter that is not one number a row."""
    columns = {}
    for term in op.require_signature().inputs:
        if term.name not in others:
            if term.dims is None or len(term.dims) != 1:
                fault = "has several numbers a row" if term.dims else "has no rows"
                raise SignatureError(f"{op.name}: {term.name} {fault}: give it by arguments={{'{term.name}': ...}}")
            usual = DType.I64 if term.element is Family.INT else DType.F64
            columns[term.name] = np.zeros(0, (term.element if isinstance(term.element, DType) else usual).numpy)
    return columns


def _create_scalar(connection: Any, function: SqlFunction, op: Any, columns: Arrays, others: Arrays) -> None:
    """Create a function that is called for each row; a null gives null."""
    every, rest = [*columns, *others], list(others.values())
    places = [every.index(name) for name in op.description.reference.parameters]
    dtypes = [column.dtype for column in columns.values()]
    constants = {name: each for name, each in others.items() if name in op.description.reference.constants}

    def call(*values: Any) -> Any:
        if None in values:
            return None
        arrays = [np.array([value], dtype) for value, dtype in zip(values, dtypes, strict=True)] + rest
        result = op(*[arrays[place] for place in places], **constants)  # by position, the fastest way
        return _value([each[0] for each in result] if isinstance(result, tuple) else result[0])

    function.note = "called row by row, as SQLite does"
    connection.create_function(function.name, len(columns), function.noting(call), deterministic=True)


def _create_aggregate(connection: Any, function: SqlFunction, one: Reduction, columns: Arrays, window: bool) -> None:
    if isinstance(one, OpReduction):
        with suppress(UnsupportedError):  # NumPy then evaluates the part after the folds
            one = KernelReduction(one)
    elif not one.sequential:
        require_laws(one)
    inverse = getattr(one, "inverse", None)
    way = "rows leave a frame by its inverse" if inverse else "frames are computed anew, of rows kept"
    function.kind, way = (function.kind, way) if window else ("aggregate", "no rows are kept")
    function.note = f"{BATCH} rows at once; {way}"
    dtypes = [None if column is None else column.dtype for column in columns.values()]
    methods = {each: function.noting(getattr(Rows, each)) for each in ("step", "inverse", "value", "finalize")}
    facts = {"one": one, "dtypes": dtypes, "take_out": staticmethod(inverse) if inverse else None, "keeps": window}
    create = connection.create_window_function if window else connection.create_aggregate
    create(function.name, len(columns), type("Frame", (Rows,), {**facts, **methods}))


class Rows:
    """The rows of a group, or of a sliding window frame. Rows with a null are skipped; no rows give null. `take_out`:
    the inverse of the reduction, if it has one; `keeps`: rows may leave the frame, so they are kept."""

    one: Reduction
    dtypes: Sequence[Any]
    take_out: Any
    keeps: bool

    def __init__(self) -> None:
        codes = ["" if dtype is None else np.dtype(dtype).char for dtype in self.dtypes]
        self.columns: list[Any] = [array(code) if code and code in _TYPECODES else [] for code in codes]
        self.state: Any = self.one.zero()
        self.rows = self.done = self.gone = 0  # rows of the frame; of the columns, those in the state, those to drop

    def step(self, *values: Any) -> None:
        if None not in values:
            for column, value in zip(self.columns, values, strict=True):
                column.append(value)
            self.rows += 1
            if len(self.columns[0]) - self.done >= BATCH:
                self.fold()

    def inverse(self, *values: Any) -> None:
        """Remove the first row of the frame by the reduction's inverse; without one the next value is folded anew."""
        if None in values:
            return
        self.rows -= 1
        if self.take_out and self.rows:
            self.fold()
            cells = zip(values, self.dtypes, strict=True)
            self.state = self.take_out(self.state, *(np.array([value], dtype) for value, dtype in cells))
            return
        self.state = self.one.zero()
        self.done = self.gone = len(self.columns[0]) if self.take_out else self.gone + 1
        if self.gone > max(BATCH, self.rows):
            self.drop()

    def fold(self) -> None:
        """Fold the buffered rows into the state."""
        if len(self.columns[0]) > self.done:
            pairs = zip(self.columns, self.dtypes, strict=True)
            self.state = self.one.step(self.state, *(np.array(column[self.done :], dtype) for column, dtype in pairs))
            self.done = len(self.columns[0])
        if self.take_out or not self.keeps:
            self.gone = self.done
            self.drop()

    def drop(self) -> None:
        """Delete the rows that are no longer needed."""
        for column in self.columns:
            del column[: self.gone]
        self.done, self.gone = self.done - self.gone, 0

    def value(self) -> Any:
        self.fold()
        return _value(self.one.finish(self.state)) if self.rows else None

    finalize = value


def _value(result: Any) -> Any:
    """A result as a value of SQLite: a number, a text, or JSON."""
    if isinstance(result, dict | tuple | list) or np.ndim(result):
        return json.dumps(result, default=lambda part: np.asarray(part).tolist())
    return result.item() if isinstance(result, np.generic | np.ndarray) else result
