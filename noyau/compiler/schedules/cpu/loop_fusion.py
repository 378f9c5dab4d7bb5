"""Folds that stand side by side and run over the same loops, in one pass: what they read is read once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from noyau.compiler.schedules.cpu.folds import is_ordered, total_of
from noyau.compiler.schedules.primitives import Statements, all_dims
from noyau.ir.dims import Dim
from noyau.ir.loops import Expr, Fold, If, Let, Loop, Require, Statement, Var
from noyau.ir.walk import every_expression, every_statement, rewrite, rewrite_expression, substitute


def lets_of_folds(body: Statements) -> list[Let]:
    """The folds that stand directly in a block, each with its name."""
    return [s for s in body if isinstance(s, Let) and isinstance(s.value, Fold)]


def first_fold(body: Statements) -> Let:
    """The first fold that stands directly in a block and whose values may be taken in in blocks."""
    return next(s for s in lets_of_folds(body) if isinstance(s.value, Fold) and not is_ordered(s.value))


@dataclass(frozen=True, slots=True)
class Parted:
    """A block in three: what no fold gives anything to, the folds, and what follows from them."""

    before: Statements
    lets: tuple[Let, ...]
    after: Statements


def parted(body: Statements) -> Parted:
    """A block with its folds side by side. Nothing that it stores is read in it, so that stores may wait; what an index
    has to obey stays before what is loaded there."""
    lets = lets_of_folds(body)
    waits = {let.name for let in lets}
    before, after = list[Statement](), list[Statement]()
    for statement in body:
        if statement in lets:
            continue
        if (isinstance(statement, Let) or asks(statement)) and not waits & names_in((statement,)):
            before.append(statement)
        else:
            after.append(statement)
            waits |= {s.name for s in every_statement((statement,)) if isinstance(s, Let)}
    return Parted(tuple(before), tuple(lets), tuple(after))


def are_alike(body: Statements) -> bool:
    """Whether the folds of a block run over the same loops, and none waits for what another gives."""
    found = parted(body)
    folds = [let.value for let in found.lets if isinstance(let.value, Fold)]
    if len({tuple(extent for _, extent in fold.loops) for fold in folds}) != 1 or any(map(is_ordered, folds)):
        return False
    late = {s.name for s in every_statement((*found.lets, *found.after)) if isinstance(s, Let)}
    own = {let.name: {s.name for s in every_statement((let,)) if isinstance(s, Let)} for let in found.lets}
    return not any((late - own[let.name] | {let.name}) & names_in((let,)) for let in found.lets)


def levelled(body: Statements) -> Statements:
    """A block in which folds stand side by side that do not wait for each other. Nothing that it stores is read in it,
    so that stores, and loops, may wait; what an index has to obey stays before what is loaded there."""
    made, pending = list[Statement](), list(body)
    while lets_of_folds(tuple(pending)):
        waits, folds, later = set[str](), list[Statement](), list[Statement]()
        for statement in pending:
            if (isinstance(statement, Let) or asks(statement)) and not waits & names_in((statement,)):
                (folds if lets_of_folds((statement,)) else made).append(statement)
                waits |= {s.name for s in folds[-1:] if isinstance(s, Let)}
            else:
                later.append(statement)
                waits |= {s.name for s in every_statement((statement,)) if isinstance(s, Let)}
        made += folds
        pending = later
    return (*made, *pending)


def asks(statement: Statement) -> bool:
    """Whether it only asks whether an index is inside, which comes before what is loaded there, in each launch."""
    return isinstance(statement, Require) or (isinstance(statement, If) and all(map(asks, statement.body)))


def are_apart(lets: Iterable[Statement], other: Statement) -> bool:
    """Whether a statement reads nothing that some others give a name."""
    return not names_in((other,)) & {let.name for let in lets if isinstance(let, Let)}


def names_in(statements: Iterable[Statement]) -> set[str]:
    """The names of values, and of indices, that statements read."""
    kept = tuple(statements)
    values = {each.name for each in every_expression(kept) if isinstance(each, Var)}
    return values.union(*(dim.names for dim in all_dims(kept)))


def expand_together(body: Statements) -> Statements:
    """A block whose folds are alike, each over one partial state, all in one pass."""
    found = parted(body)
    parts, results = [], []
    for let in found.lets:
        assert isinstance(let.value, Fold)
        loops, state = total_of(let.value, let.name, 1, wide=False)
        parts.append(loops)
        results.append(Let(let.name, state.result(Dim.of(0), let.value.dtype), let.origin))
    return (*found.before, *in_one_pass(parts), *results, *found.after)


def in_one_pass(parts: Sequence[Statements]) -> Statements:
    """Blocks that end in a serial loop each, these of the same extents: what stands before them, then one loop."""
    heads = tuple(s for part in parts for s in part[:-1])
    loops = [part[-1] for part in parts]
    if len(parts) == 1 or not all(isinstance(s, Loop) for s in loops):
        return tuple(s for part in parts for s in part)
    return (*heads, _joined([s for s in loops if isinstance(s, Loop)]))


def _joined(loops: Sequence[Loop]) -> Loop:
    """Loops of one extent as one."""
    first = loops[0]
    assert all(loop.extent == first.extent and loop.axis is first.axis for loop in loops)
    bodies = [substitute(loop.body, {loop.var: Dim.of(first.var)}) for loop in loops]
    inner = [body[0] for body in bodies if len(body) == 1 and isinstance(body[0], Loop)]
    if len(inner) == len(bodies) and len({(loop.extent, loop.tile) for loop in inner}) == 1:
        return replace(first, body=(_joined(inner),))
    return replace(first, body=merged(bodies))


def merged(bodies: Sequence[Statements]) -> Statements:
    """Blocks as one, in which each value stands once, and each name is of one value."""
    made: list[Statement] = []
    names: dict[Expr, str] = {}
    for body in bodies:
        waiting = list(body)
        while waiting:
            statement = waiting.pop(0)
            if not isinstance(statement, Let):
                made.append(statement)
                continue
            value = rewrite_expression(statement.value, _unnamed)
            name = names.get(value) or _fresh(statement.name, names.values())
            if value not in names:
                made.append(replace(statement, name=name))
                names[value] = name
            if name != statement.name:
                waiting = list(rewrite(waiting, partial(_named, old=statement.name, new=name)))
    return tuple(made)


def _unnamed(expr: Expr) -> Expr:
    """A fold with its loops and values named by where they stand: folds that compute the same are then equal."""
    if not isinstance(expr, Fold):
        return expr
    within = sum(isinstance(each, Fold) for each in every_expression(expr.body))
    old = [*(name for name, _ in expr.loops), *(s.name for s in expr.body if isinstance(s, Let))]
    names = {name: f"{'#' * name.startswith('#')}{within}.{at}" for at, name in enumerate(old)}

    def renamed(each: Expr) -> Expr:
        return replace(each, name=names.get(each.name, each.name)) if isinstance(each, Var) else each

    body = [replace(s, name=names[s.name], origin=None) if isinstance(s, Let) else s for s in expr.body]
    loops = tuple((names[name], extent) for name, extent in expr.loops)
    whole = Let("", replace(expr, body=tuple(body), loops=loops))
    (made,) = substitute(rewrite((whole,), renamed), {name: Dim.of(new) for name, new in names.items()})
    assert isinstance(made, Let)
    return made.value


def _fresh(name: str, taken: Collection[str]) -> str:
    return next(each for k in count(1) if (each := name if k == 1 else f"{name}_{k}") not in taken)


def _named(expr: Expr, old: str, new: str) -> Expr:
    return replace(expr, name=new) if isinstance(expr, Var) and expr.name == old else expr
