"""The strategy for reads and writes along different axes in which tiles are transposed in the first-level cache: lines
are read whole into memory of the thread, and written whole from it, block by block. docs/notes/performance.md."""

from dataclasses import replace
from functools import partial

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.transposes import transpose
from noyau.compiler.schedules.primitives import Statements
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike
from noyau.ir.walk import loads_of, rewrite, substitute

TILE = ir.SIDE
ACROSS_BYTES, DOWN_BYTES = 256, 64  # of a block along the lines written, and along the lines read
AHEAD = 3  # blocks
MOST = 4  # inputs that are transposed at once: their tiles lie in the first-level cache


def turn(kernel: ir.Kernel, *, along: str, across: str) -> ir.Kernel | None:
    """Transpose tiles: `along` is the loop that reads run along, `across` the innermost one, which strides; whole tiles
    of both in one launch, the rest at either end in two. None where other loops or statements are in the way."""
    (launch,) = kernel.launches
    loops, body = primitives.chain(primitives.sink(primitives.coalesce(launch.body)))
    names = {loop.var: loop for loop in loops}
    if along not in names or across not in names or not _is_straight(body):
        return None
    outer = [loop for loop in loops if loop.var not in (along, across)]
    down, right = names[along], names[across]
    plain = (load for load in loads_of(body) if load.where is None and primitives.stride_of(load, along) == Dim.of(1))
    turned = list(dict.fromkeys(load for load in plain if primitives.stride_of(load, across) != Dim.of(0)))
    if not 1 <= len(turned) <= MOST or any(loop.extent.names & names.keys() for loop in loops):
        return None
    if any((loop.extent.constant or TILE) < TILE for loop in (down, right)):
        return None
    return _launches(kernel, outer, down, right, body, turned)


def _is_straight(body: Statements) -> bool:
    """Whether statements compute cells and store each once, with no looked-up index."""
    stores = [s for s in body if isinstance(s, ir.Store)]
    plain = all(isinstance(s, ir.Store) or (isinstance(s, ir.Let) and not s.name.startswith("#")) for s in body)
    read = {load.buffer for load in loads_of(body)}
    return plain and not any(s.merge or read & set(s.buffers) for s in stores)


def _launches(
    kernel: ir.Kernel, outer: list[ir.Loop], down: ir.Loop, right: ir.Loop, body: Statements, turned: list[ir.Load]
) -> ir.Kernel:
    """Whole tiles; then the last columns that are read, for all rows, and the last rows, for the columns before."""
    whole_down, whole_right = down.extent // TILE, right.extent // TILE
    blocks = _tiles(kernel, outer, down, right, body, turned)
    tiles = ir.Launch(primitives.widen(primitives.bind(blocks, len(outer) + 1)))
    rest: list[Statements] = []
    if (left := down.extent % TILE) != Dim.of(0):
        ends = substitute(body, {down.var: whole_down * TILE + Dim.of(down.var)})
        rest.append(primitives.nest([*outer, replace(down, extent=left), right], ends))
    if (left := right.extent % TILE) != Dim.of(0):
        ends = substitute(body, {right.var: whole_right * TILE + Dim.of(right.var)})
        before = replace(down, extent=whole_down * TILE)
        rest.append(primitives.nest([*outer, before, replace(right, extent=left)], ends))
    later = primitives.each(kernel, rest, partial(transpose, along=down.var, across=right.var))
    return replace(kernel, launches=(tiles, *(later.launches if rest else ())))


def _tiles(
    kernel: ir.Kernel, outer: list[ir.Loop], down: ir.Loop, right: ir.Loop, body: Statements, turned: list[ir.Load]
) -> Statements:
    """The loops over blocks of tiles; in each, strided inputs are read along their rows, a tile at a time, and kept
    transposed, for which a language may have an intrinsic; then all is computed along the rows that are written."""
    tile_bytes = TILE * max(kernel[load.buffer].dtype.bytes for load in turned)
    most = [max(room // tile_bytes, 1) for room in (ACROSS_BYTES, DOWN_BYTES)]
    blocks, tiles, lines = zip(*map(_cut, (right, down), most), strict=True)
    length = ir.Let(f"{right.var}_count", ir.Index(lines[0].extent))
    written = (lines[1], replace(lines[0], extent=Dim.of(length.name)))
    start: dict[str, DimLike] = {
        loop.var: Dim.of(block.var) * (count * TILE) + Dim.of(loop.var)
        for loop, block, count in zip((right, down), blocks, most, strict=True)
    }
    reads = [replace(load, index=tuple(dim.replace(start) for dim in load.index)) for load in turned]
    own: dict[ir.Expr, str] = {load: f"{load.buffer}.turned{number or ''}" for number, load in enumerate(reads)}
    across = most[0] * TILE
    cell, cells = (Dim.of(down.var) * across + Dim.of(right.var),), (Dim.of(across * most[1] * TILE),)
    memory = tuple(ir.Alloc(own[load], load.dtype, cells, ir.Space.REGISTER) for load in reads)

    def again(expr: ir.Expr) -> ir.Expr:
        return ir.Load(own[expr], cell, expr.dtype) if isinstance(expr, ir.Load) and expr in own else expr

    several = [tile for tile in tiles if tile.extent != Dim.of(1)]
    inside: dict[str, DimLike] = {
        loop.var: (Dim.of(tile.var) * TILE if tile in several else Dim.of(0)) + Dim.of(loop.var)
        for loop, tile in zip((right, down), tiles, strict=True)
    }
    copies = substitute((ir.Store((own[load],), cell, (load,)) for load in reads), inside)
    later, line = AHEAD * most[1] * TILE, max(DOWN_BYTES * TILE // tile_bytes, 1)
    turning = tuple(s for copy in copies for s in _transpose_tile(copy, right.var, down.var, later, line))
    read = primitives.nest(several, turning)
    values = rewrite(substitute(body, start), again)
    return primitives.nest([*outer, *blocks], (length, *memory, *read, *primitives.nest(written, values)))


def _cut(loop: ir.Loop, most: int) -> tuple[ir.Loop, ir.Loop, ir.Loop]:
    """The loops over the blocks of an axis, the tiles of a block, and the cells of a block."""
    block, number = f"{loop.var}t", loop.extent // TILE
    tiles, cells = Dim.of(1), Dim.of(TILE)
    if most > 1:
        tiles = primitives.minimum(Dim.of(most), number - Dim.of(block) * most)
        cells = primitives.minimum(Dim.of(most * TILE), number * TILE - Dim.of(block) * (most * TILE))
    extents = {block: (number + (most - 1)) // most, f"{loop.var}u": tiles, loop.var: cells}
    around, tile, cell = (ir.Loop(variable, extent, ir.Axis.SERIAL, ()) for variable, extent in extents.items())
    return around, tile, cell


def _transpose_tile(copy: ir.Statement, right: str, down: str, later: int, line: int) -> Statements:
    """A tile transposed; before it, prefetches of the `line`-cell lines that are read `later` cells further on."""
    assert isinstance(copy, ir.Store)
    inner, outer = (ir.Loop(variable, Dim.of(TILE), ir.Axis.SERIAL, ()) for variable in (down, right))
    (load,) = loads_of((copy,))
    place = tuple(dim.replace({down: later}) for dim in load.index)
    ahead = replace(outer, body=(ir.Prefetch(load.buffer, place, -(-TILE // line)),))
    return (ahead, *primitives.nest([outer, inner], (copy,)))
