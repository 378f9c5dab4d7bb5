"""Recomputation that a kernel would cost, refused where it is too much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from noyau.compiler.lowering.loop_cuts import divisions
from noyau.compiler.partition.costs import USUAL, cells, usual
from noyau.compiler.schedules.primitives import flatten
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import product
from noyau.ir.graph import Graph, Reduce
from noyau.ir.loops import Call, Expr, Fold, If, Index, Kernel, Let, Load, Loop, Statement
from noyau.ir.walk import every_statement, flops_of, folds_in, operands

AGAIN = 12.0  # flops that may be computed again for each cell of the largest output
PASSES = 8  # reductions that may need each other in turn: each is one more pass, which computes much of the others anew
DEEPEST = 160  # steps that may need each other in turn


@dataclass(frozen=True, slots=True)
class Repeat:
    """A value that a kernel computes more often than it has cells."""

    value: str
    times: float
    flops: float  # extra ones, for each cell of the largest output
    reduction: bool

    def __str__(self) -> str:
        what = "the reduction" if self.reduction else "the value"
        often = f"{self.times:.0f} times" if self.times > 1.5 else "more than once"
        return f"{what} {self.value.partition('~')[0]} would be computed {often} over (where every size is {USUAL})"


def check_depth(graph: Graph) -> None:
    """UnsupportedError where too many reductions, or too many steps, need each other in turn."""
    steps, passes = dict[str, int](), dict[str, int]()
    for node in graph.nodes:
        steps[node.output] = max((steps[name] for name in node.inputs), default=0) + 1
        passes[node.output] = max((passes[name] for name in node.inputs), default=0) + isinstance(node.kind, Reduce)
    if max(passes.values(), default=0) > PASSES:
        raise UnsupportedError(f"more than {PASSES} reductions need each other in turn")
    if max(steps.values(), default=0) > DEEPEST:
        raise UnsupportedError(f"more than {DEEPEST} steps need each other in turn")


def check_recompute(graph: Graph, kernel: Kernel) -> None:
    """UnsupportedError where a kernel computes a reduction again, or much else."""
    again = repeats(graph, kernel)
    costly = [repeat for repeat in again if repeat.reduction]
    if costly or sum(repeat.flops for repeat in again) > AGAIN:
        raise UnsupportedError(str((costly or again)[0]))


def check_divisions(kernel: Kernel) -> None:
    """UnsupportedError where each cell divides by a size to know its place in memory, as a reshape of a part to a shape
    that does not divide its own asks: no vector can, and a copy that is made once takes a tenth of the time."""
    body = [statement for launch in flatten(kernel).launches for statement in launch.body]
    loops = (s for s in every_statement(body) if isinstance(s, Loop))
    inner = {loop.var for loop in loops if not any(isinstance(s, Loop) for s in loop.body)}
    inner |= {fold.loops[-1][0] for fold in folds_in(body)}
    for op in divisions(body):
        if op.right.constant is None and inner & op.left.names:
            raise UnsupportedError(f"each cell would divide by {op.right}, a size, to know its place in memory")


def repeats(graph: Graph, kernel: Kernel) -> list[Repeat]:
    """Values that cost something and are computed more than once a cell, the dearest first.

    Passes over a row are not counted: what one pass computes and another computes too may be kept."""
    main = max(1.0, *(cells(graph[name]) for name in graph.outputs))
    trips: dict[tuple[str, int], float] = defaultdict(float)
    costs: dict[str, tuple[float, bool]] = {}
    for launch in kernel.launches:
        for value, place, times, flops, is_fold in _visits(launch.body, 1.0):
            trips[value, place] += times
            costs[value] = (flops, is_fold)
    most = defaultdict[str, float](float)
    for (value, _), times in trips.items():
        most[value] = max(most[value], times)
    repeated = []
    for value, times in most.items():
        own, (flops, reduction) = max(cells(graph[value]), 1.0), costs[value]
        if times > own * 1.01 and flops:
            repeated.append(Repeat(value, times / own, flops * (times - own) / main, reduction))
    return sorted(repeated, key=lambda repeat: -repeat.flops)


def _visits(body: Iterable[Statement], times: float, place: int = 0) -> Iterator[tuple[str, int, float, float, bool]]:
    """Each value, a number of the folds around it, how often it is computed, its flops, and whether it is a fold."""
    for statement in body:
        match statement:
            case Loop(_, extent, _, inner):
                yield from _visits(inner, times * usual(extent), place)
            case If(_, inner):
                yield from _visits(inner, times, place)
            case Let(name, Fold() as fold, origin):
                length = usual(product(extent for _, extent in fold.loops))
                if origin:
                    yield origin[0], place, times, length, True
                yield from _visits(fold.body, times * length, place + hash(name) % (1 << 32) + 1)
            case Let(_, value, origin) if origin:
                yield origin[0], place, times, _flops(value), False
            case _:
                pass


def _flops(expr: Expr) -> float:
    """The flops of a value, without conditions on its place: those are known for all cells but a few at the edges."""
    match expr:
        case Load():
            return 0.0
        case Call("where", (condition, *cases)) if _is_place(condition):
            return sum(map(_flops, cases))
        case _:
            return 0.0 if _is_place(expr) else float(flops_of(expr)) + sum(map(_flops, operands(expr)))


def _is_place(expr: Expr) -> bool:
    """Whether an expression is a place, or a condition on nothing but places and sizes."""
    is_condition = isinstance(expr, Call) and expr.dtype is DType.BOOL
    return isinstance(expr, Index) or (is_condition and all(map(_is_place, operands(expr))))
