"""Scatters in a nest. Where at most one update can meet a cell, and its place but for what is looked up is that of the
cell, a cell asks whether it is the one; else updates are merged in memory, one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noyau.dtypes import DType
from noyau.ir.algebra import Symbolic
from noyau.ir.conditions import all_of, when
from noyau.ir.dims import Dim, Shape, equal, index_name
from noyau.ir.graph import Graph, Lookup, Node, Scatter
from noyau.ir.loops import Call, Expr, Index
from noyau.ir.monoids import MONOIDS

if TYPE_CHECKING:
    from noyau.lowering.values import Lowering

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
            found = lowering.lookup(node, entry, here, node.shape[axis])
            same.append(Call("equal", (Index(index[axis]), Index(found)), DType.BOOL))
    old, new = lowering.value(data, index), lowering.value(updates, at)
    if kind.monoid is not None:
        (new,) = MONOIDS[kind.monoid].merge(Symbolic(), (old,), (new,))
    meets = when(all_of(same))
    return new if meets is None else Call("where", (meets, new, old), new.dtype)
