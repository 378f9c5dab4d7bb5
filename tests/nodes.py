"""Graphs written down shortly: `value("y", Map("add"), "a b", F32, "n", 4)`."""

from __future__ import annotations

from noyau.dtypes import DType
from noyau.ir.dims import Dim, DimLike, shape_of
from noyau.ir.graph import Graph, Input, Kind, Node, View
from noyau.ir.graph_verifier import check

F16, BF16, F32, F64 = DType.F16, DType.BF16, DType.F32, DType.F64
BOOL, I8, I32, I64, U8 = DType.BOOL, DType.I8, DType.I32, DType.I64, DType.U8


def value(output: str, kind: Kind, inputs: str, dtype: DType, *shape: DimLike) -> Node:
    """A node; the names of its inputs stand in one text."""
    return Node(output, kind, tuple(inputs.split()), dtype, shape_of(shape))


def given(output: str, dtype: DType, *shape: DimLike) -> Node:
    return value(output, Input(), "", dtype, *shape)


def view(*index: DimLike) -> View:
    return View(shape_of(index))


def at(axis: int) -> Dim:
    return Dim.of(f"#{axis}")


def graph(outputs: str, *nodes: Node) -> Graph:
    """A graph that obeys the rules."""
    return check(Graph(nodes, tuple(outputs.split())))
