"""Gradients by central differences in float64, and what derived graphs give beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from noyau.compiler.autodiff.adjoints import DerivedGradient, derive
from noyau.dtypes import DType
from noyau.frontends.numpy.trace import trace_shapes
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check

Arrays = Mapping[str, np.ndarray]
STEP = 1e-6


def traced(
    function: Callable[..., Any],
    *shapes: Sequence[int],
    dtype: DType = DType.F64,
    dtypes: Mapping[str, DType] | None = None,
) -> Graph:
    """The graph of a function of arrays of these shapes; `dtypes` are those of parameters that have another one."""
    given = dict(zip(inspect.signature(function).parameters, shapes, strict=True))
    return trace_shapes(function, {n: ((dtypes or {}).get(n, dtype), shape) for n, shape in given.items()}, {}).graph


def arrays_for(graph: Graph, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays for the float inputs of a graph; a size is 3 where nothing is said."""
    noise = np.random.default_rng(seed)
    found = {}
    for node in graph.inputs:
        shape = [int(dim.evaluate(dict.fromkeys(dim.names, 3) | dict(sizes or {}))) for dim in node.shape]
        found[node.output] = noise.normal(size=shape)
    return found


def backwards(derived: DerivedGradient, inputs: Arrays, above: Arrays, *, wide: bool = True) -> dict[str, np.ndarray]:
    """The gradient of each wanted input, by running forward and then backward; `above`: the gradients of outputs."""
    check(derived.forward), check(derived.backward), check(derived.gradient)
    out = evaluate(derived.forward, inputs, wide=wide)
    known = {**inputs, **out, **{f"grad_{name}": value for name, value in above.items()}}
    found = evaluate(derived.backward, {node.output: known[node.output] for node in derived.backward.inputs}, wide=wide)
    return {name: found[made] for name, made in zip(derived.wanted, derived.backward.outputs, strict=True)}


def differences(graph: Graph, inputs: Arrays, above: Arrays, wanted: Sequence[str]) -> dict[str, np.ndarray]:
    """The gradient of sum(above * outputs) by central differences."""

    def total(changed: Arrays) -> float:
        out = evaluate(graph, {**inputs, **changed}, wide=True)
        return float(sum((out[name] * value).sum() for name, value in above.items()))

    found = {}
    for name in wanted:
        whole = np.asarray(inputs[name], np.float64)
        found[name] = np.zeros_like(whole)
        for at in np.ndindex(whole.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = whole.copy()
                moved[at] += step
                ends.append(total({name: moved}))
            found[name][at] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def gradients_for(graph: Graph, inputs: Arrays, seed: int = 1) -> dict[str, np.ndarray]:
    """Random gradients of the float outputs of a graph."""
    noise, out = np.random.default_rng(seed), evaluate(graph, inputs, wide=True)
    return {name: noise.normal(size=out[name].shape) for name in out if graph[name].dtype.is_float}


def agrees(
    graph: Graph, inputs: Arrays, wanted: Sequence[str] | None = None, tolerance: float = 1e-6
) -> DerivedGradient:
    """The derived graphs, which give what central differences give."""
    names = list(wanted or [node.output for node in graph.inputs if node.dtype.is_float])
    derived, above = derive(graph, names), gradients_for(graph, inputs)
    got, want = backwards(derived, inputs, above), differences(graph, inputs, above, names)
    for name in names:
        scale = 1 + np.abs(want[name]).max(initial=0)
        np.testing.assert_allclose(got[name], want[name], rtol=0, atol=tolerance * scale, err_msg=name)
    return derived
