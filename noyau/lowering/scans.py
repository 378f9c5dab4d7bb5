"""Scans in a nest: a state in memory, which the loop over the scanned axis carries from one index to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noyau.errors import UnsupportedError
from noyau.ir.algebra import Symbolic
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Node, Scan
from noyau.ir.loops import Alloc, Const, Expr, Index, Load, Space, Store, Var
from noyau.ir.monoids import MONOIDS

if TYPE_CHECKING:
    from noyau.lowering.values import Lowering


class LoopNeeded(Exception):
    """The loop over `variable` must run backwards, or else within the other loops."""

    def __init__(self, variable: str, *, backwards: bool) -> None:
        self.variable, self.backwards = variable, backwards


def lower_scan(lowering: Lowering, node: Node, scan: Scan, index: Shape) -> Expr:
    """The running result at an index: the state of the loop over the axis, before or after it takes the value in.

    LoopNeeded where that loop does not run as the scan does; UnsupportedError where it cannot."""
    variable, depth = _variable(lowering, node, scan, index), lowering.depth(index)
    if variable not in lowering.scopes[depth].variables:
        raise LoopNeeded(variable, backwards=False)
    others = {name for axis, dim in enumerate(index) if axis != scan.axis for name in dim.names}
    if others & lowering.scopes[depth].variables:
        raise UnsupportedError(f"{node.output}: the loop along the scan goes from row to row of it")
    lowering.folds.append(frozenset(name for dim in index for name in dim.names if name.startswith("#")))
    monoid, operand = MONOIDS[scan.monoid], lowering.graph[node.inputs[0]]
    if operand.dtype.kind not in monoid.accepts:
        raise UnsupportedError(f"{node.output}: no {scan.monoid} of {operand.dtype.value}")
    dtypes, zero = monoid.states(operand.dtype), (Dim.of(0),)
    names = tuple(lowering.names.fresh(f"{node.output}_{scan.monoid}") for _ in dtypes)
    empty = tuple(map(Const, monoid.init(operand.dtype), dtypes))
    around, inside = lowering.scopes[depth - 1].statements, lowering.scopes[depth].statements
    around += [Alloc(name, dtype, (Dim.of(1),), Space.REGISTER) for name, dtype in zip(names, dtypes, strict=True)]
    around.append(Store(names, zero, empty))
    value = lowering.value(operand.output, index)
    state: tuple[Expr, ...] = tuple(Load(name, zero, dtype) for name, dtype in zip(names, dtypes, strict=True))
    taken = Store(names, zero, monoid.lift(Symbolic(), value, Index(Dim.of(variable))), scan.monoid)
    inside += [] if scan.exclusive else [taken]
    result: Var = lowering.let(lowering.scopes[depth], node, monoid.finish(Symbolic(), state), index)
    inside += [taken] if scan.exclusive else []
    return result


def _variable(lowering: Lowering, node: Node, scan: Scan, index: Shape) -> str:
    """The variable of the loop that runs along the whole axis."""
    at, extent = index[scan.axis], node.shape[scan.axis]
    mine = [name for name in at.names if name.startswith("#")]
    whole = len(mine) == 1 and lowering.offsets.get(mine[0]) == Dim.of(0) and lowering.extents[mine[0]] == extent
    ways = [Dim.of(name) for name in mine[:1]] + [extent - 1 - Dim.of(name) for name in mine[:1]]
    if not whole or at not in ways or lowering.guard is not None:
        raise UnsupportedError(f"{node.output}: no loop runs along the whole axis of the scan")
    if (at == ways[0]) == scan.reverse:
        raise LoopNeeded(mine[0], backwards=True)
    return mine[0]
