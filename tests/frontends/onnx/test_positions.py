"""Values that are functions of their index."""

from __future__ import annotations

import time

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.frontends.onnx.positions import position_at
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Input, Iota, Map, Node, Select, View, constant

ROW, COLUMN = indices(2)


def values(*nodes: Node) -> dict[str, Node]:
    return {node.output: node for node in nodes}


def node(
    name: str, kind: object, *inputs: str, dtype: DType = DType.I64, shape: tuple[object, ...] = ("n", "m")
) -> Node:
    return Node(name, kind, inputs, dtype, shape_of(shape))  # type: ignore[arg-type]


ROWS = node("rows", Iota(ROW), shape=("n",))
TALL = node("tall", View((COLUMN,)), "rows")
WIDE = node("wide", View((ROW,)), "rows")


@pytest.mark.parametrize(
    ("function", "meaning"),
    [("add", COLUMN + ROW), ("subtract", COLUMN - ROW), ("multiply", COLUMN * ROW), ("maximum", None)],
)
def test_functions_of_positions(function, meaning):
    known = values(ROWS, TALL, WIDE, node("y", Map(function), "tall", "wide"))
    assert position_at(known, "y", (ROW, COLUMN)) == meaning


def test_the_index_may_be_any_formula():
    assert position_at(values(ROWS, TALL), "tall", (Dim.of(0), ROW * 2 + "k")) == ROW * 2 + "k"


def test_a_constant_is_known_where_its_index_is():
    table = constant("c", np.array([[1, 2], [3, 4]]))
    assert position_at(values(table), "c", (Dim.of(1), Dim.of(0))) == Dim.of(3)
    assert position_at(values(table), "c", (Dim.of(1), ROW)) is None
    assert position_at(values(table), "c", (Dim.of(2), Dim.of(0))) is None
    assert position_at(values(constant("c", np.array([[7]]))), "c", (ROW, COLUMN)) == Dim.of(7)


def test_a_piece_is_known_where_the_index_falls_into_it():
    both = node("y", Select(1, shape_of([0, 1])), "tall", "wide", shape=("n", 2))
    known = values(ROWS, TALL, WIDE, both)
    assert position_at(known, "y", (ROW, Dim.of(1))) == ROW
    assert position_at(known, "y", (ROW, Dim.of(0))) == Dim.of(0)
    assert position_at(known, "y", (ROW, COLUMN)) is None


def test_data_and_floats_are_no_positions():
    known = values(node("x", Input()), node("f", Iota(ROW), dtype=DType.F32))
    assert position_at(known, "x", (ROW, COLUMN)) is None
    assert position_at(known, "f", (ROW, COLUMN)) is None


def test_a_chain_that_doubles_is_left_alone():
    chain = [node("v0", Iota(ROW))] + [node(f"v{k + 1}", Map("add"), f"v{k}", f"v{k}") for k in range(60)]
    started = time.monotonic()
    assert position_at(values(*chain), "v60", (ROW, COLUMN)) is None
    assert time.monotonic() - started < 5
