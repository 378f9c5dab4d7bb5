from __future__ import annotations

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.schedules.cpu.rows_in_lanes import SHORT, TILE, folds_of_folds, has_loops, rows_across
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices
from noyau.ir.graph import Gather, Lookup, Reduce, View
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Call, Let, Loop
from noyau.ir.walk import every_statement, loads_of
from noyau.toolchain.c import compiler as c_compiler
from noyau.toolchain.c.library import Native
from tests.compiler.schedules.groups import assert_keeps, flat, in_order, inputs_of, lowered, reduced
from tests.jobs.check.groups import F32, Group, softmax
from tests.judged import Judge


def distances(*results, queries="queries", n="n", d="d", dtype=F32, each=(), turned=False, points="points"):
    """What is reduced of the squared distances of each query to n points: `turned`, the cells of a query lie apart.
    `points`: what they are called."""
    g, shape = Group(), (queries, n, d)
    q, p = g.input("query", dtype, *((d, queries) if turned else (queries, d))), g.input(points, dtype, n, d)
    i, j, k = indices(3)
    wide = [g.add(View(at), [x], dtype, shape) for x, at in ((q, (k, i) if turned else (i, k)), (p, (j, k)))]
    away = g.map("subtract", *wide)
    near = g.add(Reduce("sum", (2,)), [g.map("multiply", away, away)], dtype, (queries, n))
    for function in each:
        near = g.map(function, near)
    kinds = [(name, DType.I64 if name.startswith("arg") else dtype) for name in results]
    return g.graph(*(g.add(Reduce(name, (1,)), [near], kind, (queries,)) for name, kind in kinds))


def by_levels():
    """The variance of distances, by two folds of which one waits for the other."""
    g, shape = Group(), ("queries", "n", "d")
    q, p = g.input("query", F32, "queries", "d"), g.input("points", F32, "n", "d")
    i, j, k = indices(3)
    away = g.map("subtract", *(g.add(View(at), [x], F32, shape) for x, at in ((q, (i, k)), (p, (j, k)))))
    near = g.add(Reduce("sum", (2,)), [g.map("multiply", away, away)], F32, shape[:2])
    top = g.add(Reduce("max", (1,)), [near], F32, shape[:1])
    less = g.map("subtract", near, g.add(View((i,)), [top], F32, shape[:2]))
    return g.graph(top, g.add(Reduce("sum", (1,)), [g.map("exp", less)], F32, shape[:1]))


def looked_up():
    """Of each query the points are others, which are looked up."""
    g, shape = Group(), ("queries", "n", "d")
    q, p, at = (
        g.input("query", F32, "queries", "d"),
        g.input("points", F32, "words", "d"),
        g.input("at", DType.I64, "n"),
    )
    i, j, k = indices(3)
    rows = g.add(Gather((Lookup(1, (j,)), k)), [p, at], F32, shape)
    away = g.map("multiply", g.add(View((i, k)), [q], F32, shape), rows)
    near = g.add(Reduce("sum", (2,)), [away], F32, shape[:2])
    return g.graph(g.add(Reduce("max", (1,)), [near], F32, shape[:1]))


def beside_a_fold():
    """What is reduced of distances, plus a fold whose values are no folds, over a loop of its own."""
    g, shape = Group(), ("queries", "n", "d")
    q, p, w = (
        g.input("query", F32, "queries", "d"),
        g.input("points", F32, "n", "d"),
        g.input("more", F32, "queries", "n"),
    )
    i, j, k = indices(3)
    away = g.map("subtract", *(g.add(View(at), [x], F32, shape) for x, at in ((q, (i, k)), (p, (j, k)))))
    near = g.add(Reduce("sum", (2,)), [g.map("multiply", away, away)], F32, shape[:2])
    total, other = (g.add(Reduce("sum", (1,)), [each], F32, shape[:1]) for each in (near, w))
    return g.graph(g.map("add", total, other))


GRAPHS = {
    "the nearest": distances("argmin", "min"),
    "the nearest of 3": distances("argmin", d=3),
    "kernel density": distances("sum", each=("negative", "exp")),
    "f64": distances("sum", "max", dtype=DType.F64),
    "bf16": distances("sum", dtype=DType.BF16),
    "turned": distances("argmax", turned=True),
    "named like memory": distances("min", points="query_0"),
    "by levels": by_levels(),
    "looked up": looked_up(),
    "beside a fold": beside_a_fold(),
}
SIZES = [
    {"queries": q, "n": n, "d": d, "words": 4}
    for q, n, d in ((33, 5, 3), (2, 35, 4), (2, 33, 66), (0, 3, 2), (35, 3, 0))
]


@pytest.mark.parametrize("name", GRAPHS)
def test_every_way_computes_what_the_graph_does(name):
    made = folds_of_folds(flat(GRAPHS[name]))
    assert made is not None
    assert_keeps(GRAPHS[name], made, *SIZES)


@pytest.mark.parametrize("name", GRAPHS)
def test_in_c(name):
    graph = GRAPHS[name]
    made = check(schedule(lowered(graph)))
    native = Native(
        c_compiler.compile_library([c_printer.source(made)], c_compiler.CompilerOptions(export=True, extra=("-O1",))),
        "kernel_kernel",
    )
    for sizes in SIZES:
        inputs = inputs_of(graph, sizes)
        judge = Judge(graph, inputs)
        got = native(*in_order(made, inputs))
        assert [judge.wrong(output, array) for output, array in zip(graph.outputs, got, strict=True)] == [None] * len(
            got
        )


def launches(graph):
    made = folds_of_folds(flat(graph))
    return None if made is None else made.launches


def test_the_sizes_that_are_known_leave_fewer_ways():
    for known in ({"d": 3, "queries": TILE}, {"d": 3, "queries": TILE - 1}, {"d": SHORT + 1}):
        (launch,) = launches(distances("min", **known))
        assert launch.when is None
    assert len(launches(distances("min", d=3))) == 2
    assert len(launches(distances("min"))) == 3


def test_the_sizes_of_a_call_ask_for_one_way():
    text = c_printer.source(schedule(lowered(distances("sum"))))
    asked = [line.split(" where ")[1] for line in text.splitlines() if "Items: " in line]
    few, many = f"d <= {SHORT}", f"{TILE} <= queries"
    assert asked == [f"({few}) & ({many}). */", f"({few}) & (!({many})). */", f"!({few}). */"]


def test_folds_of_several_results_take_what_they_share_once():
    (launch,) = launches(distances("argmin", "min", "sum", d=3, queries=TILE))
    products = [s for s in every_statement(launch.body) if isinstance(s, Let) and called(s.value, "multiply")]
    assert len(products) == 1


def called(expr, function):
    return isinstance(expr, Call) and expr.function == function


def test_rows_side_by_side_read_what_is_theirs_once():
    (launch,) = launches(distances("min", d=3, queries=TILE))
    (points,) = [s for s in every_statement(launch.body) if isinstance(s, Loop) and s.extent == Dim.of("n")]
    assert {"points", "query.0"} <= {load.buffer for load in loads_of(points.body)}
    assert "query" not in {load.buffer for load in loads_of(points.body)}
    innermost = [s for s in every_statement(points.body) if isinstance(s, Loop) and not has_loops(s)]
    assert {loop.axis for loop in innermost} == {Axis.LANES}


def test_rows_of_which_what_is_read_for_each_point_lies_apart_are_not_side_by_side():
    """One of three arrays has a cell of its own for each query, point and column."""
    g, shape = Group(), ("queries", "n", "d")
    near = g.add(Reduce("sum", (2,)), [g.map("exp", g.input("x", F32, *shape))], F32, shape[:2])
    graph = g.graph(g.add(Reduce("max", (1,)), [near], F32, shape[:1]))
    assert len(launches(graph)) == 2
    assert_keeps(graph, folds_of_folds(flat(graph)), *SIZES)


@pytest.mark.parametrize("graph", [softmax(), softmax(columns=7), reduced("sum", "n")])
def test_what_has_no_folds_in_folds_is_left_to_other_strategies(graph):
    assert launches(graph) is None


def normed_in_the_middle(extent):
    """The softmax of exp(x) + m over a middle axis."""
    g, shape = Group(), ("b", extent, "n")
    x, m = g.input("x", F32, *shape), g.input("m", F32, extent)
    moved = g.map("add", g.map("exp", x), g.add(View((indices(3)[1],)), [m], F32, shape))
    e = g.map("exp", g.map("subtract", moved, g.expand(g.reduce("max", moved, 1), shape)))
    g.map("divide", e, g.expand(g.reduce("sum", e, 1), shape))
    return g.graph()


@pytest.mark.parametrize("extent", ["c", 3, 300])
def test_rows_whose_neighbours_lie_side_by_side_are_lanes(extent):
    """Where there are a vector's worth of them, however long they are; long ones are summed in float64."""
    graph = normed_in_the_middle(extent)
    made = schedule(lowered(graph))
    across = made.launches[-1]
    assert rows_across(flat(graph)) is not None
    lanes = [s.var for s in every_statement(across.body) if isinstance(s, Loop) and s.axis is Axis.LANES]
    assert set(lanes) == {"#i2"}
    sums = {s.dtype for s in every_statement(across.body) if isinstance(s, Alloc) and s.name.endswith(".sum")}
    assert sums == {F32 if extent == 3 else DType.F64}
    assert_keeps(graph, made, *({"b": 1, "c": 3, "n": n} for n in ((7, 9, 33) if extent != 300 else (9,))))


def test_rows_of_cells_that_follow_each_other_are_no_lanes():
    assert rows_across(flat(softmax())) is None
    g = Group()
    x = g.input("x", F32, "b", "c", 7)
    g.map("divide", x, g.expand(g.reduce("sum", x, 1), ("b", "c", 7)))
    assert rows_across(flat(g.graph())) is None
