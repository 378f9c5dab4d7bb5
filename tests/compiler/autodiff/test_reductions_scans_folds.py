from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.graph import Reduce
from noyau.ir.monoids import MONOIDS, STEPS, left_fold
from noyau.ops.higher_order.scalar_trace import graph_over
from tests.compiler.autodiff.numeric import agrees, arrays_for
from tests.nodes import F64, given, graph, value


@pytest.fixture
def fold():
    made = []

    def make(function, start):
        made.append(left_fold(graph_over(function, ["state", "x"], [DType.F64] * 2, {}), start))
        return made[-1]

    yield make
    for name in set(made):
        del MONOIDS[name], STEPS[name]


STEPS_OF = {
    "horner": (lambda state, x: state * 0.5 + x, 1.0),
    "hypot": (lambda state, x: np.sqrt(state * state + x * x), 0.5),
    "logistic": (lambda state, x: np.tanh(state + x) * x, 0.0),
    "divides": (lambda state, x: x / (1 + state * state), 0.0),
    "chosen": (lambda state, x: np.where(x > 0, state + x, state * x), 1.0),
    "the last": (lambda state, x: x * 2, 0.0),
}


@pytest.mark.parametrize("name", STEPS_OF)
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 2)])
def test_the_gradient_of_a_fold(fold, name, axes):
    monoid = fold(*STEPS_OF[name])
    left = [extent for axis, extent in enumerate((2, "n", 4)) if axis not in axes]
    described = graph("out", given("x", F64, 2, "n", 4), value("out", Reduce(monoid, axes), "x", F64, *left))
    agrees(described, arrays_for(described))
