from __future__ import annotations

import numpy as np
import pytest

from noyau.codegen.c import printer as c_printer
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.cpu.stages import LONG
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.primitives import stride_of
from noyau.dtypes import DType
from noyau.ir.dims import Dim, indices, maximum, shape_of
from noyau.ir.graph import Select, View
from noyau.ir.loops import Axis, Call, Load, Loop, Store
from noyau.ir.walk import every_expression, every_statement, loads_of
from noyau.toolchain.c.compiler import compile_library
from noyau.toolchain.c.library import Native
from tests.compiler.autodiff.numeric import traced
from tests.compiler.schedules.groups import assert_keeps, in_order, inputs_of, lowered
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge

SIZES = [{"rows": rows, "n": n} for rows, n in ((3, 0), (2, 1), (1, 2), (4, 63), (3, 64), (2, 301), (1, 600))]
TILED = Options(stages=True, around_bytes=64)


def turned_halves(dtype=F32, columns="n"):
    """Rows times their halves exchanged, the later one negated; of one length or not, that is not known."""
    g = Group()
    x, (row, at), length = g.input("x", dtype, "rows", columns), indices(2), Dim.of(columns)
    half = length // 2
    later = g.add(View((row, at + half)), [x], dtype, ("rows", length - half))
    first = g.add(View((row, at)), [x], dtype, ("rows", half))
    pieces = [g.map("negative", later), first]
    g.map("multiply", x, g.add(Select(1, shape_of((0, length - half))), pieces, dtype, ("rows", columns)))
    return g.graph()


def chosen(function, place, *others):
    """exp(x) in the cells of rows whose place compares so with 20 rows, -x in the others; other places are less too."""
    g = Group()
    x, shape = g.input("x", F32, "rows", "n"), ("rows", "n")
    limit = g.iota(Dim.of("rows") * 20, shape)
    held = g.map(function, g.iota(place, shape), limit, dtype=DType.BOOL)
    denied = g.map("logical_not", held)
    both = g.map("logical_and", held, g.map("logical_not", g.map("logical_or", denied, denied)))
    for other in others:
        both = g.map("logical_and", both, g.map("less", g.iota(other, shape), limit, dtype=DType.BOOL))
    g.map("where", both, g.map("exp", x), g.map("negative", x))
    return g.graph()


def conditions(kernel):
    """What is left of conditions in the loops in lanes, of a schedule for long rows."""
    lanes = [
        s
        for launch in kernel.launches
        for s in every_statement(launch.body)
        if isinstance(s, Loop) and s.axis is Axis.LANES
    ]
    found = [expr for loop in lanes for expr in every_expression(loop.body)]
    calls = [expr.function for expr in found if isinstance(expr, Call)]
    masks = [expr for expr in found if isinstance(expr, Load) and expr.where is not None]
    return [*masks, *(name for name in calls if name == "where" or name.startswith(("less", "greater", "logical")))]


@pytest.mark.parametrize("dtype", [F32, DType.F16, DType.BF16])
@pytest.mark.parametrize("options", [Options(short=False), TILED])
def test_halves_of_rows_have_loops_of_their_own(dtype, options):
    graph = turned_halves(dtype)
    made = schedule(lowered(graph), options)
    assert_keeps(graph, made, *SIZES)
    assert options.short or not conditions(made)


@pytest.mark.parametrize("place", [Dim.of("#1"), Dim.of("n") - 1 - Dim.of("#1"), Dim.of("#1") + Dim.of("#0")])
@pytest.mark.parametrize("function", ["less", "less_equal", "greater", "greater_equal"])
def test_comparisons_of_places_are_known_on_either_side_of_where_they_change(function, place):
    graph = chosen(function, place)
    made = schedule(lowered(graph), Options(short=False))
    assert not conditions(made)
    assert_keeps(graph, made, *SIZES)


@pytest.mark.parametrize("function", ["equal", "not_equal"])
def test_other_comparisons_stay(function):
    graph = chosen(function, Dim.of("#1"))
    made = schedule(lowered(graph), Options(short=False))
    assert "where" in conditions(made)
    assert_keeps(graph, made, *SIZES[:4])


@pytest.mark.parametrize("place", [Dim.of("#1") * 2, Dim.of("#1") // 2, Dim.of("#0")])
def test_places_that_do_not_grow_by_one_stay(place):
    graph = chosen("less", place)
    made = schedule(lowered(graph), Options(short=False))
    assert "where" in conditions(made)
    assert_keeps(graph, made, *SIZES[:4])


def test_conditions_that_change_in_two_places_stay():
    graph = chosen("less", Dim.of("#1"), Dim.of("#1") + 7)
    made = schedule(lowered(graph), Options(short=False))
    assert "where" in conditions(made)
    assert_keeps(graph, made, *SIZES[:4])


def heat(u):
    v = u.copy()
    v[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


def fourth_order(u):
    v = np.zeros_like(u)
    v[:, 2:-2] = u[:, :-4] - 8 * u[:, 1:-3] + 8 * u[:, 3:-1] - u[:, 4:]
    return v


def reflected(u):
    p = np.pad(u, 2, mode="reflect")
    return p[:-4, 2:-2] + p[4:, 2:-2] + p[2:-2, :-4] * p[2:-2, 4:]


def boxes(u):
    p = np.pad(u, 1)
    return sum(p[i : i + u.shape[0], j : j + u.shape[1]] for i in range(3) for j in range(3))


def gradients(u):
    return np.stack(np.gradient(u))


@pytest.mark.parametrize("stencil", [heat, fourth_order, reflected, boxes, gradients])
@pytest.mark.parametrize("options", [Options(short=False), TILED])
def test_stencils_have_no_condition_inside_of_rows(stencil, options):
    """Their rows took five times as long, for no vector reads where a condition holds at the speed of memory."""
    graph = normalise(traced(stencil, (9, 80), dtype=F32))
    made = schedule(lowered(graph), options)
    lanes = [s for launch in made.launches for s in every_statement(launch.body) if is_lanes(s)]
    plain = [s for s in lanes if not any(isinstance(e, Load) and e.where is not None for e in every_expression(s.body))]
    reads = max(len(list(loads_of(s.body))) for s in plain)
    assert reads == {heat: 4, fourth_order: 4, reflected: 4, boxes: 9, gradients: 4}[stencil]  # of both ends of a row
    rows, columns = graph.inputs[0].shape
    for h, w in ((5, 5), (5, 6), (5, 64), (6, 65), (6, 300), (70, 6)):
        inputs = inputs_of(graph, {str(rows): h, str(columns): w})
        assert_keeps(graph, made, {str(rows): h, str(columns): w})
        if options is not TILED and inputs:
            native = Native(compile_library([c_printer.source(made)]), "kernel_kernel")
            (got, *_) = native(*in_order(made, inputs))
            assert np.allclose(got, stencil(next(iter(inputs.values()))), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("columns", "cut"), [(LONG, True), (LONG - 1, False)])
def test_short_loops_stay(columns, cut):
    g = Group()
    x, shape = g.input("x", F32, "rows", columns), ("rows", columns)
    below = g.map("less", g.iota(Dim.of("#1"), shape), g.iota(Dim.of("rows"), shape), dtype=DType.BOOL)
    graph = g.graph(g.map("where", below, x, g.map("exp", x)))
    made = schedule(lowered(graph), Options(short=False))
    assert (not conditions(made)) == cut
    assert_keeps(graph, made, {"rows": 0}, {"rows": 30}, {"rows": 70})


def test_the_text_computes_the_same_tile_by_tile():
    graph = turned_halves()
    made = schedule(lowered(graph), TILED)
    native = Native(compile_library([c_printer.source(made)]), "kernel_kernel")
    for sizes in SIZES:
        inputs = inputs_of(graph, sizes)
        (got,) = native(*in_order(made, inputs))
        assert Judge(graph, inputs).wrong(graph.outputs[0], got) is None, sizes


def branches(*, enlarged=False):
    """The sum of two rows, of which either may be broadcast; `enlarged`: the first has each of its cells twice."""
    g = Group()
    x, y = g.input("x", F32, "rows", "n"), g.input("y", F32, "rows", "k")
    length = Dim.of("n") * 2 if enlarged else Dim.of("n")
    shape = ("rows", maximum(length, Dim.of("k")))
    b, i = indices(2)
    steps = [i - i * maximum(2 - extent, 0) for extent in (length, Dim.of("k"))]
    wide = g.add(View((b, steps[0] // 2 if enlarged else steps[0])), [g.map("exp", x)], F32, shape)
    g.map("add", wide, g.add(View((b, steps[1])), [y], F32, shape))
    return g.graph()


def test_rows_that_are_not_broadcast_have_a_loop_of_their_own():
    made = schedule(lowered(branches()), Options(short=False))
    going, either = [s for s in every_statement(made.launches[0].body) if is_lanes(s)][-2:]
    steps = [{stride_of(load, loop.var) for load in loads_of(loop.body)} for loop in (going, either)]
    assert steps[0] == {Dim.of(1)}
    assert len(steps[1]) == 2
    assert_keeps(branches(), made, *({"rows": 2, "n": n, "k": k} for n, k in ((5, 5), (1, 5), (5, 1), (1, 1), (0, 0))))


def test_cells_that_come_in_twos_are_computed_once():
    graph = branches(enlarged=True)
    made = schedule(lowered(graph), Options(short=False))
    loops_in_lanes = [s for s in every_statement(made.launches[0].body) if is_lanes(s)]
    twos = [loop for loop in loops_in_lanes if sum(isinstance(s, Store) for s in loop.body) == 2]
    exps = [sum(getattr(e, "function", "") == "exp" for e in every_expression(loop.body)) for loop in twos]
    assert set(exps) == {1}
    assert_keeps(graph, made, *({"rows": 2, "n": n, "k": k} for n, k in ((3, 6), (3, 1), (0, 0))))


def is_lanes(statement):
    return isinstance(statement, Loop) and statement.axis is Axis.LANES
