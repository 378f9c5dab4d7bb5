"""Rows, and sums over them, on a GPU in one kernel: the gradients of a norm's input and of its weights, from one read
of both. A program takes in several rows, one after the other, and leaves its sums of each column in scratch, for a
second launch; if a row does not fit into a program, folds along rows come first."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from noyau.compiler.schedules.cpu import folds as cpu_folds
from noyau.compiler.schedules.cpu.folds import State, are_alike, fuse, part_folds
from noyau.compiler.schedules.gpu import tiles
from noyau.compiler.schedules.gpu.rows import can_share, rows, whole
from noyau.compiler.schedules.gpu.vectors import Place
from noyau.compiler.schedules.primitives import Statements, chain, coalesce, drop_unused, minimum, nest, sink, where
from noyau.dtypes import HALVES
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, maximum
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.sizes import plan
from noyau.ir.walk import every_statement, fold_of, folds_in, loads_of, rewrite, rewrite_all, substitute

LEAST, MOST = 257, 8192  # cells of a row that a program keeps together with its sums of columns; of halves, least twice
PROGRAMS = 132  # that rows are divided among, times the rows that fit SIDE cells: a large GPU runs all of them at once
SIDE = 8192
BESIDE = ir.Tile("BESIDE", ir.TilePolicy.SHARING, 2048)  # rows that a program takes in at once, for each sum
KEPT = ir.Tile("COLUMNS", ir.TilePolicy.KEPT, 1 << 16, 512)  # a warp has more cells where more sums are kept
# For cells that are written and summed.
ACROSS = ir.Tile("COLUMNS", ir.TilePolicy.COVERING, 1024, 4)
DOWN = ir.Tile("ROWS", ir.TilePolicy.FIXED, 4)
DEEP = 64  # rows of these for a program
MERGED = ir.Tile("COLUMNS", ir.TilePolicy.COVERING, 8), ir.Tile("ROWS", ir.TilePolicy.COVERING, 256, 4)
PIECE = 4096  # cells for a program of a long row, if rows are few
PIECES = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 4096, 8), ir.Tile("BLOCK", ir.TilePolicy.COVERING, 4096, 4)


@dataclass(frozen=True, slots=True)
class Both:
    """Two nests: the loop around rows, the statements of a row, and its loop over cells; and the folds of columns over
    the rows, with the statements before and after them."""

    around: ir.Loop
    of_row: Statements
    cells: ir.Loop
    across: ir.Loop
    before: Statements
    folds: tuple[tuple[str, ir.Fold], ...]
    after: Statements

    @property
    def states(self) -> list[State]:
        return [cpu_folds.state_of(fold, name, wide=False) for name, fold in self.folds]


def both_in(one: Statements, other: Statements) -> Both | None:
    """The two nests of two launches, or None if they are no such pair."""
    rows_, columns = _rows_in(one), _columns_in(other)
    if rows_ is None or columns is None:
        return None
    (around, of_row), (across, inner) = rows_, columns
    (before, lets, after), cells = part_folds(inner), [s for s in of_row if isinstance(s, ir.Loop)]
    folds = tuple((let.name, fold_of(let)) for let in lets)
    extents = {fold.loops for _, fold in folds}
    if not cells or any(len(loops) != 1 or loops[0][1] != around.extent for loops in extents):
        return None
    across_too = [fold.loops[-1][1] for fold in folds_in(of_row)] + [cell.extent for cell in cells]
    if any(extent != across.extent for extent in across_too) or not tiles.in_one_tile(of_row):
        return None
    stored = {name for s in every_statement(cells) if isinstance(s, ir.Store) for name in s.buffers}
    if stored & {load.buffer for load in loads_of(inner)}:
        return None
    both = Both(around, of_row, cells[-1], across, before, folds, after)
    return both if _is_at_hand(both) else None


def _is_at_hand(both: Both) -> bool:
    """Whether the columns read stored values of a row only in the row that a program has at hand: another row may be
    another program's, and scratch that only folds read is not written at all."""
    stores = [s for s in both.of_row if isinstance(s, ir.Store)]
    at_hand = {(name, store.index) for store in stores if store.merge is None for name in store.buffers}
    stored = {name for store in stores for name in store.buffers}
    column = {both.across.var: Dim.of(both.cells.var)}
    bodies = [substitute(f.body, {f.loops[0][0]: Dim.of(both.around.var), **column}) for _, f in both.folds]
    inside = [load for load in loads_of([s for body in bodies for s in body]) if load.buffer in stored]
    strange = any(load.where is not None or (load.buffer, load.index) not in at_hand for load in inside)
    return not strange and not any(load.buffer in stored for load in loads_of((*both.before, *both.after)))


def _rows_in(body: Statements) -> tuple[ir.Loop, Statements] | None:
    """The loop around rows, and the statements of a row."""
    loops, inner = chain(sink(body))
    if len(loops) > 1 and tiles.is_innermost(loops[-1]):
        loops, inner = loops[:-1], (loops[-1],)
    marked = tuple(replace(s, axis=ir.Axis.LANES) if isinstance(s, ir.Loop) else s for s in inner)
    loops, inner = chain(coalesce(nest(loops, marked)))
    if len(loops) == 2 and loops[-1].axis is ir.Axis.LANES:
        loops, inner = loops[:1], (loops[-1],)
    if len(loops) != 1:
        return None
    return loops[0], tuple(replace(s, axis=ir.Axis.SERIAL) if isinstance(s, ir.Loop) else s for s in inner)


def _columns_in(body: Statements) -> tuple[ir.Loop, Statements] | None:
    """The loop along columns, and the statements of a column."""
    loops, inner = chain(sink(coalesce(body)))
    lets = cpu_folds.lets_of_folds(inner)
    plain = len(folds_in(inner)) == len(lets) > 0 and not any(isinstance(s, ir.Loop) for s in inner)
    return (loops[0], inner) if len(loops) == 1 and plain and are_alike(inner) else None


def rows_and_columns(kernel: ir.Kernel, both: Both) -> ir.Kernel:
    """Schedule both nests as one kernel: rows with their sums in one pass, if they fit; else in two passes."""
    extent, launches = both.across.extent, list[ir.Launch]()
    fits: ir.Condition = False
    if folds_in(both.of_row):
        least = Dim.of(LEAST * 2 if any(buffer.dtype in HALVES for buffer in kernel.buffers) else LEAST)
        fits = ir.all_of((ir.at_most(least, extent), ir.at_most(extent, Dim.of(MOST))))
    if fits is not False:
        kernel, once = _in_one_pass(kernel, both)
        launches += where(fits, once)
    if fits is not True:
        kernel, twice = _in_two_passes(kernel, both)
        launches += where(ir.opposite(fits), twice)
    return replace(kernel, launches=tuple(launches))


def row_with_sums(kernel: ir.Kernel, both: Both, states: Sequence[State], at: Dim) -> Statements:
    """A row whose cells also merge what they add to each column into `states`, `at` a place, and leave scratch out."""
    terms = _column_terms(both, _of_row(both.of_row), states, at)
    cells = replace(both.cells, body=fuse([both.cells.body, *terms]))
    scratch = {buffer.name for buffer in kernel.of(ir.Role.SCRATCH)}
    own = [s for s in both.of_row if not (isinstance(s, ir.Store) and scratch.issuperset(s.buffers))]
    return tuple(cells if s is both.cells else s for s in own)


def _column_terms(both: Both, forward: Mapping[Place, ir.Expr], states: Sequence[State], at: Dim) -> list[Statements]:
    """For each fold of columns the term of one cell, over the cells' variables: values, and a Store that merges."""
    names = {s.name for s in every_statement(both.of_row) if isinstance(s, ir.Let)}
    added = []
    for (_, fold), state in zip(both.folds, states, strict=True):
        lifted = MONOIDS[fold.monoid].lift(Symbolic(), fold.value, ir.Index(cpu_folds.position(fold)))
        inner = (*both.before, *fold.body, state.store(at, lifted, merge=True))
        row, column = Dim.of(both.around.var), Dim.of(both.cells.var)
        placed = substitute(inner, {fold.loops[0][0]: row, both.across.var: column})
        own = {s.name: f"{s.name}.of_cell" for s in inner if isinstance(s, ir.Let) and s.name in names}
        apart = (replace(s, name=own.get(s.name, s.name)) if isinstance(s, ir.Let) else s for s in placed)
        added.append(rewrite(apart, partial(_substitute_forward, forward=forward, names=own)))
    return added


def _substitute_forward(expr: ir.Expr, forward: Mapping[Place, ir.Expr], names: Mapping[str, str]) -> ir.Expr:
    match expr:
        case ir.Var(name, dtype) if name in names:
            return ir.Var(names[name], dtype)
        case ir.Load(buffer, index, _, None, _):
            return forward.get((buffer, index), expr)
        case _:
            return expr


def _of_row(statements: Statements) -> dict[Place, ir.Expr]:
    """The values of a row, by the cells that they are loaded from or stored in."""
    values_at: dict[Place, ir.Expr] = {}
    for statement in statements:
        match statement:
            case ir.Let(name, ir.Load(buffer, index, dtype, None, _)):
                values_at[buffer, index] = ir.Var(name, dtype)
            case ir.Store(buffers, index, values, None):
                values_at |= {(name, index): value for name, value in zip(buffers, values, strict=True)}
            case _:
                pass
    return values_at


def _in_one_pass(kernel: ir.Kernel, both: Both) -> tuple[ir.Kernel, list[ir.Launch]]:
    """Several rows for a program, which keeps their sums of each column."""
    tile = replace(KEPT, warps=KEPT.warps * len(both.folds))
    several = replace(BESIDE, number=BESIDE.number * len(both.folds))
    extent, count, lane = both.across.extent, both.around.extent, Dim.of(both.cells.var)
    programs = maximum(Dim.of(1), Dim.of(SIDE) // maximum(Dim.of(BESIDE.number), extent)) * PROGRAMS
    part, parts = Dim.of("#part"), ir.Loop("#part", minimum(programs, count), ir.Axis.THREADS, ())
    of_row = whole(row_with_sums(kernel, both, both.states, lane), tile=tile)
    start = (part + Dim.of("#round") * programs) * several.size
    beside = tiles.cells_of(replace(both.around, body=of_row), start, several)
    turns = tiles.ceiling(count - part * several.size, programs * several.size)
    rounds = ir.Loop("#round", turns, ir.Axis.SERIAL, (replace(beside, axis=ir.Axis.SERIAL),))
    before, after, states = list[ir.Statement](), list[ir.Statement](), list[State]()
    for state in both.states:
        before += state.memory(tile.size, ir.Space.THREAD)
        before.append(ir.Loop(str(lane), tile.size, ir.Axis.LANES, (state.empty(lane),), tile))
        states.append(state.beside("of_part"))
        store = states[-1].store(part * extent + lane, state.load(lane), merge=False)
        after.append(ir.Loop(str(lane), extent, ir.Axis.LANES, (store,), tile))
    first = ir.Launch(tiles.on_grid([parts], (*before, rounds, *after)))
    return with_scratch(kernel, states, (parts.extent, extent)), [first, _merging(both, parts, states)]


def with_scratch(kernel: ir.Kernel, states: Sequence[State], shape: tuple[Dim, ...]) -> ir.Kernel:
    return replace(kernel, buffers=(*kernel.buffers, *(each for state in states for each in state.buffers(shape))))


def _merging(both: Both, parts: ir.Loop, states: Sequence[State]) -> ir.Launch:
    """Merge the states of parts, and run the statements after the sums."""
    last = both.across
    cell = Dim.of(parts.var) * last.extent + Dim.of(last.var)
    folds = zip(both.folds, states, strict=True)
    passes = [tiles.merge_parts(fold, name, s.load(cell), parts, MERGED[1]) for (name, fold), s in folds]
    body = drop_unused((*both.before, *tiles.together(passes), *both.after))
    return ir.Launch(tiles.on_grid([], (tiles.cut(replace(last, body=body), MERGED[0], ir.Axis.THREADS),)))


def _in_two_passes(kernel: ir.Kernel, both: Both) -> tuple[ir.Kernel, list[ir.Launch]]:
    """Folds along rows, with results in scratch; then tiles of columns, written and summed in one pass."""
    (before, lets, after), row = part_folds(both.of_row), Dim.of(both.around.var)
    loops = [s for s in both.of_row if isinstance(s, ir.Loop)]
    late = {s.name: s.value.dtype for s in (*lets, *after) if isinstance(s, ir.Let)}
    used = sorted(cpu_folds.names_in(loops) & late.keys())
    loads = {name: ir.Load(f"{name}.of_row", (row,), late[name]) for name in used}
    lines = (ir.Buffer(load.buffer, load.dtype, (both.around.extent,), ir.Role.SCRATCH) for load in loads.values())
    kernel = replace(kernel, buffers=(*kernel.buffers, *lines))
    stores = tuple(ir.Store((load.buffer,), (row,), (ir.Var(name, load.dtype),)) for name, load in loads.items())
    first = drop_unused((*(s for s in both.of_row if not isinstance(s, ir.Loop)), *stores))
    launches = list[ir.Launch]()
    if any(isinstance(s, ir.Store) for s in first):
        kernel, launches = _statistics(kernel, both.around, first)
    before = tuple(s for s in before if isinstance(s, ir.Let))
    cells = fuse([substitute(loop.body, {loop.var: Dim.of(both.cells.var)}) for loop in loops])
    terms = _column_terms(both, {}, both.states, Dim.of(both.cells.var))
    block = fuse([(*before, *(ir.Let(name, load) for name, load in loads.items()), *cells), *terms])
    few = tiles.all_at_most((both.around.extent,), DEEP)
    if few is not False:
        kernel, last = _cells(kernel, both, block, once=True)
        launches += where(few, last)
    if few is not True:
        kernel, last = _cells(kernel, both, block, once=False)
        launches += where(ir.opposite(few), last)
    return kernel, launches


def _statistics(kernel: ir.Kernel, around: ir.Loop, of_row: Statements) -> tuple[ir.Kernel, list[ir.Launch]]:
    """Folds along rows, and stores of their results. If rows are few and long: states of pieces, then their merge."""
    extent = [fold.loops[0][1] for fold in folds_in(of_row)]
    few: ir.Condition = bool(extent) and are_alike(of_row) and can_share([around], of_row)
    launches = list[ir.Launch]()

    def grid(chunks: Sequence[ir.Loop], body: Statements) -> Statements:
        return tiles.on_grid([around, *chunks], body)

    if few is not False:
        kernel, pieces = tiles.in_chunks(kernel, of_row, [around], PIECE, PIECES, grid)
        launches += where(few, pieces)
    if few is not True:
        kernel = rows(replace(kernel, launches=()), (replace(around, body=of_row),), share=few is False)
        launches += where(ir.opposite(few), kernel.launches)
    return kernel, launches


def _cells(kernel: ir.Kernel, both: Both, block: Statements, *, once: bool) -> tuple[ir.Kernel, list[ir.Launch]]:
    """Tiles of columns over parts of the rows: their stores, and the states of the sums, which are merged; `once`: over
    all rows, so that there is nothing to merge."""
    count, extent, column = both.around.extent, both.across.extent, Dim.of(both.cells.var)
    parts = ir.Loop("#part", tiles.ceiling(count, Dim.of(DEEP)), ir.Axis.THREADS, ())
    begin = tiles.ZERO if once else Dim.of("#part") * DEEP
    moved = substitute(block, {both.around.var: Dim.of(both.around.var) + begin})
    owns = {state.names: k for k, state in enumerate(both.states)}
    values = {owns[s.buffers]: s.values for s in moved if isinstance(s, ir.Store) and s.buffers in owns}
    body = tuple(s for s in moved if not (isinstance(s, ir.Store) and s.buffers in owns))
    loops = ((both.around.var, minimum(Dim.of(DEEP), count - begin)),)
    cells = [tiles.FoldCells(loops, () if k else body, values[k]) for k in range(len(both.folds))]
    folds = zip(cells, both.states, both.folds, strict=True)
    inner = tiles.together([tiles.fold_round(each, state, name, DOWN) for each, state, (name, _) in folds])
    states = [state.beside("of_cells") for state in both.states]
    if once:
        return kernel, [_tiles(both, [], (*inner, *_finish_columns(both)))]
    cell = Dim.of("#part") * extent + column
    pairs = zip(states, both.states, strict=True)
    stores = tuple(one.store(cell, state.load(tiles.ZERO), merge=False) for one, state in pairs)
    first = _tiles(both, [parts], (*inner, *stores))
    return with_scratch(kernel, states, (parts.extent, extent)), [first, _merging(both, parts, states)]


def _finish_columns(both: Both) -> Statements:
    """The statements after the sums of a column, whose states are in memory, over the variables of the cells."""
    pairs = zip(both.folds, both.states, strict=True)
    lets = [ir.Let(name, state.result(tiles.ZERO, fold.dtype)) for (name, fold), state in pairs]
    return substitute((*both.before, *lets, *both.after), {both.across.var: Dim.of(both.cells.var)})


def _tiles(both: Both, around: Sequence[ir.Loop], inner: Statements) -> ir.Launch:
    loop = ir.Loop(both.cells.var, both.across.extent, ir.Axis.SERIAL, drop_unused(inner))
    return ir.Launch(tiles.on_grid(around, (tiles.cut(loop, ACROSS, ir.Axis.THREADS),)))


def join_rows_and_columns(one: ir.Kernel, other: ir.Kernel, results: Collection[str]) -> ir.Kernel | None:
    """Join a kernel that computes rows and one that sums over them as two launches; None if they are no such pair.
    Results of the first that are not among `results`, by their sources, become scratch."""
    if len(one.launches) != 1 or len(other.launches) != 1 or any(b.strides for b in (*one.buffers, *other.buffers)):
        return None
    names = {b.source: b.name for b in one.buffers}
    own_names = {*names.values(), *_values_in(one)}
    calls = {b.name: names.get(b.source) or _fresh(b.name, own_names) for b in other.buffers}
    calls |= {name: _fresh(name, {*own_names, *calls.values()}) for name in _values_in(other)}
    own = [replace(b, name=calls[b.name]) for b in other.buffers if b.source not in names]
    outputs = [b for b in one.buffers if b.role is ir.Role.OUTPUT]
    buffers = [
        *(b for b in (*one.buffers, *own) if b.role is ir.Role.INPUT),
        *(b for b in outputs if b.source in results),
        *(b for b in own if b.role is ir.Role.OUTPUT),
        *(replace(b, role=ir.Role.SCRATCH) for b in outputs if b.source not in results),
    ]
    body = _under(other.launches[0].body, calls)
    if both_in(one.launches[0].body, body) is None:
        return None
    binding = plan([b.shape for b in buffers if b.role is ir.Role.INPUT])
    guards = tuple(dict.fromkeys((*one.guards, *other.guards)))
    launches = (*one.launches, ir.Launch(body))
    return replace(one, buffers=tuple(buffers), binding=binding, launches=launches, guards=guards)


def _values_in(kernel: ir.Kernel) -> list[str]:
    statements = [s for launch in kernel.launches for s in every_statement(launch.body)]
    return [s.name for s in statements if isinstance(s, ir.Let) and not s.name.startswith("#")]


def _fresh(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name = f"{name}_b"
    return name


def _under(statements: Statements, names: Mapping[str, str]) -> Statements:
    """Statements with their values and buffers renamed."""

    def in_expression(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Var(name, dtype):
                return ir.Var(names.get(name, name), dtype)
            case ir.Load(buffer):
                return replace(expr, buffer=names.get(buffer, buffer))
            case _:
                return expr

    def in_statement(statement: ir.Statement) -> ir.Statement:
        match statement:
            case ir.Let(name):
                return replace(statement, name=names.get(name, name))
            case ir.Store(buffers):
                return replace(statement, buffers=tuple(names.get(b, b) for b in buffers))
            case _:
                return statement

    return rewrite_all(statements, in_statement, in_expression)
