"""No spelling of a function refuses what is nearer the real value than its own float64 is, and all find faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from noyau.compiler.autodiff.adjoints import derive, gradient_name
from noyau.compiler.lowering.input_layouts import Layout
from noyau.dtypes import DType
from noyau.ir.graph import Constant, Graph, Map, Reduce
from noyau.ir.graph_interpreter import evaluate
from noyau.kernels.programs.generate import build, generate_from_graph
from noyau.verify.adversarial import Effort, cases
from noyau.verify.failures import Case
from noyau.verify.rounding import WideEvaluator
from noyau.verify.trial import certify, certify_native
from tests.verify.spellings import FAMILIES, graph_of

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
F16, BF16, F32 = DType.F16, DType.BF16, DType.F32
PAIRS = "add subtract, multiply divide, tanh erf, exp expm1, log log1p, maximum minimum, sum max"
SWAPS = dict(pair.split() for pair in PAIRS.split(", "))
SWAPS |= {other: one for one, other in SWAPS.items()} | dict.fromkeys(("abs", "negative", "sqrt"), "identity")


def rows(*default):
    """All spellings in all dtypes, of which some run by default."""
    found = []
    for dtype in (F32, BF16, F16):
        for family, name in ((family, name) for family, spellings in FAMILIES.items() for name in spellings):
            marks = () if (family, name, dtype) in default else pytest.mark.long
            found.append(pytest.param(family, name, dtype, id=f"{family}, {name}, {dtype.value}", marks=marks))
    return found


def tried(graph: Graph, most: int = 24) -> list[Case]:
    return list(islice(cases(graph, {}, np.random.default_rng(0), Effort(most=30)), most))


def named(graph: Graph, arrays):
    return dict(zip((node.output for node in graph.inputs), arrays, strict=True))


@pytest.mark.parametrize(
    ("family", "name", "dtype"),
    rows(
        ("tanh gelu", "half first", BF16),
        ("silu", "difference", F32),
        ("softplus", "log", BF16),
        ("log of 1 - tanh squared", "plain", F16),
        ("elu", "plain", F32),
        ("entropy", "difference", F32),
    ),
)
def test_the_real_value_is_right(family, name, dtype):
    """Where it and the spelling's float64 are finite: infinities are the spelling's own."""
    graph, stable = graph_of(family, name, dtype), graph_of(family, "stable", dtype)

    def real(arrays):
        if not all(array.size for array in arrays):
            return [evaluate(graph, named(graph, arrays))[graph.outputs[0]]]
        (own,), (value,) = (evaluate(g, named(g, arrays), wide=True).values() for g in (graph, stable))
        return [np.where(np.isfinite(own) & np.isfinite(value), value, own).astype(dtype.numpy)]

    certify(graph, real, tried(graph), name=name).raise_if_bad()


def in_c(graph: Graph):
    return build(generate_from_graph(graph, "spelling", [Layout()] * len(graph.inputs), "c"))


@pytest.mark.parametrize(("family", "name", "dtype"), rows(("cosine distance", "stable", BF16)))
def test_its_kernel_is_right(family, name, dtype):
    graph = graph_of(family, name, dtype)
    certify_native(graph, in_c(graph), tried(graph), name=name).raise_if_bad()


@pytest.mark.parametrize(("family", "name", "dtype"), rows(("bce", "softplus", BF16)))
def test_its_gradient_is_right(family, name, dtype):
    graph = graph_of(family, name, dtype)
    derived, rng = derive(graph, [node.output for node in graph.inputs]), np.random.default_rng(1)

    def backward(case: Case) -> Case:
        values = {**(given := named(graph, case.inputs)), **evaluate(derived.forward, given)}
        values |= {gradient_name(n): rng.standard_normal(values[n].shape).astype(dtype.numpy) for n in graph.outputs}
        return Case(case.label, tuple(values[node.output] for node in derived.backward.inputs))

    gradient = [backward(case) for case in tried(graph)]
    certify_native(derived.backward, in_c(derived.backward), gradient, name=name).raise_if_bad()


def mutants(graph: Graph) -> Iterator[Graph]:
    """The graph with another function or monoid, or a number 4 % larger, in one place."""
    for at, node in enumerate(graph.nodes):
        match node.kind:
            case Map(function) if function in SWAPS:
                kind = Map(SWAPS[function])
            case Reduce(monoid, axes) if monoid in SWAPS:
                kind = Reduce(SWAPS[monoid], axes)
            case Constant(value) if value.dtype.kind in "fV" and value.ndim == 0 and float(value):
                kind = Constant((float(value) * 1.04 * np.ones(())).astype(value.dtype))
            case _:
                continue
        yield replace(graph, nodes=(*graph.nodes[:at], replace(node, kind=kind), *graph.nodes[at + 1 :]))


def as_a_kernel(graph: Graph):
    """A graph computed in float32, as kernels are, and rounded at the end."""

    def kernel(arrays):
        made = WideEvaluator(graph.bind([array.shape for array in arrays]), F32).run(graph, named(graph, arrays))
        return [made[name].astype(graph[name].dtype.numpy) for name in graph.outputs]

    return kernel


@pytest.mark.parametrize(("family", "name", "dtype"), rows(("softplus", "log", BF16)))
def test_runs_of_more_bits_excuse_no_fault(family, name, dtype, monkeypatch):
    """What is refused without them is refused with them."""
    graph = graph_of(family, name, dtype)
    few = [case for case in tried(graph, 30) if 1 < case.inputs[0].size < 1000 and "huge" not in case.label][:5]

    def found():
        return [not certify(graph, as_a_kernel(mutant), few, name=name).ok for mutant in mutants(graph)]

    with_them = found()
    monkeypatch.setattr("noyau.verify.trial.longer_runs", lambda *_: iter(()))
    assert with_them == found()
    assert sum(with_them) > len(with_them) / 2
