"""The rules of the loop IR. Tests run this after every schedule function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from noyau.errors import GraphError
from noyau.ir.intrinsics import loops_of
from noyau.ir.loop_translator import Translator
from noyau.ir.loops import (
    Alloc,
    Axis,
    Buffer,
    Fold,
    If,
    Kernel,
    Launch,
    Let,
    Loop,
    MergeLanes,
    Prefetch,
    Require,
    Role,
    Statement,
    Store,
    StreamStore,
    TransposeTile,
    Zero,
)
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_expression, every_statement, tiles_of


def check(kernel: Kernel) -> Kernel:
    """The kernel itself; GraphError says which rule it breaks.

    Names, dtypes and indices are what `Translator` makes sure of. Beyond that: no name means two things at one place;
    loops on threads stand outermost, each alone at the end of its block; what is merged are states of its monoid;
    every output is stored."""
    reason = next(filter(None, map(_tiles_fault, kernel.launches)), None)
    if reason is None:
        Translator(kernel).text()
    reason = reason or _buffer_fault(kernel)
    for launch in kernel.launches:
        reason = reason or _threads_fault(launch.body) or _names_fault(launch.body, _names(kernel))
        reason = reason or next(filter(None, map(_store_fault, every_statement(launch.body))), None)
    if reason:
        raise GraphError(f"{kernel.name}: {reason}")
    return kernel


def _names(kernel: Kernel) -> frozenset[str]:
    return frozenset(buffer.name for buffer in kernel.buffers)


def _buffer_fault(kernel: Kernel) -> str | None:
    names = [buffer.name for buffer in kernel.buffers]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        return f"two buffers are called {twice[0]}"
    reason = next(filter(None, (_strides_fault(kernel, buffer) for buffer in kernel.buffers)), None)
    if reason:
        return reason
    roles = [list(Role).index(buffer.role) for buffer in kernel.buffers]
    if roles != sorted(roles):
        return "its buffers are not in the order inputs, outputs, scratch"
    stores = [s for launch in kernel.launches for s in every_statement(launch.body) if isinstance(s, Store)]
    stored = {name for store in stores for name in store.buffers}
    missed = [buffer.name for buffer in kernel.of(Role.OUTPUT) if buffer.name not in stored]
    return f"nothing is stored in the output {missed[0]}" if missed else None


def _strides_fault(kernel: Kernel, buffer: Buffer) -> str | None:
    if buffer.strides is None:
        return None
    if buffer.role is not Role.INPUT:
        return f"{buffer.name}, which is no input, has strides"
    if len(buffer.strides) != len(buffer.shape):
        return f"{buffer.name} of rank {len(buffer.shape)} has {len(buffer.strides)} strides"
    bound = {binding.size for binding in kernel.binding}
    loose = sorted(name for dim in buffer.strides for name in dim.names - bound)
    return f"the stride {loose[0]} of {buffer.name} is bound by no input" if loose else None


def _tiles_fault(launch: Launch) -> str | None:
    """A loop over a tile whose size the launch does not declare, or two of one name."""
    names = [tile.name for tile in launch.tiles]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"two tiles of a launch are called {twice[0]}"
    strange = [tile.name for tile in tiles_of(launch.body) if tile not in launch.tiles]
    return f"its launch does not declare the tile {strange[0]}" if strange else None


def _threads_fault(body: Iterable[Statement], outermost: bool = True) -> str | None:
    """A loop on threads within another kind of loop, or with something after it."""
    statements = tuple(body)
    for at, statement in enumerate(statements):
        reason = None
        if isinstance(statement, Loop) and statement.axis is Axis.THREADS:
            if not outermost or at != len(statements) - 1:
                return f"the loop over {statement.var} on threads is not outermost, at the end of its block"
            if any(name.startswith("#") for name in statement.extent.names):
                return f"how often {statement.var} runs on threads depends on another loop"
            reason = _threads_fault(statement.body)
        elif isinstance(statement, Loop | If):
            reason = _threads_fault(statement.body, outermost=False)
        for expr in every_expression((statement,)):
            if isinstance(expr, Fold):
                reason = reason or _threads_fault(expr.body, outermost=False)
        if reason:
            return reason
    return None


def _names_fault(body: Iterable[Statement], outside: frozenset[str]) -> str | None:
    """A name that is bound where it can be seen already."""
    visible = set(outside)
    for statement in body:
        reason, bound = None, None
        for fold in (expr for expr in every_expression((statement,)) if isinstance(expr, Fold)):
            own = [variable for variable, _ in fold.loops]
            reason = reason or _twice(own, visible) or _names_fault(fold.body, frozenset(visible) | set(own))
        match statement:
            case Let(name) | Alloc(name):
                bound = name
            case Loop(var, _, _, inner):
                reason = reason or _twice([var], visible) or _names_fault(inner, frozenset(visible) | {var})
            case If(_, inner):
                reason = reason or _names_fault(inner, frozenset(visible))
            case Zero() | MergeLanes() | TransposeTile() | StreamStore():
                reason = reason or _names_fault(loops_of(statement), frozenset(visible))
            case Store() | Prefetch() | Require():
                pass
            case _:
                assert_never(statement)
        if bound is not None:
            reason = reason or _twice([bound], visible)
            visible.add(bound)
        if reason:
            return reason
    return None


def _twice(names: Iterable[str], earlier: Iterable[str]) -> str | None:
    again = [name for name in names if name in set(earlier)]
    return f"{again[0]} is bound where it has a meaning already" if again else None


def _store_fault(statement: Statement) -> str | None:
    """Values that are no state of the monoid that merges them."""
    if not isinstance(statement, Store) or statement.merge is None:
        return None
    monoid, dtypes = MONOIDS.get(statement.merge), tuple(value.dtype for value in statement.values)
    if monoid is None:
        return f"{statement.merge} is not in the table of monoids"
    if dtypes[0].kind not in monoid.accepts or monoid.states(dtypes[0]) != dtypes:
        return f"{', '.join(dtype.value for dtype in dtypes)} is no state of {statement.merge}"
    return None
