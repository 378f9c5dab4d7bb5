"""Parts of schedules for GPUs: programs of a grid, and tiles of cells that a program holds side by side.

A loop on THREADS is a grid of programs. The cells of a loop over a tile are computed side by side; a Fold over a tile
stays a Fold. The launcher of the kernel chooses the sizes of tiles by their policies.

Two folds along a row, of which the second needs the result of the first, run in one pass: a tile's own result first,
then one value a cell, and both as a state that is merged. A sum of exp(x - m), where m is the largest x (Milakov and
Gimelshein, 2018); a sum of (x - m) ** 2, where m is the mean of x (Chan, Golub and LeVeque, 1979); a tile takes the
place of an element."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan

from noyau.compiler.schedules.cpu import folds as cpu_folds
from noyau.compiler.schedules.cpu.folds import State, lets_of_folds
from noyau.compiler.schedules.primitives import Statements, carries, compare, drop_unused, minimum, nest
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimLike, Shape, maximum, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import all_dims, every_statement, fold_of, folds_in, is_fold, substitute, substitute_in, tiles_of

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


TILE = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 16384, 16, 8, 1 << 17)  # each tile waits for a reduction
GROUP = ir.Tile("GROUP", ir.TilePolicy.FIXED, 8)  # cells of one thread, folded without others: 16 bytes
LANES = ir.Tile("LANES", ir.TilePolicy.FIXED, 512, 8)
# The same where cells are written after the folds: so many that few rows are in flight.
WRITTEN = ir.Tile("LANES", ir.TilePolicy.GROWING, 2048, 64, 4)
F32 = DType.F32


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folds along a row. `called`: the name in the second fold of the value that it subtracts; `mean`: whether that
    is the mean by the first fold, not its maximum."""

    first: ir.Let
    second: ir.Let
    called: str
    mean: bool

    @property
    def folds(self) -> tuple[ir.Fold, ir.Fold]:
        return fold_of(self.first), fold_of(self.second)


def online(inner: Statements, lead: Dim = ZERO, group: ir.Tile = GROUP, lanes: ir.Tile | None = None) -> Statements:
    """The statements of a row with each such pair of folds in one pass, over tiles that begin `lead` cells early."""
    if not (pairs := pairs_in(inner)):
        return inner
    lanes = lanes or (WRITTEN if any(isinstance(s, ir.Loop) for s in inner) else LANES)
    at, passed = inner.index(pairs[0].first), _pair_in_one_pass(pairs[0], lanes, group, lead)
    after = (s for s in inner[at + 1 :] if s is not pairs[0].second)
    return online((*inner[:at], *passed, *after), lead, group, lanes)


def match_pair(one: ir.Let, other: ir.Let, scalars: Mapping[str, ir.Expr]) -> Pair | None:
    """The pair of two folds, or None if they are not one."""
    first, second = fold_of(one), fold_of(other)
    alike = len(first.loops) == len(second.loops) == 1 and first.loops[0][1] == second.loops[0][1]
    if not alike or second.monoid != "sum" or first.value.dtype is not F32:
        return None
    match first.monoid, _value(second.body, second.value):
        case "max", ir.Call("exp", (moved,)):
            mean = False
        case "sum", ir.Call("multiply", (moved, again)) if moved == again:
            mean = True
        case _:
            return None
    match _value(second.body, moved):
        case ir.Call("subtract", (value, ir.Var(name))) if _subtracted_fold(name, scalars, mean) == one.name:
            variable = first.loops[0][0]
            own, value = _origin(first, first.value, variable), _without_rounding(second.body, value)
            return Pair(one, other, name, mean) if own is not None and _origin(second, value, variable) == own else None
        case _:
            return None


def _without_rounding(body: Statements, value: ir.Expr) -> ir.Expr:
    """The value without `rounded` (see compiler/passes/normal_form.py)."""
    match _value(body, value):
        case ir.Call("rounded", (inner,)):
            return inner
        case _:
            return value


def _subtracted_fold(name: str, scalars: Mapping[str, ir.Expr], mean: bool) -> str | None:
    """The fold whose result, or mean, a value is."""
    value = scalars.get(name)
    while isinstance(value, ir.Var):
        name, value = value.name, scalars.get(value.name)
    if not mean:
        return name if value is None else None
    match value:
        case ir.Call("divide", (ir.Var(total), ir.Var(count))) if isinstance(counted := scalars.get(count), ir.Call):
            return total if counted.function == "cast" and isinstance(counted.operands[0], ir.Index) else None
        case _:
            return None


def _let_of(body: Statements, value: ir.Expr) -> ir.Let | None:
    """The Let of a body that a value refers to, or None."""
    name = value.name if isinstance(value, ir.Var) else None
    return next((s for s in body if isinstance(s, ir.Let) and s.name == name), None)


def _value(body: Statements, value: ir.Expr) -> ir.Expr:
    let = _let_of(body, value)
    return value if let is None else let.value


def _origin(fold: ir.Fold, value: ir.Expr, variable: str) -> tuple[str, tuple[Dim, ...]] | None:
    """The value of the graph that a value holds, and its index, with the fold's loop called `variable`."""
    let = _let_of(fold.body, value)
    if let is None or let.origin is None:
        return None
    name, index = let.origin
    return name, tuple(dim.replace({fold.loops[0][0]: variable}) for dim in index)


def _pair_in_one_pass(pair: Pair, side: ir.Tile, group: ir.Tile = GROUP, lead: Dim = ZERO) -> Statements:
    """Statements that bind the results of both folds to their names."""
    variable, extent = pair.folds[1].loops[0]
    number, lane = f"{variable}t", f"#lane_{pair.first.name}"
    if pair.mean:
        tile, state, parts = of_tile(pair, TILE, Dim.of(number) * TILE.size, lead)
        merged = (*tile, state.store(ZERO, parts, merge=True))
        passed = ir.Loop(number, ceiling(extent + lead, TILE.size), ir.Axis.SERIAL, merged)
        return (*state.memory(1), state.empty(ZERO), passed, *results(pair, state))
    step = side.size * group.size
    tile, state, parts = of_tile(pair, group, Dim.of(number) * step + Dim.of(lane) * group.size, lead)
    lanes = state.beside("lanes")
    own = ir.Loop(lane, side.size, ir.Axis.LANES, (*tile, lanes.store(Dim.of(lane), parts, merge=True)), side)
    passed = ir.Loop(number, ceiling(extent + lead, step), ir.Axis.SERIAL, (own,))
    before, after = around_lanes(state, lanes, lane, side)
    return (*before, passed, *after, *results(pair, state))


def of_tile(pair: Pair, tile: ir.Tile, start: Dim, lead: Dim) -> tuple[Statements, State, tuple[ir.Expr, ...]]:
    """Statements that compute both folds over the tile at `start`; the state of both; the state's parts."""
    first, second = pair.folds
    variable, extent = second.loops[0]
    here, taken = f"{pair.first.name}.here", f"{pair.second.name}.here"
    moved = substitute_in(first, {first.loops[0][0]: Dim.of(variable)})
    own = fold_tile(replace(moved, loops=second.loops), here, tile, start, lead)
    count = minimum(tile.size, extent + lead - start) - maximum(ZERO, lead - start)
    off, state, parts = (_moments if pair.mean else _exponentials)(pair, here, maximum(ZERO, count))
    body = tuple(_with(s, pair.called, ir.Var(off.name, F32)) for s in second.body)
    other = fold_tile(replace(second, body=body), taken, tile, start, lead)
    return (*own, off, *other), state, (*parts, ir.Var(taken, F32))


def results(pair: Pair, state: State) -> Statements:
    """The results of both folds under their names, from the state of the row."""
    one, other = _results(state.load(ZERO), pair.folds[1].loops[0][1], pair.mean)
    return ir.Let(pair.first.name, one, pair.first.origin), ir.Let(pair.second.name, other, pair.second.origin)


def pairs_in(inner: Statements) -> list[Pair]:
    """The pairs of folds of a row."""
    lets = lets_of_folds(inner)
    scalars = {s.name: s.value for s in inner if isinstance(s, ir.Let) and not is_fold(s)}
    return [pair for one in lets for other in lets if (pair := match_pair(one, other, scalars)) is not None]


def _exponentials(pair: Pair, here: str, count: Dim) -> tuple[ir.Let, State, tuple[ir.Expr, ...]]:
    """The shift of a tile: its largest value, but not an infinity; the state, and its first part."""
    call, like, most = Symbolic().call, Symbolic().like, ir.Var(here, F32)
    off = ir.Let(f"{here}.shift", call("where", call("equal", most, like(-inf, most)), like(0.0, most), most))
    return off, State("logsumexp", (f"{pair.first.name}.top", f"{pair.second.name}.scaled"), (F32, F32)), (most,)


def _moments(pair: Pair, here: str, count: Dim) -> tuple[ir.Let, State, tuple[ir.Expr, ...]]:
    """The shift of a tile: its mean; the state, and its first two parts."""
    cells, some = (ir.Call("cast", (ir.Index(dim),), F32) for dim in (count, maximum(Dim.of(1), count)))
    off = ir.Let(f"{here}.mean", Symbolic().call("divide", ir.Var(here, F32), some))
    names = tuple(f"{pair.second.name}.{part}" for part in ("count", "mean", "spread"))
    return off, State("variance", names, (F32, F32, F32)), (cells, ir.Var(off.name, F32))


def _results(state: tuple[ir.Expr, ...], extent: Dim, mean: bool) -> tuple[ir.Expr, ir.Expr]:
    """The results of both folds. Where the largest value is infinite, the sum of exp is NaN, as in two passes."""
    call = Symbolic().call
    if mean:
        return call("multiply", state[1], state[0]), state[2]
    odd = call("logical_and", call("is_inf", state[0]), call("less", ir.Index(ZERO), ir.Index(extent)))
    return state[0], call("where", odd, ir.Const(nan, F32), state[1])


def _with(statement: ir.Statement, old: str, new: ir.Var) -> ir.Statement:
    """A Let with one variable replaced by another."""
    match statement:
        case ir.Let(_, ir.Call(function, operands, dtype)):
            changed = tuple(new if isinstance(o, ir.Var) and o.name == old else o for o in operands)
            return replace(statement, value=ir.Call(function, changed, dtype))
        case _:
            return statement
