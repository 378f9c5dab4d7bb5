"""Parts of schedules for GPUs: programs of a grid, and tiles of cells that a program holds side by side.

A loop on THREADS is a grid of programs. The cells of a loop over a tile are computed side by side; a Fold over a tile
stays a Fold. The launcher of the kernel chooses the sizes of tiles by their policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from noyau.compiler.schedules.cpu import folds as cpu_folds
from noyau.compiler.schedules.primitives import Statements, carries, compare, drop_unused, minimum, nest
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import all_dims, every_statement, fold_of, folds_in, substitute, substitute_in, tiles_of

ZERO, ONE = Dim.of(0), Dim.of(1)
ORDER = list(ir.TilePolicy)


@dataclass(frozen=True, slots=True)
class Lead:
    """Rows that begin anywhere: `let` is the distance in cells from a multiple of 16 bytes to a row. Tiles begin there,
    so that they move aligned memory; `most` is one less than the cells of 16 bytes; where all of `odd` are 0, rows are
    aligned. `row`: the start of a row."""

    let: ir.Let | None = None
    most: Dim = ZERO
    odd: tuple[Dim, ...] = ()
    row: Dim = ZERO

    @property
    def cells(self) -> Dim:
        return ZERO if self.let is None else Dim.of(self.let.name)

    @property
    def is_idle(self) -> ir.Condition:
        """The condition that each row begins at a multiple of 16 bytes: a constant, or a bool of the sizes."""
        return ir.all_of(compare("equal", odd, ZERO) for odd in self.odd)

    @property
    def lets(self) -> Statements:
        return () if self.let is None else (self.let,)


NO_LEAD = Lead()


def with_tiles(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with the tiles of each launch declared: those of its loops, and those that sizes of scratch name."""
    tiles_so_far, launches = dict[str, ir.Tile](), list[ir.Launch]()
    for launch in kernel.launches:
        own = {str(tile.size): tile for tile in tiles_of(launch.body)}
        tiles_so_far |= own
        names = {name for dim in all_dims(launch.body) for name in dim.names & tiles_so_far.keys()} | own.keys()
        tiles = sorted((tiles_so_far[name] for name in names), key=lambda tile: (ORDER.index(tile.policy), tile.name))
        launches.append(replace(launch, tiles=tuple(tiles)))
    return replace(kernel, launches=tuple(launches))


def ceiling(extent: Dim, step: Dim) -> Dim:
    """The number of steps that cover an extent."""
    return (extent + step - 1) // step


def cut(loop: ir.Loop, tile: ir.Tile, axis: ir.Axis, lead: Lead = NO_LEAD, *, turned: bool = False) -> ir.Loop:
    """The loop in tiles, one after the other on `axis`; `turned`: in reverse order."""
    number = f"{loop.var}t"
    count = ceiling(loop.extent + (lead.most if axis is ir.Axis.THREADS else lead.cells), tile.size)
    before, at = _tile_of_round(number, count, turned)
    return ir.Loop(number, count, axis, (*before, cells_of(loop, at * tile.size, tile, lead.cells)))


def peel(loop: ir.Loop, extent: Dim, tile: ir.Tile) -> Statements:
    """Split a loop over the tiles of an extent, which has cells, into one over those that are surely full, without
    masks, and the last tile: if a pass ends with it and the next begins with it, its values stay in registers."""
    full = f"{loop.var}_full"
    *before, cells = loop.body
    assert isinstance(cells, ir.Loop)
    at = before[0].name if before and isinstance(before[0], ir.Let) else loop.var
    last = substitute((cells,), {at: Dim.of(full)})
    back = (ir.Let(at, ir.Index(Dim.of(full) - 1 - Dim.of(loop.var))),) if before else ()
    rounds = replace(loop, extent=Dim.of(full), body=(*back, replace(cells, extent=tile.size)))
    count = ir.Let(full, ir.Index((extent - 1) // tile.size))
    return (count, *last, rounds) if before else (count, rounds, *last)


def _tile_of_round(number: str, count: Dim, turned: bool) -> tuple[Statements, Dim]:
    """The number of the tile for a round of a loop over tiles, and the Let that computes it."""
    if not turned:
        return (), Dim.of(number)
    return (ir.Let(f"{number}_back", ir.Index(count - 1 - Dim.of(number))),), Dim.of(f"{number}_back")


def cells_of(loop: ir.Loop, start: Dim, tile: ir.Tile, lead: Dim = ZERO, lane: Dim | None = None) -> ir.Loop:
    """One tile of a loop, at `start`; `lead` of its cells lie before the first cell of the loop."""
    lane = Dim.of(f"{loop.var}l") if lane is None else lane
    index = ir.Let(loop.var, ir.Index(start + lane - lead))
    body = loop.body if lead == ZERO else (ir.If(compare("greater_equal", Dim.of(loop.var), ZERO), loop.body),)
    return ir.Loop(str(lane), loop.extent + lead - start, ir.Axis.LANES, (index, *body), tile)


def on_grid(loops: Sequence[ir.Loop], body: Statements) -> Statements:
    """Loops around a body, with one program for each round."""
    return nest([replace(loop, axis=ir.Axis.THREADS) for loop in loops], body)


def fold_cells(
    fold: ir.Fold, name: str, tile: ir.Tile, *, lead: Dim = ZERO, start: Dim | None = None, turned: bool = False
) -> tuple[FoldPass, cpu_folds.State]:
    """The fold of any number of values, with its state in cell 0: each cell of a tile takes in one value a round, then
    the tile is reduced. With `start`, only the tile that begins there; `turned`: the last tile first."""
    lifted = MONOIDS[fold.monoid].lift(Symbolic(), fold.value, ir.Index(cpu_folds.position(fold)))
    cells = FoldCells(fold.loops, cpu_folds.expand_folds(fold.body, 1, wide=False), lifted, lead, start, turned)
    state = cpu_folds.state_of(fold, name, wide=False)
    return fold_round(cells, state, name, tile), state


def fold_tile(fold: ir.Fold, name: str, tile: ir.Tile, start: Dim, lead: Dim) -> Statements:
    """Statements that bind a fold over the cells of one tile to its name."""
    if lead != ZERO:
        taken, state = fold_cells(fold, name, tile, lead=lead, start=start)
        return (*taken.statements, ir.Let(name, state.result(ZERO, fold.dtype)))
    ((variable, extent),) = fold.loops
    lane = f"{variable}l"
    body, loop = (ir.Let(variable, ir.Index(start + Dim.of(lane))), *fold.body), ((lane, extent - start),)
    return (ir.Let(name, replace(fold, loops=loop, body=body, at=Dim.of(variable), tile=tile)),)


@dataclass(frozen=True, slots=True)
class FoldCells:
    """The values of a fold: the loops, the statements of a round, and the state that they produce."""

    loops: Sequence[tuple[str, Dim]]
    body: Statements
    values: tuple[ir.Expr, ...]
    lead: Dim = ZERO
    start: Dim | None = None
    turned: bool = False


@dataclass(frozen=True, slots=True)
class FoldPass:
    """A pass over values: memory, the loop over their tiles, and the statements that produce their state."""

    before: Statements
    passed: ir.Statement
    after: Statements

    @property
    def statements(self) -> Statements:
        return (*self.before, self.passed, *self.after)


def fold_round(cells: FoldCells, state: cpu_folds.State, name: str, tile: ir.Tile) -> FoldPass:
    lane, lanes = Dim.of(f"#lane_{name}"), state.beside("lanes")
    variable, extent = cells.loops[-1]
    number, count = f"{variable}t", ceiling(extent + cells.lead, tile.size)
    before, at = _tile_of_round(number, count, cells.turned)
    start = at * tile.size if cells.start is None else cells.start
    loop = ir.Loop(variable, extent, ir.Axis.LANES, (*cells.body, lanes.store(lane, cells.values, merge=True)))
    inner: ir.Statement = cells_of(loop, start, tile, cells.lead, lane)
    inner = ir.Loop(number, count, ir.Axis.SERIAL, (*before, inner)) if cells.start is None else inner
    (inner,) = nest([ir.Loop(*each, ir.Axis.SERIAL, ()) for each in cells.loops[:-1]], (inner,))
    before, after = around_lanes(state, lanes, str(lane), tile)
    return FoldPass(before, inner, after)


def around_lanes(
    state: cpu_folds.State, lanes: cpu_folds.State, lane: str, tile: ir.Tile
) -> tuple[Statements, Statements]:
    """The memory of the states of a tile's lanes, empty, and the statements that merge them into cell 0 of `state`."""
    empty = ir.Loop(lane, tile.size, ir.Axis.LANES, (lanes.empty(Dim.of(lane)),), tile)
    total = ir.Loop(lane, tile.size, ir.Axis.SERIAL, (state.store(ZERO, lanes.load(Dim.of(lane)), merge=True),), tile)
    return (*lanes.memory(tile.size, ir.Space.THREAD), empty), (*state.memory(1), state.empty(ZERO), total)


def together(passes: Sequence[FoldPass]) -> Statements:
    """Merge passes over the same tiles."""
    loops = cpu_folds.in_one_pass([(*one.before, one.passed) for one in passes])
    return (*loops, *(s for one in passes for s in one.after))


def chunks_of(fold: ir.Fold, name: str, chunk: int) -> ir.Loop:
    """The loop over chunks of `chunk` rounds of a fold's outermost loop."""
    return ir.Loop(f"#chunk_{name}", ceiling(fold.loops[0][1], Dim.of(chunk)), ir.Axis.THREADS, ())


def partial(
    fold: ir.Fold, name: str, chunks: ir.Loop, around: Sequence[ir.Loop], chunk: int, tiles: tuple[ir.Tile, ir.Tile]
) -> tuple[FoldPass, FoldPass, tuple[ir.Buffer, ...]]:
    """A fold over chunks in two launches: the states of chunks, stored in scratch; their merge into the result; and the
    scratch. A sum of float32 is merged in float64."""
    begin = Dim.of(chunks.var) * chunk
    of_chunk = cpu_folds.move_fold(fold, begin, minimum(Dim.of(chunk), fold.loops[0][1] - begin))
    whole, part = fold_cells(of_chunk, name, tiles[0])
    axes = [chunks, *around]
    shape = tuple(loop.extent for loop in axes)
    cell = sum((Dim.of(a.var) * product(shape[k + 1 :]) for k, a in enumerate(axes)), ZERO)
    scratch = part.beside("of_chunk")
    first = replace(whole, after=(*whole.after, scratch.store(cell, part.load(ZERO), merge=False)))
    return first, merge_parts(fold, name, scratch.load(cell), chunks, tiles[1]), scratch.buffers(shape)


def in_chunks(
    kernel: ir.Kernel,
    inner: Statements,
    around: Sequence[ir.Loop],
    chunk: int,
    tiles: tuple[ir.Tile, ir.Tile],
    grid: Callable[[Sequence[ir.Loop], Statements], Statements],
) -> tuple[ir.Kernel, list[ir.Launch]]:
    """The folds of a block, which are alike, in two launches: states of chunks, then their merge. `grid` puts the
    statements of a launch into the loops `around`, and into the loop over chunks."""
    before, lets, after = cpu_folds.part_folds(inner)
    first = fold_of(lets[0])
    chunks = chunks_of(first, lets[0].name, chunk)
    names = [(let.name, rename_loops(fold_of(let), first)) for let in lets]
    firsts, seconds, scratch = zip(*(partial(f, name, chunks, around, chunk, tiles) for name, f in names), strict=True)
    one, other = (*before, *together(firsts)), (*before, *together(seconds), *after)
    launches = [ir.Launch(grid([chunks], drop_unused(one))), ir.Launch(grid([], drop_unused(other)))]
    return replace(kernel, buffers=(*kernel.buffers, *(each for own in scratch for each in own))), launches


def merge_parts(fold: ir.Fold, name: str, parts: tuple[ir.Expr, ...], chunks: ir.Loop, tile: ir.Tile) -> FoldPass:
    """Merge the states of chunks along a loop into the result. A sum of float32 is merged in float64."""
    total = cpu_folds.state_of(fold, name, wide=True)
    cells = FoldCells(((chunks.var, chunks.extent),), chunks.body, total.cast(parts))
    merged = fold_round(cells, total, name, tile)
    return replace(merged, after=(*merged.after, ir.Let(name, total.result(ZERO, fold.dtype))))


def offset_of(buffer: ir.Buffer, index: Shape) -> Dim:
    """The offset of a cell in its buffer, in cells."""
    if buffer.strides is not None:
        return sum((at * step for at, step in zip(index, buffer.strides, strict=True)), ZERO)
    (offset,) = index or (ZERO,)
    return offset


def is_innermost(loop: ir.Loop) -> bool:
    """Whether a loop's cells can be computed side by side: it has no loops, no folds and no carried state."""
    return not (carries(loop) or folds_in(loop.body) or any(isinstance(s, ir.Loop) for s in every_statement(loop.body)))


def extents_of_tiles(body: Statements) -> Iterator[Dim]:
    """The extents of the loops and folds that become tiles."""
    for statement in every_statement(body):
        if isinstance(statement, ir.Loop) and is_innermost(statement):
            yield statement.extent
    yield from (fold.loops[-1][1] for fold in folds_in(body))


def all_at_most(extents: Collection[Dim], most: int) -> ir.Condition:
    """The condition that extents are at most a number: a constant or a bool of sizes; False if one is a loop's."""
    depends = any(name.startswith("#") for extent in extents for name in extent.names)
    return not depends and ir.all_of(ir.at_most(extent, Dim.of(most)) for extent in extents)


def in_one_tile(inner: Statements) -> bool:
    """Whether no loop is around a tile, which would recompute it again and again, and only checks of indices are
    conditional."""
    loops = [s for s in inner if isinstance(s, ir.Loop)]
    folds = list(map(fold_of, cpu_folds.lets_of_folds(inner)))
    conditional = any(isinstance(s, ir.If) and not cpu_folds.asks(s) for s in inner)
    deep = any(folds_in(fold.body) or any(isinstance(s, ir.Loop | ir.If) for s in fold.body) for fold in folds)
    return not (conditional or deep) and all(map(is_innermost, loops)) and all(len(fold.loops) == 1 for fold in folds)


@dataclass(slots=True)
class Choices:
    """Launches in alternatives, one of which runs: the first whose condition holds."""

    launches: list[ir.Launch] = field(default_factory=list)
    before: list[ir.Condition] = field(default_factory=list)

    def add(self, own: ir.Condition, bodies: Callable[[], Sequence[Statements]]) -> None:
        """Add an alternative, if any sizes are left for it."""
        case = ir.all_of((*map(ir.opposite, self.before), own))
        if case is not False:
            self.launches += [ir.Launch(body, ir.when(case)) for body in bodies()]
            self.before.append(own)


def rename_loops(fold: ir.Fold, other: ir.Fold) -> ir.Fold:
    """A fold with its loops renamed as another's."""
    pairs = zip(fold.loops, other.loops, strict=True)
    names: dict[str, DimLike] = {old: Dim.of(new) for (old, _), (new, _) in pairs if old != new}
    moved_fold = substitute_in(replace(fold, loops=other.loops), names) if names else fold
    return replace(moved_fold, loops=other.loops)
