"""Attention of few rows as two launches in language `triton`: first, a program has a row of queries and a part of the
keys that no mask hides; then the parts are merged. Sizes alone decide how many: the bits are always the same."""

from dataclasses import dataclass

from noyau.codegen.triton.launch import WAIT
from noyau.codegen.triton.row_products import power_of_two, with_words
from noyau.dtypes import DType

_CELLS, _MERGED, _PROGRAMS = 4096, 8192, 1024  # most cells of a tile of keys, cells merged at once, programs


@dataclass(frozen=True, slots=True)
class RowAttention:
    """Attention of `queries` rows per head over `length` keys, each read by `share` heads; all have `depth` cells.
    `mask`: its dtype, if there is one; `steps`: its strides along batch, head and row. Results are [b, q, head]."""

    batch: int
    heads: int
    queries: int
    share: int
    length: int
    depth: int
    scale: float
    dtype: DType
    mask: DType | None = None
    steps: tuple[int, int, int] = (0, 0, 0)

    @property
    def rows(self) -> int:
        return self.batch * self.heads * self.queries

    @property
    def results(self) -> tuple[int, ...]:
        return (self.depth,)

    @property
    def tile(self) -> int:
        """The number of keys in a tile."""
        return max(16, min(_CELLS // power_of_two(self.depth), power_of_two(self.length)))

    @property
    def parts(self) -> tuple[int, int]:
        """The number of parts of the keys of a row, and of tiles in each part."""
        tiles = -(-self.length // self.tile)
        each = -(-tiles // max(1, min(tiles, _PROGRAMS // self.rows, _MERGED // power_of_two(self.depth))))
        return -(-tiles // each), each


def source(own: RowAttention) -> tuple[str, str]:
    """The name of the function, which ends in a digest, and the text."""
    (parts, tiles), kind = own.parts, 0 if own.mask is None else 1 if own.mask is DType.BOOL else 2
    words = dict[str, object](ROWS=own.rows, HEADS=own.heads, QUERIES=own.queries, READERS=own.queries * own.share)
    words |= {"LENGTH": own.length, "DEPTH": own.depth, "WIDTH": power_of_two(own.depth), "SCALE": repr(own.scale)}
    words |= {"TILE": own.tile, "TILES": tiles, "PARTS": parts, "PADDED": power_of_two(parts), "MASK": kind}
    words |= {"CELLS": own.length * own.depth, "WAIT": WAIT, **{f"STEP{at}": n for at, n in enumerate(own.steps)}}
    return with_words("row_attention", words)
