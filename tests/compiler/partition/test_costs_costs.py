"""What a kernel would compute more than once, and the bytes and flops of one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition import costs
from noyau.compiler.partition.costs import bytes_moved, cells, check_depth, check_recompute, flops, repeats
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Lookup, Map, Reduce, constant
from tests.nodes import F16, F32, I64, at, given, graph, value, view

N = Dim.of("n")


def softmax():
    column = view(at(0))
    return graph(
        "y",
        given("x", F32, "b", "n"),
        value("m", Reduce("max", (1,)), "x", F32, "b"),
        value("w", column, "m", F32, "b", "n"),
        value("d", Map("subtract"), "x w", F32, "b", "n"),
        value("e", Map("exp"), "d", F32, "b", "n"),
        value("s", Reduce("sum", (1,)), "e", F32, "b"),
        value("t", column, "s", F32, "b", "n"),
        value("y", Map("divide"), "e t", F32, "b", "n"),
    )


def outer(function):
    """A function of v[m] in each cell of y[n, m]: once a column would do."""
    return graph(
        "y",
        given("x", F32, "n", "m"),
        given("v", F32, "m"),
        value("f", Map(function), "v", F32, "m"),
        value("w", view(at(1)), "f", F32, "n", "m"),
        value("y", Map("add"), "x w", F32, "n", "m"),
    )


def column_sums():
    """The sum of each column in each cell."""
    return graph(
        "y",
        given("x", F32, "n", "m"),
        value("r", Reduce("sum", (1,)), "x", F32, "n"),
        value("c", Reduce("sum", (0,)), "x", F32, "m"),
        value("v", view(at(0)), "r", F32, "n", "m"),
        value("w", view(at(1)), "c", F32, "n", "m"),
        value("s", Map("add"), "v w", F32, "n", "m"),
        value("y", Map("add"), "s x", F32, "n", "m"),
    )


def test_passes_over_a_row_are_no_repeats():
    assert repeats(softmax(), lower(softmax(), "k")) == []


def test_a_function_of_a_column_is_repeated_for_each_row():
    (found,) = repeats(outer("exp"), lower(outer("exp"), "k"))
    assert (found.value, found.times, found.reduction) == ("f", costs.USUAL, False)
    assert found.flops == pytest.approx(10 * (1 - 1 / costs.USUAL))
    check_recompute(outer("exp"), lower(outer("exp"), "k"))


def test_what_is_dear_to_repeat_is_refused():
    made = outer("softplus")
    with pytest.raises(
        UnsupportedError, match=r"^the value f would be computed 61 times over \(where every size is 61\)$"
    ):
        check_recompute(made, lower(made, "k"))


def test_a_reduction_is_never_repeated():
    made = column_sums()
    with pytest.raises(UnsupportedError, match=r"^the reduction [rc] would be computed 61 times over"):
        check_recompute(made, lower(made, "k"))


def test_the_inner_name_of_a_value_is_not_told():
    found = costs.Repeat("y~12", 3.0, 40.0, False)
    assert str(found) == "the value y would be computed 3 times over (where every size is 61)"
    assert "more than once over" in str(costs.Repeat("y", 1.2, 40.0, False))


def chain(kinds):
    nodes = [given("v0", F32, "n", *[2] * sum(isinstance(kind, Reduce) for kind in kinds))]
    for k, kind in enumerate(kinds):
        shape = nodes[-1].shape[: -1 if isinstance(kind, Reduce) else None]
        nodes.append(value(f"v{k + 1}", kind, f"v{k}", F32, *shape))
    return graph(nodes[-1].output, *nodes)


def test_reductions_that_need_each_other_are_counted():
    def reduce(count):
        return chain([Reduce("sum", (count - k,)) for k in range(count)])

    check_depth(reduce(costs.PASSES))
    with pytest.raises(UnsupportedError, match=r"^more than 8 reductions need each other in turn$"):
        check_depth(reduce(costs.PASSES + 1))


def test_steps_that_need_each_other_are_counted():
    check_depth(chain([Map("exp")] * (costs.DEEPEST - 1)))
    with pytest.raises(UnsupportedError, match=r"^more than 160 steps need each other in turn$"):
        check_depth(chain([Map("exp")] * costs.DEEPEST))


def test_many_that_do_not_need_each_other_are_fine():
    nodes = [value(f"y{k}", Reduce("sum", (1,)), "x", F32, "n") for k in range(20)]
    check_depth(graph("y0", given("x", F32, "n", 4), *nodes))


@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((), 1),
        ((3, 4), 12),
        (("n",), 61),
        (("n", "m"), 3721),
        ((N - 100,), 0),
        ((N // 64 + 1,), 1),
        ((Dim.of(1000) // (N // 64),), 16),
    ],
)
def test_cells_where_every_size_is_usual(shape, count):
    """Where that would divide by zero, a larger size is taken."""
    assert cells(given("x", F32, *shape)) == count


def test_flops_count_every_pass():
    b, n = Dim.of("b"), Dim.of("n")
    subtract, exp, divide, maximum, add = 1, 10, 4, 1, 1
    once = subtract + exp
    assert flops(lower(softmax(), "k")) == b * n * (maximum + add + once + once + divide)


def test_bytes_are_those_of_the_ends():
    made = graph(
        "y s",
        given("x", F32, "n", 8),
        constant("c", np.float32(3)),
        value("s", Reduce("sum", (1,)), "x", F32, "n"),
        value("h", Map("cast"), "s", F16, "n"),
        value("w", view(at(0)), "h", F16, "n", 8),
        value("y", Map("negative"), "w", F16, "n", 8),
    )
    assert bytes_moved(lower(made, "k")) == N * 8 * 4 + N * 8 * 2 + N * 4


def test_bytes_of_a_table_are_those_that_indices_look_into():
    made = graph(
        "y s",
        given("table", F32, "words", "n"),
        given("ids", I64, "rows"),
        value("g", Gather((Lookup(1, (at(0),)), at(1))), "table ids", F32, "rows", "n"),
        value("s", Reduce("sum", (1,)), "g", F32, "rows"),
        value("y", Map("negative"), "g", F32, "rows", "n"),
    )
    moved = bytes_moved(lower(made, "k"))
    assert moved.evaluate({"words": 1000, "n": 5, "rows": 7}) == 7 * 5 * 4 + 7 * 8 + 7 * 5 * 4 + 7 * 4
    assert moved.evaluate({"words": 3, "n": 5, "rows": 7}) == 3 * 5 * 4 + 7 * 8 + 7 * 5 * 4 + 7 * 4
