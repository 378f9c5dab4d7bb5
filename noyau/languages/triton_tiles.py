"""What the text of a launch has to know of its tiles before it is printed."""

from __future__ import annotations

from collections.abc import Iterable

from noyau.ir.loops import Axis, Fold, If, Loop, Statement, Store
from noyau.ir.walk import expressions
from noyau.schedules.grid_tiles import tile_of


def is_reduced_into(statement: Statement, empty: Store) -> bool:
    """Whether a tile of states is merged into what a Store has just set to the state of nothing."""
    match statement:
        case Loop(_, extent, Axis.SERIAL, (Store(buffers, _, _, str()),)):
            return tile_of(extent) is not None and buffers == empty.buffers and empty.merge is None
        case _:
            return False


def depth_of(body: Iterable[Statement]) -> int:
    """How many tiles stand in each other at most; at least 1."""

    def deepest(statements: Iterable[Statement]) -> int:
        most = 0
        for statement in statements:
            if isinstance(statement, Loop):
                most = max(most, deepest(statement.body) + (tile_of(statement.extent) is not None))
            elif isinstance(statement, If):
                most = max(most, deepest(statement.body))
            for expr in expressions(statement):
                if isinstance(expr, Fold):
                    most = max(most, deepest(expr.body) + (tile_of(expr.loops[-1][1]) is not None))
        return most

    return max(1, deepest(body))
