"""A launch of a kernel as a function that Triton compiles: one program of a grid, with tiles as blocks of values."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from noyau.codegen.identifiers import fitting, wish_of
from noyau.codegen.statements import INDENT
from noyau.codegen.tables import as_operand, unwrap
from noyau.codegen.triton import memory
from noyau.codegen.triton.expressions import EITHER, Lane, LeadTile, TextFunctions, guarded_index, merge_states
from noyau.codegen.triton.tables import const_text
from noyau.compiler.schedules.gpu.rows import IN_A_ROW
from noyau.compiler.schedules.gpu.strategies import FOLDED, depth_of, read_for
from noyau.compiler.schedules.primitives import minimum
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, never_negative, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_statement, on_threads

# Wait for the results of the launch before. The next launch may begin only once all programs are past this line: what
# it loads early was written two launches ago, so is in memory.
WAIT = "if EARLY: tl.extra.cuda.gdc_wait(); tl.extra.cuda.gdc_launch_dependents()"


class TritonPrinter(memory.LaunchMemory):
    """Printer of one launch."""

    def __init__(self, kernel: ir.Kernel, position: int, launch: ir.Launch, used: TextFunctions) -> None:
        super().__init__(kernel, used, depth_of(launch.body), launch.tiles)
        self.launch = launch
        self.texts.hints, self.texts.passes = launch.hints, dict(launch.hints.passes)
        self.is_early = launch.hints.waits or launch.hints.follows
        self.name = f"{kernel.name}_{position}"
        self.even = memory.even_tiles(launch)
        self.merged, self.common = memory.merged_memory(launch.body), memory.common_loads(kernel, launch)
        self.leads: dict[str, Dim] = {}  # variables with a row's distance from a multiple of 16 bytes: the row's begin
        self.staged = list[Dim]()  # the bytes that an iteration loads, for each loop that loads iterations ahead

    def text(self) -> str:
        for tile in self.tiles:
            self.texts.words[str(tile.size)] = tile.name
        self.grid(self.launch.body)
        steps = [f"{name}_STEP: tl.constexpr" for name in self.step_sizes()]
        flags = [f"{flag}: tl.constexpr" for flag in self.flags()]
        head = [*self.buffers(), *self.sizes(), *steps, "INDEX: tl.constexpr", *flags]
        pairs = zip(self.sizes(), map(self.covering, self.bound()), strict=True)
        wide = [f"{INDENT}{name} = {known}tl.cast({name}, INDEX){self.step(name)}" for name, known in pairs]
        wait = WAIT if self.launch.hints.waits else WAIT.partition(";")[0]
        wide += [f"{INDENT}{wait}"] * self.is_early
        return "\n".join([f"@triton.jit\ndef {self.name}({', '.join(head)}):", *memory.read([*wide, *self.lines])])

    def covering(self, size: str) -> str:
        """The tile that covers a size, which is a number to Triton, where it is even: of rows of a map that follow each
        other, whose places are products with that size."""
        if IN_A_ROW not in self.tiles:
            return ""
        covers = {name for name, evens in self.even.items() for e in evens if e.whole == Dim.of(size) and not e.steps}
        return "".join(f"{name} if {name}_EVEN else " for name in sorted(covers)[:1])

    def first_of(self, policy: ir.TilePolicy) -> ir.Tile | None:
        return next((tile for tile in self.tiles if tile.policy is policy), None)

    def flags(self) -> list[str]:
        """The compile-time parameters: the sizes of tiles, and facts about the tiles and the memory."""
        flags = [*(tile.name for tile in self.tiles), *(f"{name}_EVEN" for name in self.even)]
        flags += ["STAGES"] * bool(self.staged) + ["ENDS"] * bool(self.texts.ends) + ["AGAIN"] * bool(self.again())
        return flags + ["AHEAD"] * bool(self.texts.ahead) + ["EARLY"] * self.is_early

    def again(self) -> list[str]:
        """The inputs that the text may load again; empty if it does not."""
        again = self.texts.reloaded if self.texts.held else ()
        return [self.names.blocks[0]["value", b.name] for b in self.kernel.buffers if b.name in again]

    def step(self, size: str) -> str:
        return f" * {size}_STEP" if size in self.step_sizes() else ""

    def step_sizes(self) -> list[str]:
        """The sizes in lengths of rows: passed divided by a compile-time step, by which Triton vectorises."""
        ends = [buffer for buffer in self.kernel.buffers if buffer.role is not ir.Role.SCRATCH]
        names = {name for b in ends for dim in (*b.shape[-1:], *(b.strides or ())) for name in dim.names}
        return [self.names.blocks[0]["size", size] for size in self.bound() if size in names]

    def bound(self) -> list[str]:
        """The sizes that the text uses, in order."""
        return [each.size for each in self.kernel.binding if ("size", each.size) in self.names.used]

    def buffers(self) -> list[str]:
        """The buffers that the text uses, in order."""
        kept = [buffer for buffer in self.kernel.buffers if ("value", buffer.name) in self.names.used]
        return [self.names.blocks[0]["value", buffer.name] for buffer in kept]

    def sizes(self) -> list[str]:
        return [self.names.blocks[0]["size", size] for size in self.bound()]

    def grid(self, body: tuple[ir.Statement, ...]) -> None:
        """Print the body; the loops on threads become the program's number, with the innermost one varying fastest."""
        before, loops, inner = on_threads(body)
        if loops:
            self.counters(loops)
        self.statements(before)
        self.statements(inner)

    def counters(self, loops: Sequence[ir.Loop]) -> None:
        names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        item = names[0] if len(loops) == 1 else "item"
        self.write(f"{item} = tl.program_id(0).to(INDEX)")
        for at in reversed(range(len(loops))):
            self.texts.extents[loops[at].var] = loops[at].extent
            if at:
                extent = self.texts.dim(loops[at].extent)
                is_word = extent.isidentifier() or extent.isdigit()
                count = extent if is_word else self.define(extent, f"{names[at]}_count")
                self.write(f"{names[at]} = item % {count}")
                self.write(f"{'item' if at > 1 else names[0]} = item // {count}")

    def statements(self, statements: Iterable[ir.Statement]) -> None:
        kept = list(statements)
        for at, statement in enumerate(kept):
            if isinstance(statement, ir.Store) and at + 1 < len(kept) and _is_reduced_into(kept[at + 1], statement):
                self.empty |= set(statement.buffers)
            else:
                self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let():
                self.let(statement)
            case ir.Store():
                self.store(statement)
            case ir.Loop():
                self.loop(statement)
            case ir.If(condition, body) if guarded_index(condition) in self.texts.led:
                self.statements(body)
            case ir.If(condition, body):
                self.texts.conditions.append(self.define(self.texts.top(condition), "holds"))
                self.statements(body)
                self.texts.conditions.pop()
            case ir.Alloc():
                self.alloc(statement)
            case ir.Require(index, extent):
                at = self.texts.dim(index)
                inside = self.define(f"({at} >= 0) & ({at} < {self.texts.dim(extent)})", "inside")
                self.texts.inside |= dict.fromkeys((name for name in index.names if name.startswith("#")), inside)
            case ir.Prefetch():
                pass  # a hint that Triton has no word for
            case ir.Zero() | ir.MergeLanes() | ir.StreamStore():
                raise UnsupportedError(f"triton has no {statement}: schedules for CPUs make it")
            case _:
                assert_never(statement)

    def let(self, let: ir.Let) -> None:
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, ir.Load) and isinstance(self.texts.memory[let.value.buffer], ir.Buffer):
            wish = f"{let.value.buffer}_i"
        if isinstance(let.value, ir.Fold):
            name = self.fold(let.value, wish)
        elif isinstance(let.value, ir.Index) and let.name.startswith("#"):
            name = self.define(self.texts.dim(let.value.dim), fitting(wish_of(let.name) or wish))
            if (row := memory.led_row(let.value)) is not None:
                self.leads[let.name] = row
        else:
            name = self.define(self.quotient(let.value) or self.texts.top(let.value), fitting(wish))
        self.texts.along[let.name] = self.texts.varies(let.value)  # only here: a fold's body must be known first
        if isinstance(let.value, ir.Load) and self.texts.passing == FOLDED and let.value.buffer in self.texts.reloaded:
            self.texts.held[self.texts.load(let.value)] = name
        self.names.alias(let.name, name)

    def quotient(self, value: ir.Expr) -> str | None:
        """A tile divided by a value that is the same along one of its axes, and is inverted once; else None."""
        match value:
            case ir.Call("divide", (x, ir.Var() as by), DType.F32) if self.texts.varies(by) < self.texts.varies(x):
                self.used.rows |= {"scale"} if self.launch.hints.is_loose else {"scale", "quotient"}
                divisor = self.texts.expr(by)
                scale = self.define(f"noyau_scale({divisor})", f"{divisor}_scale")
                scaled = self.define(f"{divisor} * {scale}", f"{divisor}_scaled")
                inverse = self.define(f"tl.div_rn(1.0, {scaled})", f"{divisor}_inverse")
                if self.launch.hints.is_loose:
                    return f"{as_operand(self.texts.top(x))} * {scale} * {inverse}"
                scaled = self.define(f'tl.where(tl.abs({scaled}) < float("inf"), {scaled}, 0.0)', f"{divisor}_finite")
                return f"noyau_quotient({self.texts.top(x)}, {scale}, {scaled}, {inverse})"
            case _:
                return None

    def store(self, store: ir.Store) -> None:
        if isinstance(self.texts.memory[store.buffers[0]], ir.Alloc):
            self.remember(store)
            return
        for name, value in zip(store.buffers, store.values, strict=True):
            buffer = self.texts.memory[name]
            assert isinstance(buffer, ir.Buffer)
            masks = self.texts.masks(store.index)
            text = self.texts.top(value)
            options = f", mask={unwrap(masks)}" if masks else ""
            options += f", eviction_policy={leaving}" if (leaving := self.texts.leaving()) != EITHER else ""
            if led := self.texts.lead_of(buffer, store.index):
                cells, *where = self.texts.in_lines(buffer, store.index, led)
                words = cells, text, *where, led.at_end, "ALIGN", self.texts.leaving()
                self.write(f"noyau_store({', '.join(words)})")
            else:
                cell = self.texts.cell(buffer, store.index)
                along = self.texts.dim_varies(store.index)
                lanes = (along | self.texts.varies(value)) & self.texts.lanes.keys()  # not just `along` if no cell is
                if not lanes <= along or (self.rank > 1 and self.texts.lanes and not along):
                    cell += f" + tl.zeros({self.block_of(lanes)}, tl.int32)"  # the value may be a block of one value
                self.write(f"tl.store({cell}, {text}{options})")

    def loop(self, loop: ir.Loop) -> None:
        tile = loop.tile
        if tile is not None and loop.axis is ir.Axis.SERIAL and len(loop.body) == 1 and loop.extent == tile.size:
            self.reduction(loop, tile)
        elif tile is not None:
            self.tile(loop, tile)
        elif loop.axis is ir.Axis.THREADS:
            raise UnsupportedError("triton runs THREADS loops outermost only, each alone in the other")
        else:
            name = self.names.bind(loop.var, wish_of(loop.var))
            self.texts.extents[loop.var] = loop.extent
            turns = f"range(0, {self.texts.dim(loop.extent)})"
            if self.launch.hints.is_pipelined and (size := memory.bytes_of_round(self.kernel, loop)) is not None:
                self.staged.append(product(map(self.texts.sizes.__getitem__, self.texts.lanes)) * size)
                turns = f"tl.{turns[:-1]}, num_stages=STAGES)"
            with self.texts.pass_of(loop.var), self.block(f"for {name} in {turns}:"):
                self.statements(loop.body)

    # Tiles.

    @contextmanager
    def open_tile(self, variable: str, tile: ir.Tile, left: Dim, body: Sequence[ir.Statement]) -> Iterator[None]:
        """Opens a tile: defines its cells and the mask of those inside. Where `body` begins by defining the index of
        the cells, the mask compares that index with its end."""
        texts, axis = self.texts, self.axis_of(tile)
        rest = None if left == tile.size else left
        around = ["None"] * self.rank
        around[axis] = ":"
        cells = f"tl.arange(0, {tile.name})" + (f"[{', '.join(around)}]" if self.rank > 1 else "")
        texts.along[variable] = frozenset({variable})
        texts.extents[variable] = left
        texts.lanes[variable] = Lane(axis, tile.name, None)
        texts.words[variable] = cells
        texts.sizes[variable] = tile.size
        if (placed := memory.index_of(body, variable)) is None:
            index, end = self.define(cells, fitting(variable.removeprefix("#"))), rest
            texts.words[variable] = index
        else:
            let, at = placed
            self.let(let)
            texts.placed[let.name] = at
            index, end = self.names.atom(let.name), None if rest is None else end_of(rest, at, variable)
            texts.extents |= {} if end is None else {let.name: end}
        led = next((name for name in placed[1].names if name in self.leads), None) if placed else None
        if end is not None:
            even = f"{tile.name}_EVEN" if tile.name in self.even else "False"
            text = f"{index} < {texts.dim(end)}"
            if led is not None or tile.name in self.even:
                self.used.rows.add("inside")
                text = f"noyau_inside({index}, {texts.dim(end)}, {'ALIGN' if led else 1}, {even})"
            texts.lanes[variable] = Lane(axis, tile.name, self.define(text, f"{index}_inside"))
        if led is not None and placed and end is not None:
            texts.led[placed[0].name] = self.lead(variable, led, placed[1], end)
        yield
        del texts.lanes[variable]

    def lead(self, variable: str, lead: str, at: Dim, end: Dim) -> LeadTile:
        """Define the masks and places of a tile that begins `lead` cells before a row."""
        texts, lane, row = self.texts, self.texts.lanes[variable], self.row_of(lead)
        name, before, extent = texts.names.atom(lead), texts.dim(at + Dim.of(lead)), texts.dim(end)
        assert lane.mask is not None
        stem = lane.mask.removesuffix("_inside")
        line = self.define(f"{as_operand(texts.dim(row))} // ALIGN * ALIGN", f"{stem}_line")
        cells = self.define(before, f"{stem}_cells")
        lines = self.define(f"noyau_lines({cells}, {name}, {extent}, ALIGN)", f"{stem}_lines")
        near = self.define(f"noyau_near({cells}, {name}, {extent}, ALIGN)", f"{stem}_near")
        at_end = "True"
        self.used.rows.add("led")
        if not texts.dim_varies((self.leads[lead],)):
            first = texts.dim((at + Dim.of(lead)).replace(dict.fromkeys(texts.lanes, 0)))
            size = " * ".join(other.size for name, other in texts.lanes.items() if name in at.names)
            at_end = self.define(f"noyau_at_end({first}, {name}, {extent}, ALIGN, {size})", f"{stem}_at_end")
        inside = texts.placed
        apart = {name for buffer in self.kernel.buffers for step in buffer.strides or () for name in step.names}
        if row != self.leads[lead] or row.names & apart:  # the tile may reach past the last row, and past 32 bits
            inside = {name: minimum(index, texts.extents[name] - 1) for name, index in inside.items()}
        place, reach = (row.replace(index) + at + Dim.of(lead) for index in (texts.placed, inside))
        for other in texts.lanes:  # the farthest cell, which is in the first row where rows are read backwards
            is_first = never_negative(place.replace({other: 0}) - place.replace({other: 1}))
            farthest = {other: 0 if is_first else texts.sizes[other] - 1}
            place, reach = place.replace(farthest), reach.replace(farthest)
        return LeadTile(
            row, line, cells, lane.mask, lines, at_end, near, self.define(texts.dim(reach + 1), f"{stem}_until")
        )

    def row_of(self, lead: str) -> Dim:
        """The begin of the row that a tile begins before; where rows lie whole lines apart, of the open tile's row."""
        row = self.leads[lead]
        for name, at in self.texts.placed.items():
            for own in row.names & at.names:
                if all("ALIGN" in map(self.texts.words.get, map(str, atoms)) for atoms, _ in (at - Dim.of(own)).terms):
                    row = row.replace({own: Dim.of(name)})
        return row

    def tile(self, loop: ir.Loop, tile: ir.Tile) -> None:
        """Print a loop over a tile, whose cells are computed side by side."""
        match loop.body:
            case (ir.Store(buffers, (at,), values, None),) if at == Dim.of(loop.var) and loop.extent == tile.size:
                self.begin(buffers, values)  # the first values of a tile's memory
            case _:
                stores = [s for s in every_statement(loop.body) if isinstance(s, ir.Store) and s.merge is None]
                into = (self.texts.memory[store.buffers[0]] for store in stores)
                if loop.axis is ir.Axis.SERIAL and any(isinstance(each, ir.Alloc) for each in into):
                    raise _one_by_one(loop)
                own = self.texts.pass_of(self.texts.passing or read_for(self.kernel, loop))
                with own, self.open_tile(loop.var, tile, loop.extent, loop.body):
                    self.statements(loop.body)
                    placed = memory.index_of(loop.body, loop.var)
                    self.load_ahead(tile, placed[0].name if placed else loop.var)

    def load_ahead(self, tile: ir.Tile, variable: str) -> None:
        """While a row is being folded, load the inputs common to all rows that the writing pass needs."""
        for (name, place), own in self.common.get(tile, {}).items() if self.texts.passing == FOLDED else ():
            index, buffer = tuple(dim.replace({own: Dim.of(variable)}) for dim in place), self.texts.memory[name]
            assert isinstance(buffer, ir.Buffer)
            masks = unwrap(self.texts.masks(index)) or "True"
            text = f"noyau_ahead({self.texts.cell(buffer, index)}, {masks}, AHEAD)"
            self.texts.ahead[name] = self.define(text, f"{self.names.value(name)}_ahead")
            self.used.rows.add("ahead")

    def reduction(self, loop: ir.Loop, tile: ir.Tile) -> None:
        """Print a loop that merges a tile of states into one."""
        (store,) = loop.body
        if not isinstance(store, ir.Store) or store.merge is None:
            raise _one_by_one(loop)
        buffers, values, monoid = store.buffers, store.values, store.merge
        self.texts.lanes[loop.var] = Lane(len(self.texts.lanes), tile.name, None)
        self.write_waiting()
        states = [self.texts.state(value) for value in values]
        lane = self.texts.lanes.pop(loop.var)
        dtypes = tuple(value.dtype for value in values)
        results, names = self.reduce(monoid, states, lane, dtypes, [*buffers]), [*map(self.names.value, buffers)]
        is_first = self.empty.issuperset(buffers)
        text = ", ".join(results) if is_first else merge_states(monoid, names, results, dtypes, self.texts)
        self.empty -= set(buffers)
        self.write(f"{', '.join(names)} = {text}")

    def fold(self, fold: ir.Fold, wish: str) -> str:
        """Print a fold over a tile; returns its result."""
        ((variable, extent),) = fold.loops if len(fold.loops) == 1 else ((None, None),)
        if fold.tile is None or variable is None or extent is None:
            raise UnsupportedError("triton reduces tiles only: a schedule for GPUs comes before it prints")
        monoid = MONOIDS[fold.monoid]
        with self.texts.pass_of(self.texts.passing or FOLDED), self.open_tile(variable, fold.tile, extent, fold.body):
            self.statements(fold.body)
            self.load_ahead(fold.tile, placed[0].name if (placed := memory.index_of(fold.body, variable)) else variable)
            lane = self.texts.lanes[variable]
            lifted = monoid.lift(Symbolic(), fold.value, ir.Index(Dim.of(variable) if fold.at is None else fold.at))
            dtypes = monoid.states(fold.value.dtype)
            parts = zip(lifted, monoid.init(dtypes[0]), dtypes, strict=True)
            alike = frozenset({variable}).union(*map(self.texts.varies, lifted))
            states = [self.keep(value, variable, empty, dtype, alike) for value, empty, dtype in parts]
        names = [fitting(f"{wish}_{part}" if len(states) > 1 else wish) for part in range(len(states))]
        texts = self.reduce(fold.monoid, states, lane, dtypes, names)
        if len(texts) == 1:
            return self.define(texts[0], names[0])
        inner = tuple(ir.Var(f"state {text}", dtype) for text, dtype in zip(texts, dtypes, strict=True))
        for text, part in zip(texts, inner, strict=True):
            self.names.alias(part.name, text)
        return self.define(self.texts.top(monoid.finish(Symbolic(), inner)), fitting(wish))

    def keep(self, value: ir.Expr, variable: str, empty: float | int, dtype: DType, alike: frozenset[str]) -> str:
        """A part of the states of a tile's cells, as a block along the tiles `alike`; cells outside are empty."""
        text, mask = self.texts.state(value), self.texts.lanes[variable].mask
        if mask is not None:
            text = f"tl.where({mask}, {text}, {const_text(empty, dtype)})"
            if alike <= self.texts.varies(value) | {variable}:
                return text
        return f"tl.broadcast_to({text}, {self.block_of(alike)})"


def end_of(rest: Dim, at: Dim, variable: str) -> Dim:
    """The end of the indices of a tile's cells: `rest` cells are left, and `at` is the index of a cell."""
    begin = at.replace({variable: 0})
    step, end = at.replace({variable: 1}) - begin, begin
    for atoms, factor in rest.terms:
        match atoms:
            case (DimOp("floordiv", left, right),) if right == step and factor == 1:  # steps that begin before an end
                end += left - step + 1
            case _:
                end += Dim(((atoms, factor),)) * step
    return end


def _is_reduced_into(statement: ir.Statement, empty: ir.Store) -> bool:
    """Whether a statement merges a tile of states into memory that the Store before it set to the empty state."""
    match statement:
        case ir.Loop(_, _, ir.Axis.SERIAL, (ir.Store(buffers, _, _, str()),), ir.Tile()):
            return buffers == empty.buffers and empty.merge is None
        case _:
            return False


def _one_by_one(loop: ir.Loop) -> UnsupportedError:
    return UnsupportedError(f"triton cannot run the loop over {loop.var} one by one in a tile")
