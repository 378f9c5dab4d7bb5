from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Constant, Input, Map
from noyau.ir.graph_interpreter import evaluate
from noyau.ops.higher_order.scalar_trace import graph_over, require_traceable

F32 = DType.F32
TABLE = np.array([1.0, 2.0])


def relu(x):
    if x > 0:
        return x
    return 0.0


def test_a_function_of_numbers_is_a_graph_of_scalars():
    made = graph_over(lambda x, y: np.where(x > y, x * 2.0, -y), ["x", "y"], [F32, F32], {})
    assert [node.output for node in made.inputs] == ["x", "y"]
    assert all(isinstance(node.kind, Input | Map | Constant) and node.shape == () for node in made.nodes)
    got = evaluate(made, {"x": np.float32(3), "y": np.float32(1)})
    assert got[made.outputs[0]] == 6


def test_an_unused_input_is_in_it_too():
    made = graph_over(lambda x, y: y + 1, ["x", "y"], [F32, F32], {})
    assert [node.output for node in made.inputs] == ["x", "y"]


def test_constants_are_given():
    made = graph_over(lambda x, *, slope=1.0: x * slope, ["x"], [F32], {"slope": 3.0})
    assert evaluate(made, {"x": np.float32(2)})[made.outputs[0]] == 6


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            lambda x: x - x.max(),
            r"<lambda> is no function of numbers: it takes cells together \(Reduce\); write it for",
        ),
        (lambda x: x[::-1], r"it takes cells together \(View\)"),
        (lambda x: np.cumsum(x), r"it takes cells together \(Scan\)"),
        (lambda x: (x, x), "<lambda> gives 2 results; let it give one"),
    ],
)
def test_what_needs_more_than_one_cell(function, told):
    with pytest.raises(UnsupportedError, match=told):
        graph_over(function, ["x"], [F32], {})


def test_an_array_within_it():
    with pytest.raises(UnsupportedError, match=r"it has an array in it|shapes do not fit"):
        graph_over(lambda x: (x[..., None] + TABLE)[..., 0], ["x"], [F32], {})


def test_an_if_on_a_number_is_one_error_with_its_line_and_the_remedy():
    line = relu.__code__.co_firstlineno + 1
    with pytest.raises(UnsupportedError, match=rf"relu cannot be traced at line {line} of .*; .*choose with np.where"):
        require_traceable(relu, ["x"], {})


def test_one_dtype_is_enough():
    require_traceable(lambda x, y: x & y, ["x", "y"], {})
    with pytest.raises(UnsupportedError, match="does not take these"):
        graph_over(lambda x, y: x & y, ["x", "y"], [F32, F32], {})
