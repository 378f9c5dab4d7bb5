"""Each rule of the algebra keeps values within their rounding, and overflow, NaN and infinities where they are."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.ir.checking import check
from noyau.ir.dims import shape_of
from noyau.ir.evaluation import evaluate
from noyau.ir.graph import Graph, Input, Map, Node, View, constant
from noyau.passes.algebra import simplify_algebra

N = shape_of(["n"])
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.5, -7.25, 1e-42, -1e-42, 1e-20, 3e38, -3e38, np.inf, -np.inf, np.nan]
F32 = DType.F32


def graph(*steps: tuple[str, str, tuple[str, ...]]) -> Graph:
    """Maps over x and y, both f32[n]; `1`, `2`, `3`, `-1` are constants of that shape. The last step is the output."""
    nodes = [Node(name, Input(), (), F32, N) for name in ("x", "y")]
    for text in ("1", "2", "3", "-1"):
        nodes.append(constant(f"scalar {text}", np.float32(text)))
        nodes.append(Node(text, View(()), (f"scalar {text}",), F32, N))
    nodes += [Node(name, Map(function), inputs, F32, N) for name, function, inputs in steps]
    return check(Graph(tuple(nodes), (steps[-1][0],)))


RULES = {
    "x / sqrt(y)": (graph(("r", "sqrt", ("y",)), ("o", "divide", ("x", "r"))), {"rsqrt", "multiply"}),
    "x * reciprocal(sqrt(y))": (
        graph(("r", "sqrt", ("y",)), ("q", "reciprocal", ("r",)), ("o", "multiply", ("x", "q"))),
        {"rsqrt", "multiply"},
    ),
    "1 / y": (graph(("o", "divide", ("1", "y"))), {"reciprocal"}),
    "x / 1": (graph(("o", "divide", ("x", "1"))), set()),
    "x * 1": (graph(("o", "multiply", ("1", "x"))), set()),
    "x ** 2": (graph(("o", "power", ("x", "2"))), {"multiply"}),
    "x ** 3": (graph(("o", "power", ("x", "3"))), {"multiply"}),
    "x ** 1": (graph(("o", "power", ("x", "1"))), set()),
    "x ** -1": (graph(("o", "power", ("x", "-1"))), {"reciprocal"}),
}


def functions(made: Graph) -> set[str]:
    return {node.kind.function for node in made.nodes if isinstance(node.kind, Map)}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_its_form(rule):
    before, wanted = RULES[rule]
    assert functions(check(simplify_algebra(before))) == wanted


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_keeps_every_special_value(rule):
    before, _ = RULES[rule]
    x, y = (axis.ravel().astype(np.float32) for axis in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        ((was,),) = [evaluate(before, {"x": x, "y": y}).values()]
        ((now,),) = [evaluate(simplify_algebra(before), {"x": x, "y": y}).values()]
    np.testing.assert_array_equal(np.isnan(now), np.isnan(was))
    np.testing.assert_array_equal(np.isinf(now), np.isinf(was))
    finite = np.isfinite(was)
    np.testing.assert_allclose(now[finite], was[finite], rtol=4e-7, atol=3e-45)


def test_forms_are_reached_through_views():
    """x / expand(sqrt(v)) with v of one value a row: the root stays one value a row."""
    row, full = shape_of(["b", 1]), shape_of(["b", 8])
    across = View(shape_of(["#0", 0]))
    before = Graph(
        (
            Node("x", Input(), (), F32, full),
            Node("v", Input(), (), F32, row),
            Node("r", Map("sqrt"), ("v",), F32, row),
            Node("wide", across, ("r",), F32, full),
            Node("o", Map("divide"), ("x", "wide"), F32, full),
        ),
        ("o",),
    )
    after = check(simplify_algebra(before))
    (root,) = [node for node in after.nodes if node.kind == Map("rsqrt")]
    assert root.shape == row
    x, v = np.random.default_rng(0).random((2, 3, 8), np.float32)
    got, want = evaluate(after, {"x": x, "v": v[:, :1]})["o"], evaluate(before, {"x": x, "v": v[:, :1]})["o"]
    np.testing.assert_allclose(got, want, rtol=4e-7)
