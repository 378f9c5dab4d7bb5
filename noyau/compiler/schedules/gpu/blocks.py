"""The schedules for languages whose programs are threads: a launch is a grid of blocks of threads, or of threads.

A loop on THREADS is a grid of blocks, one on LANES the threads of a block. Memory with as many cells as a block has
threads is a cell of each thread; statements outside of lanes run in every thread of the block. For teaching texts
(`in_threads`) there is one plain strategy for each kind of launch, and a grid without lanes is a grid of threads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.blocked_folds import in_two, rows_before
from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.cpu.scatters import merges
from noyau.compiler.schedules.cpu.strategies import columns
from noyau.compiler.schedules.cpu.strategy_choice import is_columns
from noyau.compiler.schedules.cpu.transposes import reads_along
from noyau.compiler.schedules.gpu.block_rows import BLOCK, LENGTH, WARP, KeptRow, RowSchedule, Share, SummedRow
from noyau.compiler.schedules.gpu.rows_and_columns import Both, both_in, with_scratch
from noyau.compiler.schedules.gpu.scatters import NUMBER, Way, in_lanes, scatter, updates_of, ways_of
from noyau.compiler.schedules.gpu.strategies import is_loose
from noyau.compiler.schedules.gpu.vectors import ONE, ZERO, Place, Steps, is_straight
from noyau.compiler.schedules.primitives import Statements, compare, minimum
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, maximum, product, strides_of
from noyau.ir.monoids import MONOIDS

SHORT = 1024  # the most cells of a row for one warp
FEW = 64  # the most values of a fold for one thread
TILE = 2 * BLOCK  # vectors of a map that one block computes: a thread loads several before it waits for one
# The shares of rows that are read several times: the first with room for a row is used.
KEPT = (Share(1, WARP, 64), Share(1, 256, 64), Share(2, 256, 128), Share(4, 256, 128), Share(8, 256, 128))
# The shares of rows whose columns are summed.
SUMMED = Share(4, 128, 128), Share(8, 128, 128)
CHUNK = 1 << 15  # values of a whole array for one block
ROWS = 256  # rows of a column for one thread
SIDE = 32  # cells along a side of a tile that is transposed
WIDE = 128  # cells of an innermost loop that are worth blocks of their own


def in_blocks(kernel: ir.Kernel, way: Way | None = None) -> ir.Kernel:
    """Schedule a kernel on grids of blocks of threads, each launch by the strategy that fits it; `way`: of scatters, as
    in `ways_of`. UnsupportedError where a launch carries a state, or scatters a fold."""
    return BlockSchedule(BLOCK, way).schedule(kernel)


def in_threads(kernel: ir.Kernel, way: Way = Way.ATOMIC) -> ir.Kernel:
    """Schedule a kernel on grids of threads and of blocks; `way`: of scatters, which has to be the default.

    UnsupportedError where a launch scatters with other merges than sums, or carries a state."""
    return ThreadSchedule(BLOCK, way).schedule(kernel)


class BlockSchedule:
    """The schedule of a kernel for blocks of so many threads; `row`: the schedule of a row that a block shares;
    `chunk`: the name of a loop over the states of chunks."""

    row: ClassVar[type[RowSchedule]] = RowSchedule
    chunk: ClassVar[str] = "#block"

    def __init__(self, threads: int, way: Way | None = None) -> None:
        self.share, self.way = Share(1, threads), way

    def schedule(self, kernel: ir.Kernel) -> ir.Kernel:
        flat = primitives.flatten(kernel)
        if len(flat.launches) == 2 and merges(flat.launches[1].body):
            return self.scatter(flat)
        bodies = [launch.body for launch in flat.launches]
        both = both_in(*bodies) if len(bodies) == 2 and self.row is RowSchedule else None
        return primitives.each(flat, bodies, self.one) if both is None else self.rows_and_columns(flat, both)

    def rows_and_columns(self, kernel: ir.Kernel, both: Both) -> ir.Kernel:
        """Schedule rows, and folds of columns over them: long ones in one launch, of clusters, and a merge."""
        others = primitives.each(kernel, [launch.body for launch in kernel.launches], self.one)
        across, launches = both.across, list[ir.Launch]()
        left: ir.Condition = True
        rows = [row for share in SUMMED if (row := SummedRow(kernel, both, share)).fits() is not False]
        for row in rows:
            launches += primitives.where(ir.all_of((left, row.fits())), (row.launch(None), row.merge()))
            left = ir.all_of((left, ir.opposite(row.fits())))
        if rows:
            others = with_scratch(others, rows[0].of_parts, (rows[0].parts.extent, across.extent))
        return replace(others, launches=(*launches, *primitives.where(left, others.launches)))

    def scatter(self, kernel: ir.Kernel) -> ir.Kernel:
        """Schedule a kernel that copies and merges."""
        return scatter(kernel, self.one, self.nest, self.way)

    def one(self, kernel: ir.Kernel) -> ir.Kernel:
        """Schedule a kernel of one launch."""
        body = primitives.coalesce(kernel.launches[0].body)
        loops, inner = primitives.chain(primitives.sink(body))
        if (running := running_result(inner)) is not None:
            return scan(kernel, loops, running, self.row)
        ordered = any(map(folds.is_ordered, walk.folds_in(body)))
        carries = ordered or any(isinstance(s, ir.Loop) and primitives.carries(s) for s in walk.every_statement(body))
        if carries or merges(body):
            lacks = "scatters" if merges(body) else "carries a state along an axis"
            raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU {lacks} yet")
        if folds.lets_of_folds(body) and not all(primitives.is_small(s, FEW) for s in body):
            return self.full(kernel) if (first := rows_before(kernel)) is None else primitives.each(*first, self.one)
        if len(apart := primitives.apart(body)) > 1:
            return primitives.each(kernel, apart, self.one)
        body = primitives.sink(primitives.coalesce(body))
        loops, inner = primitives.chain(body)
        pieces = [primitives.nest(loops, piece) for piece in primitives.apart(inner)]
        if len(pieces) > 1 and all(map(is_columns, pieces)):
            return primitives.each(kernel, pieces, self.one)
        return self.nest(kernel, body)

    def nest(self, kernel: ir.Kernel, body: Statements) -> ir.Kernel:
        """Schedule a chain of loops."""
        if is_columns(body):
            return columns(replace(kernel, launches=(ir.Launch(body),)), width=BLOCK)
        body = _side_by_side(body)
        is_cells = all(primitives.is_small(s, FEW) for s in primitives.chain(body)[1])
        launches = (_cells if is_cells else _rows)(kernel, body)
        if (turned := _transpose_in_shared_memory(kernel, body)) is not None:
            launches = (turned, *primitives.where(ir.opposite(turned.when or True), launches))
        return replace(kernel, launches=launches)

    def full(self, kernel: ir.Kernel) -> ir.Kernel:
        """Schedule the first fold at the root in two launches, over chunks and then over their states; statements that
        are more than a few scalars find the result in scratch."""
        kernel = primitives.with_bodies(kernel, primitives.coalesce)
        body = kernel.launches[0].body
        let = folds.first_fold(body)
        kernel, before, after, rest = primitives.around_fold(kernel, body, let)
        variable, again, zero = f"#block_of_{let.name}", self.chunk, Dim.of(0)
        count, length, fold = folds.in_blocks(walk.fold_of(let), CHUNK, variable)
        state = folds.state_of(fold, let.name, wide=True)
        saved, memory = state.beside("of_block"), state.memory(self.share.threads)
        block = self.row(kernel, [], (), self.share)
        own = (*memory, *block.states([(fold, let.name)], [state]))
        one = (*before, *length, *own, saved.store(Dim.of(variable), state.load(zero), merge=False))
        taken = Steps((state.store(Dim.of(f"#lane_{let.name}"), saved.load(Dim.of(again)), merge=True),))
        merged = (*memory, *block.merge_rounds(((again, count),), taken, [state], let.name, ()))
        two = (*block.block(before), *merged, ir.Let(let.name, state.result(zero, fold.dtype), let.origin))
        grid = ir.Loop(variable, count, ir.Axis.THREADS, primitives.drop_unused(one))
        bodies = ((grid,), primitives.drop_unused((*two, *block.block(after))))
        launches = tuple(ir.Launch(each, threads=self.share.threads) for each in bodies)
        done = replace(kernel, buffers=(*kernel.buffers, *saved.buffers((count,))), launches=launches)
        later = primitives.each(done, [rest] if rest else [], self.one)
        return replace(later, launches=(*done.launches, *later.launches))


class PlainRow(RowSchedule):
    """The schedule of a row whose threads access cells one by one; a sum of float32 is accumulated in float64."""

    is_wide = True

    def places(self, variable: str, body: Statements) -> list[Place]:
        return []


class ThreadSchedule(BlockSchedule):
    """The schedule of a kernel for threads, and for blocks of so many threads."""

    row = PlainRow
    chunk = "#chunks"

    def scatter(self, kernel: ir.Kernel) -> ir.Kernel:
        """Schedule a kernel that copies and adds, with an atomic for each update."""
        copy, merge = kernel.launches
        updates = updates_of(kernel, merge.body)
        if updates.store.merge != "sum" or Way.ATOMIC not in ways_of(updates, self.way):
            raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU scatters but sums, as they come")
        loops = [ir.Loop(NUMBER, updates.count, ir.Axis.SERIAL, ())]
        loops += [ir.Loop(updates.column, updates.width, ir.Axis.SERIAL, ())] if updates.column else []
        merged = (*updates.lets, *updates.steps, replace(updates.store, is_atomic=True))
        copied = self.one(replace(kernel, launches=(copy,))).launches
        return replace(kernel, launches=(*copied, ir.Launch(primitives.bind_all(primitives.nest(loops, merged)))))

    def nest(self, kernel: ir.Kernel, body: Statements) -> ir.Kernel:
        loops, inner = primitives.chain(body)
        if all(primitives.is_small(s, FEW) for s in inner):
            return replace(kernel, launches=(ir.Launch(primitives.bind_all(folds.expand_folds(body, 1))),))
        if is_columns(body):
            two = in_two(inner, loops, ROWS, 1, every=True)
            nests = ([*loops[:-1], two.block, loops[-1]], two.first), (loops, two.second)
            launches = tuple(ir.Launch(primitives.bind_all(primitives.nest(*nest))) for nest in nests)
            return replace(kernel, buffers=(*kernel.buffers, *two.scratch), launches=launches)
        return replace(kernel, launches=(PlainRow(kernel, loops, inner, self.share).launch(None),))


def _rows(kernel: ir.Kernel, body: Statements) -> tuple[ir.Launch, ...]:
    """Rows on the grid: a warp for a short row, a block or a cluster for a long one, kept on chip if it fits."""
    loops, inner = primitives.chain(body)
    extents = [s.extent for s in walk.every_statement(inner) if isinstance(s, ir.Loop)]
    extents += [fold.loops[-1][1] for fold in walk.folds_in(inner)]
    is_short = ir.all_of(ir.at_most(extent, Dim.of(SHORT)) for extent in extents if not _is_inner(extent))
    kept = [KeptRow(kernel, loops, inner, share) for share in KEPT]
    ways: list[tuple[RowSchedule, ir.Condition]] = [(way, way.fits()) for way in kept]
    has_warps = not any(can for _, can in ways)
    ways += [(RowSchedule(kernel, loops, inner, Share(1, WARP)), is_short if has_warps else False)]
    ways += [(RowSchedule(kernel, loops, inner, Share(1, BLOCK)), True)]
    launches, others = list[ir.Launch](), list[ir.Condition]()
    for way, can in ways:
        case = ir.all_of((can, *others))
        launches += [] if case is False else [way.launch(ir.when(case))]
        others.append(ir.opposite(can))
    return tuple(launches)


def _side_by_side(body: Statements) -> Statements:
    """Merge short loops of one extent, the pieces of a row, into one loop: neighbouring threads then have neighbouring
    cells, instead of a row each. The statements unchanged where the row has others."""
    loops, pieces = primitives.chain(body)
    short = [s for s in pieces if isinstance(s, ir.Loop) and primitives.is_small(s, FEW) and is_straight(s.body)]
    are_alike = len(pieces) == len(short) > 1 == len({s.extent for s in short})
    if not are_alike or {load.buffer for load in walk.loads_of(pieces)} & walk.targets_of(pieces):
        return body
    cells = folds.fuse([walk.substitute(s.body, {s.var: Dim.of(short[0].var)}) for s in short])
    return primitives.nest([*loops, short[0]], cells)


def _is_inner(extent: Dim) -> bool:
    """Whether an extent is known only within another loop."""
    return any(name.startswith("#") for name in extent.names)


def _cells(kernel: ir.Kernel, body: Statements) -> tuple[ir.Launch, ...]:
    """A cell for each thread: blocks along the innermost loop, or the last two, if that is long, else along all."""
    loops = list[ir.Loop]()
    while len(body) == 1 and isinstance(loop := body[0], ir.Loop) and not _is_inner(loop.extent):
        loops.append(loop)
        body = loop.body
    body = folds.expand_folds(body, 1)
    hints = ir.Hints(is_loose=is_loose(kernel, ir.Launch(body)), is_narrow=True)
    if len(loops) > 2 and (count := loops[-1].extent.constant) is not None and count <= WIDE:
        (along,), body = primitives.as_one(loops[-2:], body)  # the thread then divides by a constant alone
        loops[-2:] = [along]
    if len(loops) < 2:
        return (ir.Launch(_tile(kernel, loops, body), hints=hints, threads=BLOCK),)
    is_narrow = ir.at_most(loops[-1].extent, Dim.of(WIDE))
    bodies = _tile(kernel, loops, body), _tile(kernel, *primitives.as_one(loops, body))
    tiled, whole = (ir.Launch(each, hints=hints, threads=BLOCK) for each in bodies)
    return (*primitives.where(ir.opposite(is_narrow), [tiled]), *primitives.where(is_narrow, [whole]))


def _transpose_in_shared_memory(kernel: ir.Kernel, body: Statements) -> ir.Launch | None:
    """Tiles in shared memory, where loads and stores of neighbouring cells run along different loops."""
    (loops, inner), ways = primitives.chain(body), reads_along(body)
    tiled = [loop for loop in loops if loop.var in (ways or ())]
    fits = ir.all_of(ir.at_most(Dim.of(SIDE), loop.extent) for loop in tiled)
    *lets, store = inner
    if not isinstance(store, ir.Store) or store.merge or not is_straight(inner) or not ways or fits is False:
        return None
    variables = {name for dim in store.index for name in dim.names if name.startswith("#")}
    if variables != {loop.var for loop in loops} or any(isinstance(s, ir.Require) for s in lets):
        return None  # a looked-up place is not known in the second pass
    lane, turn, rows, row = Dim.of("#lane"), Dim.of("#turn"), BLOCK // SIDE, SIDE + 1  # so that columns have all banks
    right, down = lane % SIDE, turn * rows + lane // SIDE
    tile = ir.Alloc("tile", store.values[0].dtype, (Dim.of(SIDE * row),), ir.Space.BLOCK)
    kept = replace(store, buffers=(tile.name,), index=(down * row + right,))
    moved = replace(store, values=(ir.Load(tile.name, (right * row + down,), tile.dtype),))

    def pass_over(each: Statements, *at: Dim) -> ir.Loop:
        own = {name: Dim.of(f"{name}b") * SIDE + place for name, place in zip(ways, at, strict=True)}
        inside = ir.all_of(compare("less", own[loop.var], loop.extent) for loop in tiled)
        assert not isinstance(inside, bool)
        one = ir.If(inside, walk.substitute(each, {**own}))
        turns = ir.Loop(str(turn), Dim.of(SIDE // rows), ir.Axis.SERIAL, (one,))
        return ir.Loop(str(lane), Dim.of(BLOCK), ir.Axis.LANES, (turns,))

    tiles = {loop.var: (loop.extent + (SIDE - 1)) // SIDE for loop in tiled}
    grid = [replace(o, var=f"{o.var}b", extent=tiles[o.var]) if o.var in tiles else o for o in loops]
    passes = (tile, pass_over((*lets, kept), right, down), pass_over((moved,), down, right))
    hints = ir.Hints(is_loose=is_loose(kernel, ir.Launch(body)), is_narrow=True)
    return ir.Launch(primitives.bind_all(primitives.nest(grid, passes)), ir.when(fits), hints=hints, threads=BLOCK)


def _tile(kernel: ir.Kernel, loops: Sequence[ir.Loop], body: Statements) -> Statements:
    """Loops on the grid, the innermost in tiles that the threads of a block share."""
    if not loops:
        return (ir.Loop("#cell", Dim.of(1), ir.Axis.LANES, body),)
    *outer, last = (replace(loop, axis=ir.Axis.THREADS, body=()) for loop in loops)
    block, variable = RowSchedule(kernel, loops, body, Share(1, BLOCK)), f"{last.var}b"
    size = TILE * block.width
    blocks, length, cells = primitives.tile_loop(
        replace(last, body=body), size, variable, last.var, f"{variable}_length"
    )
    own = block.spread(cells.var, cells.extent, Steps(cells.body), variable, block.places(cells.var, cells.body))
    return primitives.nest([*outer, blocks], (*length, *own))


# Running results along an axis. A block scans a row in rounds: each thread folds neighbouring cells in shared memory,
# computes the state before them from those of earlier threads, and scans them. If rows are long and few, many blocks
# share a row in chunks: one launch folds the chunks, and in the next a block folds the states of the chunks before its
# own and goes on from there. So cells are read twice there, once elsewhere; every device merges in the same order.
OWN = 15  # cells of a thread in a round: an odd number, so that threads of a warp read from different banks
GROUP = 16  # threads whose states are merged into one before other threads read it
ROUNDS = 4  # of a chunk
FEW_ROWS = 512  # fewer rows than blocks that a GPU runs at once
SHORT_ROW, MANY_ROWS = 128, 4096  # more rows than this, of at most so many cells, have a thread each
CELL, LANE = Dim.of("#cell"), Dim.of("#lane")


@dataclass(frozen=True, slots=True)
class RunningResult:
    """A row whose cells each `merge` a value into the state in `memory`, which starts as `first`."""

    memory: ir.Alloc
    first: ir.Store
    loop: ir.Loop
    merge: ir.Store

    @property
    def rest(self) -> Statements:
        """The statements of a cell other than the merge."""
        return tuple(s for s in self.loop.body if s != self.merge)

    @property
    def values(self) -> Statements:
        """The computation of a cell's value, stored in the cell of the round."""
        lets = (s for s in self.rest if not isinstance(s, ir.Store))
        return primitives.drop_unused((*lets, replace(self.merge, index=(CELL,), merge=None)))

    def fold(self, extent: Dim, value: ir.Expr, lets: Statements = ()) -> ir.Fold:
        """The fold of some values, over CELL."""
        return ir.Fold(str(self.merge.merge), ((str(CELL), extent),), lets, value, self.memory.dtype)

    def total(self, name: str, memory: str, begin: Dim, extent: Dim) -> ir.Let:
        """The fold of some states in memory."""
        return ir.Let(name, self.fold(extent, ir.Load(memory, (begin + CELL,), self.memory.dtype)))


def running_result(row: Statements) -> RunningResult | None:
    """Find the only running result of a row, beside values that each cell may recompute; None for other rows."""
    again = [s for s in row if primitives.is_light(s) and not s.name.startswith("#")]
    match [s for s in row if s not in again]:
        case [ir.Alloc(name) as memory, ir.Store((stored,)) as first, ir.Loop() as loop] if name == stored:
            body = (*again, *loop.body)
            merges = [s for s in body if isinstance(s, ir.Store) and s.buffers == (name,)]
            if len(merges) == 1 and is_straight(body) and not MONOIDS[str(merges[0].merge)].ordered:
                return RunningResult(memory, first, replace(loop, body=body), merges[0])
        case _:
            pass
    return None


def scan(kernel: ir.Kernel, loops: Sequence[ir.Loop], row: RunningResult, schedule: type[RowSchedule]) -> ir.Kernel:
    """Schedule a kernel of rows within `loops`: a block for each row, or several, or a thread where neighbouring rows
    are contiguous or many are short; `schedule`: that of folds and passes over a row."""
    steps = [primitives.stride_of(s, row.loop.var) for s in row.rest if isinstance(s, ir.Store)]
    if not loops:
        return by_blocks(kernel, loops, row, schedule)
    (item,), body = primitives.as_one(loops, (row.memory, row.first, row.loop))
    by_threads = in_lanes(item.var, item.extent, BLOCK, body)
    if not {ONE, -ONE}.issuperset(steps):
        return replace(kernel, launches=(by_threads,))
    is_many = ir.opposite(ir.at_most(item.extent, Dim.of(MANY_ROWS)))
    are_short = ir.all_of((ir.at_most(row.loop.extent, Dim.of(SHORT_ROW)), is_many))
    long = by_blocks(kernel, loops, row, schedule)
    launches = primitives.where(are_short, [by_threads]) + primitives.where(ir.opposite(are_short), long.launches)
    return replace(long, launches=tuple(launches))


def by_blocks(
    kernel: ir.Kernel, loops: Sequence[ir.Loop], row: RunningResult, schedule: type[RowSchedule]
) -> ir.Kernel:
    """Schedule a kernel of rows so that each is scanned by a block, or by several."""
    size, extent, chunk = Dim.of(BLOCK * OWN * ROUNDS), row.loop.extent, Dim.of("#chunk")
    axes = [*loops, ir.Loop(str(chunk), (extent + (size - 1)) // size, ir.Axis.SERIAL, ())]
    shape = tuple(loop.extent for loop in axes)
    states = ir.Buffer(f"{row.memory.name}.of_chunks", row.memory.dtype, (product(shape),), ir.Role.SCRATCH)
    place = sum((Dim.of(loop.var) * step for loop, step in zip(axes, strides_of(shape), strict=True)), ZERO)
    length = Dim.of(f"{LENGTH}_chunk")
    let = ir.Let(str(length), ir.Index(minimum(size, extent - chunk * size)))
    *lets, value = walk.substitute(row.values, {row.loop.var: chunk * size + CELL})
    assert isinstance(value, ir.Store)
    folded = ir.Let("folded", row.fold(length, value.values[0], tuple(lets)))
    saved = replace(value, buffers=(states.name,), index=(place,), values=(ir.Var("folded", states.dtype),))
    earlier = row.total("earlier", states.name, place - chunk, chunk)
    part = replace(row, first=replace(row.first, values=(ir.Var(earlier.name, states.dtype),)))
    share = Share(1, BLOCK)
    block = schedule(kernel, axes, (), share).block((earlier,))
    chunks = [
        schedule(kernel, axes, (let, folded, saved), share).launch(None),
        _launch(axes, (let, *block, *_by_block(part, schedule(kernel, [], part.rest, share), chunk * size, length))),
    ]
    whole = _launch(loops, _by_block(row, schedule(kernel, [], row.rest, share), ZERO, extent))
    is_few = ir.at_most(product(loop.extent for loop in loops), Dim.of(FEW_ROWS))
    in_chunks = ir.all_of((ir.opposite(ir.at_most(extent, size)), is_few))
    launches = primitives.where(in_chunks, chunks) + primitives.where(ir.opposite(in_chunks), [whole])
    return replace(kernel, buffers=(*kernel.buffers, states), launches=tuple(launches))


def _launch(loops: Sequence[ir.Loop], body: Statements) -> ir.Launch:
    grid = primitives.bind_all(primitives.nest(loops, body))
    return ir.Launch(grid, hints=ir.Hints(is_narrow=True), threads=BLOCK)


def _by_block(row: RunningResult, schedule: RowSchedule, begin: Dim, extent: Dim) -> Statements:
    """Scan cells of a row from `begin` on by the threads of a block; `carry` is the state of all earlier rounds."""
    dtype, size, start = row.memory.dtype, BLOCK * OWN, Dim.of("#round") * (BLOCK * OWN)
    length = Dim.of(f"{LENGTH}_round")
    shared = ((row.memory.name, size), ("of_thread", BLOCK), ("of_group", BLOCK // GROUP))
    allocs = [ir.Alloc(name, dtype, (Dim.of(cells),), ir.Space.BLOCK) for name, cells in shared]
    let = ir.Let(str(length), ir.Index(minimum(Dim.of(size), extent - start)))
    rest = primitives.reindex(row.rest, lambda name, at: (CELL,) if name == row.memory.name else at)
    values, results = (
        schedule.spread(str(CELL), length, Steps(walk.substitute(body, {row.loop.var: begin + start + CELL})), tag, [])
        for body, tag in ((row.values, "value"), (primitives.drop_unused(rest), "result"))
    )
    of_round = row.total("of_round", "of_group", ZERO, Dim.of(BLOCK // GROUP))
    carried = replace(row.merge, buffers=("carry",), values=(ir.Var(of_round.name, dtype),))
    inside = (let, *values, *_in_round(row, length), *results, *expand_folds((of_round,), 1, wide=False), carried)
    rounds = ir.Loop("#round", (extent + (size - 1)) // size, ir.Axis.SERIAL, inside)
    carry = ir.Alloc("carry", dtype, (ONE,), ir.Space.REGISTER)
    return (*allocs, carry, replace(row.first, buffers=("carry",)), rounds)


def _in_round(row: RunningResult, length: Dim) -> Statements:
    """Replace each cell of a round by its state: merged from earlier rounds, groups, threads, and cells."""
    dtype, begin, cells = row.memory.dtype, LANE * OWN, row.memory.name
    count = maximum(ZERO, minimum(Dim.of(OWN), length - begin))

    def merged(name: str) -> ir.Store:
        return replace(row.merge, buffers=("state",), values=(ir.Var(name, dtype),))

    def saved(memory: str) -> ir.Store:
        return ir.Store((memory,), (LANE,), (ir.Var("own", dtype),))

    value = ir.Let("value", ir.Load(cells, (begin + CELL,), dtype))
    steps = [merged("value"), ir.Store((cells,), (begin + CELL,), (ir.Load("state", (ZERO,), dtype),))]
    earlier = row.loop.body[: row.loop.body.index(row.merge)]
    if any(load.buffer == cells for load in walk.loads_of(earlier)):  # a cell reads the state before it
        steps.reverse()
    of_cells = (
        row.total("groups", "of_group", ZERO, LANE // GROUP),
        row.total("threads", "of_thread", LANE // GROUP * GROUP, LANE % GROUP),
        ir.Alloc("state", dtype, (ONE,), ir.Space.REGISTER),
        ir.Store(("state",), (ZERO,), (ir.Load("carry", (ZERO,), dtype),)),
        *(merged("groups"), merged("threads")),
        ir.Loop(str(CELL), count, ir.Axis.SERIAL, (value, *steps)),
    )
    bodies = (
        (BLOCK, (row.total("own", cells, begin, count), saved("of_thread"))),
        (BLOCK // GROUP, (row.total("own", "of_thread", LANE * GROUP, Dim.of(GROUP)), saved("of_group"))),
        (BLOCK, of_cells),
    )
    lanes = tuple(ir.Loop(str(LANE), Dim.of(threads), ir.Axis.LANES, body) for threads, body in bodies)
    return expand_folds(lanes, 1, wide=False)
