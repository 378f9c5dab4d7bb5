"""Strategy transpose: reads and writes run along different axes. The innermost loop is cut in tiles, and the tiles go
outside the loop that the reads run along, so that each line of memory is used up while it is in the cache."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, If, Kernel, Loop, Store
from noyau.ir.walk import substitute
from noyau.schedules.steps import Statements, bind, coalesce, lone_loops, minimum, sink, widen, with_bodies


def transpose(kernel: Kernel, *, along: str, across: str, tile: int = 16) -> Kernel:
    """`along` is the loop that reads run along, `across` the innermost one, which strides through them."""

    def scheduled(body: Statements) -> Statements:
        body = hoist(sink(coalesce(body)), along, across, tile)
        return widen(bind(body, _until(body, f"{across}t")))

    return with_bodies(kernel, scheduled)


def hoist(body: Statements, along: str, across: str, tile: int) -> Statements:
    """The loops over `across` in tiles, the loop over the tiles just outside those over `along`."""
    loops = [s for s in body if isinstance(s, Loop)]
    if any(loop.var == along for loop in loops):
        extent = _extent(body, across)
        if extent is None or _stores_outside(body, across):
            return body
        inner = _tiled(body, across, tile)
        return (Loop(f"{across}t", (extent + (tile - 1)) // tile, Axis.SERIAL, inner),)
    return tuple(replace(s, body=hoist(s.body, along, across, tile)) if isinstance(s, Loop) else s for s in body)


def _extent(body: Statements, variable: str) -> Dim | None:
    """The extent of the loops over a variable, if it is the same for all."""
    found = set()
    waiting = list(body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Loop):
            waiting += statement.body
            if statement.var == variable:
                found.add(statement.extent)
    return found.pop() if len(found) == 1 else None


def _stores_outside(body: Statements, variable: str) -> bool:
    """Whether a Store stands outside the loops over a variable: each tile would do it again, or none at all."""
    inner = (s.body for s in body if isinstance(s, Loop | If) and not (isinstance(s, Loop) and s.var == variable))
    return any(isinstance(s, Store) for s in body) or any(_stores_outside(statements, variable) for statements in inner)


def _tiled(body: Statements, variable: str, tile: int) -> Statements:
    made = []
    for statement in body:
        if isinstance(statement, Loop) and statement.var == variable:
            start = Dim.of(f"{variable}t") * tile
            cells = substitute(statement.body, {variable: start + Dim.of(variable)})
            statement = replace(statement, extent=minimum(Dim.of(tile), statement.extent - start), body=cells)
        elif isinstance(statement, Loop):
            statement = replace(statement, body=_tiled(statement.body, variable, tile))
        made.append(statement)
    return tuple(made)


def _until(body: Statements, variable: str) -> int:
    """How many lone loops there are up to that over a variable, with it; all lone ones if it is not among them."""
    count, inner = 0, body
    while len(inner) == 1 and isinstance(inner[0], Loop):
        count += 1
        if inner[0].var == variable:
            return count
        inner = inner[0].body
    return lone_loops(body)
