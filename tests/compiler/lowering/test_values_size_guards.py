"""Extents that the model calls by different names are not trusted: a kernel refuses what it would read beyond."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.lowering.nest import lower
from noyau.compiler.lowering.values import guards
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.dims import Dim, indices, maximum, shape_of
from noyau.ir.graph import Graph, Input, Map, Node, View, expand_index
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Require
from noyau.ir.sizes import Demand
from noyau.ir.walk import every_statement
from noyau.toolchain.c.compiler import CompilerOptions, compile_library
from noyau.toolchain.c.library import Native

A, B = shape_of(["a"]), shape_of(["b"])


def added(index_of_b) -> Graph:
    """x[a] + y[b], which the views bring to one shape."""
    target = shape_of([maximum("a", "b")])
    view_x, view_y = View(expand_index(A, target)), View(index_of_b(B, target))
    return Graph(
        (
            Node("x", Input(), (), DType.F32, A),
            Node("y", Input(), (), DType.F32, B),
            Node("wide_x", view_x, ("x",), DType.F32, target),
            Node("wide_y", view_y, ("y",), DType.F32, target),
            Node("out", Map("add"), ("wide_x", "wide_y"), DType.F32, target),
        ),
        ("out",),
    )


def native(graph: Graph) -> Native:
    kernel = schedule(lower(graph, "added"))
    return Native(compile_library([c_printer.source(kernel)], CompilerOptions(export=True)), "added_kernel")


@pytest.mark.parametrize(("a", "b"), [(3, 3), (1, 3), (3, 1), (0, 0), (1, 1)])
def test_extents_that_broadcast_are_taken(a, b):
    x, y = np.arange(a, dtype=np.float32), np.arange(b, dtype=np.float32)
    (got,) = native(added(expand_index)).call_guarded(x, y)
    np.testing.assert_array_equal(got, x + y)


def demanding(relation, left, right):
    """The guards of a graph of x[a] and y[b] that demands something of sizes."""
    nodes = (Node("x", Input(), (), DType.F32, A), Node("y", Input(), (), DType.F32, B))
    return guards(Graph(nodes, ("x", "y"), (Demand(Dim.of(left), Dim.of(right), relation),)))


@pytest.mark.parametrize("relation", ["equal", "broadcast", "at most"])
@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("a", 3), ("a", 1), ("a", 0), (2, "b")])
def test_a_demand_is_asked_to_the_letter(relation, left, right):
    demand, asked = Demand(Dim.of(left), Dim.of(right), relation), demanding(relation, left, right)
    for a, b in itertools.product(range(6), repeat=2):
        sizes = {"a": a, "b": b}
        assert all(guard.holds(sizes) for guard in asked) == demand.holds(sizes), (sizes, demand)


def test_a_demand_of_sizes_that_no_input_tells_is_not_asked():
    assert demanding("equal", "a", "c") == ()


@pytest.mark.parametrize(("a", "b"), [(3, 2), (2, 3), (5, 4)])
def test_extents_that_do_not_broadcast_are_refused(a, b):
    with pytest.raises(InputError):
        native(added(expand_index))(np.zeros(a, np.float32), np.zeros(b, np.float32))


def test_a_view_within_its_shape_needs_no_guard():
    shape = shape_of(["n", 4])
    turned = View(tuple(reversed(indices(2))))
    graph = Graph(
        (Node("x", Input(), (), DType.F32, shape), Node("y", turned, ("x",), DType.F32, shape[::-1])),
        ("y",),
    )
    assert guards(graph) == ()


def test_a_slice_of_a_fixed_length_needs_a_long_enough_input():
    graph = Graph(
        (
            Node("x", Input(), (), DType.F32, A),
            Node("y", View((Dim.of("#0") + 2,)), ("x",), DType.F32, shape_of([3])),
        ),
        ("y",),
    )
    kernel = native(graph)
    np.testing.assert_array_equal(kernel(np.arange(5, dtype=np.float32))[0], [2, 3, 4])
    with pytest.raises(InputError):
        kernel(np.arange(4, dtype=np.float32))


def clipped(x, at):
    return x[np.clip(at, 0, x.shape[0] - 1)]


def clipped_by_steps(x, at):
    return x[np.minimum(np.maximum(0, at), x.shape[0] - 1)[:, None]]


def beyond(x, at):
    return x[np.clip(at, 0, x.shape[0])]


@pytest.mark.parametrize(("function", "checks"), [(clipped, 0), (clipped_by_steps, 0), (beyond, 1)])
def test_an_index_that_is_clipped_to_its_axis_needs_no_check(function, checks):
    given = {"x": (DType.F32, (4,)), "at": (DType.I64, (6,))}
    kernel = lower(normalise(trace_shapes(function, given, {}).graph), "k")
    asked = [s for s in every_statement(kernel.launches[0].body) if isinstance(s, Require)]
    assert len(asked) == checks
    x, at = np.arange(4, dtype=np.float32), np.array([-(1 << 60), -1, 0, 3, 3, 2])
    assert np.array_equal(run(kernel, [x, at])[0], function(x, at))
    assert run(kernel, [x[:0], at[:0]])[0].size == 0
    with pytest.raises(InputError):
        run(kernel, [x[:0], at])
