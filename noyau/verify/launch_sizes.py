"""Sizes at which each launch of a kernel runs: which of several does, for short rows or long ones, its sizes say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

from noyau.ir.graph import Graph
from noyau.ir.loops import Call, Expr, Index, Kernel, Sizes, conditions_of, runs
from noyau.verify.awkward_sizes import cells, fits, usual_sizes

MOST_CELLS = 1 << 21  # of the largest value of a case
_MOST = 4096  # choices of sizes
_FEW = (2, 1)  # of what need not be long: two show where a second row begins


def covering(
    kernels: Iterable[Kernel],
    graph: Graph,
    earlier: Sequence[Sizes],
    sizes_of_call: Sizes | None = None,
    most: int = MOST_CELLS,
) -> list[dict[str, int]]:
    """For each launch that runs where a graph is called with some sizes, or for each at all, and at none of those that
    are `earlier` anyway, the sizes of fewest cells at which it does, each two, a number that it is compared with, or
    the next one, or multiple of 16; or one, where the launch takes more than `most` cells otherwise. None for one that
    takes as many however that is."""
    usual, covered = usual_sizes(graph, {}), list[dict[str, int]]()
    conditions = (
        when
        for kernel in kernels
        for when in conditions_of(kernel)
        if sizes_of_call is None or runs(when, sizes_of_call)
    )
    for when in conditions:
        if not any(runs(when, sizes) for sizes in (*earlier, *covered)):
            covered += islice(_running(when, usual, graph, most), 1)
    return covered


def _running(when: Expr, usual: Sizes, graph: Graph, most: int) -> Iterator[dict[str, int]]:
    """Sizes at which a launch runs: those first of which the fewest are one, then those of few cells."""
    limits = sorted({side.dim.constant for side in _indices(when) if side.dim.constant})
    names = {name for side in _indices(when) for name in side.dim.names} & usual.keys()
    some = [*_FEW, *(n for limit in limits for n in (limit, limit + 1)), *(_aligned(n) for n in limits[-1:])]
    choices = [some if n in names else [usual[n]] for n in usual]
    assignments = (dict(zip(usual, each, strict=True)) for each in islice(product(*choices), _MOST))
    fitting_sizes = [sizes for sizes in assignments if runs(when, sizes)]
    ranked = ((sum(n == 1 for n in sizes.values()), cells(graph, sizes), at) for at, sizes in enumerate(fitting_sizes))
    yield from (
        fitting_sizes[at] for _, count, at in sorted(ranked) if count <= most and fits(graph, fitting_sizes[at])
    )


def _aligned(size: int) -> int:
    """The next size at which rows of any dtype follow each other at multiples of 16 bytes."""
    return size - size % 16 + 16


def _indices(expr: Expr) -> Iterator[Index]:
    match expr:
        case Index():
            yield expr
        case Call(_, operands):
            for operand in operands:
                yield from _indices(operand)
        case _:
            pass
