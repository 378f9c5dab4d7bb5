"""The strategy for reads and writes along different axes, as of a transpose, in tiles.

The innermost loop is cut into tiles, which move outside the loop that the reads run along, so that all of each cache
line is used while it is cached."""

from dataclasses import replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.primitives import Statements, change_each, stride_of
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.walk import every_statement, loads_of, substitute


def reads_along(body: Statements, outer: tuple[str, ...] = ()) -> tuple[str, str] | None:
    """The loop along which loads have stride 1 and across which the innermost one strides, and that one; or None."""
    for loop in (s for s in body if isinstance(s, ir.Loop)):
        is_outer = any(isinstance(s, ir.Loop) for s in loop.body)
        ways = reads_along(loop.body, (*outer, loop.var)) if is_outer else _along(loop, outer)
        if ways is not None:
            return ways
    return None


def _along(innermost: ir.Loop, outer: tuple[str, ...]) -> tuple[str, str] | None:
    across = innermost.var
    striding = (load for load in loads_of(innermost.body) if stride_of(load, across) not in (Dim.of(0), Dim.of(1)))
    ways = ((along, across) for load in striding for along in outer if stride_of(load, along) == Dim.of(1))
    return next(ways, None)


def transpose(kernel: ir.Kernel, *, along: str, across: str, tile: int = 16) -> ir.Kernel:
    """Schedule a kernel: `along` is the loop that reads run along, `across` the innermost, which strides."""

    def scheduled(body: Statements) -> Statements:
        body = hoist(primitives.sink(primitives.coalesce(body)), along, across, tile)
        return primitives.widen(primitives.bind(body, _until(body, f"{across}t")))

    return primitives.with_bodies(kernel, scheduled)


def hoist(body: Statements, along: str, across: str, tile: int) -> Statements:
    """Cut the loops over `across` into tiles; the loop over the tiles goes just outside those over `along`."""
    if any(isinstance(s, ir.Loop) and s.var == along for s in body):
        # The common extent of the loops over a variable, if there is one
        extents = {s.extent for s in every_statement(body) if isinstance(s, ir.Loop) and s.var == across}
        extent = extents.pop() if len(extents) == 1 else None
        if extent is None or _stores_outside(body, across):
            return body
        return (ir.Loop(f"{across}t", (extent + (tile - 1)) // tile, ir.Axis.SERIAL, _tile(body, across, tile)),)
    return tuple(replace(s, body=hoist(s.body, along, across, tile)) if isinstance(s, ir.Loop) else s for s in body)


def _stores_outside(body: Statements, variable: str) -> bool:
    """Whether a Store stands outside the loops over a variable: each tile would repeat it, or none run it."""
    inner = (s for s in body if isinstance(s, ir.If) or (isinstance(s, ir.Loop) and s.var != variable))
    return any(isinstance(s, ir.Store) for s in body) or any(_stores_outside(s.body, variable) for s in inner)


def _tile(body: Statements, variable: str, tile: int) -> Statements:
    start = Dim.of(f"{variable}t") * tile

    def change(loop: ir.Statement) -> Statements | None:
        if not isinstance(loop, ir.Loop) or loop.var != variable:
            return None
        cells = substitute(loop.body, {variable: start + Dim.of(variable)})
        return (replace(loop, extent=primitives.minimum(Dim.of(tile), loop.extent - start), body=cells),)

    return change_each(body, change)


def _until(body: Statements, variable: str) -> int:
    """The number of loops of the chain up to that over a variable, inclusive; all of them if it is not there."""
    variables = [loop.var for loop in primitives.chain(body)[0]]
    return variables.index(variable) + 1 if variable in variables else len(variables)
