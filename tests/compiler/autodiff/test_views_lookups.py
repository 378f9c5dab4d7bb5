from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Lookup, Scatter, Select
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import agrees

U, V = Dim.of("#0"), Dim.of("#1")
ROWS = (Lookup(1, (U,)), V)
TABLE = np.random.default_rng(0).normal(size=(4, 3))
IDS = np.array([2, 0, 2, 2, 1])


def scatter(monoid, dtype=DType.F64):
    inputs = [given("x", ("n", "m"), dtype), given("ids", ("k",), DType.I64), given("updates", ("k", "m"), dtype)]
    return alone(Scatter(ROWS, monoid), inputs, ("n", "m"), dtype)


def test_pieces_take_their_part():
    inputs = [given("a", ("n", "m")), given("b", ("n", 2)), given("c", ("n", 0))]
    graph = alone(Select(1, (Dim.of(0), Dim.of("m"), Dim.of("m") + 2)), inputs, ("n", Dim.of("m") + 2))
    noise = np.random.default_rng(1)
    agrees(graph, {"a": noise.normal(size=(2, 3)), "b": noise.normal(size=(2, 2)), "c": np.zeros((2, 0))})


def test_rows_that_are_looked_up_twice_are_summed():
    graph = alone(Gather(ROWS), [given("x", ("n", "m")), given("ids", ("k",), DType.I64)], ("k", "m"))
    agrees(graph, {"x": TABLE, "ids": IDS})
    agrees(graph, {"x": TABLE, "ids": IDS[:0]})
    agrees(graph, {"x": TABLE[:, :0], "ids": IDS})


def test_cells_by_two_lookups_of_other_shapes():
    inputs = [given("x", ("n", "m")), given("rows", ("k",), DType.I64), given("columns", ("k", "l"), DType.I32)]
    graph = alone(Gather((Lookup(1, (U,)), Lookup(2, (U, V)))), inputs, ("k", "l"))
    columns = np.array([[0, 1], [2, 2], [1, 1], [0, 0], [2, 1]], np.int32)
    agrees(graph, {"x": TABLE, "rows": IDS, "columns": columns})


def test_lookups_of_half_types_are_summed_in_float32():
    graph = alone(
        Gather((Lookup(1, (U,)),)), [given("x", (1,), DType.F16), given("ids", ("k",), DType.I64)], ("k",), DType.F16
    )
    derived = derive(graph, ["x"]).backward
    found = evaluate(
        derived, {"x": np.zeros(1, np.float16), "ids": np.zeros(3000, int), "grad_y": np.ones(3000, np.float16)}
    )
    assert float(found["grad_x"][0]) == 3000


@pytest.mark.parametrize("monoid", ["sum", "max", "min", None], ids=str)
def test_what_is_merged_into_and_what_is_merged(monoid):
    noise = np.random.default_rng(3)
    updates = {"ids": IDS, "updates": noise.normal(size=(5, 3))}
    agrees(scatter(monoid), {"x": TABLE, **updates})
    agrees(scatter(monoid), {"x": TABLE, "ids": IDS[:0], "updates": np.zeros((0, 3))})


def test_ties_of_a_merged_maximum_share_evenly():
    derived = derive(scatter("max"), ["x", "updates"]).gradient
    inputs = {"x": np.ones((2, 1)), "ids": np.array([0, 0, 0]), "updates": np.array([[1.0], [0.0], [1.0]])}
    found = evaluate(derived, {**inputs, "grad_y": np.array([[3.0], [5.0]])})
    np.testing.assert_array_equal(found["grad_x"], [[1], [5]])
    np.testing.assert_array_equal(found["grad_updates"], [[1], [0], [1]])


def test_the_update_that_was_written_last_has_the_gradient():
    derived = derive(scatter(None), ["x", "updates"]).gradient
    inputs = {"x": np.zeros((2, 1)), "ids": np.array([0, 0]), "updates": np.ones((2, 1))}
    found = evaluate(derived, {**inputs, "grad_y": np.array([[3.0], [5.0]])})
    np.testing.assert_array_equal(found["grad_x"], [[0], [5]])
    np.testing.assert_array_equal(found["grad_updates"], [[0], [3]])


def test_a_scatter_of_products_has_no_derivative():
    with pytest.raises(UnsupportedError, match="y: a Scatter that merges by prod has no derivative"):
        derive(scatter("prod"), ["x"])
