"""Arrow's batches as columns of NumPy: without a copy where there are no nulls, texts as objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from noyau.engines.reading import Chunk, Reading, require_columns
from noyau.errors import InputError


def chunks_of(value: Any, reading: Reading, label: str) -> Iterator[Chunk]:
    """The columns of what speaks Arrow's interface, batch by batch, nulls as the reading has them. InputError for a
    null that it refuses, and for a column that is neither numbers, texts nor times."""
    is_many = hasattr(value, "__arrow_c_stream__") and not isinstance(value, pa.RecordBatch)
    for batch in pa.RecordBatchReader.from_stream(value) if is_many else [pa.record_batch(value)]:
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


def column_of(column: Any, name: str, label: str) -> np.ndarray:
    """A column as an array."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], kind)
    if pa.types.is_fixed_size_list(kind):
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), kind.list_size))
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise InputError(f"{label}: the column {name} is {kind}: choose columns of numbers, texts or times")
    column = column.cast(pa.float64()) if pa.types.is_decimal(kind) else column
    return np.asarray(column.to_numpy(zero_copy_only=False))
