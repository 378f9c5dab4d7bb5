"""Constants of several cells: those that follow a rule need no memory."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.lowering.values import cell_of
from noyau.dtypes import from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Map
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loops import Role
from tests.nodes import given, graph, value

RULED = [
    np.zeros((0, 3), np.float32),
    np.full((2, 3), -0.0, np.float32),
    np.full((2, 1), np.nan, np.float32),
    np.full(700, 7, np.int8),
    np.array([True, True]),
    np.arange(2, 9),
    np.arange(9, 2, -3),
    np.arange(6, dtype=np.int32).reshape(2, 3) * 5 - 7,
    np.arange(24, dtype=np.uint8).reshape(2, 1, 3, 4),
    np.array([-(2**63), 2**63 - 1]),
    np.array([[1, 1], [4, 4]]),
]
LAWLESS = [
    np.float32([1, 2]),
    np.float32([0.0, -0.0]),
    np.array([True, False]),
    np.array([1, 2, 4]),
    np.array([[0, 1], [1, 3]]),
    np.array([2**64 - 1, 0], np.uint64),
    np.array([0, 100, -56], np.int8),
    np.arange(5000),
]


def constant(array):
    return value("c", Constant(array), "", from_numpy(array.dtype), *array.shape)


@pytest.mark.parametrize("array", RULED, ids=str)
def test_a_cell_follows_from_its_index(array):
    """To the bit, beside an input and alone."""
    dtype = from_numpy(array.dtype)
    other = given("x", dtype, *array.shape)
    made = graph("c y", other, constant(array), value("y", Map("maximum"), "x c", dtype, *array.shape))
    kernel, x = lower(made, "k"), np.zeros(array.shape, array.dtype)
    got = run(kernel, [x])
    want = evaluate(made, {"x": x})
    assert [each.tobytes() for each in got] == [want["c"].tobytes(), want["y"].tobytes()]
    assert [buffer.source for buffer in kernel.of(Role.INPUT)] == ["x"]


@pytest.mark.parametrize("array", LAWLESS, ids=str)
def test_what_follows_no_rule_is_refused(array):
    index = tuple(Dim.of(f"#i{axis}") for axis in range(array.ndim))
    with pytest.raises(UnsupportedError, match=r"c: the [0-9]+ cells of a constant follow no rule, and no kernel"):
        cell_of(constant(array), array, index)
