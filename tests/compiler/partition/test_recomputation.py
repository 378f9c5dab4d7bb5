"""Values that a kernel would compute more than once."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.partition import costs, recomputation
from noyau.compiler.partition.recomputation import check_recompute, repeats
from noyau.compiler.passes.normal_form import normalise
from noyau.errors import UnsupportedError
from noyau.ir.graph import Map, Reduce
from tests.compiler.autodiff.numeric import traced
from tests.compiler.partition.test_costs import softmax
from tests.nodes import F32, at, given, graph, value, view


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


def test_conditions_on_places_are_not_counted_and_functions_of_places_are():
    """Inside of a row the conditions of a stencil are known: see index_set_splitting."""

    def stencil(u):
        v = np.pad(u, 1)
        return sum(v[i : i + u.shape[0], j : j + u.shape[1]] for i in range(3) for j in range(3))

    def positions(u):
        v = u * 0 + np.exp(np.arange(u.shape[1], dtype=np.float32))
        return v[:, 1:] + v[:, :-1]

    made = traced(stencil, (7, 9), dtype=F32)
    assert repeats(made, lower(normalise(made), "k")) == []
    made = normalise(traced(positions, (7, 9), dtype=F32))
    assert any(found.flops >= 10 for found in repeats(made, lower(made, "k")))


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
    found = recomputation.Repeat("y~12", 3.0, 40.0, False)
    assert str(found) == "the value y would be computed 3 times over (where every size is 61)"
    assert "more than once over" in str(recomputation.Repeat("y", 1.2, 40.0, False))
