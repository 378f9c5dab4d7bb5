"""Rows that begin at no multiple of 16 bytes, are loaded twice, or divided by one value: functions that the text of a
kernel calls, and what is to be known of a tile that begins before its row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from noyau.codegen.tables import snippets
from noyau.ir.dims import Dim
from noyau.ir.loops import Call, Expr, Index

# The functions of rows.txt by what they are for.
# A division of a tile by what is one value along it: x is scaled, and multiplied by the inverse of the divisor, which
# was scaled alike; one step of Newton's makes the result the nearest one (Markstein 1990). Zeros, infinities and NaN
# are as the multiplication gives them.
_ROWS = {
    "scale": ("noyau_scale",),
    "quotient": ("noyau_quotient",),
    "inside": ("noyau_inside",),
    "led": ("noyau_lines", "noyau_at_end", "noyau_near", "noyau_load", "noyau_store"),
    "of row": ("noyau_of_row",),
    "again": ("noyau_again",),
}


def row_functions(used: Collection[str]) -> list[str]:
    """The texts of the functions that are used."""
    texts = snippets(Path(__file__).with_name("rows.txt"))
    return [texts[function] for name, functions in _ROWS.items() if name in used for function in functions]


@dataclass(frozen=True, slots=True)
class Led:
    """A tile that begins before a row: where the row begins, the text of the 16 bytes that it begins in, and those of
    the tile's cells from there, of which are in the row, which lie in whole lines, whether others do, which lie in
    lines that the row touches, and of where the tile ends in the buffer."""

    row: Dim
    line: str
    cells: str
    inside: str
    lines: str
    at_end: str
    near: str
    until: str


def guarded_index(condition: Expr) -> str | None:
    """The index of which a condition says that it is not before its row, or None."""
    match condition:
        case Call("greater_equal", (Index(index), Index(zero))) if zero == Dim.of(0) and len(index.names) == 1:
            return next(iter(index.names))
        case _:
            return None
