"""Running results along an axis, by blocks of threads.

A block scans a row in rounds: each thread folds neighbouring cells in shared memory, finds the state before them from
those of earlier threads, and scans them. Long rows of few go to many blocks in chunks: one launch folds these, and in
another one a block folds the states of the chunks before its own and goes on from there. So cells are read twice there,
once elsewhere; and they are merged in the same order on every device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.gpu.block_rows import BLOCK, LENGTH, RowSchedule, Share
from noyau.compiler.schedules.gpu.scatters import in_lanes
from noyau.compiler.schedules.gpu.vectors import ONE, ZERO, Steps, is_straight
from noyau.compiler.schedules.primitives import Statements, minimum
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, maximum, product, strides_of
from noyau.ir.monoids import MONOIDS

OWN = 15  # cells of a thread in a round: an odd number, so that threads of a warp read from different banks
GROUP = 16  # threads whose states are merged before those of others look at them
ROUNDS = 4  # of a chunk
FEW_ROWS = 512  # too few for the blocks that a GPU runs at once
SHORT_ROW, MANY_ROWS = 128, 4096  # beyond so many rows of so few cells, each has a thread
CELL, LANE = Dim.of("#cell"), Dim.of("#lane")


@dataclass(frozen=True, slots=True)
class RunningResult:
    """A row whose cells `merge` a value each into the state in `memory`, which is `first` at its begin."""

    memory: ir.Alloc
    first: ir.Store
    loop: ir.Loop
    merge: ir.Store

    @property
    def rest(self) -> Statements:
        """The statements of a cell beside the merge."""
        return tuple(s for s in self.loop.body if s != self.merge)

    @property
    def values(self) -> Statements:
        """The value of a cell, into the cell of the round."""
        lets = (s for s in self.rest if not isinstance(s, ir.Store))
        return primitives.drop_unused((*lets, replace(self.merge, index=(CELL,), merge=None)))

    def fold(self, extent: Dim, value: ir.Expr, lets: Statements = ()) -> ir.Fold:
        """The state of some values, over CELL."""
        return ir.Fold(str(self.merge.merge), ((str(CELL), extent),), lets, value, self.memory.dtype)

    def total(self, name: str, memory: str, begin: Dim, extent: Dim) -> ir.Let:
        """The state of some states in memory."""
        return ir.Let(name, self.fold(extent, ir.Load(memory, (begin + CELL,), self.memory.dtype)))


def running_result(row: Statements) -> RunningResult | None:
    """Find the one running result of a row, beside values that each cell may compute again; None for other rows."""
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
    """The kernel, flat, of rows within `loops`, each of a block, of several or, where rows lie side by side or many are
    short, of a thread; `schedule`: that of folds and passes over a row."""
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
    """The kernel of rows each of which is scanned by a block, or by several."""
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
    """Cells of a row from `begin` on, scanned by the threads of a block; `carry` is the state of all earlier rounds."""
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
    """The cells of a round, each replaced by its state: that of earlier rounds, groups, threads, and cells."""
    dtype, begin, cells = row.memory.dtype, LANE * OWN, row.memory.name
    count = maximum(ZERO, minimum(Dim.of(OWN), length - begin))

    def merged(name: str) -> ir.Store:
        return replace(row.merge, buffers=("state",), values=(ir.Var(name, dtype),))

    def saved(memory: str) -> ir.Store:
        return ir.Store((memory,), (LANE,), (ir.Var("own", dtype),))

    value = ir.Let("value", ir.Load(cells, (begin + CELL,), dtype))
    steps = [merged("value"), ir.Store((cells,), (begin + CELL,), (ir.Load("state", (ZERO,), dtype),))]
    earlier = row.loop.body[: row.loop.body.index(row.merge)]
    if any(load.buffer == cells for load in walk.loads_of(earlier)):  # a cell sees the state before its own value
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
