from __future__ import annotations

from dataclasses import replace

import pytest

from noyau.codegen.c import printer as c_printer
from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.schedules.cpu.argument_bounds import note_signs
from noyau.compiler.schedules.cpu.strategy_choice import Options, schedule
from noyau.compiler.schedules.primitives import flatten
from noyau.dtypes import DType
from noyau.ir.dims import indices, shape_of
from noyau.ir.graph import Reduce, View
from noyau.ir.loops import Assumption, Call
from noyau.ir.walk import every_expression
from tests.compiler.schedules.groups import assert_keeps, log_softmax, lowered
from tests.jobs.check.groups import F32, Group, softmax

SQUARE, ROWS = ("n", "n"), ("rows", "n")


def below(monoid="max", axis=1, shape=ROWS, of=None):
    """exp(x - m): m is the largest, or the like, of x, or of a function of it, along an axis."""
    g = Group()
    x = g.input("x", F32, *shape)
    m = g.reduce(monoid, g.map(of, x) if of else x, axis=axis)
    g.map("exp", g.map("subtract", x, g.expand(m, shape)))
    return g.graph()


def turned():
    """exp(m - x)."""
    g = Group()
    x = g.input("x", F32, *ROWS)
    g.map("exp", g.map("subtract", g.expand(g.reduce("max", x), ROWS), x))
    return g.graph()


def of_another():
    """exp(x - m), where m is the largest of other rows."""
    g = Group()
    x, y = g.input("x", F32, *ROWS), g.input("y", F32, *ROWS)
    g.map("exp", g.map("subtract", x, g.expand(g.reduce("max", y), ROWS)))
    return g.graph()


def of_another_row():
    """exp(x - m), where m is the largest of the row that has the column's number."""
    g = Group()
    x = g.input("x", F32, *SQUARE)
    largest = g.add(Reduce("max", (1,)), [x], F32, ["n"])
    g.map("exp", g.map("subtract", x, g.add(View(indices(2)[1:]), [largest], F32, shape_of(SQUARE))))
    return g.graph()


def of_all():
    """exp(x - m), where m is the largest of all."""
    g = Group()
    x = g.input("x", F32, *ROWS)
    largest = g.add(Reduce("max", (0, 1)), [x], F32, [])
    g.map("exp", g.map("subtract", x, g.add(View(()), [largest], F32, shape_of(ROWS))))
    return g.graph()


def shifted():
    """The same of what is computed of x, in each pass anew."""
    g = Group()
    x, y = g.input("x", F32, *ROWS), g.input("y", F32, "n")
    z = g.map("add", x, g.expand(y, ROWS))
    e = g.map("exp", g.map("subtract", z, g.expand(g.reduce("max", z), ROWS)))
    g.map("divide", e, g.expand(g.reduce("sum", e), ROWS))
    return g.graph()


def marks(graph):
    """Whether each exp of a lowered graph is known to be of nothing above 0."""
    bodies = [launch.body for launch in note_signs(flatten(lowered(graph))).launches]
    calls = [expr for body in bodies for expr in every_expression(body) if isinstance(expr, Call)]
    return {Assumption.NON_POSITIVE in call.assumptions for call in calls if call.function == "exp"}


@pytest.mark.parametrize(
    "graph", [softmax(), log_softmax(), below(), below(axis=0), below(axis=0, shape=SQUARE), of_all(), shifted()]
)
def test_what_is_below_the_largest_of_its_own_is_never_above_0(graph):
    assert marks(graph) == {True}


@pytest.mark.parametrize(
    "graph", [below("min"), below("sum"), below(of="negative"), turned(), of_another(), of_another_row()]
)
def test_what_may_be_above_0_is_not_marked(graph):
    assert marks(graph) == {False}


def share(of="max", whole="sum", over=(1,), of_which=(1,)):
    """e / sum(e) along an axis, or axes, with e = exp(x - m), where m is the largest, or the like, along some."""
    g = Group()
    x = g.input("x", F32, *ROWS)

    def along(monoid, name, axes):
        kept = [dim for at, dim in enumerate(ROWS) if at not in axes]
        index = tuple(dim for at, dim in enumerate(indices(2)) if at not in axes)
        return g.add(View(index), [g.add(Reduce(monoid, axes), [name], F32, kept)], F32, shape_of(ROWS))

    e = g.map("exp", g.map("subtract", x, along(of, x, of_which)))
    g.map("divide", e, along(whole, e, over))
    return g.graph()


def shares(kernel):
    """Whether each quotient of a kernel is known to be a share."""
    calls = [expr for launch in kernel.launches for expr in every_expression(launch.body) if isinstance(expr, Call)]
    return {Assumption.SHARE in call.assumptions for call in calls if call.function == "divide"}


@pytest.mark.parametrize(
    "graph", [softmax(), shifted(), share(), share(over=(0,), of_which=(0,)), share(over=(0, 1), of_which=(0, 1))]
)
def test_a_part_of_the_sum_over_what_the_largest_is_of_is_a_share(graph):
    assert shares(note_signs(flatten(lowered(graph)))) == {True}


@pytest.mark.parametrize(
    "graph",
    [
        share("min"),
        share(whole="max"),
        share(over=(0,)),
        share(of_which=(0,)),
        share(of_which=(0, 1)),
        share(over=(0, 1)),
    ],
)
def test_a_part_of_what_may_be_less_than_1_is_none(graph):
    assert shares(note_signs(flatten(lowered(graph)))) == {False}


@pytest.mark.parametrize(
    ("columns", "around_bytes", "found"),
    [("n", 0, {False}), ("n", 1, {True, False}), (255, 0, {False}), (256, 0, {True}), (128, 1, {False})],
)
def test_a_share_is_marked_where_many_have_one_sum(columns, around_bytes, found):
    """Of a row that may be short the quotients take less time than its inverse; tiles are written of long ones."""
    made = schedule(lowered(softmax(columns=columns)), Options(around_bytes=around_bytes))
    assert shares(replace(made, launches=made.launches[:1])) == found


def test_rows_side_by_side_have_each_another_sum():
    made = schedule(lowered(softmax()), Options(around_bytes=1))
    assert shares(replace(made, launches=made.launches[1:])) == {False}


@pytest.mark.parametrize("language", [c_printer, numba_printer], ids=["c", "numba"])
def test_float32_alone_has_a_function_for_it(language):
    for dtype, own in ((F32, True), (DType.BF16, True), (DType.F64, False)):
        text = language.together([schedule(lowered(softmax(dtype=dtype)), Options(lines=language is c_printer))])
        assert ("noyau_exp_negative_f32(" in text, "noyau_exp_f32(" in text) == (own, False)


def test_a_marked_kernel_computes_what_its_graph_does():
    for graph in (softmax(), shifted(), of_all()):
        assert_keeps(graph, schedule(lowered(graph)), {"rows": 3, "n": 37}, {"rows": 1, "n": 1})
