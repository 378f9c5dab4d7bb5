"""The text of a graph: every kind of node, as docs/architecture.md has the grammar."""

from __future__ import annotations

import typing

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir import graph as graph_ir
from noyau.ir.dims import Dim
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Graph,
    Input,
    Iota,
    Lookup,
    Map,
    Node,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
    View,
)
from noyau.ir.graph_printer import graph_text
from noyau.ir.sizes import Demand

F32 = DType.F32
n, rows = Dim.of("n"), Dim.of("rows")
at = Dim.of("#0")

KINDS = {
    "input": (Input(), ()),
    "constant 1.5": (Constant(np.array(1.5, np.float32)), ()),
    "constant of 9 cells": (Constant(np.zeros(9, np.float32)), ()),
    "iota[#0 + n]": (Iota(at + n), ()),
    "exp(x)": (Map("exp"), ("x",)),
    "reduce sum[0, 1](x)": (Reduce("sum", (0, 1)), ("x",)),
    "scan max[1](x)": (Scan("max", 1), ("x",)),
    "scan sum[0, exclusive, reverse](x)": (Scan("sum", 0, exclusive=True, reverse=True), ("x",)),
    "view[#0, 0](x)": (View((at, Dim.of(0))), ("x",)),
    "select[0: 0, n](x, y)": (Select(0, (Dim.of(0), n)), ("x", "y")),
    "gather[i[#0], 2*#0](x, i)": (Gather((Lookup(1, (at,)), 2 * at)), ("x", "i")),
    "scatter sum[i[#0]](x, i, y)": (Scatter((Lookup(1, (at,)),), "sum"), ("x", "i", "y")),
    "scatter last[i[#0]](x, i, y)": (Scatter((Lookup(1, (at,)),), None), ("x", "i", "y")),
    "contract ij,jk->ik(x, y)": (Contract("ij,jk->ik"), ("x", "y")),
    "opaque Sort(x)": (Opaque("Sort"), ("x",)),
    "part[1](x)": (Part(1), ("x",)),
}


@pytest.mark.parametrize("text", KINDS)
def test_a_node(text):
    kind, inputs = KINDS[text]
    graph = Graph((Node("v", kind, inputs, F32, (rows, n)),), ("v",))
    assert graph_text(graph) == f"v: f32[rows, n] = {text}\nreturn v"


def test_every_kind_of_node_is_tried():
    assert {type(kind) for kind, _ in KINDS.values()} == set(typing.get_args(graph_ir.Kind))


def test_demands_and_hostile_names():
    graph = Graph((Node("a\x1b", Input(), (), F32, (n,)),), ("a\x1b",), (Demand(n, Dim.of(4), "at most"),))
    assert graph_text(graph) == "'a\\x1b': f32[n] = input\ndemand n <= 4\nreturn 'a\\x1b'"
