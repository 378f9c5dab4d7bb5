from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import gradient_of
from noyau.dtypes import DType
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Map, Node
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.operators import OPERATORS, Fact, has

INF, NAN, TINY, HUGE = np.inf, np.nan, 5e-324, 1e308
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 700.0, -700.0, TINY, HUGE, INF, -INF, NAN])
INSIDE = np.array([-0.9, -0.4, -0.1, 0.15, 0.35, 0.85])
FLOATS = [name for name, each in OPERATORS.items() if "float" in each.accepts and each.result == "same"]
FLAT = {name for name in FLOATS if has(name, Fact.STEPS)}
POSITIVE = {name for name in FLOATS if has(name, Fact.OF_POSITIVES)} | {"power"}


def function_graph(name: str, dtype: DType = DType.F64) -> Graph:
    """The function of inputs of n cells, called a, b and c."""
    shape, count = shape_of(["n"]), OPERATORS[name].arity
    dtypes = [DType.BOOL if name == "where" and at == 0 else dtype for at in range(count)]
    inputs = [Node(letter, Input(), (), each, shape) for letter, each in zip("abc", dtypes, strict=False)]
    return Graph((*inputs, Node("y", Map(name), tuple("abc"[:count]), dtype, shape)), ("y",))


def gradients(name: str, operands: list[np.ndarray], above: np.ndarray, dtype: DType = DType.F64) -> list[np.ndarray]:
    """The gradient of each float operand."""
    graph = function_graph(name, dtype)
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    derived = gradient_of(graph, wanted)
    given = {**dict(zip("abc", operands, strict=False)), "grad_y": above}
    found = evaluate(derived, given)
    return [found[made] for made in derived.outputs]


def operands_for(name: str, cells: np.ndarray) -> list[np.ndarray]:
    """Each value with each other one."""
    match OPERATORS[name].arity:
        case 1:
            return [cells]
        case 2:
            return [np.repeat(cells, len(cells)), np.tile(cells, len(cells))]
        case _:
            return [np.arange(len(cells)) % 2 == 0, cells, cells[::-1].copy()]


def test_every_function_of_floats_has_a_derivative_or_is_flat():
    derived = {name: each.derivative for name, each in OPERATORS.items() if each.derivative}
    assert derived.keys() | FLAT == set(FLOATS) | {"cast"}
    assert not derived.keys() & FLAT
    assert all(len(rules) == OPERATORS[name].arity for name, rules in derived.items())


def tame(name: str) -> list[np.ndarray]:
    """Values where the function is smooth."""
    if name == "acosh":
        return [INSIDE + 2.5]
    cells = np.abs(INSIDE) + 0.2 if name in POSITIVE else INSIDE
    return operands_for(name, cells) if OPERATORS[name].arity != 2 else [cells, cells[::-1] * 1.7 + 0.01]


@pytest.mark.parametrize("name", [name for name in FLOATS if name not in FLAT])
def test_derivatives_are_those_of_central_differences(name):
    operands, step = tame(name), 1e-6
    above = np.linspace(-1.5, 2.0, len(operands[0]))
    found = iter(gradients(name, operands, above))
    evaluated = OPERATORS[name].evaluate
    for position, operand in enumerate(operands):
        if operand.dtype != bool:
            ends = [
                evaluated(
                    *(
                        each + (at == position) * sign * step if each.dtype != bool else each
                        for at, each in enumerate(operands)
                    )
                )
                for sign in (1, -1)
            ]
            np.testing.assert_allclose(next(found), above * (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", sorted(FLAT))
def test_flat_functions_give_zeros(name):
    operands = operands_for(name, SPECIAL)
    assert all((found == 0).all() for found in gradients(name, operands, np.full(len(operands[0]), 2.0)))
