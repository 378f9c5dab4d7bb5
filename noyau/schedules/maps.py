"""Strategy map: no reductions. Outer loops on threads, the innermost one in lanes."""

from __future__ import annotations

from itertools import pairwise

from noyau.ir.dims import Dim
from noyau.ir.loops import Kernel, Loop
from noyau.schedules.steps import (
    Statements,
    bind,
    chain,
    coalesce,
    loads_of,
    lone_loops,
    reorder,
    sink,
    stride_of,
    widen,
    with_bodies,
)


def map_(kernel: Kernel) -> Kernel:
    """Loops that can count as one do; all of the lone ones but the last go to threads."""
    return with_bodies(kernel, lambda body: threaded(along_reads(sink(coalesce(body)))))


def along_reads(body: Statements) -> Statements:
    """The lone loops around the innermost ones in the order in which the largest input lies in memory, where that is
    known: reads that follow each other are fetched ahead, and writes need not wait for memory."""
    loops, inner = chain(body)
    outer, last = (loops, []) if any(isinstance(s, Loop) for s in inner) else (loops[:-1], loops[-1:])
    loads = [load for load in loads_of(body) if len(load.index) == 1]
    for load in sorted(loads, key=lambda load: -len(load.index[0].names)):
        order = _descending({loop.var: stride_of(load, loop.var) for loop in outer})
        if order is not None:
            same = order == [loop.var for loop in outer]
            return body if same else reorder(body, [*order, *(loop.var for loop in last)])
    return body


def _descending(steps: dict[str, Dim]) -> list[str] | None:
    """The variables by their steps, each a multiple of the next; None where one is 0, or no multiple."""
    found: list[str] = []
    zero = Dim.of(0)
    for variable, step in steps.items():
        at = next((k for k, other in enumerate(found) if step % steps[other] == zero), len(found))
        found.insert(at, variable)
    in_order = all(steps[a] % steps[b] == zero and steps[a] != steps[b] for a, b in pairwise(found))
    return found if in_order and zero not in steps.values() else None


def threaded(body: Statements) -> Statements:
    """Lone loops on threads, but one for the lanes where there are several."""
    chain = lone_loops(body)
    straight = chain and not any(isinstance(s, Loop) for s in _innermost(body, chain))
    return widen(bind(body, chain - 1 if straight and chain > 1 else chain))


def _innermost(body: Statements, chain: int) -> Statements:
    for _ in range(chain):
        last = body[-1]
        assert isinstance(last, Loop)
        body = last.body
    return body
