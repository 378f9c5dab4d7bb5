from __future__ import annotations

import cProfile
import sys

import numpy as np
import pytest

from noyau.compiler.passes.normal_form import normalise
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.trace import follow
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node, constant
from noyau.ir.graph_interpreter import evaluate
from tests.frontends.numpy.traces import found, traced_only, x


def node(name: str, *dims, dtype=DType.F32) -> Node:
    return Node(name, Input(), (), dtype, shape_of(dims))


def rmsnorm(x, w, *, eps=1e-5):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * w


def signed(function=rmsnorm, **constants) -> Graph:
    return follow(function, [node("x", "rows", "n"), node("w", "n")], [node("out", "rows", "n")], constants).graph


def test_one_graph_serves_every_size():
    graph = signed()
    for rows, n in [(2, 3), (1, 7), (5, 1)]:
        given = {"x": x(rows, n), "w": x(n)}
        assert np.allclose(evaluate(graph, given)["out"], rmsnorm(**given), rtol=1e-5)


def test_the_truth_is_wide_where_the_function_narrows():
    def narrowing(x):
        return (x / np.float32(3)).astype(np.float16).astype(np.float32)

    graph = follow(narrowing, [node("x", "n")], [node("out", "n")], {}).graph
    given = {"x": x(9)}
    assert np.array_equal(evaluate(graph, given)["out"], narrowing(**given))
    assert np.allclose(evaluate(graph, given, wide=True)["out"], x(9).astype(np.float64) / 3, rtol=1e-15)


def test_constants_are_part_of_it():
    given = {"x": x(2, 3), "w": x(3)}
    assert np.allclose(evaluate(signed(eps=2.0), given)["out"], rmsnorm(**given, eps=2.0), rtol=1e-5)


def test_the_normal_form_means_the_same():
    for function in (rmsnorm, lambda x, w: x * w + np.concatenate([x[:, 1:], x[:, :1]], -1)):
        graph = signed(function)
        normal = normalise(graph)
        given = {"x": x(2, 3), "w": x(3)}
        lifted = {each.output: np.float32(1e-5) for each in normal.inputs if each.output not in given}
        assert len(lifted) <= 1
        assert np.allclose(evaluate(normal, given | lifted)["out"], evaluate(graph, given)["out"], rtol=1e-5)


def test_equal_extents_are_demanded():
    graph = follow(lambda x, y: x + y, [node("x", "n"), node("y", "m")], [node("out", "n")], {}).graph
    assert [str(demand) for demand in graph.demands] == ["n = m"]


def test_values_that_nobody_needs_are_gone():
    graph = follow(lambda x: (np.exp(x), x + 1)[1], [node("x", "n")], [node("out", "n")], {}).graph
    assert len(graph.nodes) <= 5


def test_several_results_and_known_ones():
    results = [node("low"), node("one", dtype=DType.I64)]
    graph = follow(lambda x: (x.min(), np.int64(1)), [node("x", "n")], results, {}).graph
    found = evaluate(graph, {"x": x(4)})
    assert found["low"] == x(4).min()
    assert found["one"] == 1


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x, w: x.sum(-1), r"out is f32\[rows\], and f32 of 2 axes by the signature; cast or reshape it"),
        (lambda x, w: x.astype(np.float64), r"out is f64\[rows, n\], and f32 of 2 axes by the signature"),
        (lambda x, w: None, "it returns nothing; let it return its results"),
        (lambda x, w: 1 / 0, "division by zero"),
    ],
)
def test_what_is_not_as_it_is_signed(function, told):
    with pytest.raises(UnsupportedError, match=told):
        signed(function)


def test_the_line_is_named():
    def wrong(a):
        b = a + 1
        return np.sort(b)

    line = wrong.__code__.co_firstlineno + 2
    with pytest.raises(
        UnsupportedError, match=rf"^wrong cannot be traced at line {line} of .*test_trace_tracing\.py: np\.sort"
    ):
        traced_only(wrong, x(3))


def test_values_bear_the_names_of_variables():
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        total = e.sum(-1, keepdims=True)
        out = e / total
        return out * 1

    graph = follow(softmax, [node("x", "rows", "n")], [node("out", "rows", "n")], {}).graph
    assert {"x", "e", "total", "out"} <= graph.by_name.keys()
    assert graph.outputs == ("out",)
    assert np.allclose(evaluate(graph, {"x": x(2, 3)})["out"], softmax(x(2, 3)))


def test_an_input_that_is_a_number_is_given_as_one():
    bins = constant("bins", np.array(3, np.int64))
    graph = follow(lambda x, bins: x[:bins] * bins, [node("x", "n"), bins], [node("out", 3)], {}).graph
    assert [each.output for each in graph.inputs] == ["x"]
    assert np.array_equal(evaluate(graph, {"x": x(5)})["out"], x(5)[:3] * 3)


def test_a_profiler_sees_what_is_called_after_a_trace():
    def afterwards():
        pass

    plain, profiler = signed(), cProfile.Profile()
    profiler.enable()
    try:
        watched = signed()
        afterwards()
    finally:
        profiler.disable()
    assert watched == plain
    assert any(entry.code is afterwards.__code__ for entry in profiler.getstats())


def test_a_profiling_function_is_put_back():
    before, calls = sys.getprofile(), []

    def note(frame, event, argument):
        calls.append(event)

    sys.setprofile(note)
    try:
        signed()
        found = sys.getprofile()
    finally:
        sys.setprofile(before)
    assert found is note


def catches(a):
    try:
        return np.sort(a)
    except Exception:  # noqa: BLE001  as a user might
        return a


def catches_a_number(a):
    try:
        return a if a[0] > 0 else -a
    except NotImplementedError:
        return a * 0


@pytest.mark.parametrize(
    ("function", "told"), [(catches, "it sorts"), (catches_a_number, "it asks for the number in an array")]
)
def test_what_is_refused_stays_refused_where_the_function_catches_it(function, told):
    """Another branch than NumPy's would be traced."""
    with pytest.raises(UnsupportedError, match=told) as refusal:
        found(function, x(4))
    assert f"at line {function.__code__.co_firstlineno + 2}" in str(refusal.value)
