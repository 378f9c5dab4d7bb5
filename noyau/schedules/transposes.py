"""Strategy transpose: reads and writes run along different axes. Both are cut in tiles that stay in cache."""

from __future__ import annotations

from dataclasses import replace

from noyau.ir.dims import Dim
from noyau.ir.loops import Axis, Kernel, Loop
from noyau.ir.walk import substitute
from noyau.schedules.steps import Statements, bind, coalesce, lone_loops, sink, split, widen, with_bodies


def transpose(kernel: Kernel, *, along: str, tile: int = 32) -> Kernel:
    """`along` is the loop that the reads run along; it and the innermost loop are cut in tiles."""

    def tiled(body: Statements) -> Statements:
        body = sink(coalesce(body))
        loops, inner = _chain(body)
        reads, writes = next(loop for loop in loops if loop.var == along), loops[-1]
        others = [loop for loop in loops if loop not in (reads, writes)]
        far = split(replace(reads, body=()), tile, f"{reads.var}t", reads.var)
        near = split(replace(writes, body=()), tile, f"{writes.var}t", writes.var)
        return _renamed(others, far, near, inner, tile)

    return with_bodies(kernel, lambda body: widen(bind(made := tiled(body), max(lone_loops(made) - 2, 0))))


def _chain(body: Statements) -> tuple[list[Loop], Statements]:
    loops = []
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    return loops, body


def _renamed(others: list[Loop], far: Loop, near: Loop, inner: Statements, tile: int) -> Statements:
    """The loops put back: others, tiles of both, then the cells of both."""
    (far_cells,), (near_cells,) = far.body, near.body
    assert isinstance(far_cells, Loop) and isinstance(near_cells, Loop)
    index = {cells.var: Dim.of(tiles.var) * tile + Dim.of(cells.var) for tiles, cells in ((far, far_cells), (near, near_cells))}
    body = substitute(inner, {name: dim for name, dim in index.items()})
    for loop in reversed([*others, far, near, far_cells, near_cells]):
        body = (Loop(loop.var, loop.extent, Axis.SERIAL, body),)
    return body
