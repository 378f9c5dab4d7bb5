"""Memory that several threads share: each merges into its own first, and waits where another one's is read.

Language c has neither shared memory nor merges of threads; the languages of GPUs have both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from noyau.compiler.schedules.primitives import Statements
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, product
from noyau.ir.loops import Alloc, Axis, Buffer, Const, If, Load, Loop, Space, Statement, Store, Sync
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_expression, every_statement

SHARED = (Space.SHARED, Space.CLUSTER)


def privatise(loop: Loop, memory: Sequence[Buffer | Alloc], space: Space) -> Loop:
    """The loop with its merges into `memory`, the parts of one monoid's states, going to memory of each round's own in
    `space`, which is merged at the end of the round. Indices are flat.

    UnsupportedError where the loop does anything else with that memory."""
    names, cells = tuple(part.name for part in memory), product(memory[0].shape)
    own, cell = {name: f"own.{name}" for name in names}, (Dim.of(f"#own_{names[0]}"),)
    stores = [s for s in every_statement(loop.body) if isinstance(s, Store) and set(s.buffers) & set(names)]
    loads = {expr.buffer for expr in every_expression(loop.body) if isinstance(expr, Load)}
    (monoid,) = {s.merge for s in stores} if len({s.merge for s in stores}) == 1 else (None,)
    if monoid is None or loads & set(names) or any(s.buffers != names for s in stores):
        raise UnsupportedError(f"the loop over {loop.var} does more with {', '.join(names)} than to merge into it")
    given = tuple(Alloc(own[part.name], part.dtype, (cells,), space) for part in memory)
    empty = tuple(map(Const, MONOIDS[monoid].init(memory[0].dtype), (part.dtype.compute for part in memory)))
    values = tuple(Load(own[part.name], cell, part.dtype.compute) for part in memory)
    begin = Loop(str(cell[0]), cells, Axis.SERIAL, (Store(tuple(own.values()), cell, empty),))
    end = Loop(str(cell[0]), cells, Axis.SERIAL, (Store(names, cell, values, monoid),))
    return replace(loop, body=(*given, begin, *_into(loop.body, own), end))


def _into(statements: Iterable[Statement], own: dict[str, str]) -> Statements:
    """The statements with Stores going to other memory."""
    made: list[Statement] = []
    for statement in statements:
        match statement:
            case Store(buffers) if set(buffers) <= own.keys():
                statement = replace(statement, buffers=tuple(own[name] for name in buffers))
            case Loop(_, _, _, body):
                statement = replace(statement, body=_into(body, own))
            case If(_, body):
                statement = replace(statement, body=_into(body, own))
            case _:
                pass
        made.append(statement)
    return tuple(made)


@dataclass(frozen=True, slots=True)
class Touched:
    """The shared memory that threads have read and written since their last Sync."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def meets(self, other: Touched) -> bool:
        """Whether one thread's `other` must wait for this of another thread."""
        return bool(self.written & (other.read | other.written) or self.read & other.written)

    def then(self, other: Touched) -> Touched:
        return Touched(self.read | other.read, self.written | other.written)


def place_syncs(statements: Statements) -> Statements:
    """Loops on threads with a Sync wherever a thread touches shared memory that another one may have changed, or may
    still read. UnsupportedError where not every thread would come to it."""
    shared = frozenset(s.name for s in every_statement(statements) if isinstance(s, Alloc) and s.space in SHARED)
    return tuple(_in_threads(s, shared, frozenset()) if isinstance(s, Loop) else s for s in statements)


def _in_threads(loop: Loop, shared: frozenset[str], around: frozenset[str]) -> Loop:
    if loop.axis is not Axis.THREADS:
        return loop
    threads = around | {loop.var}
    match loop.body:
        case (Loop(axis=Axis.THREADS) as inner,):
            return replace(loop, body=(_in_threads(inner, shared, threads),))
        case _:
            return replace(loop, body=_synced(loop.body, shared, Touched(), threads)[0])


def _synced(
    body: Iterable[Statement], shared: frozenset[str], before: Touched, threads: frozenset[str]
) -> tuple[Statements, Touched]:
    """A block with its Syncs, after what was touched before it; and what is touched at its end."""
    made: list[Statement] = []
    for statement in body:
        now = _touches(statement, shared)
        if isinstance(statement, Loop) and statement.axis is Axis.SERIAL and now.meets(now):
            if statement.extent.names & threads:
                raise UnsupportedError(f"threads run the loop over {statement.var} unequally: they cannot wait in it")
            once = _synced(statement.body, shared, before, threads)[1]
            again, before = _synced(statement.body, shared, before.then(once), threads)
            made.append(replace(statement, body=again))
            continue
        if isinstance(statement, If) and now.meets(now):
            raise UnsupportedError("only some threads come to a condition: they cannot wait in it")
        if before.meets(now):
            made.append(Sync(Space.SHARED))
            before = Touched()
        before = before.then(now)
        made.append(statement)
    return tuple(made), before


def _touches(statement: Statement, shared: frozenset[str]) -> Touched:
    stored = {name for s in every_statement((statement,)) if isinstance(s, Store) for name in s.buffers}
    loaded = {expr.buffer for expr in every_expression((statement,)) if isinstance(expr, Load)}
    return Touched(shared & loaded, shared & stored)
