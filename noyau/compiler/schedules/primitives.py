"""The schedule functions. Each takes statements (or a kernel) and gives others that compute the same.

In a lowered nest every loop may run in any order: each cell is stored once, and only folds carry a state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, maximum, strides_of
from noyau.ir.loops import (
    Alloc,
    Axis,
    Expr,
    Fold,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Loop,
    Require,
    Space,
    Statement,
    Store,
    Var,
)
from noyau.ir.walk import dims_in, every_expression, every_statement, expressions, rewrite, substitute

Statements = tuple[Statement, ...]


def most_of(value: Expr) -> int:
    """The number in min(a number, what is left); 0 for all else."""
    match value:
        case Index(Dim((((DimOp("max", left, right),), -1),))):
            return -min(each.constant or 0 for each in (left, right))
        case _:
            return 0


def minimum(left: Dim, right: Dim) -> Dim:
    return -maximum(-left, -right)


def flatten(kernel: Kernel) -> Kernel:
    """Each index into a packed buffer as one offset in elements."""
    strides = {buffer.name: strides_of(buffer.shape) for buffer in kernel.buffers if buffer.strides is None}

    def offset(name: str, index: Shape) -> Shape:
        if name not in strides:
            return index
        return (sum((at * step for at, step in zip(index, strides[name], strict=True)), Dim.of(0)),)

    return with_bodies(kernel, lambda body: reindex(body, offset))


def reindex(statements: Statements, change: Callable[[str, Shape], Shape]) -> Statements:
    """The statements with each index into a buffer or memory changed, by its name."""

    def loads(expr: Expr) -> Expr:
        return replace(expr, index=change(expr.buffer, expr.index)) if isinstance(expr, Load) else expr

    def stores(statement: Statement) -> Statement:
        match statement:
            case Store(buffers, index, _, _):
                return replace(statement, index=change(buffers[0], index))
            case Loop(_, _, _, body):
                return replace(statement, body=tuple(map(stores, body)))
            case If(_, body):
                return replace(statement, body=tuple(map(stores, body)))
            case _:
                return statement

    def in_folds(expr: Expr) -> Expr:
        return replace(expr, body=tuple(map(stores, expr.body))) if isinstance(expr, Fold) else loads(expr)

    return tuple(map(stores, rewrite(statements, in_folds)))


def with_bodies(kernel: Kernel, change: Callable[[Statements], Statements]) -> Kernel:
    """The kernel with the body of every launch changed."""
    return replace(kernel, launches=tuple(replace(launch, body=change(launch.body)) for launch in kernel.launches))


def coalesce(statements: Statements) -> Statements:
    """Loops that stand alone in each other, as one, where no index then needs a division."""
    made: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Loop):
            statement = replace(statement, body=coalesce(statement.body))
            statement = _joined(statement)
        made.append(statement)
    return rewrite(made, _coalesce_fold)


def _joined(outer: Loop) -> Loop:
    match outer.body:
        case (Loop(var, extent, axis, body),) if axis is outer.axis and not _uses(extent, outer.var):
            changed = _in_one(outer.var, var, extent, body)
            return outer if changed is None else Loop(var, outer.extent * extent, axis, changed)
        case _:
            return outer


def _in_one(outer: str, inner: str, extent: Dim, body: Statements) -> Statements | None:
    """The body over one variable, named as the inner one, that counts through both; or None."""
    counter = Dim.of("#both")
    made = substitute(body, {outer: counter // extent, inner: counter % extent})
    clean = not any(divides(dim, "#both") for dim in all_dims(made))
    return substitute(made, {"#both": inner}) if clean else None


def _coalesce_fold(expr: Expr) -> Expr:
    if not isinstance(expr, Fold):
        return expr
    body, loops = coalesce(expr.body), list(expr.loops)
    at = len(loops) - 2
    while at >= 0:
        (outer, count), (inner, extent) = loops[at], loops[at + 1]
        whole = (*body, Let("#value", expr.value))
        made = _in_one(outer, inner, extent, whole)
        if made is not None and isinstance(last := made[-1], Let):
            body, expr = made[:-1], replace(expr, value=last.value)
            loops[at : at + 2] = [(inner, count * extent)]
        at -= 1
    return replace(expr, loops=tuple(loops), body=body)


def _uses(dim: Dim, variable: str) -> bool:
    return variable in dim.names


def all_dims(statements: Statements) -> list[Dim]:
    """Every index, and every extent, that statements name."""
    extents = [s.extent for s in every_statement(statements) if isinstance(s, Loop | Require)]
    shapes = [dim for s in every_statement(statements) if isinstance(s, Alloc) for dim in s.shape]
    folds = [expr for expr in every_expression(statements) if isinstance(expr, Fold)]
    loops = [n for fold in folds for _, n in fold.loops] + [fold.at for fold in folds if fold.at is not None]
    return [*dims_in(statements), *extents, *shapes, *loops]


def divides(dim: Dim, variable: str) -> bool:
    """Whether a division or modulo of the variable is left in an index."""
    atoms = [atom for monomial, _ in dim.terms for atom in monomial]
    return any(isinstance(atom, DimOp) and _uses(Dim((((atom,), 1),)), variable) for atom in atoms)


def sink(statements: Statements) -> Statements:
    """Cheap Lets before a lone loop go into it, so that loops stand alone in each other and can share threads."""
    match statements:
        case (*lets, Loop() as loop) if lets and all(_is_cheap(statement) for statement in lets):
            return (replace(loop, body=sink((*lets, *loop.body))),)
        case (Loop() as loop,):
            return (replace(loop, body=sink(loop.body)),)
        case _:
            return statements


def _is_cheap(statement: Statement) -> bool:
    return isinstance(statement, Let) and not isinstance(statement.value, Fold) and not statement.name.startswith("#")


def bind(statements: Statements, count: int) -> Statements:
    """The first `count` loops, which stand alone in each other, bound to THREADS; a loop whose extent depends on
    another one, and those in it, stay as they are."""
    match statements:
        case (*before, Loop() as loop) if count and not any(name.startswith("#") for name in loop.extent.names):
            return (*before, replace(loop, axis=Axis.THREADS, body=bind(loop.body, count - 1)))
        case _:
            return statements


def lone_loops(statements: Statements) -> int:
    """The number of loops that stand alone in each other, from the outside in."""
    return len(chain(statements)[0])


def chain(statements: Statements) -> tuple[list[Loop], Statements]:
    """The loops that stand alone in each other from the outside in, and what stands in the last of them."""
    loops: list[Loop] = []
    while len(statements) == 1 and isinstance(loop := statements[0], Loop):
        loops.append(loop)
        statements = loop.body
    return loops, statements


def nested(loops: Iterable[Loop], body: Statements) -> Statements:
    """Loops that stand alone in each other, around a body."""
    for loop in reversed(list(loops)):
        body = (replace(loop, body=body),)
    return body


def reorder(statements: Statements, order: Sequence[str]) -> Statements:
    """The loops that stand alone in each other, in another order. UnsupportedError where one of them carries a state,
    or the extent of one is known only within another."""
    loops, body = chain(statements)
    by_name = {loop.var: loop for loop in loops}
    if sorted(order) != sorted(by_name):
        raise UnsupportedError(f"the loops {', '.join(by_name)} cannot be put in the order {', '.join(order)}")
    for loop in loops:
        if carries(loop) or loop.extent.names & by_name.keys():
            raise UnsupportedError(f"the loop over {loop.var} has to stay where it is")
    return nested([by_name[name] for name in order], body)


def widen(statements: Statements) -> Statements:
    """Every innermost loop bound to LANES, but those that carry a state from one round to the next."""
    made: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Loop):
            inner = any(isinstance(s, Loop) or _folds(s) for s in every_statement(statement.body))
            serial = inner or statement.axis is not Axis.SERIAL or carries(statement)
            statement = replace(statement, axis=statement.axis if serial else Axis.LANES, body=widen(statement.body))
        made.append(statement)
    return tuple(made)


def carries(loop: Loop) -> bool:
    """Whether rounds of a loop store in one cell: in memory from outside, at an index that its variable is not in."""
    own = {s.name for s in every_statement(loop.body) if isinstance(s, Alloc)}
    stores = [s for s in every_statement(loop.body) if isinstance(s, Store)]
    return any(
        loop.var not in {name for dim in store.index for name in dim.names} and not own.issuperset(store.buffers)
        for store in stores
    )


def _folds(statement: Statement) -> bool:
    return any(isinstance(expr, Fold) for expr in expressions(statement))


def loads_of(body: Statements) -> list[Load]:
    found: list[Expr] = [expr for expr in every_expression(body) if isinstance(expr, Load)]
    return [load for load in found if isinstance(load, Load)]


def stride_of(access: Load | Store, variable: str) -> Dim:
    """The distance by which a load or a store moves when a variable moves by one, where that is a polynomial.

    Of a buffer with strides as if the cells along its last axis lay side by side, and its other strides had names: that
    an array was sliced tells nothing of which of its axes is the short one."""
    there = {variable: Dim.of(variable) + 1}
    *outer, last = (dim.replace(there) - dim for dim in access.index)
    return last + sum((step * Dim.of(f"stride {axis}") for axis, step in enumerate(outer)), Dim.of(0))


def counted(loop: Loop, name: str) -> tuple[Statements, Loop]:
    """A Let that gives the length of a loop a name, and the loop; no Let where the length is known now."""
    if loop.extent.constant is not None:
        return (), loop
    return (Let(name, Index(loop.extent)),), replace(loop, extent=Dim.of(name))


def split(loop: Loop, size: int, outer: str, inner: str) -> Loop:
    """The loop in tiles of at most `size`: the last one is shorter."""
    body = substitute(loop.body, {loop.var: Dim.of(outer) * size + Dim.of(inner)})
    left = loop.extent - Dim.of(outer) * size
    extent = Dim.of(size) if loop.extent % size == Dim.of(0) else minimum(Dim.of(size), left)
    tiles = (loop.extent + (size - 1)) // size
    return Loop(outer, tiles, loop.axis, (Loop(inner, extent, Axis.SERIAL, body),))


def keep(statements: Statements, values: frozenset[str], name: str) -> Statements:
    """Values that the last fold of a row has computed are kept in memory of the thread, for the loops after it.

    The statements are those of one row; `values` are names of values of the graph. Nothing changes where a value is
    not found in both at the same index."""
    at = max((k for k, s in enumerate(statements) if isinstance(s, Let) and isinstance(s.value, Fold)), default=None)
    if at is None:
        return statements
    let = statements[at]
    assert isinstance(let, Let) and isinstance(let.value, Fold)
    fold = let.value
    if len(fold.loops) != 1:
        return statements
    for inner in fold.body:
        if isinstance(inner, Let) and inner.origin and inner.origin[0] in values:
            after = tuple(_reload(s, inner, fold.loops[0], name) for s in statements[at + 1 :])
            if after != statements[at + 1 :]:
                kept = Store((name,), (Dim.of(fold.loops[0][0]),), (Var(inner.name, inner.value.dtype),))
                where = fold.body.index(inner) + 1
                body = (*fold.body[:where], kept, *fold.body[where:])
                return (*statements[:at], replace(let, value=replace(fold, body=body)), *after)
    return statements


def _reload(statement: Statement, kept: Let, loop: tuple[str, Dim], name: str) -> Statement:
    """A loop after the fold in which the kept value, at the loop's own index, is loaded."""
    if not isinstance(statement, Loop) or statement.extent != loop[1] or kept.origin is None:
        return statement
    wanted = (kept.origin[0], tuple(dim.replace({loop[0]: statement.var}) for dim in kept.origin[1]))
    body: list[Statement] = []
    for inner in statement.body:
        if isinstance(inner, Let) and inner.origin == wanted:
            inner = replace(inner, value=Load(name, (Dim.of(statement.var),), kept.value.dtype))
        body.append(inner)
    return replace(statement, body=drop_unused(tuple(body)))


def drop_unused(statements: Statements) -> Statements:
    """The statements of a block without the Lets, and the memory, that nothing in it reads."""
    made: list[Statement] = []
    for statement in reversed(statements):
        match statement:
            case Let(name) if name.startswith("#"):
                used = name in {name for dim in all_dims(tuple(made)) for name in dim.names}
            case Let(name):
                used = any(isinstance(expr, Var) and expr.name == name for expr in every_expression(made))
            case Alloc(name):
                used = name in touched(made)
            case _:
                used = True
        if used:
            made.insert(0, statement)
    return tuple(made)


def touched(statements: Iterable[Statement]) -> frozenset[str]:
    """The buffers and the memory that statements load from or store in."""
    kept = tuple(statements)
    stored = [name for s in every_statement(kept) if isinstance(s, Store) for name in s.buffers]
    return frozenset([*stored, *(expr.buffer for expr in every_expression(kept) if isinstance(expr, Load))])


def memory(name: str, expr: Expr, extent: Dim) -> Alloc:
    """Memory of one thread for a row."""
    return Alloc(name, expr.dtype, (extent,), Space.THREAD)
