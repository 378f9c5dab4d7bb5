"""Rows that blocks of threads reduce and write: inputs of several passes stay in registers.

A row that does not fit one block is spread over the blocks of a cluster: each keeps a piece, folds it, and sends its
state to the others. So every cell is loaded from memory once, however long its row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.gpu import vectors
from noyau.compiler.schedules.gpu.rows_and_columns import MOST, Both, row_with_sums, with_scratch
from noyau.compiler.schedules.gpu.strategies import is_loose
from noyau.compiler.schedules.gpu.tiles import is_innermost
from noyau.compiler.schedules.gpu.vectors import ZERO, Piece, Place, Steps
from noyau.compiler.schedules.primitives import Statements, compare
from noyau.dtypes import DType
from noyau.ir import loops as ir
from noyau.ir import walk
from noyau.ir.dims import Dim, Shape, maximum
from noyau.text import free_name

WARP, BLOCK = 32, 256  # threads
RESIDENT = 4  # blocks of clusters on a multiprocessor: while one waits for its cluster, others compute
SUMMING = 5  # the same of blocks that keep sums of columns, of 128 threads
AT_ONCE = 600  # of these on an H100 or an H200, which has room for them
MANY = 128  # rows: of fewer the clusters have too little to do
SHARED = 40 << 10  # bytes of what a block shares, for its sums
SERIAL, SLOT = ir.Axis.SERIAL, Dim.of("#slot")
RANK = Dim.of("#rank")  # of a block in its cluster
Loops = Sequence[tuple[str, Dim]]
States = Sequence[folds.State]
LENGTH, UNTIL, VECTORS, ENDS = "#length", "#until", "#vectors", "#ends"  # of its piece of a row, in cells


@dataclass(frozen=True, slots=True)
class Share:
    """The blocks that share a row, the threads of each, and the bytes of the row that a thread keeps; 0 for none."""

    blocks: int
    threads: int
    bytes: int = 0


class RowSchedule:
    """The schedule of a kernel's row for a share of blocks: `row` are its statements, within the loops `rows`."""

    def __init__(self, kernel: ir.Kernel, rows: Sequence[ir.Loop], row: Statements, share: Share) -> None:
        self.buffers = {buffer.name: buffer for buffer in kernel.buffers}
        self.rows, self.row, self.share = rows, row, share
        self.width = vectors.width_of([self.buffers[name] for name in walk.memory_of(row) if name in self.buffers])
        self.is_loose = is_loose(kernel, ir.Launch(row))
        self.tags = set[str]()  # suffixes of names for loops
        self.resident = RESIDENT

    def places(self, variable: str, body: Statements) -> list[Place]:
        """Find the arrays that a pass walks along."""
        return vectors.places_along(self.buffers, body, variable)

    @property
    def is_wide(self) -> bool:
        """Whether sums of float32 have states of float64."""
        return self.share.threads > WARP and not self.is_loose

    def launch(self, when: ir.Expr | None) -> ir.Launch:
        """The rows on the grid."""
        return self.on_grid(self.block(self.row), when, is_narrow=self.share.threads == WARP)

    def on_grid(self, row: Statements, when: ir.Expr | None, *, is_narrow: bool) -> ir.Launch:
        """The launch of a row, in the loops around it."""
        body = primitives.bind_all(primitives.nest(self.rows, row))
        resident = 0 if self.share.blocks == 1 else self.resident
        hints = ir.Hints(is_loose=self.is_loose, is_narrow=is_narrow, resident=resident)
        return ir.Launch(body, when, hints=hints, threads=self.share.threads)

    def in_blocks(self, statements: Statements) -> Statements:
        """Run statements in each block of a cluster."""
        return statements

    def spread(self, variable: str, extent: Dim, steps: Steps, tag: str, places: Sequence[Place]) -> Statements:
        """The statements of a loop in lanes, with those before it."""
        lane, length = Dim.of(f"#lane_{tag}"), ir.Let(f"{LENGTH}_{tag}", ir.Index(extent))
        piece = Piece(ZERO, Dim.of(length.name) if places else extent, self.share.threads, self.width)
        before, own = vectors.spread(piece, variable, steps, tag, lane, places)
        before = (length, *before) if places else before
        return (*before, ir.Loop(str(lane), Dim.of(self.share.threads), ir.Axis.LANES, own))

    def block(self, statements: Statements) -> Statements:
        """Statements with every fold, and every innermost loop, spread over the threads."""
        done = list[ir.Statement]()
        for statement in statements:
            match statement:
                case ir.Let(_, ir.Fold()):
                    done += self.fold([statement])
                case ir.Loop(var, extent, _, body) if is_innermost(statement):
                    steps, tag = Steps(body), free_name(var.removeprefix("#"), self.tags)
                    self.tags.add(tag)
                    done += self.in_blocks(self.spread(var, extent, steps, tag, self.places(var, body)))
                case ir.Loop() | ir.If():
                    done.append(replace(statement, body=self.block(statement.body)))
                case _:
                    done.append(statement)
        return tuple(done)

    def fold(self, lets: Sequence[ir.Let]) -> Statements:
        """Folds side by side over the threads, and the blocks of a cluster. States of a sum of float32 are float64,
        except within a vector, in a warp, whose threads add few, and where a loose result is allowed."""
        some = [(walk.fold_of(let), let.name) for let in lets]
        states = [folds.state_of(fold, name, wide=self.is_wide) for fold, name in some]
        done = (*(s for state in states for s in state.memory(self.share.threads)), *self.states(some, states))
        if (blocks := self.share.blocks) > 1:
            own, states = states, [state.beside("of_block") for state in states]
            stores = [all_.store(RANK, one.load(ZERO), merge=False) for all_, one in zip(states, own, strict=True)]
            memory = [s for state in states for s in state.memory(blocks, ir.Space.CLUSTER)]
            done = (*memory, *self.in_blocks((*done, *stores)))
            done += tuple(s for state in states for s in folds.halves(state, blocks, str(RANK)))
        pairs = zip(lets, states, strict=True)
        return (*done, *(replace(let, value=state.result(ZERO, let.value.dtype)) for let, state in pairs))

    def states(self, some: Sequence[tuple[ir.Fold, str]], states: States) -> Statements:
        """The states of some folds, each with its name, in all threads, merged into cell 0."""
        (fold, name), lane = some[0], Dim.of(f"#lane_{some[0][1]}")
        variable, _ = fold.loops[-1]

        def steps(states: States, at: Dim) -> Statements:
            pairs = [(own, folds.step(own, state, at)) for (own, _), state in zip(some, states, strict=True)]
            bodies = [walk.substitute(body, {own.loops[-1][0]: Dim.of(variable)}) for own, body in pairs]
            return bodies[0] if len(bodies) == 1 else folds.fuse(bodies)

        each = Steps(steps(states, lane))
        places = [] if len(fold.loops) > 1 else self.places(variable, each.of_cell)
        if places and all(own.monoid == "sum" and own.dtype.is_float for own, _ in some):
            ones = [folds.state_of(own, f"{name}.of_vector", wide=False) for own, name in some]
            first = tuple(s for one in ones for s in (*one.memory(1), one.empty(ZERO)))
            pairs = zip(states, ones, strict=True)
            last = tuple(state.store(lane, one.load(ZERO), merge=True) for state, one in pairs)
            each = replace(each, of_vector=(first, steps(ones, ZERO), last))
        return self.merge_rounds(fold.loops, each, states, name, places)

    def merge_rounds(
        self, loops: Loops, steps: Steps, states: States, name: str, places: Sequence[Place]
    ) -> Statements:
        """Loops around steps, which merge into the states of a thread: it runs its part of the rounds of the innermost
        loop. Then the merge of all states."""
        *around, (variable, extent) = loops
        *before, threads = self.spread(variable, extent, steps, name, places)
        assert isinstance(threads, ir.Loop)
        own = primitives.nest([ir.Loop(*each, ir.Axis.SERIAL, ()) for each in around], threads.body)
        empty = (state.empty(Dim.of(threads.var)) for state in states)
        merges = (s for state in states for s in folds.halves(state, self.share.threads, threads.var))
        return (*before, replace(threads, body=(*empty, *own)), *merges)


class KeptRow(RowSchedule):
    """The schedule of a row of which each thread keeps cells, in vectors of its own: those of the arrays `kept`. The
    row belongs to a block, or in pieces to the blocks of a cluster."""

    def __init__(self, kernel: ir.Kernel, rows: Sequence[ir.Loop], row: Statements, share: Share) -> None:
        super().__init__(kernel, rows, row, share)
        self.extent = extent_of(row)
        self.kept = self.read_again() if self.extent is not None else []
        if len(dict(self.kept)) < len(self.kept):
            self.kept = []  # one array at two places of a row
        cells = sum(self.buffers[name].dtype.bytes for name, _ in self.kept) * self.width
        self.rounds = max(1, share.bytes // cells) if self.kept else 0

    def read_again(self, *, of_row: bool = True) -> list[Place]:
        """Find the inputs that several passes over a row read, its own cells in each row or the same in all, at no
        looked-up index."""
        named = {s.name for s in self.row if isinstance(s, ir.Let)}
        counts = Counter(place for one in passes_of(self.row) for place in set(self.places(*one)))
        again = sorted((place for place, count in counts.items() if count > 1), key=str)
        inputs = [one for one in again if self.buffers[one[0]].role is ir.Role.INPUT and self.is_of_row(one) is of_row]
        return [place for place in inputs if not any(dim.names & named for dim in place[1])]

    def is_of_row(self, place: Place) -> bool:
        """Whether each row has its own cells there."""
        return any(loop.var in dim.names for loop in self.rows for dim in place[1])

    def fits(self) -> ir.Condition:
        """The condition that there is something to keep, and room for it."""
        if not self.kept or self.extent is None:
            return False
        return ir.at_most(self.extent, Dim.of(self.share.blocks * self.share.threads * self.rounds * self.width))

    def launch(self, when: ir.Expr | None) -> ir.Launch:
        piece = self.piece() if self.share.blocks == 1 else ()
        row = (*self.memory(self.kept), *piece, *self.in_blocks(self.copies(self.kept)), *self.block(self.row))
        return self.on_grid(row, when, is_narrow=True)

    @property
    def begin(self) -> Dim:
        """The first cell of a block."""
        return ZERO if self.share.blocks == 1 else RANK * self.step

    @property
    def step(self) -> Dim:
        """The cells of a block; the last one may have fewer."""
        assert self.extent is not None
        whole = self.share.blocks * self.width
        return (self.extent + (whole - 1)) // whole * self.width

    def piece(self) -> Statements:
        """The lengths of a piece of a row: its cells, those before its first vector, its vectors, its cells at ends."""
        assert self.extent is not None
        length, left = Dim.of(LENGTH), self.extent
        if self.share.blocks > 1:
            left = maximum(ZERO, primitives.minimum(self.step, self.extent - RANK * self.step))
        vectors = ir.Let(VECTORS, ir.Index((length - Dim.of(UNTIL)) // self.width))
        ends = ir.Let(ENDS, ir.Index(length - Dim.of(VECTORS) * self.width))
        return (ir.Let(LENGTH, ir.Index(left)), self.until(UNTIL, self.kept[0]), vectors, ends)

    def until(self, name: str, place: Place) -> ir.Let:
        """The number of cells of a piece before the first vector at a place."""
        buffer, (*outer, last) = place
        return ir.Let(name, ir.CellsToAlignment(self.width, buffer, (*outer, last + self.begin), Dim.of(LENGTH)))

    def in_blocks(self, statements: Statements) -> Statements:
        if self.share.blocks == 1:
            return statements
        whole = primitives.drop_unused((*self.piece(), *statements))
        return (ir.Loop(str(RANK), Dim.of(self.share.blocks), ir.Axis.BLOCKS, whole),)

    # What is kept.

    def memory(self, kept: Sequence[Place]) -> Statements:
        """Registers of each thread for its vectors of some arrays, and for a cell at the ends."""
        around = () if self.share.blocks == 1 else (Dim.of(self.share.blocks),)
        lanes = (*around, Dim.of(self.share.threads))
        return tuple(
            ir.Alloc(f"{name}.{what}", self.buffers[name].dtype, (*lanes, Dim.of(many), Dim.of(cells)), ir.Space.LANE)
            for name, _ in kept
            for what, many, cells in (("kept", self.rounds, self.width), ("end", 1, 1))
        )

    def in_lane(self, tag: str, variable: str) -> tuple[Shape, Shape]:
        """The index of a cell in the registers of a thread: within vectors, and at an end."""
        around = () if self.share.blocks == 1 else (RANK,)
        lane = Dim.of(f"#lane_{tag}")
        return (*around, lane, Dim.of(f"{variable}_round"), Dim.of(f"{variable}_cell")), (*around, lane, ZERO, ZERO)

    def copies(self, kept: Sequence[Place]) -> Statements:
        """Load some of the kept arrays from memory."""
        copies = list[ir.Statement]()
        for name, (*outer, last) in kept:
            variable, tag = f"#copy_{name}", f"copy_{name}"
            load = ir.Load(name, (*outer, last + Dim.of(variable)), self.buffers[name].dtype.compute)
            in_vector, at_end = self.in_lane(tag, variable)
            of_vector = ir.Store((f"{name}.kept",), in_vector, (load,))
            steps = Steps((ir.Store((f"{name}.end",), at_end, (load,)),), ((), (of_vector,), ()))
            copies += self.walk(variable, steps, tag, [(name, (*outer, last))])
        return tuple(copies)

    def from_chip(self, variable: str, body: Statements, what: str, index: Shape) -> Statements:
        """The body of a pass, with kept cells loaded from registers."""
        kept = dict(self.kept)

        def change(expr: ir.Expr) -> ir.Expr:
            if not isinstance(expr, ir.Load) or expr.where is not None or expr.buffer not in kept:
                return expr
            first = tuple(dim.replace({variable: ZERO}) for dim in expr.index)
            is_kept = vectors.is_along(self.buffers[expr.buffer], expr.index, variable) and first == kept[expr.buffer]
            return ir.Load(f"{expr.buffer}.{what}", index, expr.dtype) if is_kept else expr

        return walk.rewrite(body, change)

    def spread(self, variable: str, extent: Dim, steps: Steps, tag: str, places: Sequence[Place]) -> Statements:
        in_vector, at_end = self.in_lane(tag, variable)
        first, each, last = steps.of_vector or ((), steps.of_cell, ())
        each = self.from_chip(variable, each, "kept", in_vector)
        kept = Steps(self.from_chip(variable, steps.of_cell, "end", at_end), (first, each, last))
        others = [one for one in places if one not in self.kept or one in self.following(variable)]
        return self.walk(variable, kept, tag, others)

    def following(self, variable: str) -> Sequence[Place]:
        """The kept arrays of which a pass loads the next row."""
        return ()

    def ahead(self, variable: str, what: str, index: Shape, at: Dim, around: ir.Loop | None = None) -> Statements:
        """Loads of cells of the next row, behind the last use of those of this one; `around`: of a vector, its loop."""
        following, loads = Dim.of("#next"), list[ir.Statement]()
        for name, (*outer, last) in self.following(variable):
            place = tuple(dim.replace({self.rows[0].var: following}) for dim in (*outer, last + at))
            load = ir.Store((f"{name}.{what}",), index, (ir.Load(name, place, self.buffers[name].dtype.compute),))
            loads.append(replace(around, body=(load,)) if around else load)
        return (ir.If(compare("less", following, self.rows[0].extent), tuple(loads)),) if loads else ()

    def walk(self, variable: str, steps: Steps, tag: str, places: Sequence[Place]) -> Statements:
        """A pass of the threads over their vectors, and over the cells at the ends. `places` in memory that are not
        aligned as the row is are accessed cell by cell: only those shared by all rows, or all."""
        others = [place for place in places if place != self.kept[0]]
        untils = [self.until(f"#until{at}_{tag}", place) for at, place in enumerate(others)]
        same = [compare("equal", Dim.of(each.name), Dim.of(UNTIL)) for each in untils]
        own = [is_same for is_same, place in zip(same, others, strict=True) if self.is_of_row(place)]
        names = frozenset(name for name, _ in others)
        of_all = names - {place[0] for place in others if self.is_of_row(place)}
        whole = self.in_vectors(variable, steps, tag, names)
        for conditions, alone in ((own if of_all else [], of_all), (same, frozenset[str]())):
            if not isinstance(case := ir.all_of(conditions), bool):
                whole = primitives.either(case, self.in_vectors(variable, steps, tag, alone), whole)
        lane, over = Dim.of(f"#lane_{tag}"), f"{variable}_at"
        behind = ir.Index(lane + Dim.of(VECTORS) * self.width)
        at = ir.Let(over, ir.Call("where", (compare("less", lane, Dim.of(UNTIL)), ir.Index(lane), behind), DType.I64))
        here = self.begin + Dim.of(over)
        ahead = self.ahead(variable, "end", self.in_lane(tag, variable)[1], here)
        end = primitives.drop_unused((at, *walk.substitute(steps.of_cell, {variable: here}), *ahead))
        own_cells = (*whole, ir.If(compare("less", lane, Dim.of(ENDS)), end))
        return (*untils, ir.Loop(str(lane), Dim.of(self.share.threads), ir.Axis.LANES, own_cells))

    def in_vectors(self, variable: str, steps: Steps, tag: str, alone: frozenset[str]) -> Statements:
        """The vectors of a thread; the cells of the buffers `alone` one by one."""
        assert steps.of_vector is not None
        first, each, last = steps.of_vector
        count, cell = Dim.of(f"{variable}_round") * self.share.threads + Dim.of(f"#lane_{tag}"), f"{variable}_cell"
        at = self.begin + Dim.of(UNTIL) + count * self.width + Dim.of(cell)
        cells = ir.Loop(cell, Dim.of(self.width), ir.Axis.VECTOR, walk.substitute(each, {variable: at}), alone=alone)
        last += self.ahead(variable, "kept", self.in_lane(tag, variable)[0], at, cells)
        body = (ir.If(compare("less", count, Dim.of(VECTORS)), (*first, cells, *last)),)
        return (ir.Loop(f"{variable}_round", Dim.of(self.rounds), ir.Axis.SERIAL, body),)


class SummedRow(KeptRow):
    """The schedule of rows one after the other, as a cluster keeps them, and of what they add to columns: each thread
    has that of its cells in shared memory, and leaves it in scratch at the end. So a row is read once for both."""

    def __init__(self, kernel: ir.Kernel, both: Both, share: Share) -> None:
        self.both, self.sums = both, [state.beside("of_thread") for state in both.states]
        parts = primitives.minimum(Dim.of(AT_ONCE // share.blocks), both.around.extent)
        self.parts = ir.Loop("#part", parts, SERIAL, ())
        self.of_parts = [state.beside("of_part") for state in both.states]
        row = folds.levels(row_with_sums(kernel, both, self.sums, SLOT + Dim.of(both.cells.var)))
        kernel = with_scratch(kernel, self.of_parts, (parts, both.across.extent))
        super().__init__(kernel, [both.around], row, share)
        weights = self.read_again(of_row=False) if self.kept else []  # all rows share them
        bytes_of = {buffer.name: buffer.dtype.bytes for buffer in kernel.buffers}
        has_room = self.rounds * self.width * sum(bytes_of[name] for name, _ in weights) <= share.bytes // 2
        self.of_row, self.kept = self.kept, [*self.kept, *(weights if has_room else [])]
        self.is_ahead = len(self.sums) == 1  # of more, the next row's loads wait for the stores of this one
        self.slots = self.rounds * self.width + 1  # of a thread; the last is for a cell at an end
        most = max((dtype.bytes for state in self.sums for dtype in state.dtypes), default=vectors.BYTES)
        self.at_once = max(1, min(self.width, vectors.BYTES // most))  # neighbouring sums of a thread
        self.resident = SUMMING

    def fits(self) -> ir.Condition:
        """Whether threads keep rows, long ones, and have room for sums, of the same cells of each row."""
        dtypes = [dtype for state in self.sums for dtype in state.dtypes]
        has_room = sum(dtype.bytes for dtype in dtypes) * self.slots * self.share.threads <= SHARED
        if self.extent is None or not has_room or len(dtypes) != len(self.sums):
            return False
        is_long = ir.opposite(ir.at_most(self.extent, Dim.of(MOST)))
        return ir.all_of((is_long, super().fits(), compare("equal", self.extent % self.width, ZERO)))

    def until(self, name: str, place: Place) -> ir.Let:
        """As of the first row, which all are alike."""
        return super().until(name, (place[0], tuple(dim.replace({self.both.around.var: ZERO}) for dim in place[1])))

    def from_chip(self, variable: str, body: Statements, what: str, index: Shape) -> Statements:
        *_, lane, vector, cell = index
        at, wide = Dim.of(self.share.threads * self.rounds * self.width) + lane, self.at_once
        if what == "kept":
            at = ((vector * self.width + cell) // wide * self.share.threads + lane) * wide + cell % wide
        at -= Dim.of(variable)
        return walk.substitute(super().from_chip(variable, body, what, index), {str(SLOT): at})

    def following(self, variable: str) -> Sequence[Place]:
        return self.of_row if self.is_ahead and variable == self.both.cells.var else ()

    def block(self, statements: Statements) -> Statements:
        lets = folds.lets_of_folds(statements)
        if len(lets) < 2 or not folds.are_alike(statements):
            return super().block(statements)
        at = statements.index(lets[0])
        before, after = statements[:at], statements[at + len(lets) :]
        return (*super().block(before), *self.fold(lets), *super().block(after))

    def launch(self, when: ir.Expr | None) -> ir.Launch:
        around, extent, column = self.both.around, self.both.across.extent, Dim.of("#column")
        lane, slot, round_ = Dim.of("#lane_sums"), Dim.of("#slot_of_lane"), Dim.of("#round")
        memory, empty, ends = list[ir.Statement](), list[ir.Statement](), list[ir.Statement]()
        for state, of_parts in zip(self.sums, self.of_parts, strict=True):
            shape = (Dim.of(self.share.blocks), Dim.of(self.slots * self.share.threads))
            pairs = zip(state.names, state.dtypes, strict=True)
            memory += [ir.Alloc(name, dtype, shape, ir.Space.BLOCK) for name, dtype in pairs]
            empty.append(state.empty(slot * self.share.threads + lane))
            place = Dim.of(self.parts.var) * extent + column
            ends.append(of_parts.store(place, state.load(SLOT + column), merge=False))
        slots = ir.Loop(str(slot), Dim.of(self.slots), SERIAL, tuple(empty))
        first = ir.Loop(str(lane), Dim.of(self.share.threads), ir.Axis.LANES, (slots,))
        within, before = ([], self.kept) if self.is_ahead else (self.of_row, self.kept[len(self.of_row) :])
        turns = (around.extent - Dim.of(self.parts.var) + (self.parts.extent - 1)) // self.parts.extent
        count = ir.Let("#rounds", ir.Index(turns))
        at = ir.Let(around.var, ir.Index(Dim.of(self.parts.var) + round_ * self.parts.extent))
        following = ir.Let("#next", ir.Index(Dim.of(around.var) + self.parts.extent))
        row = (*self.memory(within), *self.in_blocks(self.copies(within)), *self.block(self.row))
        row = primitives.drop_unused((at, following, *row))
        rounds = count, ir.Loop(str(round_), Dim.of(count.name), SERIAL, row)
        last = self.block((ir.Loop(str(column), extent, SERIAL, tuple(ends)),))
        copies = walk.substitute(self.copies(before), {around.var: Dim.of(self.parts.var)})
        begin = self.in_blocks((first, *copies))
        body = (*memory, *self.memory(before), *begin, *rounds, *walk.substitute(last, {around.var: ZERO}))
        names = {name for state in self.sums for name in state.names}
        self.rows = [self.parts]
        own_block = primitives.reindex(body, lambda name, at: (RANK, *at) if name in names else at)
        return self.on_grid(own_block, when, is_narrow=True)

    def merge(self) -> ir.Launch:
        """The values that follow from the sums of a column, over the states that clusters leave: a warp has a column in
        each lane and every so many-th state, and the first warp merges those of all."""
        lane, part, across, warps = Dim.of("#lane"), Dim.of("#of_part"), self.both.across, BLOCK // WARP
        column, place = Dim.of("#columns") * WARP + lane % WARP, (part * warps + lane // WARP) * across.extent
        count = ir.Let("#count", ir.Index((self.parts.extent - lane // WARP + (warps - 1)) // warps))
        memory, own, lets = list[ir.Statement](), list[ir.Statement]([count]), list[ir.Statement]()
        for (name, fold), state in zip(self.both.folds, self.of_parts, strict=True):
            memory += (shared := state.beside("of_warp")).memory(BLOCK, ir.Space.BLOCK)
            ways = (own, state, place + column, count.name), (lets, shared, part * WARP + lane, warps)
            for done, states, at, most in ways:
                (value,), loops = states.load(at), ((str(part), Dim.of(most)),)
                done.append(ir.Let(name, ir.Fold(fold.monoid, loops, (), value, fold.dtype)))
            own.append(shared.store(lane, (ir.Var(name, fold.dtype),), merge=False))
        last = walk.substitute((*self.both.before, *lets, *self.both.after), {across.var: column})
        inside = compare("less", column, across.extent)
        first = ir.Call("logical_and", (compare("less", lane, Dim.of(WARP)), inside), DType.BOOL)
        passes = ir.If(inside, tuple(own)), ir.If(first, last)
        lanes = (ir.Loop(str(lane), Dim.of(BLOCK), ir.Axis.LANES, (one,)) for one in passes)
        body = folds.expand_folds((*memory, *lanes), 1, wide=False)
        columns = ir.Loop("#columns", (across.extent + (WARP - 1)) // WARP, ir.Axis.THREADS, body)
        return ir.Launch((columns,), threads=BLOCK)


def sums_rows(kernel: ir.Kernel, sizes: Mapping[str, int]) -> bool:
    """Whether clusters sum the columns of long rows that they keep, at these sizes, where there are many."""
    conditions = [launch.when for launch in kernel.launches if launch.hints.resident == SUMMING]
    return min(sizes.values(), default=0) >= MANY and any(when and ir.runs(when, sizes) for when in conditions)


def passes_of(row: Statements) -> Iterator[tuple[str, Statements]]:
    """The passes over a row, by their variable: folds over one loop, and loops."""
    for statement in row:
        match statement:
            case ir.Let(_, ir.Fold(_, ((variable, _),)) as fold):
                yield variable, (*fold.body, ir.Let("", fold.value))
            case ir.Loop(variable, _, _, body):
                yield variable, body
            case _:
                pass


def extent_of(row: Statements) -> Dim | None:
    """The common extent of all passes over a row; None where they differ, or other statements intervene."""
    extents = set[Dim]()
    for statement in row:
        match statement:
            case ir.Let(_, ir.Fold(_, ((_, extent),), body)) | ir.Loop(_, extent, _, body) if vectors.is_straight(body):
                extents.add(extent)
            case ir.Let() | ir.Store() | ir.Require() if not walk.is_fold(statement):
                pass
            case _:
                return None
    extent, *others = extents or {ZERO}
    return None if others or any(name.startswith("#") for name in extent.names) else extent
