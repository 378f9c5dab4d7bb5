from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.graph import Contract, View
from tests.compiler.autodiff.nodes import alone, given
from tests.compiler.autodiff.numeric import agrees

EQUATIONS = [
    "ij,jk->ik",
    "bij,bjk->bik",
    "bij,jk->bik",
    "i,i->",
    "ij,kj->ik",
    "i,j->ij",
    "bhqd,bhkd->bhqk",
    "ij,k->ik",
    "ij,j->",
]


def contract(equation, dtype=DType.F64):
    (left, right), out = equation.split("->")[0].split(","), equation.split("->")[1]
    return alone(Contract(equation), [given("a", left, dtype), given("b", right, dtype)], out, dtype)


def sized(graph, sizes):
    noise = np.random.default_rng(0)
    return {n.output: noise.normal(size=[sizes[str(dim)] for dim in n.shape]) for n in graph.inputs}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_gradients_are_those_of_central_differences(equation):
    graph = contract(equation)
    agrees(graph, sized(graph, dict(zip("ijkbhqd", (2, 3, 5, 2, 3, 2, 4), strict=True))))
    agrees(graph, sized(graph, dict(zip("ijkbhqd", (2, 0, 1, 1, 1, 2, 3), strict=True))))


def test_a_matrix_product_has_two_without_a_transpose():
    backward = derive(contract("ij,jk->ik"), ["a", "b"]).backward
    assert [node.kind.equation for node in backward.nodes if isinstance(node.kind, Contract)] == [
        "ik,jk->ij",
        "ij,ik->jk",
    ]
    assert all(backward[n.inputs[0]].shape == n.shape for n in backward.nodes if isinstance(n.kind, View))


def test_half_types_stay_half():
    backward = derive(contract("ij,jk->ik", DType.BF16), ["a"]).backward
    assert {node.dtype for node in backward.nodes} == {DType.BF16}


def test_an_axis_that_is_named_twice_is_refused():
    with pytest.raises(UnsupportedError, match="y: the einsum ii,ij->j names an axis twice"):
        derive(contract("ii,ij->j"), ["a"])
