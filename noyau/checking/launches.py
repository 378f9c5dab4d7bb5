"""Sizes at which each launch of a kernel runs: which of several does, for short rows or long ones, its sizes say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any

from noyau.checking.adversarial import cells, fits
from noyau.ir.graph import Graph
from noyau.ir.loops import Call, Const, Expr, Index, Kernel
from noyau.ir.operators import OPERATORS

Sizes = Mapping[str, int]
MOST_CELLS = 1 << 21  # of the largest value of a case
_MOST = 4096  # choices of sizes
_FEW = 2  # the least that shows where a second row begins


def covering(kernels: Iterable[Kernel], usual: Sizes, graph: Graph, most: int = MOST_CELLS) -> list[dict[str, int]]:
    """For each launch that does not run at the usual sizes of a graph, the sizes of fewest cells at which it does, each
    a number that it is compared with, or the next one; none for one that takes more than `most` cells."""
    found: list[dict[str, int]] = []
    for when in (launch.when for kernel in kernels for launch in kernel.launches if launch.when is not None):
        if not any(runs(when, sizes) for sizes in (usual, *found)):
            made = (each for each in _by_cells(when, usual, graph, most) if runs(when, each) and fits(graph, each))
            found += islice(made, 1)
    return found


def runs(when: Expr, sizes: Sizes) -> bool:
    """Whether a launch runs at these sizes; not where they do not say it."""
    try:
        return bool(_value(when, sizes))
    except (KeyError, ZeroDivisionError):
        return False


def _by_cells(when: Expr, usual: Sizes, graph: Graph, most: int) -> Iterator[dict[str, int]]:
    """Sizes at which a launch may run, those of few cells first."""
    limits = sorted({side.dim.constant for side in _indices(when) if side.dim.constant is not None})
    names = {name for side in _indices(when) for name in side.dim.names} & usual.keys()
    choices = [
        [_FEW, *(n for limit in limits for n in (limit, limit + 1))] if n in names else [usual[n]] for n in usual
    ]
    made = [dict(zip(usual, each, strict=True)) for each in islice(product(*choices), _MOST)]
    counted = ((cells(graph, sizes), at) for at, sizes in enumerate(made))
    yield from (made[at] for count, at in sorted(counted) if count <= most)


def _indices(expr: Expr) -> Iterator[Index]:
    match expr:
        case Index():
            yield expr
        case Call(_, operands):
            for operand in operands:
                yield from _indices(operand)
        case _:
            pass


def _value(expr: Expr, sizes: Sizes) -> Any:
    match expr:
        case Index(dim):
            return dim.evaluate(sizes)
        case Const(value):
            return value
        case Call(function, operands) if function in OPERATORS:
            return OPERATORS[function].evaluate(*(_value(operand, sizes) for operand in operands))
        case _:
            raise KeyError(expr)
