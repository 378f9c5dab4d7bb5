"""A launch of a kernel as a function that Triton compiles: one program of a grid, with tiles as blocks of values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Const,
    Expr,
    Fold,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Prefetch,
    Require,
    Statement,
    Store,
    Sync,
    Var,
)
from noyau.ir.monoids import MONOIDS
from noyau.languages.c_names import fitting, wish_of
from noyau.languages.spelling import opened
from noyau.languages.triton_expressions import Expressions, Lane, Used
from noyau.languages.triton_merges import merged, reduced
from noyau.languages.triton_names import Variables
from noyau.languages.triton_tables import TYPES, const_text
from noyau.languages.triton_tiles import depth_of, is_reduced_into
from noyau.schedules.grid_tiles import Tile, tile_of, tiles_in

INDENT = "    "


class Printer:
    """One launch being printed."""

    def __init__(self, kernel: Kernel, position: int, launch: Launch, used: Used) -> None:
        self.kernel, self.launch = kernel, launch
        self.name = f"{kernel.name}_{position}"
        self.names = Variables(kernel)
        self.said = Expressions(kernel, self.names, used)
        self.used = used
        self.lines: list[str] = []
        self.depth = 1
        self.known: list[dict[str, str]] = [{}]  # texts that have a name, block by block
        self.changing: set[str] = set()  # the variables that are assigned more than once
        self.tiles = tiles_in(launch.body)
        self.rank = depth_of(launch.body)
        self.shapes: dict[str, str] = {}  # of memory
        self.empty: set[str] = set()  # memory that holds the state of nothing

    def text(self) -> str:
        """The function; `taken` then are its parameters."""
        for tile in self.tiles:
            self.said.words[str(tile.size)] = tile.name
        self.grid(self.launch.body)
        steps = [f"{name}_STEP: tl.constexpr" for name in self.stepped()]
        tiles = [f"{tile.name}: tl.constexpr" for tile in self.tiles]
        head = [*self.buffers(), *self.sizes(), *steps, "INDEX: tl.constexpr", *tiles]
        wide = [f"{INDENT}{name} = tl.cast({name}, INDEX){self.step(name)}" for name in self.sizes()]
        return "\n".join([f"@triton.jit\ndef {self.name}({', '.join(head)}):", *wide, *self.lines])

    def step(self, size: str) -> str:
        return f" * {size}_STEP" if size in self.stepped() else ""

    def stepped(self) -> list[str]:
        """The sizes that lines of memory are as long as: given in steps, by which Triton knows what to move at once."""
        names = {name for b in self.kernel.buffers for dim in (*b.shape[-1:], *(b.strides or ())) for name in dim.names}
        return [
            self.names.blocks[0]["size", b.size] for b in self.kernel.binding if b.size in names and self.has(b.size)
        ]

    def has(self, size: str) -> bool:
        return ("size", size) in self.names.used

    def buffers(self) -> list[str]:
        """The buffers that the text has asked for, in order."""
        kept = [buffer for buffer in self.kernel.buffers if ("value", buffer.name) in self.names.used]
        return [self.names.blocks[0]["value", buffer.name] for buffer in kept]

    def sizes(self) -> list[str]:
        kept = [binding.size for binding in self.kernel.binding if self.has(binding.size)]
        return [self.names.blocks[0]["size", size] for size in kept]

    def write(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def define(self, text: str, wish: str) -> str:
        """A variable that holds a text; the one that does already, where there is one."""
        found = next((block[text] for block in reversed(self.known) if text in block), None)
        if found is not None:
            return found
        name = self.names.fresh(wish)
        self.write(f"{name} = {text}")
        if not self.changing & set(re.findall(r"[A-Za-z_]\w*", text)):
            self.known[-1][text] = name
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines under a head; what they name is not known after them."""
        self.write(head)
        self.depth += 1
        self.known.append({})
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("pass")
        self.known.pop()
        self.depth -= 1

    # The grid.

    def grid(self, body: tuple[Statement, ...]) -> None:
        """Programs by their number: the loops on threads, the innermost one counting fastest."""
        loops, inner, before = list[Loop](), body[-1:], body[:-1]
        while len(inner) == 1 and isinstance(inner[0], Loop) and inner[0].axis is Axis.THREADS:
            loops.append(inner[0])
            inner = inner[0].body
        if not loops:
            before, inner = (), body
        if loops:
            self.counters(loops)
        self.statements(before)
        self.statements(inner)

    def counters(self, loops: Sequence[Loop]) -> None:
        names = [self.names.bind(loop.var, wish_of(loop.var)) for loop in loops]
        item = names[0] if len(loops) == 1 else "item"
        self.write(f"{item} = tl.program_id(0).to(INDEX)")
        for at in reversed(range(len(loops))):
            extent = self.said.dim(loops[at].extent) if at else ""
            self.said.extents[loops[at].var] = loops[at].extent
            if at:
                count = (
                    extent if extent.isidentifier() or extent.isdigit() else self.define(extent, f"{names[at]}_count")
                )
                self.write(f"{names[at]} = item % {count}")
                self.write(f"{'item' if at > 1 else names[0]} = item // {count}")

    # Statements.

    def statements(self, statements: Iterable[Statement]) -> None:
        kept = list(statements)
        for at, statement in enumerate(kept):
            if isinstance(statement, Store) and at + 1 < len(kept) and is_reduced_into(kept[at + 1], statement):
                self.empty |= set(statement.buffers)
            else:
                self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Let():
                self.let(statement)
            case Store():
                self.store(statement)
            case Loop():
                self.loop(statement)
            case If(condition, body):
                self.said.conditions.append(self.define(self.said.top(condition), "holds"))
                self.statements(body)
                self.said.conditions.pop()
            case Alloc():
                self.alloc(statement)
            case Require(index, extent):
                at = self.said.dim(index)
                inside = self.define(f"({at} >= 0) & ({at} < {self.said.dim(extent)})", "inside")
                self.said.inside |= dict.fromkeys((name for name in index.names if name.startswith("#")), inside)
            case Prefetch():
                pass  # a hint, for which there is no word
            case Sync():
                raise UnsupportedError("triton has no Sync: it places its own within a program")
            case _:
                assert_never(statement)

    def let(self, let: Let) -> None:
        wish = let.origin[0] if let.origin else let.name.removeprefix("#")
        if isinstance(let.value, Load) and isinstance(self.said.memory[let.value.buffer], Buffer):
            wish = f"{let.value.buffer}_i"
        self.said.along[let.name] = self.said.varies(let.value)
        if isinstance(let.value, Fold):
            name = self.fold(let.value, wish)
        elif isinstance(let.value, Index) and let.name.startswith("#"):
            name = self.define(self.said.dim(let.value.dim), fitting(wish_of(let.name) or wish))
        else:
            name = self.define(self.quotient(let.value) or self.said.top(let.value), fitting(wish))
        self.names.alias(let.name, name)

    def quotient(self, value: Expr) -> str | None:
        """A tile divided by what is one value along one of its axes, which is inverted once; None of other values."""
        match value:
            case Call("divide", (x, Var() as by), DType.F32) if self.said.varies(by) < self.said.varies(x):
                self.used.divides = True
                divisor = self.said.expr(by)
                scale = self.define(f"noyau_scale({divisor})", f"{divisor}_scale")
                scaled = self.define(f"{divisor} * {scale}", f"{divisor}_scaled")
                inverse = self.define(f"tl.div_rn(1.0, {scaled})", f"{divisor}_inverse")
                scaled = self.define(f'tl.where(tl.abs({scaled}) < float("inf"), {scaled}, 0.0)', f"{divisor}_finite")
                return f"noyau_quotient({self.said.top(x)}, {scale}, {scaled}, {inverse})"
            case _:
                return None

    def store(self, store: Store) -> None:
        if isinstance(self.said.memory[store.buffers[0]], Alloc):
            self.remember(store)
            return
        for name, value in zip(store.buffers, store.values, strict=True):
            buffer = self.said.memory[name]
            assert isinstance(buffer, Buffer)
            masks = self.said.masks(store.index)
            text = self.said.top(value)
            given = f", mask={opened(masks)}" if masks else ""
            self.write(f"tl.store({self.said.cell(buffer, store.index)}, {text}{given})")

    def loop(self, loop: Loop) -> None:
        found = tile_of(loop.extent)
        if found is not None and loop.axis is Axis.LANES:
            self.tile(loop, *found)
        elif found is not None:
            self.reduction(loop, *found)
        elif loop.axis is Axis.THREADS:
            raise UnsupportedError("triton runs THREADS loops outermost only, each alone in the other")
        else:
            name = self.names.bind(loop.var, wish_of(loop.var))
            self.said.extents[loop.var] = loop.extent
            with self.block(f"for {name} in range(0, {self.said.dim(loop.extent)}):"):
                self.statements(loop.body)

    # Tiles.

    @contextmanager
    def opened(self, variable: str, tile: Tile, rest: Dim | None, body: Sequence[Statement]) -> Iterator[None]:
        """An open tile: its cells, and where they are inside. Where `body` begins with the index of the cells, the
        mask says where that is below its end."""
        said, axis = self.said, len(self.said.lanes)
        around = ["None"] * self.rank
        around[axis] = ":"
        cells = f"tl.arange(0, {tile.name})" + (f"[{', '.join(around)}]" if self.rank > 1 else "")
        said.along[variable] = frozenset({variable})
        said.extents[variable] = tile.size if rest is None else rest
        said.lanes[variable] = Lane(axis, tile.name, None)
        said.words[variable] = cells
        match body[:1]:
            case (Let(name, Index(at)) as first,) if name.startswith("#") and variable in at.names:
                self.let(first)
                index, end = self.names.atom(name), None if rest is None else rest + at - Dim.of(variable)
                said.extents |= {} if end is None else {name: end}
            case _:
                index, end = self.define(cells, fitting(variable.removeprefix("#"))), rest
                said.words[variable] = index
        if end is not None:
            mask = self.define(f"{index} < {said.dim(end)}", f"{index}_inside")
            said.lanes[variable] = Lane(axis, tile.name, mask)
        yield
        del said.lanes[variable]

    def tile(self, loop: Loop, tile: Tile, rest: Dim | None) -> None:
        """Cells side by side."""
        match loop.body:
            case (Store(buffers, (at,), values, None),) if at == Dim.of(loop.var) and rest is None:
                self.begin(buffers, values)  # memory of a tile as it is at first
            case _:
                with self.opened(loop.var, tile, rest, loop.body):
                    self.statements(loop.body)

    def reduction(self, loop: Loop, tile: Tile, rest: Dim | None) -> None:
        """A tile of states, merged into one."""
        match loop.body[-1:]:
            case (Store(buffers, _, values, str(monoid)),) if rest is None and len(loop.body) == 1:
                pass
            case _:
                raise UnsupportedError(f"triton cannot run the loop over {loop.var} one by one in a tile")
        self.said.lanes[loop.var] = Lane(len(self.said.lanes), tile.name, None)
        states = [self.said.top(value) for value in values]
        axis = self.said.lanes.pop(loop.var).axis
        dtypes = tuple(value.dtype for value in values)
        found, names = self.reduced(monoid, states, axis, dtypes, [*buffers]), [*map(self.names.value, buffers)]
        text = ", ".join(found) if self.empty.issuperset(buffers) else merged(monoid, names, found, dtypes, self.used)
        self.empty -= set(buffers)
        self.write(f"{', '.join(names)} = {text}")

    def fold(self, fold: Fold, wish: str) -> str:
        """A fold over a tile: its result."""
        ((variable, extent),) = fold.loops if len(fold.loops) == 1 else ((None, None),)
        found = tile_of(extent) if extent is not None else None
        if found is None or variable is None:
            raise UnsupportedError("triton reduces tiles only: a schedule for GPUs comes before it prints")
        monoid = MONOIDS[fold.monoid]
        with self.opened(variable, *found, fold.body):
            self.statements(fold.body)
            lane = self.said.lanes[variable]
            at = Dim.of(variable) if fold.at is None else fold.at
            lifted = monoid.lift(Symbolic(), fold.value, Index(at))
            dtypes = monoid.states(fold.value.dtype)
            parts = zip(lifted, monoid.init(dtypes[0]), dtypes, strict=True)
            alike = frozenset({variable}).union(*map(self.said.varies, lifted))
            states = [self.kept(value, variable, empty, dtype, alike) for value, empty, dtype in parts]
        names = [fitting(f"{wish}_{part}" if len(states) > 1 else wish) for part in range(len(states))]
        texts = self.reduced(fold.monoid, states, lane.axis, dtypes, names)
        if len(texts) == 1:
            return self.define(texts[0], names[0])
        inner = tuple(Var(f"state {text}", dtype) for text, dtype in zip(texts, dtypes, strict=True))
        for text, part in zip(texts, inner, strict=True):
            self.names.alias(part.name, text)
        return self.define(self.said.top(monoid.finish(Symbolic(), inner)), fitting(wish))

    def kept(self, value: Expr, variable: str, empty: float | int, dtype: DType, alike: frozenset[str]) -> str:
        """A part of the states of a tile's cells, as a block along these tiles; those outside are empty."""
        text, mask = self.said.top(value), self.said.lanes[variable].mask
        if mask is not None:
            text = f"tl.where({mask}, {text}, {const_text(empty, dtype)})"
            if alike <= self.said.varies(value) | {variable}:
                return text
        return f"tl.broadcast_to({text}, {self.block_of(alike)})"

    def block_of(self, lanes: Iterable[str]) -> str:
        """The shape of a block of values along tiles."""
        axes = ["1"] * self.rank
        for name in lanes:
            axes[self.said.lanes[name].axis] = self.said.lanes[name].size
        return f"({', '.join(axes)}{',' if self.rank == 1 else ''})"

    def reduced(
        self, monoid: str, states: Sequence[str], axis: int, dtypes: Sequence[DType], wishes: Sequence[str]
    ) -> list[str]:
        """The states of a tile merged along an axis: texts, or the variables that hold several."""
        text = reduced(monoid, states, axis, dtypes, self.rank, self.used)
        if len(states) == 1:
            return [text]
        names = [self.names.fresh(fitting(wish)) for wish in wishes]
        self.write(f"{', '.join(names)} = {text}")
        return names

    # Memory.

    def alloc(self, alloc: Alloc) -> None:
        """Memory is a variable: a block of values, one for each cell of the open tiles and of its own."""
        said = self.said
        if len(alloc.shape) != 1:
            raise UnsupportedError(f"triton has no memory of {len(alloc.shape)} axes: {alloc.name}")
        said.memory[alloc.name] = alloc
        said.along[alloc.name] = frozenset(said.lanes)
        axes = ["1"] * self.rank
        for lane in said.lanes.values():
            axes[lane.axis] = lane.size
        if (found := tile_of(alloc.shape[0])) is not None:
            axes[len(said.lanes)] = found[0].name
        elif alloc.shape[0] != Dim.of(1):
            raise UnsupportedError(f"triton has no memory of {alloc.shape[0]} cells: {alloc.name}")
        scalar = not said.lanes and found is None
        self.shapes[alloc.name] = "()" if scalar else f"({', '.join(axes)}{',' if self.rank == 1 else ''})"
        name = self.names.bind(alloc.name, fitting(alloc.name))
        self.changing.add(name)

    def begin(self, buffers: Sequence[str], values: Sequence[Expr]) -> None:
        """Memory set to numbers."""
        for buffer, value in zip(buffers, values, strict=True):
            assert isinstance(value, Const)
            shape, kind = self.shapes[buffer], TYPES[self.said.memory[buffer].dtype]
            text = const_text(value.value, self.said.memory[buffer].dtype)
            self.write(f"{self.names.value(buffer)} = tl.full({shape}, {text}, {kind})")

    def remember(self, store: Store) -> None:
        """A Store into memory: in the cells that are inside, where the memory has several."""
        if all(isinstance(value, Const) for value in store.values) and not store.merge:
            self.begin(store.buffers, store.values)
            return
        names = [self.names.value(buffer) for buffer in store.buffers]
        own = [self.said.lanes[name].mask for name in sorted(store.index[0].names) if name in self.said.lanes]
        mask = " & ".join(f"({m})" if " " in m else m for m in [*own, *self.said.conditions] if m)
        texts = [self.said.top(value) for value in store.values]
        dtypes = tuple(self.said.memory[buffer].dtype for buffer in store.buffers)
        if store.merge:
            empty = MONOIDS[store.merge].init(dtypes[0])
            if mask:
                texts = [
                    f"tl.where({mask}, {t}, {const_text(e, d)})" for t, e, d in zip(texts, empty, dtypes, strict=True)
                ]
            self.write(f"{', '.join(names)} = {merged(store.merge, names, texts, dtypes, self.used)}")
            return
        for name, text, buffer in zip(names, texts, store.buffers, strict=True):
            text = f"tl.where({mask}, {text}, {name})" if mask else text
            shape = self.shapes[buffer]
            self.write(f"{name} = {text if shape == '()' else f'tl.broadcast_to({text}, {shape})'}")
