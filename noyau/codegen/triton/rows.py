"""Rows that begin at no multiple of 16 bytes, are loaded twice, or divided by one value: functions that the text of a
kernel calls, and what is to be known of a tile that begins before its row.
"""

from __future__ import annotations

from dataclasses import dataclass

from noyau.ir.dims import Dim
from noyau.ir.loops import Call, Expr, Index

# A division of a tile by what is one value along it: x is scaled, and multiplied by the inverse of the divisor, which
# was scaled alike; one step of Newton's makes the result the nearest one (Markstein 1990). Zeros, infinities and NaN
# are as the multiplication gives them.
SCALE = """@triton.jit
def noyau_scale(divisor):
    size = tl.abs(divisor)
    return tl.where(size > 2.0**100, 2.0**-64, tl.where(size < 2.0**-100, 2.0**64, 1.0))"""
QUOTIENT = """@triton.jit
def noyau_quotient(x, scale, divisor, inverse):
    x = x * scale
    near = x * inverse
    over = tl.fma(near, divisor, -x)
    return tl.where(tl.abs(near) < float("inf"), tl.fma(-over, inverse, near), near)"""
INSIDE = '''@triton.jit
def noyau_inside(index, extent, ALIGN: tl.constexpr, EVEN: tl.constexpr):
    """Which cells of a tile are of its row, which it may begin before; EVEN: all are."""
    if EVEN:
        inside = tl.full(index.shape, 1, tl.int1)
    else:
        inside = index < extent
        if ALIGN > 1:
            inside = inside & (index >= 0)
    return inside'''
LED = '''@triton.jit
def noyau_lines(cells, lead, extent, ALIGN: tl.constexpr):
    """Which cells lie in 16 bytes that are all of the row."""
    return (cells >= (lead + ALIGN - 1) // ALIGN * ALIGN) & (cells < (lead + extent) // ALIGN * ALIGN)


@triton.jit
def noyau_at_end(start, lead, extent, ALIGN: tl.constexpr, SIZE: tl.constexpr):
    """Whether a tile holds an end of a row that lies in 16 bytes with other cells."""
    return (start < (lead + ALIGN - 1) // ALIGN * ALIGN) | (start + SIZE > (lead + extent) // ALIGN * ALIGN)


@triton.jit
def noyau_near(cells, lead, extent, ALIGN: tl.constexpr):
    """Which cells lie in 16 bytes of which some are of the row."""
    return cells < (lead + extent + ALIGN - 1) // ALIGN * ALIGN


@triton.jit
def noyau_load(cells, inside, near, place, total, until, ALIGN: tl.constexpr, ENDS: tl.constexpr, KEEP: tl.constexpr):
    """Cells of a row, 16 bytes at once, with those beside it; where an array ends within 16 bytes, those one by one."""
    if ALIGN == 1:
        found = tl.load(cells, mask=inside, other=0, eviction_policy=KEEP)
    elif ENDS:
        whole = total // ALIGN * ALIGN
        found = tl.load(cells, mask=near & (place < whole), other=0, eviction_policy=KEEP)
        if until > whole:
            found = tl.where(place < whole, found, tl.load(cells, mask=inside & (place >= whole), other=0))
    else:
        found = tl.load(cells, mask=near, other=0, eviction_policy=KEEP)
    return found


@triton.jit
def noyau_store(cells, values, inside, lines, at_end, ALIGN: tl.constexpr, KEEP: tl.constexpr):
    """Cells of a row, as they are loaded."""
    if ALIGN > 1:
        tl.store(cells, values, mask=lines, eviction_policy=KEEP)
        if at_end:
            tl.store(cells, values, mask=inside & (lines == 0))
    else:
        tl.store(cells, values, mask=inside, eviction_policy=KEEP)'''
OF_ROW = '''@triton.jit
def noyau_of_row(values, inside, empty, at_end, ALIGN: tl.constexpr):
    """Values of a tile, those outside its row empty: only a tile that holds an end of one has such."""
    if ALIGN == 1:
        values = tl.where(inside, values, empty)
    elif at_end:
        values = tl.where(inside, values, empty)
    return values'''
AGAIN = '''@triton.jit
def noyau_again(held, cells, inside, AGAIN: tl.constexpr):
    """What a program holds of a row, or the same loaded again from the L1, which leaves registers to other programs."""
    if AGAIN:
        held = tl.load(cells, mask=inside, other=0, eviction_policy="evict_first").to(held.dtype)
    return held'''
AHEAD = '''@triton.jit
def noyau_ahead(cells, inside, AHEAD: tl.constexpr):
    """What all rows have in common, on the way with a row, where it is short."""
    found = 0
    if AHEAD:
        found = tl.load(cells, mask=inside, other=0)
    return found


@triton.jit
def noyau_behind(found, cells, inside, AHEAD: tl.constexpr):
    """What was loaded ahead, or the same loaded now."""
    if not AHEAD:
        found = tl.load(cells, mask=inside, other=0)
    return found'''
ROWS = {"scale": SCALE, "quotient": QUOTIENT, "inside": INSIDE, "led": LED, "of row": OF_ROW}
ROWS |= {"again": AGAIN, "ahead": AHEAD}


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
