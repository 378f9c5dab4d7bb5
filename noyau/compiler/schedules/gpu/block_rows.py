"""Rows that blocks of threads reduce and write: inputs of several passes stay in registers.

A row that does not fit one block is spread over the blocks of a cluster: each keeps a piece, folds it, and sends its
state to the others. So every cell is loaded from memory once, however long its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.gpu import vectors
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
RANK = Dim.of("#rank")  # of a block in its cluster
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
        resident = 0 if self.share.blocks == 1 else RESIDENT
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
                    done += self.fold(statement)
                case ir.Loop(var, extent, _, body) if is_innermost(statement):
                    steps, tag = Steps(body), free_name(var.removeprefix("#"), self.tags)
                    self.tags.add(tag)
                    done += self.in_blocks(self.spread(var, extent, steps, tag, self.places(var, body)))
                case ir.Loop() | ir.If():
                    done.append(replace(statement, body=self.block(statement.body)))
                case _:
                    done.append(statement)
        return tuple(done)

    def fold(self, let: ir.Let) -> Statements:
        """A fold over the threads, and over the blocks of a cluster. States of a sum of float32 are float64, except
        within a vector, in a warp, whose threads add few, and where a loose result is allowed."""
        fold, name, blocks = walk.fold_of(let), let.name, self.share.blocks
        state = folds.state_of(fold, name, wide=self.is_wide)
        states = (*state.memory(self.share.threads), *self.states(fold, state, name))
        if blocks > 1:
            all_states = state.beside("of_block")
            own = all_states.store(RANK, state.load(ZERO), merge=False)
            states = (*all_states.memory(blocks, ir.Space.CLUSTER), *self.in_blocks((*states, own)))
            states += folds.halves(all_states, blocks, str(RANK))
            state = all_states
        return (*states, ir.Let(name, state.result(ZERO, fold.dtype), let.origin))

    def states(self, fold: ir.Fold, state: folds.State, name: str) -> Statements:
        """The states of all threads, merged into cell 0."""
        variable, _ = fold.loops[-1]
        places = [] if len(fold.loops) > 1 else self.places(variable, whole_body(fold))
        lane, one = Dim.of(f"#lane_{name}"), folds.state_of(fold, f"{name}.of_vector", wide=False)
        steps = Steps(folds.step(fold, state, lane))
        if places and fold.monoid == "sum" and fold.dtype.is_float:
            of_vector = (*one.memory(1), one.empty(ZERO)), folds.step(fold, one, ZERO)
            steps = replace(steps, of_vector=(*of_vector, (state.store(lane, one.load(ZERO), merge=True),)))
        return self.merge_rounds(fold.loops, steps, state, name, places)

    def merge_rounds(
        self, loops: Sequence[tuple[str, Dim]], steps: Steps, state: folds.State, name: str, places: Sequence[Place]
    ) -> Statements:
        """Loops around steps, which merge into the state of a thread: it runs its part of the rounds of the innermost
        loop. Then the merge of all states."""
        *around, (variable, extent) = loops
        *before, threads = self.spread(variable, extent, steps, name, places)
        assert isinstance(threads, ir.Loop)
        own = primitives.nest([ir.Loop(*each, ir.Axis.SERIAL, ()) for each in around], threads.body)
        merge = folds.halves(state, self.share.threads, threads.var)
        return (*before, replace(threads, body=(state.empty(Dim.of(threads.var)), *own)), *merge)


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

    def read_again(self) -> list[Place]:
        """Find the inputs that several passes over a row read, its own cells in each row, at no looked-up index."""
        named = {s.name for s in self.row if isinstance(s, ir.Let)}
        counts = Counter(place for one in passes_of(self.row) for place in set(self.places(*one)))
        again = sorted((place for place, count in counts.items() if count > 1), key=str)
        inputs = [place for place in again if self.buffers[place[0]].role is ir.Role.INPUT and self.is_of_row(place)]
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
        row = (*self.memory(), *piece, *self.in_blocks(self.copies()), *self.block(self.row))
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

    def memory(self) -> Statements:
        """Registers of each thread for its vectors, and for a cell at the ends."""
        around = () if self.share.blocks == 1 else (Dim.of(self.share.blocks),)
        lanes = (*around, Dim.of(self.share.threads))
        return tuple(
            ir.Alloc(f"{name}.{what}", self.buffers[name].dtype, (*lanes, Dim.of(many), Dim.of(cells)), ir.Space.LANE)
            for name, _ in self.kept
            for what, many, cells in (("kept", self.rounds, self.width), ("end", 1, 1))
        )

    def in_lane(self, tag: str, variable: str) -> tuple[Shape, Shape]:
        """The index of a cell in the registers of a thread: within vectors, and at an end."""
        around = () if self.share.blocks == 1 else (RANK,)
        lane = Dim.of(f"#lane_{tag}")
        return (*around, lane, Dim.of(f"{variable}_round"), Dim.of(f"{variable}_cell")), (*around, lane, ZERO, ZERO)

    def copies(self) -> Statements:
        """Load each kept array from memory."""
        copies = list[ir.Statement]()
        for name, (*outer, last) in self.kept:
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
        return self.walk(variable, kept, tag, [place for place in places if place not in self.kept])

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
        end = primitives.drop_unused((at, *walk.substitute(steps.of_cell, {variable: self.begin + Dim.of(over)})))
        own_cells = (*whole, ir.If(compare("less", lane, Dim.of(ENDS)), end))
        return (*untils, ir.Loop(str(lane), Dim.of(self.share.threads), ir.Axis.LANES, own_cells))

    def in_vectors(self, variable: str, steps: Steps, tag: str, alone: frozenset[str]) -> Statements:
        """The vectors of a thread; the cells of the buffers `alone` one by one."""
        assert steps.of_vector is not None
        first, each, last = steps.of_vector
        count, cell = Dim.of(f"{variable}_round") * self.share.threads + Dim.of(f"#lane_{tag}"), f"{variable}_cell"
        at = self.begin + Dim.of(UNTIL) + count * self.width + Dim.of(cell)
        cells = ir.Loop(cell, Dim.of(self.width), ir.Axis.VECTOR, walk.substitute(each, {variable: at}), alone=alone)
        body = (ir.If(compare("less", count, Dim.of(VECTORS)), (*first, cells, *last)),)
        return (ir.Loop(f"{variable}_round", Dim.of(self.rounds), ir.Axis.SERIAL, body),)


def whole_body(fold: ir.Fold) -> Statements:
    """The statements of a round of a fold, and its value."""
    return (*fold.body, ir.Let("", fold.value))


def passes_of(row: Statements) -> Iterator[tuple[str, Statements]]:
    """The passes over a row, by their variable: folds over one loop, and loops."""
    for statement in row:
        match statement:
            case ir.Let(_, ir.Fold(_, ((variable, _),)) as fold):
                yield variable, whole_body(fold)
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
