"""The strategy scatter: updates are merged at looked-up places, those of each cell in the order of the updates.

Threads divide the cells, never the updates: each walks all updates and merges the parts that lie in its own cells. So
bits never depend on the number of threads, and no two threads touch one cell."""

from collections.abc import Mapping
from dataclasses import replace

from noyau.compiler.schedules import primitives
from noyau.compiler.schedules.cpu.folds import expand_folds
from noyau.compiler.schedules.cpu.transposes import hoist
from noyau.compiler.schedules.primitives import Statements
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.walk import every_statement

TILE = 1024  # cells of a row that one thread merges: some pages of a row of updates


def merges(body: Statements) -> bool:
    """Whether statements merge into cells, or store in looked-up cells: then order matters."""
    bound = {s.name for s in every_statement(body) if isinstance(s, ir.Let)}
    return any(store.merge or primitives.variables_of(store) & bound for store in _stores(body))


def scatter(kernel: ir.Kernel, *, lanes: int, tile: int = TILE) -> ir.Kernel:
    """Schedule a kernel of one launch: loops whose rounds have disjoint cells on threads, the others in order."""

    def scheduled(body: Statements) -> Statements:
        body = primitives.coalesce(body)
        apart = cells_apart(body)
        body = expand_folds(_share_rounds(expand_merges(body), apart, tile), lanes)
        return primitives.widen(body) if apart else body

    return primitives.with_bodies(kernel, scheduled)


def _share_rounds(body: Statements, apart: frozenset[str], tile: int) -> Statements:
    """Bind the outermost loop to threads, if its rounds have disjoint cells; else the innermost, in tiles."""
    if len(body) != 1 or not isinstance(outer := body[0], ir.Loop):
        return body
    if outer.var in apart:
        return primitives.bind(body, 1)
    inner = _last_loop(outer)
    if inner is None or inner.var not in apart:
        return body
    hoisted = hoist(body, outer.var, inner.var, tile)
    return body if hoisted == body else primitives.bind(hoisted, 1)


def _last_loop(loop: ir.Loop) -> ir.Loop | None:
    """The innermost of loops that are each alone in the loop around, or None."""
    inner = [s for s in loop.body if isinstance(s, ir.Loop)]
    return (_last_loop(inner[0]) or inner[0]) if len(inner) == 1 else None


def cells_apart(body: Statements) -> frozenset[str]:
    """The index names of which two values never meet a cell: those whose strides, in the offset of every Store, are
    like the weights of digits in a number. Empty where the offset has another form."""
    loops = {s.var: s.extent for s in every_statement(body) if isinstance(s, ir.Loop)}
    looked_up = {str(s.index): s.extent for s in every_statement(body) if isinstance(s, ir.Require)}
    digits = [_digits(store, loops | looked_up) for store in _stores(body)]
    return frozenset.intersection(*digits) if digits else frozenset()


def _stores(body: Statements) -> list[ir.Store]:
    """The stores in buffers, not in memory that the statements allocate."""
    own = {s.name for s in every_statement(body) if isinstance(s, ir.Alloc)}
    return [s for s in every_statement(body) if isinstance(s, ir.Store) and not own.intersection(s.buffers)]


def _digits(store: ir.Store, extents: Mapping[str, Dim]) -> frozenset[str]:
    names = sorted(primitives.variables_of(store))
    if any(name not in extents for name in names):
        return frozenset()
    steps = {name: primitives.stride_of(store, name) for name in names}
    rest = store.index[0] - sum((Dim.of(name) * step for name, step in steps.items()), Dim.of(0))
    below, left = Dim.of(1), dict(steps)
    while left:
        known = ((name, step) for name, step in left.items() if not any(size.startswith("#") for size in step.names))
        digits = (name for name, step in known if step != Dim.of(0) and step % below == Dim.of(0))
        lowest = next((d for d in digits if all(other % left[d] == Dim.of(0) for other in left.values())), "")
        if not lowest:
            return frozenset()
        below = left.pop(lowest) * extents[lowest]
    return frozenset() if any(name.startswith("#") for name in rest.names) else frozenset(names)


def expand_merges(statements: Statements) -> Statements:
    """Merges of a single thread: the cell is loaded, merged and stored."""

    def change(statement: ir.Statement) -> Statements | None:
        match statement:
            case ir.Store(buffers, index, values, str() as monoid):
                old = tuple(ir.Load(name, index, value.dtype) for name, value in zip(buffers, values, strict=True))
                return (replace(statement, values=MONOIDS[monoid].merge(Symbolic(), old, values), merge=None),)
            case _:
                return None

    return primitives.change_each(statements, change)
