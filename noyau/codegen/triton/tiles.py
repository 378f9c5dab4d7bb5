"""What the text of a launch has to know of its tiles before it is printed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from noyau.codegen.triton.row_alignment import FOLDED, WRITTEN, Again
from noyau.compiler.schedules.gpu.tiles import ONE, folds_in, is_dear
from noyau.compiler.schedules.primitives import Statements
from noyau.dtypes import HALVES
from noyau.ir.dims import Dim, Op, Shape, product
from noyau.ir.loops import (
    Alloc,
    Axis,
    Call,
    Fold,
    If,
    Index,
    Kernel,
    Launch,
    Let,
    Load,
    Loop,
    Role,
    Statement,
    Store,
    Tile,
    TilePolicy,
)
from noyau.ir.operators import Fact, has
from noyau.ir.walk import every_expression, every_statement, expressions, on_threads

NEAR = 1 << 15  # bytes of a row that stay in the L1, beside those of other programs


def is_reduced_into(statement: Statement, empty: Store) -> bool:
    """Whether a tile of states is merged into what a Store has just set to the state of nothing."""
    match statement:
        case Loop(_, _, Axis.SERIAL, (Store(buffers, _, _, str()),), Tile()):
            return buffers == empty.buffers and empty.merge is None
        case _:
            return False


def merged_memory(body: Iterable[Statement]) -> frozenset[str]:
    """The memory of which the cells of a tile are merged into one state."""
    loops = [s for s in every_statement(body) if isinstance(s, Loop) and s.axis is Axis.SERIAL and s.tile]
    return frozenset(expr.buffer for s in loops for expr in every_expression(s.body) if isinstance(expr, Load))


def depth_of(body: Iterable[Statement]) -> int:
    """How many tiles stand in each other at most; at least 1."""

    def deepest(statements: Iterable[Statement]) -> int:
        most = 0
        for statement in statements:
            if isinstance(statement, Loop):
                most = max(most, deepest(statement.body) + (statement.tile is not None))
            elif isinstance(statement, If):
                most = max(most, deepest(statement.body))
            for expr in expressions(statement):
                if isinstance(expr, Fold):
                    most = max(most, deepest(expr.body) + (expr.tile is not None))
        return most

    return max(1, deepest(body))


def led_row(index: Index) -> Dim | None:
    """Where a row begins, of the number of cells before it at which 16 bytes do; None of other indices."""
    match index:
        case Index(Dim((((Op("mod", row),), 1),)), alignment=Tile()):
            return row
        case _:
            return None


def index_of(body: Sequence[Statement], variable: str) -> tuple[Let, Dim] | None:
    """The index of the cells of a tile, where a body begins with it."""
    match body[:1]:
        case (Let(name, Index(at)) as let,) if name.startswith("#") and variable in at.names:
            return let, at
        case _:
            return None


def is_loose(kernel: Kernel, launch: Launch) -> bool:
    """Whether a launch may be wrong by 2**-17 of a value: all its arrays of floats are halves, of which a last bit is
    2**-11 or more, and nothing in it jumps."""
    ends = [buffer for buffer in kernel.buffers if buffer.role is not Role.SCRATCH and buffer.shape]
    wide = [buffer.shape for buffer in ends if buffer.role is Role.OUTPUT]
    arrays = [b.dtype for b in ends if b.role is Role.OUTPUT or not _is_of_rows(b.shape, wide)]
    floats = [dtype for dtype in arrays if dtype.is_float]
    calls = [expr for expr in every_expression(launch.body) if isinstance(expr, Call)]
    jumps = any(
        has(call.function, Fact.STEPS | Fact.JUMPS) or (call.function == "cast" and _to_whole(call)) for call in calls
    )
    return bool(floats) and all(dtype in HALVES for dtype in floats) and not jumps


def _is_of_rows(shape: Shape, wide: Iterable[Shape]) -> bool:
    """Whether cells of this shape are one for each row of wider arrays."""
    return shape[-1] == Dim.of(1) or any(len(shape) < len(other) and shape == other[: len(shape)] for other in wide)


def _to_whole(cast: Call) -> bool:
    return cast.operands[0].dtype.is_float and not cast.dtype.is_float


def rounds_apart(launch: Launch) -> bool:
    """Whether a value is rounded before others are made of it (see compiler/passes/fp_contraction.py): nothing is
    fused then."""
    return any(isinstance(expr, Call) and expr.function == "rounded" for expr in every_expression(launch.body))


def leaves_states(kernel: Kernel, launch: Launch) -> bool:
    """Whether all that a launch stores are states, for a later one."""
    scratch = {buffer.name for buffer in kernel.buffers if buffer.role is Role.SCRATCH}
    buffers = {buffer.name for buffer in kernel.buffers}
    stores = [s for s in every_statement(launch.body) if isinstance(s, Store)]
    return all(scratch.issuperset(store.buffers) for store in stores if buffers & set(store.buffers))


def shares_inputs(kernel: Kernel, launch: Launch) -> bool:
    """Whether each cell of a map is computed on its own, and several programs read the same cells of an input: these
    are to stay in the cache, before what is written."""
    statements, names = list(every_statement(launch.body)), {loop.var for loop in on_threads(launch.body)[1]}
    loads = [expr for expr in every_expression(launch.body) if isinstance(expr, Load)]
    if any(isinstance(expr, Fold) for expr in every_expression(launch.body)) or not names:
        return False
    if any(isinstance(s, Alloc) or (isinstance(s, Loop) and s.axis is Axis.SERIAL) for s in statements):
        return False
    made = {s.name: s.value.dim.names for s in statements if isinstance(s, Let) and isinstance(s.value, Index)}
    read = [frozenset().union(*(made.get(n, {n}) for dim in load.index for n in dim.names)) for load in loads]
    inputs = {buffer.name for buffer in kernel.of(Role.INPUT)}
    pairs = zip(loads, read, strict=True)
    return any(load.buffer in inputs and load.index and not names <= found for load, found in pairs)


def passes_over(body: Iterable[Statement]) -> dict[str, list[str]]:
    """The loops over tiles, one after the other, that load from each buffer."""
    found: dict[str, list[str]] = {}
    for statement in every_statement(body):
        if isinstance(statement, Loop) and statement.axis is Axis.SERIAL and statement.tile is None:
            loaded = {expr.buffer for expr in every_expression(statement.body) if isinstance(expr, Load)}
            for name in loaded:
                found.setdefault(name, []).append(statement.var)
    return found


def loaded_again(kernel: Kernel, launch: Launch) -> Again | None:
    """What a launch loads twice: where one fold, which computes little of a cell, reads what is then written with."""
    body, folded, written = tuple(launch.body), list[tuple[Tile | None, Statements]](), list[Statement]()
    for tile in (s for s in every_statement(body) if isinstance(s, Loop) and s.axis is Axis.LANES):
        if tile.tile is not None and not is_filled(tile) and (word := read_for(kernel, tile)) is not None:
            folded += [(tile.tile, tile.body)] if word == FOLDED else []
            written += tile.body if word == WRITTEN else ()
    folded += [(fold.tile, fold.body) for fold in folds_in(*body)]
    if passes_over(body) or len(folded) != 1 or is_dear(folded[0][1]):
        return None
    found = folded[0][0]
    read, again = (
        {(e.buffer, e.where is None) for e in every_expression(s) if isinstance(e, Load)}
        for s in (folded[0][1], written)
    )
    alike = {name for name, _ in read & again}  # what is read under a condition is not what was held without one
    cells = {buffer.name: buffer.dtype.bytes for buffer in kernel.of(Role.INPUT) if buffer.name in alike}
    if found is None or not cells:
        return None
    led = "ALIGN == 1 and " if is_led(launch.tiles) else ""
    return Again(frozenset(cells), f"{led}{found.name} * {max(cells.values())} <= {NEAR}")


def is_filled(tile: Loop) -> bool:
    """Whether a tile sets memory to what it is at first."""
    match tile.body:
        case (Store(_, (at,), _, None),):
            return at == Dim.of(tile.var)
        case _:
            return False


def read_for(kernel: Kernel, tile: Loop) -> str | None:
    """Whether the cells of a tile are folded, or written; None of a tile around others."""
    inside = list(every_statement(tile.body))
    if any(isinstance(s, Loop) for s in inside) or folds_in(*tile.body):
        return None
    stored = {name for s in inside if isinstance(s, Store) for name in s.buffers}
    return WRITTEN if stored & {buffer.name for buffer in kernel.buffers} else FOLDED


@dataclass(frozen=True, slots=True)
class Even:
    """When every cell of a tile is inside: where `whole` is a multiple of each of `steps`, or, where there are none,
    the size of the tile; and, with `led`, rows are aligned."""

    whole: Dim
    steps: tuple[Dim, ...]
    led: bool


def is_led(tiles: Iterable[Tile]) -> bool:
    """Whether tiles begin before their rows."""
    return any(tile.policy is TilePolicy.ALIGNMENT for tile in tiles)


def covered_in(launch: Launch) -> list[tuple[Tile, Dim]]:
    """The tiles that loops and folds of a launch are over, each with what is left of those, but full tiles."""
    body = launch.body
    found = [(s.tile, s.extent) for s in every_statement(body) if isinstance(s, Loop)]
    found += [(expr.tile, expr.loops[-1][1]) for expr in every_expression(body) if isinstance(expr, Fold)]
    return [(tile, rest) for tile, rest in found if tile is not None and rest != tile.size]


def even_tiles(launch: Launch) -> dict[str, list[Even]]:
    """The tiles of a launch of which sizes tell when every cell is inside, each with when that is."""
    found: dict[str, list[Even | None]] = {}
    sizes = {str(tile.size) for tile in launch.tiles}
    for tile, rest in covered_in(launch):
        found.setdefault(tile.name, []).append(_even(rest, sizes))
    return {name: [even for even in evens if even] for name, evens in found.items() if None not in evens}


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


def loads_ahead(kernel: Kernel, launch: Launch) -> bool:
    """Whether rounds of loops are loaded ahead: in kernels of rows and sums over them, where no buffer is passed over
    again. Elsewhere programs enough are on the way, and it took longer: sums of columns 1.1x, cross-entropy 1.7x."""
    loops = [s for one in kernel.launches for s in every_statement(one.body) if isinstance(s, Loop)]
    return any(loop.var == "#part" for loop in loops) and all(len(p) == 1 for p in passes_over(launch.body).values())


def bytes_of_round(kernel: Kernel, loop: Loop) -> Dim | None:
    """How many bytes of buffers the tiles of one round of a loop load; None where it loads none."""
    buffers = {buffer.name: buffer.dtype.bytes for buffer in kernel.buffers}
    found: dict[str, Dim] = {}

    def enter(statements: Iterable[Statement], cells: Dim) -> None:
        for statement in statements:
            for expr in every_expression((statement,)) if not isinstance(statement, Loop | If) else ():
                if isinstance(expr, Load) and expr.buffer in buffers and cells != ONE:
                    found.setdefault(expr.buffer, cells * buffers[expr.buffer])
                if isinstance(expr, Fold) and expr.tile is not None:
                    enter(expr.body, cells * expr.tile.size)
            if isinstance(statement, Loop):
                tile = statement.tile
                enter(statement.body, cells if tile is None else cells * tile.size)
            elif isinstance(statement, If):
                enter(statement.body, cells)

    enter(loop.body, ONE)
    return sum(found.values(), Dim.of(0)) if found else None
