from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Map, Reduce, View


def test_shapes_are_broadcast_as_numpy_does():
    tape = Tape()
    assert tape.broadcast([shape_of(["n", 1]), shape_of(["m"])]) == shape_of(["n", "m"])
    assert tape.broadcast([shape_of(["n"]), shape_of([4])]) == shape_of([4])
    assert [str(demand) for demand in tape.demands] == ["n = 4"]
    with pytest.raises(UnsupportedError, match="shapes do not fit: an extent is 3 and 4 at once"):
        tape.broadcast([shape_of([3]), shape_of([4])])


def test_what_surely_holds_is_not_demanded():
    tape = Tape()
    tape.demand_at_most(2, 3)
    tape.demand_equal("n", Dim.of("n"))
    assert not tape.demands
    with pytest.raises(UnsupportedError, match="it needs 4 to be at most 3"):
        tape.demand_at_most(4, 3)


def test_a_size_is_a_value():
    tape = Tape()
    assert tape.size(Dim.of(3), DType.I64).dtype is DType.I64
    assert tape.size(Dim.of("n"), DType.F32).shape == ()


def test_monoids_take_what_their_table_says():
    tape = Tape()
    value = tape.add_input("x", DType.BOOL, shape_of(["n"]))
    with pytest.raises(UnsupportedError, match="the sum of bool is not defined"):
        tape.reduce("sum", value, [0])


def test_dtypes_that_there_are():
    assert dtype_from("float16") is DType.F16
    for dtype in (complex, "U3", object, "no such"):
        with pytest.raises(UnsupportedError, match="there is no dtype for"):
            dtype_from(dtype)
    assert dtype_from(np.float64) is DType.F64


def stacked(tape: Tape, dtype: DType, count: int = 3):
    """Arrays of n cells, one above the other."""
    rows = [tape.add_input(f"x{k}", dtype, shape_of([1, "n"])) for k in range(count)]
    return tape.concat(rows, 0)


FUNCTIONS = {"sum": "add", "max": "maximum", "prod": "multiply", "any": "logical_or", "all": "logical_and"}


@pytest.mark.parametrize(("monoid", "function"), FUNCTIONS.items())
def test_a_reduction_of_stacked_arrays_goes_from_one_to_the_next(monoid, function):
    tape = Tape()
    result = tape.reduce(monoid, stacked(tape, DType.BOOL if monoid in ("any", "all") else DType.F32), [0])
    assert result.shape == shape_of(["n"])
    assert [node.kind.function for node in tape.nodes if isinstance(node.kind, Map)] == [function] * 2
    assert not any(isinstance(node.kind, Reduce) for node in tape.nodes)


def test_a_reduction_of_stacked_arrays_stays_one_where_steps_would_be_rounded_or_are_many():
    tape = Tape()
    assert isinstance(tape.reduce("sum", stacked(tape, DType.F16), [0]).kind, Reduce)  # in float32, rounded once
    assert isinstance(tape.reduce("argmax", stacked(tape, DType.F64), [0]).kind, Reduce)
    assert isinstance(tape.reduce("sum", stacked(tape, DType.F64), [1]).kind, Reduce)
    assert isinstance(tape.reduce("sum", stacked(tape, DType.F64, 65), [0]).kind, Reduce)
    assert isinstance(tape.reduce("sum", stacked(tape, DType.F64), [0, 1]).kind, Reduce)


def test_a_maximum_of_calculated_arrays_is_a_reduction_that_they_can_stand_beside():
    tape = Tape()
    row = tape.add_input("x", DType.F32, shape_of([1, "n"]))
    products = tape.concat([tape.call("multiply", row, row), row], 0)
    assert isinstance(tape.reduce("max", products, [0]).kind, Reduce)
    assert isinstance(tape.reduce("sum", products, [0]).kind, View)
