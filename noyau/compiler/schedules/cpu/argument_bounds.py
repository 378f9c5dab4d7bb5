"""Bounds of arguments: x - m, where m is the largest of the x, is never above 0.

e^x of such an argument needs no check for overflow, which is a fifth of its instructions. The sum of all such e^x of a
row is at least 1, for m is one of the x: the share of one of them in the sum can be computed as a product with the
inverse of the sum, corrected by the remainder; nothing overflows, and there are no signed zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from noyau.compiler.schedules.primitives import Statements, most_of, with_bodies
from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import Assumption, Call, Expr, Fold, If, Kernel, Let, Loop, Statement, Var
from noyau.ir.walk import every_statement, rewrite

LONG = 256  # the fewest cells of a loop that is worth the inverse of a sum


@dataclass(frozen=True, slots=True)
class _Scope:
    """The Lets that a statement sees, by name, and the loops that it stands in."""

    lets: Mapping[str, Let] = field(default_factory=dict)
    loops: Mapping[str, Dim] = field(default_factory=dict)

    def within(self, loops: Iterable[tuple[str, Dim]]) -> _Scope:
        return replace(self, loops={**self.loops, **dict(loops)})

    def value(self, expr: Expr) -> Expr:
        return self.lets[expr.name].value if isinstance(expr, Var) and expr.name in self.lets else expr


def note_signs(kernel: Kernel) -> Kernel:
    """Mark each e^x whose argument is never above 0, and each quotient that is the share of one of them in their sum.
    The kernel's folds are not loops yet."""
    return with_bodies(kernel, lambda body: _note_bounds(body, _Scope()))


def _note_bounds(body: Iterable[Statement], scope: _Scope) -> Statements:
    notes: list[Statement] = []
    for statement in body:
        match statement:
            case Let(_, Fold() as fold):
                body_of_fold = _note_bounds(fold.body, scope.within(fold.loops))
                statement = replace(statement, value=replace(fold, body=body_of_fold))
            case Let(_, Call("exp", (operand,)) as call):
                below = _largest(operand, scope) is not None
                statement = replace(statement, value=_assuming(call, Assumption.NON_POSITIVE, below))
            case Let(_, Call("divide", (part, whole)) as call):
                statement = replace(statement, value=_assuming(call, Assumption.SHARE, _is_share(part, whole, scope)))
            case Loop(var, extent):
                statement = replace(statement, body=_note_bounds(statement.body, scope.within([(var, extent)])))
            case If():
                statement = replace(statement, body=_note_bounds(statement.body, scope))
            case _:
                pass
        if isinstance(statement, Let):
            scope = replace(scope, lets={**scope.lets, statement.name: statement})
        notes.append(statement)
    return tuple(notes)


def _assuming(call: Call, assumption: Assumption, holds: bool) -> Call:
    """A call with or without an assumption."""
    return replace(call, assumptions=call.assumptions | {assumption} if holds else call.assumptions - {assumption})


def _largest(expr: Expr, scope: _Scope) -> Expr | None:
    """The m of x - m, where x is a value of the graph at an index over which m is the maximum; or None."""
    match scope.value(expr):
        case Call("subtract", (Var(name), largest)) if name in scope.lets:
            fold = scope.value(largest)
            holds = isinstance(fold, Fold) and fold.monoid == "max" and _takes_in(fold, scope.lets[name], scope)
            return largest if holds else None
        case _:
            return None


def _takes_in(fold: Fold, let: Let, scope: _Scope) -> bool:
    """Whether a fold runs over a value of the graph, and over the cell of it that a Let holds."""
    own = [s.origin for s in fold.body if isinstance(s, Let) and s.origin and fold.value == Var(s.name, s.value.dtype)]
    pairs = product(own, _places(fold, scope))
    return any((value, tuple(dim.replace(there) for dim in index)) == let.origin for (value, index), there in pairs)


def _is_share(part: Expr, whole: Expr, scope: _Scope) -> bool:
    """Whether an expression is e^(x - m) divided by the sum of these over all x of which m is the maximum."""
    fold = scope.value(whole)
    if not (isinstance(part, Var) and part.name in scope.lets and isinstance(fold, Fold) and fold.monoid == "sum"):
        return False
    inner = replace(scope, loops=dict(fold.loops))
    for let in (s for s in fold.body if isinstance(s, Let)):
        inner = replace(inner, lets={**inner.lets, let.name: let})
    power = inner.value(fold.value)
    largest = _largest(power.operands[0], inner) if isinstance(power, Call) and power.function == "exp" else None
    alone = not any(isinstance(s, Let) and Var(s.name, s.value.dtype) == largest for s in fold.body)
    most = inner.value(largest) if largest is not None and alone else None
    is_alike = isinstance(most, Fold) and len(most.loops) == len(fold.loops)
    return is_alike and _takes_in(fold, scope.lets[part.name], scope)


def _places(fold: Fold, scope: _Scope) -> Iterable[dict[str, DimLike]]:
    """The mappings of a fold's variables to loops around of the same extent."""
    alike = [[var for var, extent in scope.loops.items() if extent == length] for _, length in fold.loops]
    return ({loop: var for (loop, _), var in zip(fold.loops, chosen, strict=True)} for chosen in product(*alike))


def keep_shares(kernel: Kernel) -> Kernel:
    """Keep marks of shares only in loops of a scheduled kernel that are known to be long and in which the sum is
    invariant: its inverse is computed once there; a short row would wait for it longer than its quotients take."""
    return with_bodies(kernel, lambda body: _keep_bounds(body, None))


def _keep_bounds(body: Iterable[Statement], own: frozenset[str] | None) -> Statements:
    """`own`: the names that the loop around binds in each round; None where that loop is not long."""

    def change(expr: Expr) -> Expr:
        match expr:
            case Call("divide", (_, whole), _, assumptions) if Assumption.SHARE in assumptions:
                is_same = own is not None and isinstance(whole, Var) and whole.name not in own
                return _assuming(expr, Assumption.SHARE, is_same)
            case _:
                return expr

    result, lengths = list[Statement](), dict[str, int]()
    for statement in body:
        match statement:
            case Loop(extent=extent):
                inside = frozenset(s.name for s in every_statement(statement.body) if isinstance(s, Let))
                long = lengths.get(str(extent), extent.constant or 0) >= LONG
                result.append(replace(statement, body=_keep_bounds(statement.body, inside if long else None)))
            case If():
                result.append(replace(statement, body=_keep_bounds(statement.body, own)))
            case _:
                result += rewrite((statement,), change)
        if isinstance(statement, Let):
            lengths[statement.name] = most_of(statement.value)
    return tuple(result)
