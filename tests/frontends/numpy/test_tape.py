from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape, dtype_from
from noyau.ir.dims import Dim, shape_of


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
