"""Graphs as ONNX: onnxruntime's kernels, ONNX's evaluator and our own import give what the graph means."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from noyau.dtypes import DType
from noyau.errors import InputError, NoyauError, UnsupportedError
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Graph, Input, Map, Node, Opaque, Part, Reduce, Scan, View
from noyau.ir.sizes import Demand
from tests.hosts.spelled import by_import, by_onnxruntime, by_the_reference, operators, results, spelled
from tests.judged import Judge
from tests.nodes import F32, at, graph, view
from tests.nodes import given as input_node
from tests.nodes import value as node
from tests.random_graphs import Case, generate, graphs

Run = Callable[..., list[np.ndarray]]
NOT_SPELLED = ("the running", "the product of integers", "a power of integers", "of f64 has no kernel", "of u64 has no")
SEEDS = 60


def refusal(graph: Graph) -> str:
    """Why a graph has no spelling, or nothing; it is one of the reasons that are known."""
    try:
        spelled(graph)
    except UnsupportedError as error:
        told = str(error)
    else:
        return ""
    assert any(reason in told for reason in NOT_SPELLED), told
    return told


def fault(case: Case, run: Run) -> str | None:
    """What is wrong with the model of a graph, or None."""
    if refusal(case.graph):
        return None
    judge = Judge(case.graph, case.inputs)
    for output, got in results(case.graph, case.inputs, run).items():
        if reason := judge.wrong(output, got):
            return reason
    return None


def places_of_none(case: Case) -> bool:
    """Whether the largest of none is asked for: an error to NumPy and to runtimes."""
    empty = {n.output for n in case.graph.nodes if 0 in [dim.evaluate(case.sizes) for dim in n.shape]}
    return any(
        isinstance(n.kind, Reduce) and n.kind.monoid.startswith("arg") and n.inputs[0] in empty
        for n in case.graph.nodes
    )


@pytest.mark.parametrize("run", [by_onnxruntime, by_the_reference, by_import])
def test_random_graphs(run):
    for seed in range(SEEDS):
        case = generate(seed)
        found = None if places_of_none(case) else fault(case, run)
        assert found is None, f"seed {seed}: {found}"


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_any_graph_is_a_model_or_is_refused_by_name(case):
    assert refusal(case.graph) or len(spelled(case.graph).graph.output) == len(case.graph.outputs)


X = input_node("x", F32, "n", 4)


def test_what_is_not_looked_into_has_no_spelling():
    boundary = node("y", Opaque("Conv"), "x", F32, "n", 4)
    with pytest.raises(UnsupportedError, match=r"^y: Conv has no ONNX operator that is known here"):
        spelled(graph("y", X, boundary))
    whole = Node("all", Opaque("Split"), ("x",), DType.OTHER, ())
    with pytest.raises(UnsupportedError, match=r"^all: Split has no ONNX operator"):
        spelled(Graph((X, whole, node("y", Part(0), "all", F32, "n", 4)), ("y",)))


@pytest.mark.parametrize("monoid", ["prod", "max", "min"])
def test_running_results_but_sums_are_refused(monoid):
    with pytest.raises(UnsupportedError, match=f"^y: the running {monoid} has no ONNX operator in onnxruntime"):
        spelled(graph("y", X, node("y", Scan(monoid, 1), "x", F32, "n", 4)))


def test_a_size_that_no_input_tells_is_refused():
    made = Node("y", View((Dim.of(0), at(0))), ("x",), F32, (Dim.of("k"),))
    with pytest.raises(UnsupportedError, match="the size k does not follow from the shapes of the inputs: give it a"):
        spelled(Graph((X, made), ("y",)))


def test_axes_that_are_put_back_are_kept():
    largest = node("m", Reduce("sum", (1,)), "x", F32, "n")
    restored = node("k", view(at(0)), "m", F32, "n", 4)
    assert operators(graph("y", X, largest, restored, node("y", Map("subtract"), "x k", F32, "n", 4))) == [
        "ReduceSum",
        "Sub",
    ]


def test_equal_nodes_are_one_and_unneeded_ones_none():
    a, b = node("a", Map("exp"), "x", F32, "n", 4), node("b", Map("exp"), "x", F32, "n", 4)
    idle = node("idle", Map("sqrt"), "x", F32, "n", 4)
    assert operators(graph("y", X, a, b, idle, node("y", Map("add"), "a b", F32, "n", 4))) == ["Exp", "Add"]


def test_an_output_may_be_an_input_another_output_or_a_number():
    number = Node("one", Constant(np.array(1, np.float32)), (), F32, ())
    spread = node("y", view(), "one", F32, "n", 4)
    again = node("z", Map("identity"), "x", F32, "n", 4)
    arrays = {"x": np.ones((3, 4), np.float32)}
    made = results(graph("x y z", X, number, spread, again), arrays, by_onnxruntime)
    assert [made[name].tolist() for name in "xyz"] == [arrays["x"].tolist()] * 3


RELATIONS = {
    "equal": ([(3, 3), (0, 0)], [(3, 1), (2, 3)]),
    "broadcast": ([(3, 3), (1, 4), (4, 1)], [(2, 3), (0, 1), (1, 0)]),
    "at most": ([(2, 3), (3, 3)], [(4, 3)]),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("second", ["m", 3])
def test_sizes_that_do_not_fit_fail_the_call(relation, second):
    fits, misfits = RELATIONS[relation]
    x, z = input_node("x", F32, "n"), input_node("z", F32, second)
    total = node("t", Reduce("sum", (0,)), "x", F32)
    other = node("u", Reduce("sum", (0,)), "z", F32)
    demands = (Demand(Dim.of("n"), Dim.of(second), relation),)
    made = Graph((x, z, total, other, node("y", Map("add"), "t u", F32)), ("y",), demands)

    def call(n: int, m: int, run: Run) -> float:
        return float(results(made, {"x": np.ones(n, np.float32), "z": np.ones(m, np.float32)}, run)["y"])

    for n, m in fits:
        if second in ("m", m):
            assert call(n, m, by_onnxruntime) == call(n, m, by_import) == n + m
    for n, m in misfits:
        if second in ("m", m):
            for run in (by_onnxruntime, by_import):
                with pytest.raises((InputError, NoyauError)):
                    call(n, m, run)


def test_names_are_whatever_they_are():
    x = Node('a"b\n*/', Input(), (), F32, (Dim.of("n"),))
    y = Node("", Map("exp"), (x.output,), F32, x.shape)
    arrays = {x.output: np.zeros(2, np.float32)}
    assert results(Graph((x, y), ("",)), arrays, by_onnxruntime)[""].tolist() == [1, 1]
