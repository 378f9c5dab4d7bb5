"""Graphs of one node, for the tests of its derivative."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.dtypes import DType
from noyau.ir.dims import DimLike, shape_of
from noyau.ir.graph import Graph, Input, Kind, Node
from noyau.ir.graph_verifier import check


def given(name: str, shape: Sequence[DimLike], dtype: DType = DType.F64) -> Node:
    """An input."""
    return Node(name, Input(), (), dtype, shape_of(shape))


def alone(kind: Kind, inputs: Sequence[Node], shape: Sequence[DimLike], dtype: DType = DType.F64) -> Graph:
    """The graph of one value y of that kind."""
    return check(Graph((*inputs, Node("y", kind, tuple(n.output for n in inputs), dtype, shape_of(shape))), ("y",)))
