"""Scatters on a GPU, in one of three ways: updates are merged atomically in memory, in cells private to a block that
are merged at the end, or by the owner of each cell or row, in their order: the bits of the first two may differ from
run to run. For owners the updates are sorted, by counting in buckets of owners."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.gpu.block_rows import BLOCK, WARP, RowSchedule, Share
from noyau.compiler.schedules.gpu.vectors import BYTES, NARROWEST, ONE, ZERO, Steps, is_straight
from noyau.compiler.schedules.primitives import Statements, compare, where
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, maximum, product
from noyau.ir.monoids import MONOIDS

NARROW = 127  # the most cells of a row for which a place in a list costs more than atomics
PRIVATE_BYTES = 1 << 15  # of the private cells of a block
COPIES = 32  # the most copies of a block's cells: then each thread of a warp has its own bank
PRIVATE_PIECES = 256  # of the updates, each with private cells
PRIVATE_THREADS = 1024  # of a block with private cells
ATOMIC_BYTES = (4, 8)  # of a cell with atomics on a GPU
NUMBER = "#item"  # of an update
OWNER = "#owner"
PIECE, FIRST, LENGTH = Dim.of("#piece"), Dim.of("#first"), Dim.of("#length")
SEVERAL, BUCKETS = Dim.of("#several"), Dim.of("#buckets")
MOST_BUCKETS = 4096
PIECES = 128  # of the updates
THREADS = 256  # of a block that counts or places; as many updates are compared for the rank of one
SHORT_ROW = 256  # the most cells of a row for a warp
Strategy = Callable[[ir.Kernel], ir.Kernel]
Cells = Callable[[ir.Kernel, Statements], ir.Kernel]


class Way(Enum):
    """The ways to merge updates, each with its reason."""

    ATOMIC = "each update is merged at once in memory: there are too many cells for a block to have its own"
    PRIVATE = "each block merges into cells of its own, and these at the end: they fit in its shared memory"
    OWNER = "each cell has one owner, which merges its updates in their order: counted, placed in lists, folded"


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of a Scatter, `count` of them: an update looks up indices in `lets`, and then merges at `store` the
    result of `steps`: at `width` neighbouring cells of the `output`, over which `column` runs."""

    count: Dim
    lets: Statements
    column: str
    width: Dim
    steps: Statements
    store: ir.Store
    output: ir.Buffer

    @property
    def cells(self) -> Dim:
        return product(self.output.shape)

    @property
    def most_private(self) -> int:
        """The most cells that a block has room for."""
        return PRIVATE_BYTES // self.output.dtype.bytes

    @property
    def owners(self) -> Dim:
        return self.cells // self.width

    @property
    def owner(self) -> Dim:
        """The owner of the cells of an update."""
        return (self.store.index[0] - (Dim.of(self.column) if self.column else 0)) // self.width


def scatter(kernel: ir.Kernel, copied: Strategy, cells: Cells, way: Way | None) -> ir.Kernel:
    """Schedule a kernel of two launches: one copies, by a strategy for loops (`copied`); the other merges, in a way of
    `ways_of`; `cells`: a strategy for cells of threads. UnsupportedError where no way fits."""
    copy, merge = kernel.launches
    updates, copies = updates_of(kernel, merge.body), replace(kernel, launches=(copy,))
    ways, launches = ways_of(updates, way), list[ir.Launch]()
    fits = Way.PRIVATE in ways and ir.at_most(updates.cells, Dim.of(updates.most_private))
    wide: ir.Condition = Way.OWNER in ways
    if wide and Way.ATOMIC in ways:
        wide = ir.opposite(ir.at_most(updates.width, Dim.of(NARROW)))
    if wide is not False:
        owned = by_owners(copies, updates, copied)
        kernel, launches = replace(kernel, buffers=owned.buffers), where(wide, owned.launches)
    if wide is not True:
        launches += where(ir.opposite(wide), copied(copies).launches)
        launches += where(fits, [_privatise(kernel, updates)]) if fits is not False else []
        launches += where(ir.all_of((ir.opposite(wide), ir.opposite(fits))), _atomically(kernel, updates, cells))
    return replace(kernel, launches=tuple(launches))


def ways_of(updates: Updates, way: Way | None) -> list[Way]:
    """Choose ways: of several the first whose cells fit, by the sizes. The requested way, except owners where order is
    irrelevant: owners give the same bits in every run. Wide rows have owners, which read and write each cell once."""
    monoid, dtype = updates.store.merge, updates.output.dtype
    if monoid is None or not MONOIDS[monoid].is_arithmetic or dtype.bytes not in ATOMIC_BYTES:
        return [Way.OWNER]
    if way and (way is not Way.OWNER or (dtype.is_float and not MONOIDS[monoid].exact)):
        return [way]
    return [Way.PRIVATE if updates.width == ONE else Way.OWNER, Way.ATOMIC]


def ways_in(kernel: ir.Kernel) -> list[Way]:
    """Find the ways of the updates in a scheduled kernel, among which sizes choose."""
    outputs, ways = {buffer.name for buffer in kernel.of(ir.Role.OUTPUT)}, list[Way]()
    for launch in kernel.launches:
        stores = [s for s in walk.every_statement(launch.body) if isinstance(s, ir.Store) and s.is_atomic]
        if names := {name for store in stores for name in store.buffers}:
            ways.append(Way.OWNER if not names & outputs else Way.PRIVATE if names - outputs else Way.ATOMIC)
    return list(dict.fromkeys(ways))


def merges_in_any_order(kernel: ir.Kernel) -> bool:
    """Whether threads merge floats in any order, at some sizes: then the last bits may differ from run to run."""
    stores = (s for launch in kernel.launches for s in walk.every_statement(launch.body) if isinstance(s, ir.Store))
    merged = ((s.values[0].dtype, str(s.merge)) for s in stores if s.is_atomic)
    return any(dtype.is_float and not MONOIDS[monoid].exact for dtype, monoid in merged)


def updates_of(kernel: ir.Kernel, body: Statements) -> Updates:
    """Extract the updates from a nest that merges them. UnsupportedError if it has another form, or folds."""
    loops, before, statements = list[ir.Loop](), list[Statements](), primitives.coalesce(body)
    while statements and isinstance(loop := statements[-1], ir.Loop):
        loops.append(loop)
        before.append(statements[:-1])
        statements = loop.body
    before.append(statements[:-1])
    store = statements[-1] if statements else None
    is_plain = all(isinstance(s, ir.Let | ir.Require) for some in before for s in some) and not walk.folds_in(body)
    if not (is_plain and isinstance(store, ir.Store) and len(store.buffers) == 1):
        raise UnsupportedError(f"{kernel.name}: no strategy for threads of a GPU scatters what is no plain update yet")
    column, inner = ir.Loop("", ONE, ir.Axis.SERIAL, ()), tuple[ir.Statement, ...]()
    output = kernel[store.buffers[0]]
    if loops and _is_along_row(loops[-1], before[-1], store, product(output.shape)):
        column, inner = loops.pop(), before.pop()
    key = tuple(s for some in before for s in some)
    one = [ir.Loop(NUMBER, ONE, ir.Axis.SERIAL, ())]
    (number,), whole = primitives.as_one(loops or one, (*key, *inner, store))
    *steps, last = whole[len(key) :]
    assert isinstance(last, ir.Store)
    return Updates(number.extent, whole[: len(key)], column.var, column.extent, tuple(steps), last, output)


def _is_along_row(loop: ir.Loop, inner: Statements, store: ir.Store, cells: Dim) -> bool:
    """Whether the innermost loop runs along whole rows of the cells, each row for one update."""
    looked_up = {s.name for s in inner if isinstance(s, ir.Let) and s.name.startswith("#")}
    at, width = store.index[0], loop.extent
    begins = at - Dim.of(loop.var)
    is_plain = loop.var not in begins.names and not at.names & looked_up
    return is_plain and begins % width == ZERO and cells % width == ZERO


def _privatise(kernel: ir.Kernel, updates: Updates) -> ir.Launch:
    """Pieces of the updates, one a block, which merges them into private cells, and then these into the output."""
    name, dtype, monoid = updates.output.name, updates.output.dtype, str(updates.store.merge)
    own, most, count = f"{name}.own", updates.most_private, updates.cells.constant
    copies = 1 << min(COPIES, most // max(count, 1)).bit_length() - 1 if count is not None and count <= most else 1
    memory = ir.Alloc(own, dtype, (Dim.of((count or most) * copies),), ir.Space.BLOCK)
    empty = (ir.Const(MONOIDS[monoid].init(dtype)[0], dtype),)
    place = (updates.store.index[0] * copies + Dim.of("#lane_piece") % copies,)
    body = (*updates.lets, *updates.steps, replace(updates.store, buffers=(own,), index=place, is_atomic=True))
    row = RowSchedule(kernel, [], body, Share(1, PRIVATE_THREADS))
    unit = PRIVATE_THREADS * row.width
    pieces = primitives.minimum(Dim.of(PRIVATE_PIECES), (updates.count + (unit - 1)) // unit)
    step, begin = Dim.of("#step"), Dim.of("#begin")
    of_piece = (updates.count // (PRIVATE_PIECES * unit) + 1) * unit
    lets = ir.Let(str(step), ir.Index(of_piece)), ir.Let(str(begin), ir.Index(Dim.of("#piece") * step))
    extent = maximum(ZERO, primitives.minimum(step, updates.count - begin))
    body = walk.substitute(body, {NUMBER: begin + Dim.of("#own")})
    taken = (*lets, *row.spread("#own", extent, Steps(body), "piece", row.places("#own", body)))

    cell, copy = Dim.of("#cell"), Dim.of("#copy")
    first = ir.Loop("#clear", updates.cells * copies, ir.Axis.LANES, (ir.Store((own,), (Dim.of("#clear"),), empty),))
    fold = ir.Fold(monoid, (("#copy", Dim.of(copies)),), (), ir.Load(own, (cell * copies + copy,), dtype), dtype)
    total = folds.expand_folds((ir.Let("of_copies", fold),), 1, wide=False)
    merged = ir.Store((name,), (cell,), (ir.Var("of_copies", dtype),), monoid, is_atomic=True)
    last = ir.Loop("#cell", updates.cells, ir.Axis.LANES, (*total, merged))
    piece = ir.Loop("#piece", pieces, ir.Axis.THREADS, (memory, first, *taken, last))
    return ir.Launch((piece,), hints=ir.Hints(is_narrow=True), threads=PRIVATE_THREADS)


def _atomically(kernel: ir.Kernel, updates: Updates, cells: Cells) -> list[ir.Launch]:
    """Merge each update atomically: by a thread, or by a warp or a block if it is a row."""
    store, numbers = replace(updates.store, is_atomic=True), ir.Loop(NUMBER, updates.count, ir.Axis.SERIAL, ())
    if updates.width == ONE:
        return list(cells(kernel, (replace(numbers, body=(*updates.lets, *updates.steps, store)),)).launches)
    row = (*updates.lets, ir.Loop(updates.column, updates.width, ir.Axis.SERIAL, (*updates.steps, store)))
    is_short = ir.at_most(updates.width, Dim.of(SHORT_ROW))
    warps, blocks = (RowSchedule(kernel, [numbers], row, Share(1, each)).launch(None) for each in (WARP, BLOCK))
    return [*where(is_short, [warps]), *where(ir.opposite(is_short), [blocks])]


def by_owners(kernel: ir.Kernel, updates: Updates, strategy: Strategy) -> ir.Kernel:
    """The kernel, whose only launch copies the base, with updates merged by their owners."""
    lists, (copy,), first = Lists(updates), kernel.launches, tuple[ir.Launch, ...]()
    kernel = replace(kernel, buffers=(*kernel.buffers, *lists.buffers))
    match primitives.coalesce(copy.body):
        case (ir.Loop(at, extent, _, (*lets, ir.Store() as store)),) if (
            extent == updates.cells and is_straight(tuple(lets)) and store.index == (Dim.of(at),)
        ):  # an owner computes its cells itself
            variable, value = at, (*lets, store)
        case _:
            output, variable = updates.output, "#copied"
            first, place = strategy(replace(kernel, launches=(copy,))).launches, (Dim.of(variable),)
            value = (replace(updates.store, index=place, values=(ir.Load(output.name, place, output.dtype.compute),)),)
    owners = Owners(kernel, updates, lists, lambda cell: walk.substitute(value, {variable: cell}))
    launches = (lists.piece(lists.counting()), *lists.adding(kernel), lists.piece(lists.placing()))
    return replace(kernel, launches=(*first, *launches, *owners.launches()))


class Lists:
    """The list of all updates, sorted by buckets of owners, in order within a bucket: `order` has their numbers,
    `starts` the start of each bucket."""

    def __init__(self, updates: Updates) -> None:
        self.updates, name = updates, updates.output.name
        self.several = maximum(ONE, (updates.owners + (MOST_BUCKETS - 1)) // MOST_BUCKETS)  # owners of a bucket
        self.count = (updates.owners + (self.several - 1)) // self.several  # of buckets
        self.pieces = primitives.minimum(Dim.of(PIECES), updates.count // THREADS + 1)
        words = ("counts", "before", "starts", "order")
        self.counts, self.before, self.starts, self.order = (f"{name}.{word}" for word in words)

    @property
    def buffers(self) -> tuple[ir.Buffer, ...]:
        shapes = {
            self.counts: (DType.I32, self.count * self.pieces),
            self.before: (DType.I64, self.count * (self.pieces + 1)),
            self.starts: (DType.I64, self.count + 1),
            self.order: (DType.I64, self.updates.count),
        }
        return tuple(ir.Buffer(name, dtype, (size,), ir.Role.SCRATCH) for name, (dtype, size) in shapes.items())

    def piece(self, body: Statements) -> ir.Launch:
        """A launch with a block for each piece of the updates."""
        step = (self.updates.count // (PIECES * THREADS) + 1) * THREADS
        length = maximum(ZERO, primitives.minimum(step, self.updates.count - FIRST))
        names = ((FIRST, PIECE * step), (LENGTH, length), (SEVERAL, self.several), (BUCKETS, self.count))
        lets = tuple(ir.Let(str(name), ir.Index(dim)) for name, dim in names)
        memory = ir.Alloc("of_bucket", DType.I32, (Dim.of(self.count.constant or MOST_BUCKETS),), ir.Space.BLOCK)
        clear = ir.Store(("of_bucket",), (Dim.of("#clear"),), (ir.Const(0, DType.I32),))
        whole = (*lets, memory, ir.Loop("#clear", BUCKETS, ir.Axis.LANES, (clear,)), *body)
        whole = primitives.drop_unused(folds.expand_folds(whole, 1))
        return ir.Launch((ir.Loop(str(PIECE), self.pieces, ir.Axis.THREADS, whole),), threads=THREADS)

    def in_bucket(self, number: Dim, store: Callable[[Dim], ir.Store]) -> Statements:
        """The lookups of an update, and a store for its bucket."""
        whole = primitives.drop_unused((*self.updates.lets, store(self.updates.owner // SEVERAL)))
        return walk.substitute(whole, {NUMBER: FIRST + number})

    def counting(self) -> Statements:
        """Count the updates of a piece in each bucket."""
        cell, lane = Dim.of("#cell"), Dim.of("#lane")
        body = self.in_bucket(Dim.of("#own"), _one_more)
        own = ir.Loop("#own", LENGTH, ir.Axis.SERIAL, body, start=lane, step=THREADS)
        saved = ir.Store((self.counts,), (PIECE * BUCKETS + cell,), (ir.Load("of_bucket", (cell,), DType.I32),))
        lanes = ir.Loop(str(lane), Dim.of(THREADS), ir.Axis.LANES, (own,))
        return (lanes, ir.Loop(str(cell), BUCKETS, ir.Axis.LANES, (saved,)))

    def adding(self, kernel: ir.Kernel) -> tuple[ir.Launch, ...]:
        """Sum the updates of a bucket before each piece, and of all pieces; then the starts of the buckets."""
        bucket, state = Dim.of("#bucket"), ("before",)
        place, total = PIECE * self.count + bucket, ir.Load("before", (ZERO,), DType.I64)
        count = ir.Call("cast", (ir.Load(self.counts, (place,), DType.I32),), DType.I64)
        of_piece = (ir.Store((self.before,), (place,), (total,)), ir.Store(state, (ZERO,), (count,), "sum"))
        column = (
            ir.Alloc("before", DType.I64, (ONE,), ir.Space.REGISTER),
            ir.Store(state, (ZERO,), (ir.Const(0, DType.I64),)),
            ir.Loop(str(PIECE), self.pieces, ir.Axis.SERIAL, of_piece),
            ir.Store((self.before,), (self.pieces * self.count + bucket,), (total,)),
        )
        one = in_lanes(str(bucket), self.count, WARP, column)
        earlier = ir.Load(self.before, (self.pieces * self.count + Dim.of("#earlier"),), DType.I64)
        start = ir.Let("start", ir.Fold("sum", (("#earlier", bucket),), (), earlier, DType.I64))
        row = (start, ir.Store((self.starts,), (bucket,), (ir.Var("start", DType.I64),)))
        rows = [ir.Loop(str(bucket), self.count + 1, ir.Axis.SERIAL, ())]
        return (one, RowSchedule(kernel, rows, row, Share(1, WARP)).launch(None))

    def placing(self) -> Statements:
        """Put the updates of a piece in their places, a block's threads at a time, in order within a bucket."""
        memory = ir.Alloc("bucket_of", DType.I32, (Dim.of(THREADS),), ir.Space.BLOCK)
        turn, bucket = Dim.of("#turn") * THREADS, Dim.of("#bucket")
        again = ir.Let(str(bucket), _wide(ir.Load("bucket_of", (Dim.of("#again"),), DType.I32)))
        counted = (again, ir.If(compare("less", bucket, BUCKETS), (_one_more(bucket),)))  # for later turns
        lanes = (("#lane", self.look_up(turn)), ("#own", self.place(turn)), ("#again", counted))
        body = tuple(ir.Loop(name, Dim.of(THREADS), ir.Axis.LANES, each) for name, each in lanes)
        return (memory, ir.Loop("#turn", (LENGTH + (THREADS - 1)) // THREADS, ir.Axis.SERIAL, body))

    def look_up(self, turn: Dim) -> Statements:
        """The bucket of an update: one past the last bucket where there is no update, or its index is outside."""
        lane = Dim.of("#lane")

        def store(bucket: Dim) -> ir.Store:
            return ir.Store(("bucket_of",), (lane,), (ir.Call("cast", (ir.Index(bucket),), DType.I32),))

        return store(BUCKETS), ir.If(compare("less", turn + lane, LENGTH), self.in_bucket(turn + lane, store))

    def place(self, turn: Dim) -> Statements:
        """The place of an update: the start of its bucket, plus the updates of earlier pieces, turns and threads."""
        lane, bucket = Dim.of("#own"), Dim.of("#bucket")
        bucket_of, of_other = (ir.Load("bucket_of", (at,), DType.I32) for at in (lane, Dim.of("#other")))
        own = ir.Let("bucket", bucket_of), ir.Let(str(bucket), _wide(ir.Var("bucket", DType.I32)))
        same = ir.Call("cast", (ir.Call("equal", (of_other, ir.Var("bucket", DType.I32)), DType.BOOL),), DType.I32)
        threads = ir.Let("threads", ir.Fold("sum", (("#other", lane),), (), same, DType.I32))
        place: ir.Expr = _wide(ir.Var("threads", DType.I32))
        for earlier in (
            ir.Load(self.starts, (bucket,), DType.I64),
            ir.Load(self.before, (PIECE * BUCKETS + bucket,), DType.I64),
            _wide(ir.Load("of_bucket", (bucket,), DType.I32)),
        ):
            place = ir.Call("add", (place, earlier), DType.I64)
        put = ir.Store((self.order,), (Dim.of("#place"),), (ir.Index(FIRST + turn + lane),))
        return (*own, ir.If(compare("less", bucket, BUCKETS), (threads, ir.Let("#place", place), put)))


def _one_more(bucket: Dim) -> ir.Store:
    return ir.Store(("of_bucket",), (bucket,), (ir.Const(1, DType.I32),), "sum", is_atomic=True)


def _wide(value: ir.Expr) -> ir.Expr:
    return ir.Call("cast", (value,), DType.I64)


def in_lanes(variable: str, extent: Dim, threads: int, body: Statements) -> ir.Launch:
    """A launch with a thread for each round of a loop."""
    block, lane = Dim.of("#block"), Dim.of("#lane")
    at = block * threads + lane
    own = ir.If(compare("less", at, extent), walk.substitute(body, {variable: at}))
    lanes = ir.Loop(str(lane), Dim.of(threads), ir.Axis.LANES, (own,))
    blocks = ir.Loop(str(block), (extent + (threads - 1)) // threads, ir.Axis.THREADS, (lanes,))
    return ir.Launch((blocks,), threads=threads)


class Owners:
    """The launches in which owners merge: `copy` gives the statements that compute and store the base of a cell."""

    def __init__(self, kernel: ir.Kernel, updates: Updates, lists: Lists, copy: Callable[[Dim], Statements]) -> None:
        self.kernel, self.updates, self.lists, self.copy = kernel, updates, lists, copy

    def launches(self) -> list[ir.Launch]:
        """The launches, by the number of owners in a bucket, one or several, and by the length of rows."""
        alone, width = ir.at_most(self.updates.owners, Dim.of(MOST_BUCKETS)), self.updates.width
        is_short = True if width == ONE else ir.at_most(width, Dim.of(SHORT_ROW))
        result = []
        for is_alone, case in ((True, alone), (False, ir.opposite(alone))):
            for threads, fits in ((WARP, is_short), (BLOCK, ir.opposite(is_short))):
                if (can := ir.all_of((case, fits))) is not False:
                    own = (*self.ends, *self.fold(ZERO, ONE, is_alone)) if width == ONE else ()
                    one = in_lanes(OWNER, self.updates.owners, BLOCK, own) if own else self.row(threads, is_alone)
                    result.append(replace(one, when=ir.when(can)))
        return result

    def row(self, threads: int, is_alone: bool) -> ir.Launch:
        """Owners of a row each, a warp or a block, whose threads access vectors if all rows are aligned."""
        loads = walk.loads_of((*self.copy(Dim.of(self.updates.column)), *self.updates.steps, self.updates.store))
        along = [each.buffer for each in loads if primitives.stride_of(each, self.updates.column) == ONE]
        arrays = list(dict.fromkeys([self.updates.output.name, *along]))
        width = BYTES // max(NARROWEST, min(self.kernel[name].dtype.bytes for name in arrays))
        place, most = (ZERO,), Dim.of(width)
        untils = [ir.Let(f"#until_{at}", ir.CellsToAlignment(width, a, place, most)) for at, a in enumerate(arrays)]
        rests = [rest for rest in (self.updates.width % width, *(Dim.of(let.name) for let in untils)) if rest != ZERO]
        whole = ir.all_of(compare("equal", rest, ZERO) for rest in rests)
        assert not isinstance(whole, bool)

        def lanes(cells: int, tag: str) -> Statements:
            lane, vector = Dim.of(f"#lane_{tag}"), f"#vector_{tag}"
            own = self.fold(Dim.of(vector) * cells, Dim.of(cells), is_alone)
            each = ir.Loop(vector, self.updates.width // cells, ir.Axis.SERIAL, own, start=lane, step=threads)
            return (ir.Loop(str(lane), Dim.of(threads), ir.Axis.LANES, (each,)),)

        either = primitives.either(whole, lanes(width, "of_vectors"), lanes(1, "of_cells"))
        row = ir.Loop(OWNER, self.updates.owners, ir.Axis.THREADS, (*self.ends, *untils, *either))
        return ir.Launch((row,), threads=threads)

    @property
    def ends(self) -> Statements:
        """The ends of a bucket in the list."""
        bucket = Dim.of(OWNER) // self.lists.several
        starts = [ir.Load(self.lists.starts, (at,), DType.I64) for at in (bucket, bucket + 1)]
        return tuple(ir.Let(at, start) for at, start in zip(("#begin", "#end"), starts, strict=True))

    def fold(self, column: Dim, cells: Dim, is_alone: bool) -> Statements:
        """Neighbouring cells of an owner: their base, its updates in their order, and their Store."""
        updates, dtype = self.updates, self.updates.output.dtype.compute
        begin = Dim.of(OWNER) * updates.width + column
        memory = ir.Alloc("total", dtype, (cells,), ir.Space.REGISTER)

        def each(cell: str, statements: Callable[[Dim], Statements]) -> Statements:
            """Statements for each cell: a vector of them, or one."""
            if cells == ONE:
                return statements(ZERO)
            return (ir.Loop(cell, cells, ir.Axis.VECTOR, statements(Dim.of(cell))),)

        def first(cell: Dim) -> Statements:
            *lets, last = self.copy(begin + cell)
            assert isinstance(last, ir.Store)
            return (*lets, replace(last, buffers=("total",), index=(cell,)))

        def merge(cell: Dim) -> Statements:
            whole = (*updates.steps, replace(updates.store, buffers=("total",), index=(cell,)))
            return walk.substitute(whole, {updates.column: column + cell}) if updates.column else whole

        number = ir.Let(NUMBER, ir.Load(self.lists.order, (Dim.of("#begin") + Dim.of("#turn"),), DType.I64))
        merged = each("#merged", merge)
        if is_alone:  # its index was checked
            merged = primitives.drop_unused((*(s for s in updates.lets if isinstance(s, ir.Let)), *merged))
        else:
            merged = (*updates.lets, ir.If(compare("equal", updates.owner, Dim.of(OWNER)), merged))
        turns = ir.Loop("#turn", Dim.of("#end") - Dim.of("#begin"), ir.Axis.SERIAL, (number, *merged))

        def last(cell: Dim) -> Statements:
            return (ir.Store(updates.store.buffers, (begin + cell,), (ir.Load("total", (cell,), dtype),)),)

        return (memory, *each("#before", first), turns, *each("#after", last))
