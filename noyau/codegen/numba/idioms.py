"""What Python text may say shorter than statements do: each loop costs Numba time to compile."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Expr, Load, Loop, Prefetch, Statement
from noyau.ir.walk import rewrite, substitute

HALF = "#half"


def lines_ahead(statements: Sequence[Statement], cells: int) -> int:
    """How many statements at the front fetch lines of memory, of so many cells each, that follow one another."""
    first, count = statements[0], 1
    assert isinstance(first, Prefetch)
    while count < len(statements):
        following = Prefetch(first.buffer, (*first.index[:-1], first.index[-1] + count * cells))
        if statements[count] != following:
            break
        count += 1
    return count


def halving(statements: Sequence[Statement]) -> tuple[int, Loop | None]:
    """How many statements at the front merge lanes by halves, the last of them the last two; and what each does for the
    half `#half`. No statement where there are fewer than three."""
    first = statements[0]
    if not isinstance(first, Loop) or first.axis is not Axis.LANES:
        return 0, None
    width = first.extent.constant or 0
    if width < 4 or width & (width - 1):
        return 0, None
    count, half = 0, width
    while half >= 1 and count < len(statements):
        body = _with_half(first, width, Dim.of(half))
        wanted: Statement = Loop(first.var, Dim.of(half), Axis.LANES, body)
        if half == 1:
            (wanted,) = substitute(body, {first.var: 0}) if len(body) == 1 else (wanted,)
        if statements[count] != wanted:
            return 0, None
        count, half = count + 1, half // 2
    if half or _with_half(first, width, Dim.of(HALF)) == first.body:
        return 0, None
    return count, Loop(first.var, Dim.of(HALF), Axis.LANES, _with_half(first, width, Dim.of(HALF)))


def _with_half(loop: Loop, width: int, half: Dim) -> tuple[Statement, ...]:
    """The body of a loop that merges the upper half of `width` lanes into the lower, for another half."""
    upper = Dim.of(loop.var) + width

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load) and expr.index == (upper,):
            return Load(expr.buffer, (Dim.of(loop.var) + half,), expr.dtype, expr.where, expr.other)
        return expr

    return rewrite(loop.body, change)
