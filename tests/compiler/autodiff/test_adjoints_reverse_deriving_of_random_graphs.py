"""Random graphs: the gradient along a random direction beside differences, forward and backward beside the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings

from noyau.compiler.autodiff.adjoints import derive
from noyau.errors import UnsupportedError
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.random_graphs import Case, generate, graphs

STEPS = (1e-5, 1e-6, 1e-7)


@np.errstate(all="ignore")
def verdict(case: Case) -> str:
    """right, wrong, or why nothing can be said: no floats, no derivative, infinite, or a kink nearby."""
    graph = case.graph
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    if not wanted or not any(graph[name].dtype.is_float for name in graph.outputs):
        return "no floats"
    try:
        derived = derive(graph, wanted)
    except UnsupportedError as error:
        return f"refused: {error}"
    check(derived.forward), check(derived.backward), check(derived.gradient)
    inputs = {name: each.astype(np.float64) if name in wanted else each for name, each in case.inputs.items()}
    noise = np.random.default_rng(0)
    out = evaluate(derived.forward, inputs, wide=True, sizes=case.sizes)
    above = {name: noise.normal(size=out[name].shape) for name in graph.outputs if graph[name].dtype.is_float}
    known = {**inputs, **out, **{f"grad_{name}": each for name, each in above.items()}}
    parts, whole = (
        evaluate(made, {n.output: known[n.output] for n in made.inputs}, wide=True, sizes=case.sizes)
        for made in (derived.backward, derived.gradient)
    )
    for name, made in zip(wanted, derived.backward.outputs, strict=True):
        assert parts[made].shape == inputs[name].shape
        assert derived.backward[made].dtype is graph[name].dtype
    direction = {name: noise.normal(size=inputs[name].shape) for name in wanted}
    slopes = [
        sum(float((found[made] * direction[name]).sum()) for name, made in zip(wanted, found, strict=True))
        for found in (parts, whole)
    ]
    return compared(slopes, differences(case, inputs, direction, above))


def differences(case, inputs, direction, above) -> np.ndarray:
    """The slope along a direction: to the left, to the right, of both sides, by several steps."""

    def total(step: float) -> float:
        moved = {**inputs, **{name: inputs[name] + step * way for name, way in direction.items()}}
        out = evaluate(case.graph, moved, wide=True, sizes=case.sizes)
        return float(sum((out[name] * each).sum() for name, each in above.items()))

    here = total(0.0)
    ends = [(total(step), total(-step), step) for step in STEPS]
    return np.array([slope for a, b, h in ends for slope in ((a - here) / h, (here - b) / h, (a - b) / (2 * h))])


def compared(slopes: list[float], want: np.ndarray) -> str:
    scale = 1 + np.abs(want).max()
    if not np.isfinite(want).all():
        return "infinite"
    if np.ptp(want) > 1e-3 * scale:
        return "kink"
    return "right" if all(abs(slope - want[5]) <= 2e-3 * scale for slope in slopes) else f"wrong: {slopes}, {want}"


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_gradients_of_random_graphs(case):
    found = verdict(case)
    assume(found != "no floats")
    assume(not any(np.any(each == 0) for each in case.inputs.values()))  # where ties are
    assert found in ("right", "kink", "infinite")


def test_random_graphs_are_mostly_told():
    found = [verdict(generate(seed)) for seed in range(60)]
    assert found.count("right") > 25
    assert not any(each.startswith("refused") for each in found)


def test_gradients_of_gradients_of_random_graphs():
    found = [verdict(again) for seed in range(20) if (again := derived_again(generate(seed)))]
    assert found.count("right") > 8
    assert set(found) <= {"right", "kink", "infinite"}


def derived_again(case: Case) -> Case | None:
    """The gradient of a case, as a case of its own."""
    graph = case.graph
    wanted = [node.output for node in graph.inputs if node.dtype.is_float]
    if not wanted or not any(graph[name].dtype.is_float for name in graph.outputs):
        return None
    derived = derive(graph, wanted).gradient
    out = evaluate(graph, case.inputs, sizes=case.sizes)
    above = {f"grad_{name}": np.full(out[name].shape, 0.7, out[name].dtype) for name in out}
    inputs = {node.output: ({**case.inputs, **above})[node.output] for node in derived.inputs}
    return Case(derived, inputs, {}, case.sizes)
