"""The strategy transpose: reads and writes run along different axes.

The innermost loop is cut in tiles, and the tiles go outside the loop that the reads run along, so that each line of
memory is used up while it is in the cache.
"""

from __future__ import annotations

from dataclasses import replace

from noyau.compiler.schedules.primitives import (
    Statements,
    bind,
    chain,
    change_each,
    coalesce,
    minimum,
    sink,
    widen,
    with_bodies,
)
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.substitution import substitute
from noyau.ir.walk import every_statement


def transpose(kernel: ir.Kernel, *, along: str, across: str, tile: int = 16) -> ir.Kernel:
    """`along` is the loop that reads run along, `across` the innermost one, which strides through them."""

    def scheduled(body: Statements) -> Statements:
        body = hoist(sink(coalesce(body)), along, across, tile)
        return widen(bind(body, _until(body, f"{across}t")))

    return with_bodies(kernel, scheduled)


def hoist(body: Statements, along: str, across: str, tile: int) -> Statements:
    """The loops over `across` in tiles, the loop over the tiles just outside those over `along`."""
    loops = [s for s in body if isinstance(s, ir.Loop)]
    if any(loop.var == along for loop in loops):
        extent = _extent(body, across)
        if extent is None or _stores_outside(body, across):
            return body
        inner = _tiled(body, across, tile)
        return (ir.Loop(f"{across}t", (extent + (tile - 1)) // tile, ir.Axis.SERIAL, inner),)
    return tuple(replace(s, body=hoist(s.body, along, across, tile)) if isinstance(s, ir.Loop) else s for s in body)


def _extent(body: Statements, variable: str) -> Dim | None:
    """The extent of the loops over a variable, if it is the same for all."""
    extents = {s.extent for s in every_statement(body) if isinstance(s, ir.Loop) and s.var == variable}
    return extents.pop() if len(extents) == 1 else None


def _stores_outside(body: Statements, variable: str) -> bool:
    """Whether a Store stands outside the loops over a variable: each tile would do it again, or none at all."""
    inner = (
        s.body for s in body if isinstance(s, ir.Loop | ir.If) and not (isinstance(s, ir.Loop) and s.var == variable)
    )
    return any(isinstance(s, ir.Store) for s in body) or any(
        _stores_outside(statements, variable) for statements in inner
    )


def _tiled(body: Statements, variable: str, tile: int) -> Statements:
    start = Dim.of(f"{variable}t") * tile

    def change(loop: ir.Statement) -> Statements | None:
        if not isinstance(loop, ir.Loop) or loop.var != variable:
            return None
        cells = substitute(loop.body, {variable: start + Dim.of(variable)})
        return (replace(loop, extent=minimum(Dim.of(tile), loop.extent - start), body=cells),)

    return change_each(body, change)


def _until(body: Statements, variable: str) -> int:
    """The number of lone loops up to that over a variable, with it; all lone ones if it is not among them."""
    variables = [loop.var for loop in chain(body)[0]]
    return variables.index(variable) + 1 if variable in variables else len(variables)
