from __future__ import annotations

from noyau.compiler.schedules.cpu.folds import keep_folds
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Reduce, View
from noyau.ir.loops import Role
from noyau.ir.walk import every_expression
from tests.compiler.schedules.cpu.test_rows_in_lanes import distances
from tests.compiler.schedules.groups import assert_keeps, lowered
from tests.jobs.check.groups import F32, Group, layer_norm

SIZES = [{"rows": 2, "n": 3, "k": 5}, {"rows": 1, "n": 4, "k": 40}, {"rows": 2, "n": 3, "k": 0}]


def pooled_norm(*, shown=False):
    """The norm of the maxima of exp(x); they are an output too where they are `shown`."""
    g, shape = Group(), ("rows", "n")
    x = g.input("x", F32, *shape, "k")
    top = g.add(Reduce("max", (2,)), [g.map("exp", x)], F32, shape)
    less = g.map("subtract", top, g.expand(g.mean(top, "n"), shape))
    spread = g.mean(g.map("multiply", less, less), "n")
    normed = g.map("divide", less, g.expand(g.map("sqrt", g.map("add", spread, g.full(0.5, spread))), shape))
    return g.graph(top, normed) if shown else g.graph(normed)


def exps(kernel):
    found = (expr for launch in kernel.launches for expr in every_expression(launch.body))
    return sum(getattr(expr, "function", "") == "exp" for expr in found)


def test_what_three_passes_need_is_folded_once():
    for graph in (pooled_norm(), pooled_norm(shown=True)):
        before = lowered(graph)
        after = keep_folds(before)
        assert (exps(before), exps(after)) == (3, 1)
        assert [buffer.shape for buffer in after.of(Role.SCRATCH)] == [shape_of(("rows", "n"))]
        assert len(after.launches) == 2
        assert_keeps(graph, schedule(before, Options()), *SIZES)


def test_distances_are_not_kept():
    """No array has a cell for each pair of points, and neither has scratch."""
    kernel = lowered(distances("max", "argmin"))
    assert keep_folds(kernel) == kernel


def test_folds_of_a_row_stay_in_it():
    kernel = lowered(layer_norm())
    assert keep_folds(kernel) == kernel
    assert Dim.of("n") in {
        extent for expr in every_expression(kernel.launches[0].body) for _, extent in getattr(expr, "loops", ())
    }


def test_folds_of_a_row_that_is_not_the_first_are_not_kept_beyond_the_end_of_scratch():
    g = Group()
    top = g.add(Reduce("max", (2,)), [g.map("exp", g.input("x", F32, 2, "n", "k"))], F32, (2, "n"))
    row = g.add(View(shape_of((1, "#0"))), [top], F32, ("n",))
    less = g.map("subtract", row, g.expand(g.mean(row, "n"), ("n",)))
    graph = g.graph(g.map("divide", less, g.expand(g.mean(g.map("multiply", less, less), "n"), ("n",))))
    assert_keeps(graph, schedule(lowered(graph), Options()), {"n": 3, "k": 5}, {"n": 1, "k": 7})
