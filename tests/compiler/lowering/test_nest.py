"""Whole groups: the loops that they get, and that the kernel computes what the graph does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Constant, Gather, Iota, Lookup, Map, Reduce, Select
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Axis, Call, Fold, Let, Loop, Role, Store
from noyau.ir.sizes import Binding, Demand
from noyau.ir.walk import every_expression, every_statement
from tests.nodes import F32, I64, at, given, graph, value, view

B, S, N = map(Dim.of, "bsn")
NOISE = np.random.default_rng(2)


def loops_of(kernel):
    """Each loop as its depth and extent."""

    def walk(statements, depth):
        for statement in statements:
            if isinstance(statement, Loop):
                yield depth, str(statement.extent)
                yield from walk(statement.body, depth + 1)

    return list(walk(kernel.launches[0].body, 0))


def folds_of(kernel):
    return [
        (expr.monoid, [str(extent) for _, extent in expr.loops])
        for expr in every_expression(kernel.launches[0].body)
        if isinstance(expr, Fold)
    ]


def assert_agrees(made, near=1e-6, **arrays):
    kernel, want = lower(made, "k"), evaluate(made, arrays)
    got = run(kernel, [arrays[buffer.source] for buffer in kernel.of(Role.INPUT)])
    for name, array in zip(made.outputs, got, strict=True):
        assert array.dtype == want[name].dtype
        assert np.allclose(array.astype(float), want[name].astype(float), rtol=near, atol=near, equal_nan=True), name


def noise(*shape):
    return NOISE.normal(size=shape).astype(np.float32)


def softmax(*outputs):
    column = view(at(0))
    return graph(
        " ".join(outputs or ["y"]),
        given("x", F32, "b", "n"),
        value("m", Reduce("max", (1,)), "x", F32, "b"),
        value("mm", column, "m", F32, "b", "n"),
        value("d", Map("subtract"), "x mm", F32, "b", "n"),
        value("e", Map("exp"), "d", F32, "b", "n"),
        value("s", Reduce("sum", (1,)), "e", F32, "b"),
        value("ss", column, "s", F32, "b", "n"),
        value("y", Map("divide"), "e ss", F32, "b", "n"),
    )


def test_softmax_is_two_folds_and_a_loop_in_a_loop_over_rows():
    kernel = lower(softmax(), "softmax")
    assert loops_of(kernel) == [(0, "b"), (1, "n")]
    assert folds_of(kernel) == [("max", ["n"]), ("sum", ["n"])]
    assert all(s.axis is Axis.SERIAL for s in every_statement(kernel.launches[0].body) if isinstance(s, Loop))
    for rows, columns in [(3, 7), (1, 1), (0, 4), (4, 0), (2, 67)]:
        assert_agrees(softmax(), x=noise(rows, columns))


def test_the_parameters_of_a_kernel():
    kernel = lower(softmax("y", "m"), "softmax")
    assert [(b.name, b.role, b.source) for b in kernel.buffers] == [
        ("x", Role.INPUT, "x"),
        ("y", Role.OUTPUT, "y"),
        ("v_m", Role.OUTPUT, "m"),
    ]
    assert kernel.binding == (Binding("b", 0, 0, Dim.of(0), 1), Binding("n", 0, 1, Dim.of(0), 1))
    assert kernel["v_m"].shape == shape_of(["b"])


def test_outputs_of_the_same_loops_and_of_the_outer_ones():
    made = softmax("y", "e", "m", "s")
    assert loops_of(lower(made, "k")) == [(0, "b"), (1, "n")]
    assert len(folds_of(lower(made, "k"))) == 2
    assert_agrees(made, x=noise(3, 5))


def rms_norm():
    return graph(
        "y",
        given("x", F32, "b", "s", "n"),
        given("w", F32, "n"),
        value("q", Map("multiply"), "x x", F32, "b", "s", "n"),
        value("t", Reduce("sum", (2,)), "q", F32, "b", "s"),
        value("c", Iota(N), "", I64, "b", "s"),
        value("cf", Map("cast"), "c", F32, "b", "s"),
        value("m", Map("divide"), "t cf", F32, "b", "s"),
        value("eps", Constant(np.float32(1e-5)), "", F32),
        value("ee", view(), "eps", F32, "b", "s"),
        value("a", Map("add"), "m ee", F32, "b", "s"),
        value("r", Map("rsqrt"), "a", F32, "b", "s"),
        value("rr", view(at(0), at(1)), "r", F32, "b", "s", "n"),
        value("z", Map("multiply"), "x rr", F32, "b", "s", "n"),
        value("ww", view(at(2)), "w", F32, "b", "s", "n"),
        value("y", Map("multiply"), "z ww", F32, "b", "s", "n"),
    )


def test_rms_norm_folds_once_a_row():
    kernel = lower(rms_norm(), "k")
    assert loops_of(kernel) == [(0, "b"), (1, "s"), (2, "n")]
    assert folds_of(kernel) == [("sum", ["n"])]
    assert_agrees(rms_norm(), x=noise(2, 3, 7), w=noise(7))


def rotary(heads=2, width=8):
    """Heads out of a row, rotated, and merged again."""
    half = width // 2
    whole = (B, heads, S, width)
    return graph(
        "y",
        given("x", F32, "b", "s", heads * width),
        given("c", F32, "s", width),
        value("v", view(at(0), at(1), at(2) * width + at(3)), "x", F32, "b", "s", heads, width),
        value("t", view(at(0), at(2), at(1), at(3)), "v", F32, *whole),
        value("lo", view(*map(at, range(4))), "t", F32, B, heads, S, half),
        value("hi", view(at(0), at(1), at(2), at(3) + half), "t", F32, B, heads, S, half),
        value("ng", Map("negative"), "hi", F32, B, heads, S, half),
        value("ro", Select(3, shape_of([0, half])), "ng lo", F32, *whole),
        value("cc", view(at(2), at(3)), "c", F32, *whole),
        value("m", Map("multiply"), "ro cc", F32, *whole),
        value("p", Map("add"), "m t", F32, *whole),
        value("y", view(at(0), at(2) // width, at(1), at(2) % width), "p", F32, B, S, heads * width),
    )


def test_what_is_cut_for_the_new_keys_of_a_cache_alone_leaves_the_old_ones_whole():
    """Keys of the past before new ones, which are rotated by halves: the past is copied in one loop over a head."""
    whole, half = (B, 2, S, 8), (B, 2, S, 4)
    cache = graph(
        "y",
        given("past", F32, B, 2, N, 8),
        given("k", F32, *whole),
        value("lo", view(*map(at, range(4))), "k", F32, *half),
        value("hi", view(at(0), at(1), at(2), at(3) + 4), "k", F32, *half),
        value("ng", Map("negative"), "hi", F32, *half),
        value("ro", Select(3, shape_of([0, 4])), "ng lo", F32, *whole),
        value("y", Select(2, shape_of([0, N])), "past ro", F32, B, 2, N + S, 8),
    )
    loops = [(0, "b"), (1, "2"), (2, "n"), (3, "8"), (2, "s"), (3, "4"), (3, "4")]
    assert loops_of(lower(cache, "k")) == loops
    assert_agrees(cache, past=noise(2, 2, 5, 8), k=noise(2, 2, 3, 8))


def test_loops_over_other_values_stay_two():
    """What 0.0 and -0.0 make differs in its sign; values of two nodes are each computed once."""
    zeros = np.zeros((), np.float32)
    apart = graph(
        "y",
        given("x", F32, N + N),
        value("a", Constant(zeros), "", F32),
        value("b", Constant(-zeros), "", F32),
        value("av", view(), "a", F32, "n"),
        value("bv", view(), "b", F32, "n"),
        value("lo", view(at(0)), "x", F32, "n"),
        value("hi", view(at(0) + N), "x", F32, "n"),
        value("up", Map("multiply"), "lo av", F32, "n"),
        value("down", Map("multiply"), "hi bv", F32, "n"),
        value("y", Select(0, shape_of([0, N])), "up down", F32, N + N),
    )
    kernel = lower(apart, "k")
    (got,) = run(kernel, [np.ones(6, np.float32)])
    assert loops_of(kernel) == [(0, "n"), (0, "n")]
    assert np.signbit(got).tolist() == [False] * 3 + [True] * 3
    nodes = tuple(replace(node, kind=Constant(zeros)) if node.output == "b" else node for node in apart.nodes)
    assert loops_of(lower(replace(apart, nodes=nodes), "k")) == [(0, "n"), (0, "n")]


def test_rotary_is_two_loops_of_half_a_head_and_no_division():
    kernel = lower(rotary(), "k")
    assert loops_of(kernel) == [(0, "b"), (1, "s"), (2, "2"), (3, "4"), (3, "4")]
    loads = [expr for expr in every_expression(kernel.launches[0].body) if hasattr(expr, "index")]
    assert not any("//" in str(dim) or "%" in str(dim) for load in loads for dim in load.index)
    assert_agrees(rotary(), x=noise(3, 5, 16), c=noise(5, 8))


def test_loops_that_a_reduction_depends_on_come_first():
    """The sum over rows is expanded to them: its loop, over columns, goes outside."""
    made = graph(
        "y",
        given("x", F32, "b", "n"),
        value("s", Reduce("sum", (0,)), "x", F32, "n"),
        value("ss", view(at(1)), "s", F32, "b", "n"),
        value("y", Map("divide"), "x ss", F32, "b", "n"),
    )
    assert loops_of(lower(made, "k")) == [(0, "n"), (1, "b")]
    assert_agrees(made, x=noise(4, 3))


def test_a_gather_and_a_norm_in_one_nest():
    made = graph(
        "y",
        given("table", F32, "v", "n"),
        given("ids", I64, "b"),
        value("g", Gather((Lookup(1, (at(0),)), at(1))), "table ids", F32, "b", "n"),
        value("q", Map("multiply"), "g g", F32, "b", "n"),
        value("t", Reduce("sum", (1,)), "q", F32, "b"),
        value("r", Map("rsqrt"), "t", F32, "b"),
        value("rr", view(at(0)), "r", F32, "b", "n"),
        value("y", Map("multiply"), "g rr", F32, "b", "n"),
    )
    assert loops_of(lower(made, "k")) == [(0, "b"), (1, "n")]
    assert_agrees(made, table=noise(9, 5), ids=np.array([8, 0, 3, 3]))


def test_axes_of_one_cell_have_no_loop():
    made = graph(
        "y z",
        given("x", F32, 1, "n", 1),
        value("y", Map("exp"), "x", F32, 1, "n", 1),
        value("z", view(0, at(0), 0), "y", F32, "n"),
    )
    assert loops_of(lower(made, "k")) == [(0, "n")]
    assert_agrees(made, x=noise(1, 4, 1))


def test_a_scalar_has_no_loop_at_all():
    made = graph("y", given("x", F32), value("y", Map("exp"), "x", F32))
    assert loops_of(lower(made, "k")) == []
    assert_agrees(made, x=noise())


def test_a_reshape_back_splits_the_loop():
    made = graph(
        "y",
        given("x", F32, "b", "n", 4),
        value("e", Map("exp"), "x", F32, "b", "n", 4),
        value("y", view(at(0), at(1) // 4, at(1) % 4), "e", F32, "b", N * 4),
    )
    assert loops_of(lower(made, "k")) == [(0, "b"), (1, "n"), (2, "4")]
    assert_agrees(made, x=noise(2, 3, 4))


def test_cells_that_are_repeated_are_written_out():
    """Each one twice: what they hold is computed once, and the loop goes over what is read."""
    made = graph(
        "y",
        given("x", F32, "b", "n"),
        value("e", Map("exp"), "x", F32, "b", "n"),
        value("y", view(at(0), at(1) // 2), "e", F32, "b", N * 2),
    )
    kernel = lower(made, "k")
    assert loops_of(kernel) == [(0, "b"), (1, "n")]
    statements = list(every_statement(kernel.launches[0].body))
    assert sum(isinstance(s, Store) for s in statements) == 2
    assert [s.value.function for s in statements if isinstance(s, Let) and isinstance(s.value, Call)] == ["exp"]
    for shape in ((2, 3), (1, 1), (0, 2), (2, 0)):
        assert_agrees(made, x=noise(*shape))


def columns(count):
    """Columns side by side, each made of the one before."""
    nodes = [value("c0", view(at(0), 0), "x", F32, "n")]
    for k in range(1, count):
        nodes += [value(f"x{k}", view(at(0), k), "x", F32, "n"), value(f"c{k}", Map("add"), f"c{k - 1} x{k}", F32, "n")]
    nodes += [value(f"u{k}", view(at(0)), f"c{k}", F32, "n", 1) for k in range(count)]
    joined = value("y", Select(1, shape_of(range(count))), " ".join(f"u{k}" for k in range(count)), F32, "n", count)
    return graph("y", given("x", F32, "n", count), *nodes, joined)


def test_cells_that_are_values_of_their_own_share_what_they_are_made_of():
    made = columns(20)
    assert loops_of(lower(made, "k")) == [(0, "n")]
    added = [expr for expr in every_expression(lower(made, "k").launches[0].body) if isinstance(expr, Call)]
    assert len(added) == 19
    assert_agrees(made, x=noise(5, 20))


def test_a_few_such_cells_are_loops_beside_each_other():
    assert loops_of(lower(columns(3), "k")) == [(0, "n"), (1, "1"), (1, "1"), (1, "1")]
    assert_agrees(columns(3), x=noise(5, 3))


def test_many_repeated_cells_are_a_loop():
    made = graph("y", given("x", F32, "n"), value("y", view(at(0) // 5), "x", F32, N * 5))
    assert loops_of(lower(made, "k")) == [(0, "n"), (1, "5")]
    assert_agrees(made, x=noise(3))


def test_an_input_that_is_an_output_too():
    made = graph("x y", given("x", F32, "n"), value("y", Map("exp"), "x", F32, "n"))
    assert [(b.name, b.source) for b in lower(made, "k").buffers] == [("x", "x"), ("x_out", "x"), ("y", "y")]
    assert_agrees(made, x=noise(4))


def test_pieces_whose_order_only_the_sizes_tell():
    """Where n ends and where m ends in one loop: the second is chosen as it runs."""
    made = graph(
        "y",
        given("a", F32, "n"),
        given("b", F32, "m"),
        value("s", Select(0, shape_of([0, "n"])), "a b", F32, N + "m"),
        value("t", Select(0, shape_of([0, "m"])), "b a", F32, N + "m"),
        value("y", Map("subtract"), "s t", F32, N + "m"),
    )
    for n, m in [(2, 5), (5, 2), (3, 3), (0, 2), (2, 0)]:
        assert_agrees(made, a=noise(n), b=noise(m))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            graph(
                "y z",
                given("x", F32, "b", "n"),
                given("w", F32, "m"),
                value("y", Map("exp"), "x", F32, "b", "n"),
                value("z", Map("exp"), "w", F32, "m"),
            ),
            "z of shape [m] does not fit the loops of y: b, n",
        ),
        (
            graph("y", given("x", F32, N * "m"), value("y", Map("exp"), "x", F32, N * "m")),
            "the size m of x does not follow from the shapes of the inputs",
        ),
        (
            graph(
                "y",
                given("x", F32, 40),
                *(value(f"c{k}", view(at(0) + 38 - 2 * k), "x", F32, 2) for k in range(20)),
                value("y", Select(0, shape_of(range(0, 40, 2))), " ".join(f"c{k}" for k in range(20)), F32, 40),
            ),
            "the loops of y would have to be cut in more than 16 places",
        ),
    ],
)
def test_what_is_refused(made, message):
    with pytest.raises(UnsupportedError) as caught:
        lower(made, "k")
    assert str(caught.value) == message


def test_a_loop_is_cut_within_an_extent_where_a_half_ends():
    half, n = Dim.of("n") // 2, Dim.of("n")
    pieces = [value("a", view(at(0)), "x", F32, half), value("b", view(at(0) + half), "x", F32, n - half)]
    exp = value("exp", Map("exp"), "b", F32, n - half)
    whole = graph("y", given("x", F32, "n"), *pieces, exp, value("y", Select(0, (Dim.of(0), half)), "a exp", F32, "n"))
    kernel = lower(whole, "halves")
    assert loops_of(kernel) == [(0, str(half)), (0, str(n - half))]
    assert not [e for e in every_expression(kernel.launches[0].body) if isinstance(e, Call) and e.function == "where"]
    even = replace(
        whole,
        demands=(Demand(half, n - half, "equal"),),
        outputs=("z",),
        nodes=(
            *whole.nodes,
            value("c", view(at(0)), "x", F32, half),
            value("z", Select(0, (Dim.of(0), half, half * 2)), "a c b", F32, "n"),
        ),
    )
    assert [extent for _, extent in loops_of(lower(even, "even"))] in ([str(half)] * 2, [str(half * 2)])
