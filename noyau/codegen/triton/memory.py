"""The state of a launch being printed in Triton: lines, names of values, and memory (blocks of values); and facts about
the tiles of a launch that its text depends on."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from noyau.codegen.identifiers import fitting
from noyau.codegen.statements import INDENT
from noyau.codegen.triton.expressions import Lane, TextFunctions, TritonExpressions, merge_states, reduce_states
from noyau.codegen.triton.tables import TYPES, TritonNames, const_text
from noyau.compiler.schedules.gpu.strategies import FOLDED, WRITTEN, read_for
from noyau.compiler.schedules.gpu.tiles import ONE
from noyau.compiler.schedules.gpu.vectors import Place
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, DimOp, product
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_expression, every_statement, folds_in, loads_of
from noyau.text import collect


def read(lines: Sequence[str]) -> list[str]:
    """The lines without assignments to variables that no other line reads."""
    words = Counter(word for line in lines for word in set(re.findall(r"[A-Za-z_]\w*", line)))
    alone = [re.match(r" *(\w+) = ", line) for line in lines]
    kept = [line for line, name in zip(lines, alone, strict=True) if name is None or words[name[1]] > 1]
    return kept if len(kept) == len(lines) else read(kept)


class LaunchMemory:
    """The indented lines of a launch, and the variables in them. A memory is a variable: a block of values, one for
    each cell of the open tiles and of the memory itself."""

    def __init__(self, kernel: ir.Kernel, used: TextFunctions, rank: int, tiles: Sequence[ir.Tile]) -> None:
        self.kernel, self.used = kernel, used
        self.names = TritonNames(kernel)
        self.texts = TritonExpressions(kernel, self.names, used)
        self.lines: list[str] = []
        self.depth = 1
        self.known: list[dict[str, str]] = [{}]  # texts to the variables that hold them, block by block
        self.changing: set[str] = set()  # the variables that are assigned more than once
        self.waiting: dict[str, str] = {}  # lines that set memory, left out if it is set again before a use
        self.rank, self.tiles = rank, tiles
        self.shapes: dict[str, str] = {}  # of memories
        self.empty: set[str] = set()  # memories that hold the empty state
        self.merged = frozenset[str]()  # memories whose cells along a tile are merged, so that those outside matter

    def write(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    def define(self, text: str, wish: str) -> str:
        """A variable that holds the value of a text: a known one if there is one, else a new one."""
        if name := next((block[text] for block in reversed(self.known) if text in block), ""):
            return name
        name = self.names.fresh(wish)
        self.write(f"{name} = {text}")
        if not self.changing & set(re.findall(r"[A-Za-z_]\w*", text)):
            self.known[-1][text] = name
        return name

    def write_waiting(self) -> None:
        for line in self.waiting.values():
            self.write(line)
        self.waiting.clear()

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Indents the lines written inside under a head; variables defined there are not reused afterwards."""
        self.write_waiting()
        self.write(head)
        self.depth += 1
        self.known.append({})
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.write("pass")
        self.known.pop()
        self.depth -= 1

    def block_of(self, lanes: Iterable[str], tile: ir.Tile | None = None) -> str:
        """The shape of a block of values along open tiles and, if given, along `tile` as the next one."""
        axes = ["1"] * self.rank
        for name in lanes:
            axes[self.texts.lanes[name].axis] = self.texts.lanes[name].size
        if tile is not None:
            axes[self.axis_of(tile)] = tile.name
        return f"({', '.join(axes)}{',' if self.rank == 1 else ''})"

    def axis_of(self, tile: ir.Tile) -> int:
        """The axis of the next tile in Triton's blocks: the last one for a KEPT tile, whose memory all loops keep."""
        return self.rank - 1 if tile.policy is ir.TilePolicy.KEPT else len(self.texts.lanes)

    def alloc(self, alloc: ir.Alloc) -> None:
        texts = self.texts
        if len(alloc.shape) != 1:
            raise UnsupportedError(f"triton has no memory of {len(alloc.shape)} axes: {alloc.name}")
        texts.memory[alloc.name] = alloc
        texts.along[alloc.name] = frozenset(texts.lanes)
        tile = next((tile for tile in self.tiles if tile.size == alloc.shape[0]), None)
        if tile is None and alloc.shape[0] != Dim.of(1):
            raise UnsupportedError(f"triton has no memory of {alloc.shape[0]} cells: {alloc.name}")
        self.shapes[alloc.name] = self.block_of(texts.lanes, tile) if texts.lanes or tile else "()"
        self.changing.add(self.names.bind(alloc.name, fitting(alloc.name)))

    def begin(self, buffers: Sequence[str], values: Sequence[ir.Expr]) -> None:
        """Set memory to constants."""
        for buffer, value in zip(buffers, values, strict=True):
            assert isinstance(value, ir.Const)
            dtype = self.texts.memory[buffer].dtype
            full = f"tl.full({self.shapes[buffer]}, {const_text(value.value, dtype)}, {TYPES[dtype]})"
            self.waiting[buffer] = f"{self.names.value(buffer)} = {full}"

    def remember(self, store: ir.Store) -> None:
        """Print a Store into memory; where the memory has several cells, only those inside change."""
        if all(isinstance(value, ir.Const) for value in store.values) and not store.merge:
            self.begin(store.buffers, store.values)
            return
        names, beside = [self.names.value(buffer) for buffer in store.buffers], self.beside(store)
        lanes = sorted(store.index[0].names) if self.merged & set(store.buffers) or not store.merge else beside
        own = [self.texts.lanes[name].mask for name in lanes if name in self.texts.lanes]
        mask = " & ".join(f"({m})" if " " in m else m for m in [*own, *self.texts.conditions] if m)
        texts = [self.texts.state(value) for value in store.values]
        dtypes = tuple(self.texts.memory[buffer].dtype for buffer in store.buffers)
        if store.merge:
            empty = MONOIDS[store.merge].init(dtypes[0])
            if mask:
                parts = zip(store.values, texts, empty, dtypes, strict=True)
                texts = [self.inside(mask, value, text, const_text(e, d)) for value, text, e, d in parts]
            for name in beside:
                texts = self.spread(store, texts)
                texts = self.reduce(store.merge, texts, self.texts.lanes[name], dtypes, store.buffers)
            if mask and self.waiting.keys() >= set(store.buffers):
                self.first(store, names, texts)
            else:
                self.write_waiting()
                self.write(f"{', '.join(names)} = {merge_states(store.merge, names, texts, dtypes, self.texts)}")
            return
        self.write_waiting()
        for name, text, buffer in zip(names, texts, store.buffers, strict=True):
            text = f"tl.where({mask}, {text}, {name})" if mask else text
            shape = self.shapes[buffer]
            self.write(f"{name} = {text if shape == '()' else f'tl.broadcast_to({text}, {shape})'}")

    def inside(self, mask: str, value: ir.Expr, text: str, empty: str) -> str:
        """`text` where the mask holds, else `empty`; tiles that begin before their rows test it only at row ends."""
        at_end = next((led.at_end for led in self.texts.led.values() if led.inside == mask), "True")
        if at_end == "True" or not self.texts.lanes.keys() <= self.texts.varies(value):
            return f"tl.where({mask}, {text}, {empty})"
        self.used.rows.add("of row")
        return f"noyau_of_row({text}, {mask}, {empty}, {at_end}, ALIGN)"

    def beside(self, store: ir.Store) -> list[str]:
        """The open tiles that a merging Store reduces: those along which the memory has a single cell."""
        own = store.index[0].names.union(*(self.texts.along[buffer] for buffer in store.buffers))
        return [name for name in self.texts.lanes if name not in own] if store.merge else []

    def spread(self, store: ir.Store, texts: Sequence[str]) -> list[str]:
        """The values of a merging Store as blocks along all open tiles."""
        block, alike = self.block_of(self.texts.lanes), self.texts.lanes.keys()
        pairs = zip(texts, store.values, strict=True)
        return [t if alike <= self.texts.varies(v) else f"tl.broadcast_to({t}, {block})" for t, v in pairs]

    def reduce(
        self, monoid: str, states: Sequence[str], lane: Lane, dtypes: Sequence[DType], wishes: Sequence[str]
    ) -> list[str]:
        """The states of a tile merged along it: the text of a single part, or the variables that hold several."""
        rank, axis = self.rank, lane.axis
        if rank > 1 and all(other is lane for other in self.texts.lanes.values()):
            states, rank, axis = [f"tl.reshape({state}, ({lane.size},))" for state in states], 1, 0
        text = reduce_states(monoid, states, axis, dtypes, rank, self.texts)
        if len(states) == 1:
            return [text]
        names = [self.names.fresh(fitting(wish)) for wish in wishes]
        self.write(f"{', '.join(names)} = {text}")
        return names

    def first(self, store: ir.Store, names: Sequence[str], texts: Sequence[str]) -> None:
        """A merge into the empty state: a plain assignment, and the empty state is not written."""
        for name, text, buffer, value in zip(names, texts, store.buffers, store.values, strict=True):
            del self.waiting[buffer]
            everywhere = self.texts.lanes.keys() <= self.texts.varies(value) | store.index[0].names
            self.write(f"{name} = {text if everywhere else f'tl.broadcast_to({text}, {self.shapes[buffer]})'}")


def merged_memory(body: Iterable[ir.Statement]) -> frozenset[str]:
    """The memories whose cells along a tile are merged into one state."""
    loops = [s for s in every_statement(body) if isinstance(s, ir.Loop) and s.axis is ir.Axis.SERIAL and s.tile]
    return frozenset(expr.buffer for s in loops for expr in every_expression(s.body) if isinstance(expr, ir.Load))


def common_loads(kernel: ir.Kernel, launch: ir.Launch) -> dict[ir.Tile, dict[Place, str]]:
    """Loads that are the same for all rows, by the tile, each with the index along it: of inputs that the pass writing
    a row loads, and no fold. Left out: tiles whose passes differ in length, and inputs that are loaded at several
    places."""
    statements = [s for s in every_statement(launch.body) if isinstance(s, ir.Loop)]
    if any(loop.axis is ir.Axis.SERIAL and loop.tile is None for loop in statements):
        return {}
    loops, folds = [loop for loop in statements if loop.tile is not None], folds_in(launch.body)
    lengths: set[tuple[ir.Tile | None, Dim]]
    lengths = {(loop.tile, loop.extent) for loop in loops if loop.tile and loop.extent != loop.tile.size}
    lengths |= {(fold.tile, extent) for fold in folds for _, extent in fold.loops}
    tiles = [tile for tile, _ in lengths]
    written = [loop for loop in loops if read_for(kernel, loop) == WRITTEN and tiles.count(loop.tile) == 1]
    passes = [loop.body for loop in loops if read_for(kernel, loop) == FOLDED] + [fold.body for fold in folds]
    places = Counter(name for name, _ in {(load.buffer, load.index) for load in loads_of(launch.body)})
    apart = {buffer.name for buffer in kernel.of(ir.Role.INPUT) if places[buffer.name] == 1}
    apart -= {load.buffer for body in passes for load in loads_of(body)}
    common = dict[ir.Tile, dict[Place, str]]()
    for loop in written:
        own = placed[0].name if (placed := index_of(loop.body, loop.var)) else loop.var
        for load in loads_of(loop.body):
            is_common = {name for dim in load.index for name in dim.names if name.startswith("#")} == {own}
            if is_common and load.buffer in apart and load.where is None and loop.tile:
                common.setdefault(loop.tile, {})[load.buffer, load.index] = own
    return common


def led_row(index: ir.Index) -> Dim | None:
    """The begin of a row, from the index of how far back a multiple of 16 bytes is; None for another index."""
    match index:
        case ir.Index(Dim((((DimOp("mod", row),), 1),)), alignment=ir.Tile()):
            return row
        case _:
            return None


def index_of(body: Sequence[ir.Statement], variable: str) -> tuple[ir.Let, Dim] | None:
    """The Let at the start of a body that defines the index of a tile's cells, and the index; None without one."""
    match body[:1]:
        case (ir.Let(name, ir.Index(at)) as let,) if name.startswith("#") and variable in at.names:
            return let, at
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Even:
    """The condition for every cell of a tile to be inside: `whole` is a multiple of each of `steps` or, without steps,
    equal to the size of the tile; with `led`, rows must also be aligned."""

    whole: Dim
    steps: tuple[Dim, ...]
    led: bool


def is_led(tiles: Iterable[ir.Tile]) -> bool:
    """Whether the tiles of a launch begin before their rows."""
    return any(tile.policy is ir.TilePolicy.ALIGNMENT for tile in tiles)


def tiles_covered(launch: ir.Launch) -> list[tuple[ir.Tile, Dim]]:
    """The tiles that loops and folds of a launch run over, each with the cells left for it; without full tiles."""
    body = launch.body
    pairs = [(s.tile, s.extent) for s in every_statement(body) if isinstance(s, ir.Loop)]
    pairs += [(expr.tile, expr.loops[-1][1]) for expr in every_expression(body) if isinstance(expr, ir.Fold)]
    return [(tile, rest) for tile, rest in pairs if tile is not None and rest != tile.size]


def even_tiles(launch: ir.Launch) -> dict[str, list[Even]]:
    """The tiles of a launch for which sizes tell whether every cell is inside, each with the conditions for that."""
    sizes = {str(tile.size) for tile in launch.tiles}
    conditions = collect((tile.name, _even(rest, sizes)) for tile, rest in tiles_covered(launch))
    return {name: [even for even in evens if even] for name, evens in conditions.items() if None not in evens}


def _even(rest: Dim, tile_sizes: Collection[str]) -> Even | None:
    whole, steps, led = rest, list[Dim](), False
    for atoms, factor in rest.terms:
        indices = [atom for atom in atoms if isinstance(atom, str) and atom.startswith("#")]
        sizes = [atom for atom in atoms if isinstance(atom, str) and atom in tile_sizes]
        if atoms == ("#lead",):
            led = True
        elif not indices:
            continue
        elif factor != -1 or len(indices) != 1 or len(indices) + len(sizes) != len(atoms) or not sizes:
            return None
        else:
            steps.append(product(map(Dim.of, sizes)))
        whole -= Dim(((atoms, factor),))
    return None if any(name.startswith("#") for name in whole.names) else Even(whole, tuple(steps), led)


def bytes_of_round(kernel: ir.Kernel, loop: ir.Loop) -> Dim | None:
    """The bytes of buffers that the tiles of one iteration of a loop load; None if it loads none."""
    buffers = {buffer.name: buffer.dtype.bytes for buffer in kernel.buffers}
    sizes: dict[str, Dim] = {}

    def enter(statements: Iterable[ir.Statement], cells: Dim) -> None:
        for statement in statements:
            for expr in every_expression((statement,)) if not isinstance(statement, ir.Loop | ir.If) else ():
                if isinstance(expr, ir.Load) and expr.buffer in buffers and cells != ONE:
                    sizes.setdefault(expr.buffer, cells * buffers[expr.buffer])
                if isinstance(expr, ir.Fold) and expr.tile is not None:
                    enter(expr.body, cells * expr.tile.size)
            if isinstance(statement, ir.Loop):
                tile = statement.tile
                enter(statement.body, cells if tile is None else cells * tile.size)
            elif isinstance(statement, ir.If):
                enter(statement.body, cells)

    enter(loop.body, ONE)
    return sum(sizes.values(), Dim.of(0)) if sizes else None
