"""Tests of how sizes follow from the shapes of a program's inputs."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Graph, Input, Node
from noyau.ir.sizes import Demand
from noyau.kernels.programs.program import KEPT_SHAPES, solver


def graph(*shapes, demands=()):
    nodes = tuple(Node(f"x{at}", Input(), (), DType.F32, shape_of(shape)) for at, shape in enumerate(shapes))
    return Graph(nodes, ("x0",), demands)


def arrays(*shapes):
    return [np.empty(shape, np.float32) for shape in shapes]


def test_sizes_of_plain_shapes():
    solve = solver(graph(["m", "k"], ["k", 3], []))
    assert solve(arrays((2, 5), (5, 3), ())) == {"m": 2, "k": 5}
    with pytest.raises(InputError, match="x1 has shape"):
        solve(arrays((2, 5), (4, 3), ()))
    with pytest.raises(InputError, match="x1 has shape"):
        solve(arrays((2, 5), (5, 4), ()))
    with pytest.raises(InputError, match="x2 has rank 1"):
        solve(arrays((2, 5), (5, 3), (1,)))


def test_sizes_of_formulas_and_demands():
    assert solver(graph(["n"], [Dim.of("n") * 2 + 1]))(arrays((3,), (7,))) == {"n": 3}
    asked = solver(graph(["n"], ["m"], demands=(Demand(Dim.of("n"), Dim.of("m"), "at most"),)))
    assert asked(arrays((3,), (4,))) == {"n": 3, "m": 4}
    with pytest.raises(InputError, match="n <= m does not hold"):
        asked(arrays((5,), (4,)))


def test_shapes_of_an_earlier_call_are_not_asked_again(monkeypatch):
    asked, bind = [], Graph.bind
    monkeypatch.setattr(Graph, "bind", lambda self, shapes: asked.append(shapes) or bind(self, shapes))
    solve = solver(graph(["n"], ["m"], demands=(Demand(Dim.of("n"), Dim.of("m"), "at most"),)))
    assert [solve(arrays(*shapes))["m"] for shapes in [((1,), (4,)), ((2,), (5,)), ((1,), (4,))]] == [4, 5, 4]
    assert len(asked) == 2
    for _ in range(2):
        with pytest.raises(InputError, match="n <= m does not hold"):
            solve(arrays((5,), (4,)))
    for n in range(KEPT_SHAPES):
        solve(arrays((n,), (KEPT_SHAPES,)))
    before = len(asked)
    assert solve(arrays((1,), (4,))) == {"n": 1, "m": 4}  # forgotten, and right again
    assert len(asked) == before + 1
