"""Scans in a nest: a state in memory, which the loop over the scanned axis carries from one index to the next.

Scatters in a nest. Where at most one update can meet a cell, and its place but for what is looked up is that of the
cell, a cell asks whether it is the one; else updates are merged in memory, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape, equal, index_name
from noyau.ir.graph import Graph, Lookup, Node, Scan, Scatter
from noyau.ir.launch_conditions import all_of, when
from noyau.ir.loops import Alloc, Call, Const, Expr, Index, Load, Space, Store, Var
from noyau.ir.monoids import MONOIDS, Symbolic

if TYPE_CHECKING:
    from noyau.compiler.lowering.values import Lowering


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
    accumulate = Store(names, zero, monoid.lift(Symbolic(), value, Index(Dim.of(variable))), scan.monoid)
    inside += [] if scan.exclusive else [accumulate]
    result: Var = lowering.let(lowering.scopes[depth], node, monoid.finish(Symbolic(), state), index)
    inside += [accumulate] if scan.exclusive else []
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


ONE = Dim.of(1)


def asks_each_cell(graph: Graph, node: Node) -> bool:
    """Whether each cell of a Scatter can tell the one update that may meet it: every axis of the updates that is longer
    than 1 is an axis of the result, from end to end."""
    assert isinstance(node.kind, Scatter)
    updates, places = graph[node.inputs[2]], _places(node.kind)
    whole = all(equal(updates.shape[own], node.shape[axis]) for own, axis in places.items())
    plain = len(places) + sum(isinstance(entry, Lookup) for entry in node.kind.index) == len(node.shape)
    free = [axis for axis, extent in enumerate(updates.shape) if axis not in places and extent != ONE]
    return whole and plain and not free


def _places(kind: Scatter) -> dict[int, int]:
    """The axes of the updates that are axes of the result, each with that."""
    names = {entry: axis for axis, entry in enumerate(kind.index) if not isinstance(entry, Lookup)}
    return {own: names[at] for own in range(len(kind.index)) if (at := Dim.of(index_name(own))) in names}


def ask(lowering: Lowering, node: Node, kind: Scatter, index: Shape) -> Expr:
    """The value of a cell: that of the data, unless the update that may meet it does."""
    data, _, updates = node.inputs
    places = _places(kind)
    at = tuple(index[places[own]] if own in places else Dim.of(0) for own in range(len(lowering.graph[updates].shape)))
    here = {index_name(own): dim for own, dim in enumerate(at)}
    same = list[Expr]()
    for axis, entry in enumerate(kind.index):
        if isinstance(entry, Lookup):
            position = lowering.lookup(node, entry, here, node.shape[axis])
            same.append(Call("equal", (Index(index[axis]), Index(position)), DType.BOOL))
    old, new = lowering.value(data, index), lowering.value(updates, at)
    if kind.monoid is not None:
        (new,) = MONOIDS[kind.monoid].merge(Symbolic(), (old,), (new,))
    meets = when(all_of(same))
    return new if meets is None else Call("where", (meets, new, old), new.dtype)
