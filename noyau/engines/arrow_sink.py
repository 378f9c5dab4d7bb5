"""Rows by pyarrow as a sink: a folder of Parquet files, each there as a whole or not at all; or lines of a CSV file."""

from __future__ import annotations

import io
import os
import re
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, parquet

from noyau.engines.reading import Chunk
from noyau.engines.sinks import CHUNKS, Piece, Progress, flatten_columns, writing

_NAME = re.compile(r"(?:\.[0-9a-f]+-)?part-(\d{5})-(\d{6})\.parquet")


class ParquetFolder:
    """The folder. What is being written bears a hidden name; after an end at any moment it is written again.
    `progress`: None where another process keeps it, as that of an engine's worker."""

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
                    self.hidden = self.path / f".{secrets.token_hex(4)}-{self.place.name}"  # two may write the same
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
        pass


def csv_rows(columns: Chunk, first: bool) -> bytes:
    """Lines of a CSV file, the first of which has the names."""
    content = io.BytesIO()
    csv.write_csv(pa.table(flatten_columns(columns)), content, csv.WriteOptions(include_header=first))
    return content.getvalue()
