"""Rows on a GPU: folds along a row, and the computations that follow from them.

Short rows side by side in one tile; a row of up to KEPT cells in one tile, which is read once; a longer one in tiles,
again for each pass. If rows are few, several programs share each: a launch leaves the states of pieces in scratch, and
the next one merges them. If rows begin at any cell, tiles begin where 16 bytes can be moved at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from noyau.compiler.schedules.cpu.folds import State, are_alike, are_apart, expand_folds, fuse, levels, state_of
from noyau.compiler.schedules.gpu import tiles
from noyau.compiler.schedules.gpu.tiles import GROUP, TILE, Pair, of_tile, online, pairs_in, results
from noyau.compiler.schedules.primitives import Statements, as_one, chain, compare, drop_unused, is_costly, variables_of
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, maximum, product
from noyau.ir.walk import all_dims, every_statement, fold_of, folds_in, is_fold, loads_of, substitute

LINE = 16  # bytes that a thread moves at once


def lead_of(kernel: ir.Kernel, loops: Sequence[ir.Loop], inner: Sequence[ir.Statement]) -> tiles.Lead:
    """The lead of a row's tiles, for the row's statements and the loops around: before the row that has most of its
    bytes; NO_LEAD where all such rows begin at multiples of 16 bytes, or each in the middle of another."""
    buffers, around = {buffer.name: buffer for buffer in kernel.buffers}, {loop.var for loop in loops}
    rows: dict[Dim, dict[str, int]] = {}
    for buffer, base in _rows(buffers, inner):
        is_around = {name for name in base.names if name.startswith("#")} <= around
        if is_around and base.replace(dict.fromkeys(base.names, 0)) == tiles.ZERO:
            rows.setdefault(base, {})[buffer.name] = buffer.dtype.bytes
    if not rows:
        return tiles.NO_LEAD
    base = max(rows, key=lambda row: (sum(rows[row].values()), len(row.terms)))
    cells = LINE // min(rows[base].values())
    steps, tile = strides_in(base, cells), ir.Tile("ALIGN", ir.TilePolicy.ALIGNMENT, cells)
    odd = tuple(step % cells for step in steps)
    let = ir.Let("#lead", ir.Index(base % tile.size, alignment=tile))
    return tiles.Lead(let, tile.size - 1, odd, base) if steps else tiles.NO_LEAD


def strides_in(base: Dim, cells: int) -> list[Dim]:
    """The strides between rows that may be no multiple of `cells`."""
    steps = [Dim(((tuple(a for a in atoms if not _moves(a)), factor),)) for atoms, factor in base.terms]
    return list(dict.fromkeys(step for step in steps if step % cells != tiles.ZERO))


def _moves(atom: object) -> bool:
    """Whether a factor of an offset depends on an index."""
    return any(name.startswith("#") for name in Dim((((atom,), 1),)).names)  # type: ignore[arg-type]


def _rows(buffers: dict[str, ir.Buffer], inner: Sequence[ir.Statement]) -> Iterator[tuple[ir.Buffer, Dim]]:
    """The starts of the rows along which loops and folds run contiguously."""
    passes = [(s.var, s.body) for s in every_statement(inner) if isinstance(s, ir.Loop)]
    for variable, body in (*passes, *((fold.loops[-1][0], fold.body) for fold in folds_in(inner))):
        places = [(load.buffer, load.index) for load in loads_of(body)]
        places += [(n, s.index) for s in every_statement(body) if isinstance(s, ir.Store) for n in s.buffers]
        for name, index in (place for place in places if place[0] in buffers):
            offset = tiles.offset_of(buffers[name], index)
            base = offset.replace({variable: 0})
            if offset - base == Dim.of(variable) and base.constant is None:
                yield buffers[name], base


KEPT = 16384  # the most cells of a row that a program holds
MOST = 1 << 16  # cells of a tile, including its lead
READ = 8192  # as KEPT, for rows that are not written, and need one pass of tiles
ROW = ir.Tile("COLUMNS", ir.TilePolicy.COVERING, MOST)
SIDE = ir.Tile("ROWS", ir.TilePolicy.SHARING, 1024)  # with folds
# With one fold, or a costly computation, or several arrays, and cells that are written.
HARD = ir.Tile("ROWS", ir.TilePolicy.SHARING, 1024, warp_factor=2)
PIECES = ir.Tile("ROWS", ir.TilePolicy.SHARING, 512, warp_factor=4)  # without folds
IN_A_ROW = ir.Tile("ROWS", ir.TilePolicy.SHARING, 1024, warp_factor=4)  # the same for two loops as one that share cells
RUN = ir.Tile("CELLS", ir.TilePolicy.FIXED, 512, 2)  # the same for the cells of all rows, whose lengths fill no tile
OUTER = ir.Tile("OUTER", ir.TilePolicy.COVERING, 2)  # rounds of the loop around rows without folds that share cells
LONG = ir.Tile("BLOCK", ir.TilePolicy.GROWING, 16384, 512, 4)  # so many warps that few rows are in flight
# For rows that hold their last tile: as many cells as fit the registers.
HELD = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 1 << 15, 32)
FEWEST = 3 << 14  # cells of such a row: holding a shorter one keeps other rows from being in flight
NEAR = 1 << 16  # cells of a row that stays in the nearest caches, if all its tiles are full
# For several arrays: as many cells and warps as for a row two thirds as long.
SEVERAL = ir.Tile("BLOCK", ir.TilePolicy.GROWING, 32768, 256, 4)
ONCE = ir.Tile("BLOCK", ir.TilePolicy.FIXED, 4096, 8)  # for one pass, with later rounds loaded ahead
PIECE = ir.Tile("BLOCK", ir.TilePolicy.LIMITED, 2048, warp_factor=2)  # of a row without folds, one for each program


Beside = Sequence[tuple[ir.Condition, ir.Tile]]


def rows(kernel: ir.Kernel, body: Statements, *, share: bool = True, beside: Beside = ()) -> ir.Kernel:
    """Rows that fit into a tile; long ones, if few, shared by several programs (`share`); other rows, in tiles one
    after the other; each chosen by the sizes of the call. `beside`: tiles of rows side by side, with conditions."""
    loops, inner = chain(body)
    tile, in_common = _beside(inner), _have_in_common(loops, inner)
    if in_common and (row := _in_a_row(loops, inner)):
        (loops, inner), tile, in_common = row, IN_A_ROW, False
    lead, passed = lead_of(kernel, loops, inner), online(inner)
    choices = tiles.Choices()
    if share and (few := can_share(loops, inner)) is not False:
        kernel, bodies = share_rows(kernel, loops, inner, lead)
        choices.add(few, lambda: bodies)
    is_read = passed != inner and not any(isinstance(s, ir.Loop) for s in inner)  # and not written, in one pass
    extents = list(dict.fromkeys(tiles.extents_of_tiles(inner)))
    in_pieces = not folds_in(inner) and tiles.in_one_tile(inner) and len(extents) == 1
    most = READ if is_read else PIECES.number if in_pieces else KEPT
    fits = tiles.in_one_tile(inner) and tiles.all_at_most(extents, most)
    if in_common:
        choices.add(ir.all_of((fits, lead.is_idle)), lambda: [_two_around(loops, store_last(inner))])
    if tile is IN_A_ROW and len(pieces := store_last(inner)) == 1 and isinstance(cells := pieces[0], ir.Loop):
        is_power = compare("equal", Dim.of(KEPT) % maximum(1, cells.extent), tiles.ZERO)
        choices.add(ir.all_of((fits, lead.is_idle, ir.opposite(is_power))), lambda: [_in_one_run(loops, cells)])

    def side(tile: ir.Tile) -> list[Statements]:
        row = replace(loops[-1], body=(*lead.lets, *whole(inner if folds_in(inner) else store_last(inner), lead)))
        return [tiles.on_grid(loops[:-1], (tiles.cut(row, tile, ir.Axis.THREADS),))]

    def alone() -> Statements:
        if in_pieces:
            return share_rows(kernel, loops, store_last(inner), lead, PIECE)[1][0]
        row = stream(online(inner, lead.cells, _group(kernel, inner)), _tile(inner, passed), lead)
        return tiles.on_grid(loops, (*lead.lets, *row))

    for case, own in (*beside, (True, tile)):
        choices.add(ir.all_of((fits, case)), partial(side, own))
    held = ir.all_of((_can_hold(inner, passed), lead.is_idle))
    choices.add(held, lambda: [tiles.on_grid(loops, stream(inner, HELD, held=True))])
    choices.add(True, lambda: [alone()])
    return replace(kernel, launches=tuple(choices.launches))


def _tile(inner: Statements, passed: Statements) -> ir.Tile:
    """The tile of a row that is read in several tiles."""
    if passed != inner:
        return TILE if any(pair.mean for pair in pairs_in(inner)) else LONG
    once = not any(isinstance(s, ir.Loop) for s in inner) and bool(folds_in(inner)) and are_alike(inner)
    return ONCE if once else SEVERAL if len(_row_arrays(inner)) > 1 else LONG


def _can_hold(inner: Statements, passed: Statements) -> ir.Condition:
    """The condition that rows are read in tiles of which a program holds the last one from pass to pass: long rows of
    one array, each loop of which has cells, that do not stay in the nearest caches."""
    extents = set(tiles.extents_of_tiles(inner))
    narrow = all(fold.value.dtype.bytes <= DType.F32.bytes for fold in folds_in(inner))
    if (
        passed != inner
        or _tile(inner, passed) != LONG
        or not (_row_arrays(inner) and narrow and tiles.in_one_tile(inner))
    ):
        return False
    cells, *others = extents
    if others or any(name.startswith("#") for name in cells.names):
        return False
    near = ir.all_of((ir.at_most(cells, Dim.of(NEAR)), ir.at_most(cells % LONG.number, tiles.ZERO)))
    return ir.all_of((ir.opposite(tiles.all_at_most(extents, FEWEST - 1)), ir.opposite(near)))


def _group(kernel: ir.Kernel, inner: Statements) -> ir.Tile:
    """As many cells of the arrays that folds read as a thread moves at once."""
    buffers = {buffer.name: buffer.dtype.bytes for buffer in kernel.buffers}
    read = [buffers[load.buffer] for fold in folds_in(inner) for load in loads_of(fold.body) if load.buffer in buffers]
    return replace(GROUP, number=LINE // max([LINE // GROUP.number, *read]))


def _row_arrays(inner: Statements) -> set[str]:
    """The arrays that folds read a row of, without those that all rows share."""
    pairs = [(load, dict(fold.loops)) for fold in folds_in(inner) for load in loads_of(fold.body)]
    return {load.buffer for load, own in pairs if variables_of(load) - own.keys()}


def _beside(inner: Statements) -> ir.Tile:
    """The tile of rows side by side."""
    if not (folds := folds_in(inner)):
        return PIECES
    hard = len(folds) == 1 or len(_row_arrays(inner)) > 1 or any(is_costly(fold.body) for fold in folds)
    return HARD if hard and any(isinstance(s, ir.Loop) for s in inner) else SIDE


def _two_around(loops: Sequence[ir.Loop], inner: Statements) -> Statements:
    """Rows side by side in a tile, for two rounds of the loop around them: cells that both read are loaded once."""
    outer = tiles.cut(replace(loops[-2], body=()), OUTER, ir.Axis.THREADS)
    tile = replace(_beside(inner), number=_beside(inner).number * OUTER.number)
    side = tiles.cut(replace(loops[-1], body=whole(inner)), tile, ir.Axis.THREADS)
    (around,) = outer.body
    assert isinstance(around, ir.Loop)
    cells = (replace(around, body=(*around.body, *side.body)),)
    return tiles.on_grid([*loops[:-2], replace(outer, body=()), replace(side, body=())], cells)


def store_last(inner: Statements) -> Statements:
    """Merge neighbouring loops of one extent, such as those over the halves of a row, into one that stores at its end:
    loads wait for earlier stores, which might alias them."""
    result = list[ir.Statement]()
    for statement in inner:
        last = result[-1] if result else None
        if isinstance(last, ir.Loop) and isinstance(statement, ir.Loop) and last.extent == statement.extent:
            body = fuse([last.body, substitute(statement.body, {statement.var: Dim.of(last.var)})])
            lets, stores = [s for s in body if isinstance(s, ir.Let)], [s for s in body if isinstance(s, ir.Store)]
            stored = {name for store in stores for name in store.buffers}
            if len(lets) + len(stores) == len(body) and not stored & {load.buffer for load in loads_of(body)}:
                result[-1] = replace(last, body=(*lets, *stores))
                continue
        result.append(statement)
    return tuple(result)


def _have_in_common(loops: Sequence[ir.Loop], inner: Statements) -> bool:
    """Whether rows without folds read cells that other rounds of the loop around them read too."""
    if len(loops) < 2 or folds_in(inner):
        return False
    read = [{loop.var for loop in loops[-2:]} & {n for d in load.index for n in d.names} for load in loads_of(inner)]
    return {loops[-1].var} in read and any(loops[-2].var in names for names in read)


def _in_a_row(loops: Sequence[ir.Loop], inner: Statements) -> tuple[list[ir.Loop], Statements] | None:
    """Merge the two innermost loops, where their cells are numbered row after row: a program then knows its own cells
    at once, and divides for the shared ones while it waits for its loads."""
    *around, one, other = loops
    row, count = Dim.of(other.var), other.extent
    both = substitute(inner, {one.var: row // count, other.var: row % count})
    atoms = [atom for dim in all_dims(both) for atoms, _ in dim.terms for atom in atoms]
    split = any(isinstance(atom, DimOp) and atom.kind == "floordiv" for atom in atoms)
    return None if split else ([*around, replace(other, extent=one.extent * count)], both)


def _in_one_run(loops: Sequence[ir.Loop], cells: ir.Loop) -> Statements:
    """Rows without folds as one run of cells: a tile that covers a row has cells that do nothing."""
    (run,), body = as_one([loops[-1], cells], cells.body)
    return tiles.on_grid(loops[:-1], (tiles.cut(replace(run, body=body), RUN, ir.Axis.THREADS),))


FEW = ir.Tile("ROWS", ir.TilePolicy.FIXED, 32)


def side_by_side(body: Statements) -> ir.Launch:
    """Rows side by side, each cell after the other: for rows that carry a state."""
    loops, inner = chain(body)
    cells = expand_folds(inner, 1, wide=False)
    return ir.Launch(tiles.on_grid(loops[:-1], (tiles.cut(replace(loops[-1], body=cells), FEW, ir.Axis.THREADS),)))


def whole(inner: Statements, lead: tiles.Lead = tiles.NO_LEAD, tile: ir.Tile = ROW) -> Statements:
    """The statements of a row with each loop, and each fold, as one tile."""
    row = list[ir.Statement]()
    for statement in inner:
        match statement:
            case ir.Loop() if lead.let is not None:
                row.append(tiles.cells_of(statement, tiles.ZERO, tile, lead.cells))
            case ir.Loop():
                row.append(replace(statement, axis=ir.Axis.LANES, tile=tile))
            case ir.Let(name, ir.Fold() as fold, origin) if lead.let is not None:
                taken, state = tiles.fold_cells(fold, name, tile, lead=lead.cells, start=tiles.ZERO)
                row += [*taken.statements, ir.Let(name, state.result(tiles.ZERO, fold.dtype), origin)]
            case ir.Let(value=ir.Fold() as fold):
                row.append(replace(statement, value=replace(fold, tile=tile)))
            case _:
                row.append(statement)
    return tuple(row)


def stream(inner: Statements, tile: ir.Tile, lead: tiles.Lead = tiles.NO_LEAD, *, held: bool = False) -> Statements:
    """The statements of a row with each innermost loop, and each fold, in tiles one after the other: every second pass
    runs backwards from the end of the one before, for that part of the row is cached; `held`, without a lead: the last
    tile stays in registers."""
    row, turned = list[ir.Statement](), False
    waiting = list(inner if any(isinstance(s, ir.Alloc) for s in inner) else levels(inner))
    while waiting:
        statement = waiting.pop(0)
        match statement:
            case ir.Loop() if statement.tile is not None:
                row.append(statement)
            case ir.Loop() if tiles.is_innermost(statement):
                passed = tiles.cut(statement, tile, ir.Axis.SERIAL, lead, turned=turned)
                row += tiles.peel(passed, statement.extent, tile) if held else [passed]
                turned = not turned
            case ir.Loop() | ir.If():
                row.append(replace(statement, body=stream(statement.body, tile, lead, held=held)))
                turned = not turned
            case ir.Let(value=ir.Fold() as fold) if fold.tile is None:
                beside = [statement]
                while waiting and (let := _beside_fold(waiting[0], fold)) and are_apart(beside, let):
                    beside.append(let)
                    waiting.pop(0)
                row += _one_pass(beside, tile, lead, turned=turned, held=held)
                turned = not turned
            case _:
                row.append(statement)
    return tuple(row)


def _beside_fold(statement: ir.Statement, fold: ir.Fold) -> ir.Let | None:
    """The statement, if it is a fold over the same row; else None."""
    extents = [extent for _, extent in fold.loops]
    is_beside = is_fold(statement) and len(extents) == 1 and [n for _, n in fold_of(statement).loops] == extents
    return statement if is_beside and isinstance(statement, ir.Let) else None


def _one_pass(lets: Sequence[ir.Let], tile: ir.Tile, lead: tiles.Lead, *, turned: bool, held: bool) -> Statements:
    """Folds over a row in one pass."""
    passes, results = list[tiles.FoldPass](), list[ir.Statement]()
    for let in lets:
        fold = tiles.rename_loops(fold_of(let), fold_of(lets[0])) if len(lets) > 1 else fold_of(let)
        one, state = tiles.fold_cells(fold, let.name, tile, lead=lead.cells, turned=turned)
        passes.append(one)
        results.append(ir.Let(let.name, state.result(tiles.ZERO, fold.dtype), let.origin))
    if held and len(passes) == 1 and isinstance(one.passed, ir.Loop):
        return (*one.before, *tiles.peel(one.passed, fold.loops[0][1], tile), *one.after, *results)
    return (*tiles.together(passes), *results)


SHARE = ir.Tile("SHARE", ir.TilePolicy.OCCUPYING, 8192, warp_factor=2)
MOST_PIECES = 64  # the most pieces of a row
MERGED = ir.Tile("PIECES", ir.TilePolicy.COVERING, 1 << 16)
SHARED_ROWS = 128  # rows; a program for each would leave most of a GPU idle
SHORT = 8192  # cells of a row that takes one program less time than a launch


def can_share(loops: Sequence[ir.Loop], inner: Statements) -> ir.Condition:
    """The condition that programs share rows: they are long and few. False or True if the sizes are constant."""
    extents = list(dict.fromkeys(tiles.extents_of_tiles(inner)))
    if len(extents) != 1 or not tiles.in_one_tile(inner) or not any(map(is_fold, inner)):
        return False
    few = tiles.all_at_most((product(loop.extent for loop in loops),), SHARED_ROWS)
    fits, short = tiles.all_at_most(extents, SHARE.number * MOST_PIECES), tiles.all_at_most(extents, SHORT)
    return ir.all_of((few, fits, ir.opposite(short)))


def share_rows(
    kernel: ir.Kernel, loops: Sequence[ir.Loop], inner: Statements, lead: tiles.Lead, tile: ir.Tile = SHARE
) -> tuple[ir.Kernel, list[Statements]]:
    """The kernel with scratch for the states of pieces, and the rows in pieces: a launch for each level of dependent
    folds, and one for the statements after all of them; rows without folds in pieces of any tile."""
    extent, piece = next(tiles.extents_of_tiles(inner)), Dim.of("#piece")
    pieces = ir.Loop("#piece", tiles.ceiling(extent + lead.most, tile.size), ir.Axis.THREADS, ())
    pairs = {pair.first.name: pair for pair in pairs_in(inner)}
    seconds = {pair.second.name for pair in pairs.values()}
    written = any(isinstance(s, ir.Loop) for s in inner)
    row, launches, scratch = list[ir.Statement](lead.lets), list[Statements](), list[ir.Buffer]()
    level = _Level()
    for statement in (s for s in levels(inner) if not (isinstance(s, ir.Let) and s.name in seconds)):
        if level.beside and not (is_fold(statement) and are_apart(level.beside, statement)):
            launches.append(tiles.on_grid([*loops, pieces], drop_unused((*row, *level.folded))))
            row += level.merged
            level = _Level()
        match statement:
            case ir.Loop():
                row.append(tiles.cells_of(statement, piece * tile.size, tile, lead.cells))
            case ir.Let(name, ir.Fold()):
                pair = pairs.get(name)
                level.beside += [statement] if pair is None else [pair.first, pair.second]
                folded, (store, *merge), buffers = _piece_of(statement, pair, [*loops, pieces], lead)
                level.folded += [*folded, store]
                level.merged += merge
                scratch += buffers
            case ir.Store() if written:
                row.append(ir.If(compare("equal", piece, tiles.ZERO), (statement,)))
            case _:
                row.append(statement)
    launches.append(tiles.on_grid([*loops, pieces] if written else loops, drop_unused(tuple(row))))
    return replace(kernel, buffers=(*kernel.buffers, *scratch)), launches


@dataclass(slots=True)
class _Level:
    """Folds that do not depend on each other: statements that store the states of their pieces, and that merge them."""

    beside: list[ir.Statement] = field(default_factory=list)
    folded: list[ir.Statement] = field(default_factory=list)
    merged: list[ir.Statement] = field(default_factory=list)


def _piece_of(
    let: ir.Let, pair: Pair | None, axes: Sequence[ir.Loop], lead: tiles.Lead
) -> tuple[Statements, Statements, list[ir.Buffer]]:
    """A fold, or a pair, over a piece; the Store of its state and the merge of all pieces' states; their scratch."""
    start = Dim.of(axes[-1].var) * SHARE.size
    if pair is not None:
        tile, state, parts = of_tile(pair, SHARE, start, lead.cells)
        merge, buffers = _merge_pieces(state, state, parts, axes)
        return tile, (*merge, *results(pair, state)), buffers
    taken, state = tiles.fold_cells(fold_of(let), f"{let.name}.own", SHARE, lead=lead.cells, start=start)
    total = state_of(fold_of(let), let.name, wide=True)
    merge, buffers = _merge_pieces(state, total, state.load(tiles.ZERO), axes)
    return taken.statements, (*merge, ir.Let(let.name, total.result(tiles.ZERO, let.value.dtype), let.origin)), buffers


def _merge_pieces(
    own: State, total: State, parts: tuple[ir.Expr, ...], axes: Sequence[ir.Loop]
) -> tuple[Statements, list[ir.Buffer]]:
    """The Store of a piece's state in scratch; the merge of the states of all pieces of the row."""
    *around, pieces = axes
    shape, other = tuple(axis.extent for axis in (pieces, *around)), f"#piece_{total.names[0]}"
    scratch = replace(total.beside("of_piece"), dtypes=own.dtypes)
    row = sum((Dim.of(axis.var) * product(shape[at + 2 :]) for at, axis in enumerate(around)), tiles.ZERO)
    casts = total.cast(scratch.load(Dim.of(other) * product(shape[1:]) + row))
    cells = tiles.FoldCells(((other, pieces.extent),), (), casts, start=tiles.ZERO)
    store = scratch.store(Dim.of(pieces.var) * product(shape[1:]) + row, parts, merge=False)
    return (store, *tiles.fold_round(cells, total, total.names[0], MERGED).statements), list(scratch.buffers(shape))
