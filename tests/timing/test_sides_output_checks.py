from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Map, Node
from noyau.timing.sides import by_graph, by_reference

X = np.linspace(-9, 2, 24, dtype=np.float32).reshape(4, 6)


def test_a_graph_judges_by_the_certificate():
    shape = shape_of((4, 6))
    nodes = (Node("x", Input(), (), DType.F32, shape), Node("y", Map("exp"), ("x",), DType.F32, shape))
    check = by_graph(Graph(nodes, ("y",)))
    assert check([X], [np.exp(X)]) == ""
    assert "wrong at y[0, 0]" in check([X], [np.zeros_like(X)])
    assert "gave f32[6]" in check([X], [np.zeros(6, np.float32)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_reference_is_right_by_itself(dtype):
    for function in (np.exp, np.cumsum, lambda x: x.sum(0), lambda x: (x.max(1), x.argmax(1)), lambda x: x > 0):
        outputs = function(X.astype(dtype))
        parts = outputs if isinstance(outputs, tuple) else (outputs,)
        assert by_reference(function)([X.astype(dtype)], list(parts)) == ""


def test_a_wrong_cell_is_named():
    wrong = np.exp(X)
    wrong[2, 3] *= 1.001
    assert by_reference(np.exp)([X], [wrong]).startswith("wrong at output 0[2, 3]: got ")


def test_other_shapes_dtypes_and_numbers_of_outputs_are_wrong():
    check = by_reference(np.exp)
    assert check([X], [np.exp(X).astype(np.float64)]) == "gave float64[4, 6], not float32[4, 6]"
    assert check([X], [np.exp(X)[0]]) == "gave float32[6], not float32[4, 6]"
    assert check([X], [np.exp(X)] * 2).startswith("gave float32[4, 6], float32[4, 6], not")


def test_the_inputs_are_not_touched_even_by_a_reference_that_writes_to_its_own():
    def reference(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    given = X.copy()
    assert by_reference(reference)([given], [X + 1]) == ""
    assert (given == X).all()


@pytest.mark.parametrize("result", [None, "text", [None]])
def test_a_reference_that_returns_nothing_is_refused(result):
    with pytest.raises(InputError, match="the reference returned"):
        by_reference(lambda x: result)([X], [X])
