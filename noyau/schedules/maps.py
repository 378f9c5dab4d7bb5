"""Strategy map: no reductions. Outer loops on threads, the innermost one in lanes."""

from __future__ import annotations

from noyau.ir.loops import Kernel, Loop
from noyau.schedules.steps import Statements, bind, coalesce, lone_loops, sink, widen, with_bodies


def map_(kernel: Kernel) -> Kernel:
    """Loops that can count as one do; all of the lone ones but the last go to threads."""
    return with_bodies(kernel, lambda body: threaded(sink(coalesce(body))))


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
