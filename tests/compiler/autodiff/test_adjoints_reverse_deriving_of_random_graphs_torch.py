"""Random graphs: forward by torch in float64, and their gradients by torch.autograd, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from noyau.compiler.autodiff.adjoints import derive
from noyau.ir.graph_interpreter import evaluate
from tests.compiler.autodiff.test_adjoints_reverse_deriving_of_random_graphs import differences
from tests.compiler.autodiff.torch_graphs import gradients, widened
from tests.random_graphs import Case, generate, graphs

CLOSE = 1e-9  # of the largest cell


@np.errstate(all="ignore")
def verdict(case: Case) -> str:
    """right, or wrong and where; or why nothing can be said: no floats, infinite, or a kink."""
    graph = widened(case.graph)
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    if not wanted or not any(graph[name].dtype.is_float for name in graph.outputs):
        return "no floats"
    inputs = {name: each.astype(np.float64) if name in wanted else each for name, each in case.inputs.items()}
    out = evaluate(graph, inputs, wide=True, sizes=case.sizes)
    noise = np.random.default_rng(0)
    above = {name: noise.normal(size=out[name].shape) for name in graph.outputs if graph[name].dtype.is_float}
    want = gradients(graph, inputs, above, wanted, case.sizes)
    derived = derive(graph, wanted).gradient
    known = {**inputs, **{f"grad_{name}": each for name, each in above.items()}}
    given = {node.output: known[node.output] for node in derived.inputs}
    found = evaluate(derived, given, wide=True, sizes=case.sizes)
    pairs = [(name, found[made], want[name]) for name, made in zip(wanted, derived.outputs, strict=True)]
    return next((fault for each in pairs if (fault := apart(*each)) != "right"), "right")


def apart(name: str, found: np.ndarray, want: np.ndarray) -> str:
    if not np.isfinite(want).all() or not np.isfinite(found).all():
        return "infinite"
    far = np.abs(found - want).max(initial=0)
    return (
        "right" if far <= CLOSE * (1 + np.abs(want).max(initial=0)) else f"wrong: {name} by {far:.2g}: {found}, {want}"
    )


def smooth(case: Case) -> bool:
    """Whether differences to either side agree, so that there is one derivative."""
    graph, noise = case.graph, np.random.default_rng(1)
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    inputs = {name: each.astype(np.float64) if name in wanted else each for name, each in case.inputs.items()}
    out = evaluate(graph, inputs, wide=True, sizes=case.sizes)
    above = {name: noise.normal(size=out[name].shape) for name in graph.outputs if graph[name].dtype.is_float}
    with np.errstate(all="ignore"):
        slopes = differences(case, inputs, {name: noise.normal(size=inputs[name].shape) for name in wanted}, above)
        return bool(np.isfinite(slopes).all() and np.ptp(slopes) <= 1e-3 * (1 + np.abs(slopes).max()))


def told(case: Case) -> str:
    found = verdict(case)
    return "kink" if found.startswith("wrong") and not smooth(case) else found


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_gradients_are_those_of_autograd(case):
    found = told(case)
    assume(found != "no floats")
    assert found in ("right", "kink", "infinite")


def test_most_are_told():
    found = [told(generate(seed)) for seed in range(80)]
    assert [each for each in found if each.startswith("wrong")] == []
    assert found.count("right") > 40


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 6000, 500))
def test_thousands_of_graphs(start):
    found = {seed: told(generate(seed)) for seed in range(start, start + 500)}
    assert {seed: each for seed, each in found.items() if each.startswith("wrong")} == {}
    assert sum(each == "right" for each in found.values()) > 250
