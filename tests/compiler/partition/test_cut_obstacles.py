"""What keeps a graph from being one kernel before its costs are counted: depth, and divisions by sizes."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition.cut import DEEPEST, PASSES, check_depth, check_divisions
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Map, Reduce
from tests.nodes import F32, at, given, graph, value, view


def chain(kinds):
    nodes = [given("v0", F32, "n", *[2] * sum(isinstance(kind, Reduce) for kind in kinds))]
    for k, kind in enumerate(kinds):
        shape = nodes[-1].shape[: -1 if isinstance(kind, Reduce) else None]
        nodes.append(value(f"v{k + 1}", kind, f"v{k}", F32, *shape))
    return graph(nodes[-1].output, *nodes)


def test_reductions_that_need_each_other_are_counted():
    def reduce(count):
        return chain([Reduce("sum", (count - k,)) for k in range(count)])

    check_depth(reduce(PASSES))
    with pytest.raises(UnsupportedError, match=r"^more than 8 reductions need each other in turn$"):
        check_depth(reduce(PASSES + 1))


def test_steps_that_need_each_other_are_counted():
    check_depth(chain([Map("exp")] * (DEEPEST - 1)))
    with pytest.raises(UnsupportedError, match=r"^more than 160 steps need each other in turn$"):
        check_depth(chain([Map("exp")] * DEEPEST))


def test_many_that_do_not_need_each_other_are_fine():
    nodes = [value(f"y{k}", Reduce("sum", (1,)), "x", F32, "n") for k in range(20)]
    check_depth(graph("y0", given("x", F32, "n", 4), *nodes))


def test_no_cell_divides_by_a_size():
    """A row is divided by one; so is each cell where a part of a reshape does not divide its shape, and is turned."""

    def shifted(*index):
        return lower(graph("y", given("x", F32, "n", "m"), value("y", view(*index), "x", F32, "n", 7)), "kernel")

    flat = at(0) * 7 + at(1)
    with pytest.raises(UnsupportedError, match=r"^each cell would divide by m, a size, to know its place in memory$"):
        check_divisions(shifted(flat % "m", flat // "m"))
    check_divisions(shifted(flat // "m", flat % "m"))
    check_divisions(shifted(at(0) // "m", at(1)))
    check_divisions(shifted(at(0), at(1) // 2))


def test_parts_of_a_reshape_that_lie_one_after_the_other_are_divided_by_nothing():
    """Groups of channels of an image of any size, as a norm of groups reduces them: two divisions that are none."""
    flat, size = at(1), Dim.of("h") * "w"
    group = view(at(0) // 4, at(0) % 4 * 8 + flat // size, flat // "w" % "h", flat % "w")
    nodes = [
        value("g", group, "x", F32, Dim.of("b") * 4, size * 8),
        value("y", Reduce("sum", (1,)), "g", F32, Dim.of("b") * 4),
    ]
    check_divisions(lower(graph("y", given("x", F32, "b", 32, "h", "w"), *nodes), "kernel"))
