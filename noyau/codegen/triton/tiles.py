"""Facts about the tiles of a launch that its text depends on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from noyau.compiler.schedules.gpu.tiles import ONE
from noyau.ir.dims import Dim, DimOp, product
from noyau.ir.loops import (
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
    Statement,
    Store,
    Tile,
    TilePolicy,
)
from noyau.ir.walk import every_expression, every_statement


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


def led_row(index: Index) -> Dim | None:
    """The begin of a row, of the number of cells before it at which 16 bytes begin; None of other indices."""
    match index:
        case Index(Dim((((DimOp("mod", row),), 1),)), alignment=Tile()):
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


def rounds_apart(launch: Launch) -> bool:
    """Whether a value is rounded before others are made of it (see compiler/passes/fp_contraction.py): nothing is
    fused then."""
    return any(isinstance(expr, Call) and expr.function == "rounded" for expr in every_expression(launch.body))


@dataclass(frozen=True, slots=True)
class Even:
    """The condition that every cell of a tile is inside: where `whole` is a multiple of each of `steps`, or, where
    there are none, the size of the tile; and, with `led`, rows are aligned."""

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


def bytes_of_round(kernel: Kernel, loop: Loop) -> Dim | None:
    """The bytes of buffers that the tiles of one round of a loop load; None where it loads none."""
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
