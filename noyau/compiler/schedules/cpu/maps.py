"""The strategy map, without reductions: outer loops on threads, the innermost one in lanes."""

from __future__ import annotations

from itertools import pairwise

from noyau.compiler.schedules.primitives import (
    Statements,
    bind,
    chain,
    coalesce,
    reorder,
    sink,
    stride_of,
    widen,
    with_bodies,
)
from noyau.ir import loops as ir
from noyau.ir.dims import Dim
from noyau.ir.walk import loads_of


def map_(kernel: ir.Kernel) -> ir.Kernel:
    """Loops that can count as one do; all of the lone ones but the last go to threads."""
    return with_bodies(kernel, lambda body: threaded(along_reads(sink(coalesce(body)))))


def along_reads(body: Statements) -> Statements:
    """The lone loops around the innermost ones in the order in which the largest input lies in memory, where that is
    known: reads that follow each other are fetched ahead, and writes need not wait for memory."""
    loops, inner = chain(body)
    outer, last = (loops, []) if any(isinstance(s, ir.Loop) for s in inner) else (loops[:-1], loops[-1:])
    loads = [load for load in loads_of(body) if len(load.index) == 1]
    for load in sorted(loads, key=lambda load: -len(load.index[0].names)):
        order = _descending({loop.var: stride_of(load, loop.var) for loop in outer})
        if order is not None:
            same = order == [loop.var for loop in outer]
            return body if same else reorder(body, [*order, *(loop.var for loop in last)])
    return body


def _descending(steps: dict[str, Dim]) -> list[str] | None:
    """The variables by their steps, each a multiple of the next; None where one is 0, or no multiple."""
    order: list[str] = []
    zero = Dim.of(0)
    for variable, step in steps.items():
        order.insert(next((k for k, other in enumerate(order) if step % steps[other] == zero), len(order)), variable)
    descends = all(steps[a] % steps[b] == zero and steps[a] != steps[b] for a, b in pairwise(order))
    return order if descends and zero not in steps.values() else None


def threaded(body: Statements) -> Statements:
    """Lone loops on threads, but one for the lanes where there are several."""
    loops, inner = chain(body)
    straight = len(loops) > 1 and not any(isinstance(s, ir.Loop) for s in inner)
    return widen(bind(body, len(loops) - straight))
