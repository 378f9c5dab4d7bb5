from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Scan
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import agrees

WAYS = [(False, False), (False, True), (True, False), (True, True)]


def scan(monoid, exclusive=False, reverse=False, axis=0, shape=("n",)):
    return alone(Scan(monoid, axis, exclusive, reverse), [given("x", shape)], shape)


INCLUSIVE = [(monoid, False, reverse) for monoid in ("max", "min", "logsumexp") for reverse in (False, True)]
EACH = [(monoid, *way) for monoid in ("sum", "prod") for way in WAYS] + INCLUSIVE  # others begin with an infinity


@pytest.mark.parametrize(("monoid", "exclusive", "reverse"), EACH)
def test_gradients_are_those_of_central_differences(monoid, exclusive, reverse):
    noise = np.random.default_rng(2)
    agrees(scan(monoid, exclusive, reverse), {"x": noise.normal(size=7)})
    agrees(scan(monoid, exclusive, reverse, 1, ("a", "n", "b")), {"x": noise.normal(size=(2, 5, 3))})


@pytest.mark.parametrize(("exclusive", "reverse"), WAYS)
@pytest.mark.parametrize("x", [[2.0, 0.0, 3.0, 4.0], [0.0, 2.0, 0.0, 3.0], [1.0, 2.0, 0.0], [0.0], [0.0, 0.0]], ids=str)
def test_zeros_in_a_running_product(x, exclusive, reverse):
    agrees(scan("prod", exclusive, reverse), {"x": np.array(x)})


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "logsumexp"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_results_of_nothing(monoid, exclusive):
    derived = derive(scan(monoid, exclusive), ["x"]).gradient
    found = evaluate(derived, {"x": np.zeros(0), "grad_y": np.zeros(0)})
    assert found[derived.outputs[0]].shape == (0,)


def test_a_running_maximum_goes_to_the_first_of_ties():
    derived = derive(scan("max"), ["x"]).gradient
    found = evaluate(derived, {"x": np.array([1.0, 3.0, 3.0, 2.0]), "grad_y": np.array([1.0, 10.0, 100.0, 1000.0])})
    np.testing.assert_array_equal(found[derived.outputs[0]], [1, 1110, 0, 0])


def test_a_running_variance_has_no_derivative():
    with pytest.raises(UnsupportedError, match="y: the running variance has no derivative"):
        derive(scan("variance"), ["x"])


def test_half_types_run_in_float32():
    kind = Scan("sum", 0)
    graph = alone(kind, [given("x", ("n",), DType.F16)], ("n",), DType.F16)
    derived = derive(graph, ["x"]).gradient
    found = evaluate(derived, {"x": np.zeros(3000, np.float16), "grad_y": np.ones(3000, np.float16)})
    assert float(found[derived.outputs[0]][0]) == 3000
