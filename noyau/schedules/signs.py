"""What is known of the sign of an argument: x - m, where m is the largest of the x, is never above 0.

Of such an argument e^x needs no care for what overflows, which is a fifth of its instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from noyau.ir.dims import Dim, DimLike
from noyau.ir.loops import Call, Expr, Fold, If, Kernel, Let, Loop, Statement, Var
from noyau.schedules.steps import Statements, with_bodies


@dataclass(frozen=True, slots=True)
class _Scope:
    """The Lets that a statement sees, by name, and the loops that it stands in."""

    lets: Mapping[str, Let] = field(default_factory=dict)
    loops: Mapping[str, Dim] = field(default_factory=dict)

    def with_let(self, let: Let) -> _Scope:
        return replace(self, lets={**self.lets, let.name: let})

    def within(self, loops: Iterable[tuple[str, Dim]]) -> _Scope:
        return replace(self, loops={**self.loops, **dict(loops)})

    def value(self, expr: Expr) -> Expr:
        """What a name stands for."""
        return self.lets[expr.name].value if isinstance(expr, Var) and expr.name in self.lets else expr


def note_signs(kernel: Kernel) -> Kernel:
    """The kernel, before its folds are loops, with each e^x marked whose argument is never above 0."""
    return with_bodies(kernel, lambda body: _noted(body, _Scope()))


def _noted(body: Iterable[Statement], scope: _Scope) -> Statements:
    made: list[Statement] = []
    for statement in body:
        match statement:
            case Let(_, Fold() as fold):
                inner = _noted(fold.body, scope.within(fold.loops))
                statement = replace(statement, value=replace(fold, body=inner))
            case Let(_, Call("exp", (operand,)) as call):
                statement = replace(statement, value=replace(call, at_most_0=_is_below_largest(operand, scope)))
            case Loop(var, extent):
                statement = replace(statement, body=_noted(statement.body, scope.within([(var, extent)])))
            case If():
                statement = replace(statement, body=_noted(statement.body, scope))
            case _:
                pass
        if isinstance(statement, Let):
            scope = scope.with_let(statement)
        made.append(statement)
    return tuple(made)


def _is_below_largest(expr: Expr, scope: _Scope) -> bool:
    """Whether it is x - m, of a value x of the graph at an index that m, the largest, was taken over."""
    match scope.value(expr):
        case Call("subtract", (Var(name), largest)) if name in scope.lets:
            origin, fold = scope.lets[name].origin, scope.value(largest)
        case _:
            return False
    if origin is None or not isinstance(fold, Fold) or fold.monoid != "max":
        return False
    own = [s.origin for s in fold.body if isinstance(s, Let) and s.origin and fold.value == Var(s.name, s.value.dtype)]
    return any(
        value == origin[0] and tuple(dim.replace(there) for dim in index) == origin[1]
        for value, index in own
        for there in _places(fold, scope)
    )


def _places(fold: Fold, scope: _Scope) -> Iterable[dict[str, DimLike]]:
    """For each variable of a fold a loop around, of the same length, that may have its place."""
    alike = [[var for var, extent in scope.loops.items() if extent == length] for _, length in fold.loops]
    return ({loop: var for (loop, _), var in zip(fold.loops, chosen, strict=True)} for chosen in product(*alike))
