from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noyau.dtypes import DType
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import Contract, Graph, Input, Node, Reduce, View, constant
from noyau.kernels.programs import libraries
from noyau.kernels.programs.program import by_numpy
from tests.ops.dispatch.ops import numbers

EXTENTS = dict(zip("abcdefg", (2, 3, 4, 5, 1, 6, 7), strict=True))


@st.composite
def equations(draw):
    first = "".join(draw(st.permutations(draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=4)))))
    second = "".join(draw(st.permutations(draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=4)))))
    letters = sorted({*first, *second})
    kept = draw(st.lists(st.sampled_from(letters), unique=True)) if letters else []
    return f"{first},{second}->{''.join(kept)}"


@given(equations())
def test_any_einsum_of_two_operands(equation):
    terms = equation.split("->")[0].split(",")
    operands = [numbers(*(EXTENTS[x] for x in term), seed=at).astype(np.float64) for at, term in enumerate(terms)]
    got = libraries.contract(equation, operands, np.dtype(np.float64))
    want = np.einsum(equation, *operands)
    assert got.shape == want.shape
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)


def turn(node, order, name):
    index = [Dim.of(f"#{order.index(axis)}") for axis in range(len(order))]
    return Node(name, View(tuple(index)), (node.output,), node.dtype, tuple(node.shape[axis] for axis in order))


@given(equations(), st.data())
def test_transposes_around_a_product_are_another_order_of_its_letters(equation, data):
    terms, result = equation.split("->")
    nodes, arrays, operands = [], [], []
    for at, term in enumerate(terms.split(",")):
        order = data.draw(st.permutations(range(len(term))))  # of the axes of what the product reads
        stored = "".join(term[order.index(axis)] for axis in range(len(term)))
        arrays.append(numbers(*(EXTENTS[x] for x in stored), seed=at).astype(np.float64))
        nodes.append(Node(f"x{at}", Input(), (), DType.F64, shape_of([EXTENTS[x] for x in stored])))
        nodes.append(turn(nodes[-1], order, f"t{at}"))
        operands.append(arrays[-1].transpose(order))
    shape = shape_of([EXTENTS[x] for x in result])
    nodes.append(Node("whole", Contract(equation), ("t0", "t1"), DType.F64, shape))
    last = data.draw(st.permutations(range(len(result))))
    graph = Graph((*nodes, turn(nodes[-1], last, "out")), ("out",))
    _, names, dtype = libraries.einsum_of(graph)
    assert (names, dtype) == (["x0", "x1"], DType.F64)
    want = np.einsum(equation, *operands).transpose(last)
    (got,) = by_numpy(graph)(arrays, {})
    assert got.shape == want.shape
    assert got.flags.c_contiguous
    assert np.allclose(got, want, rtol=1e-12, atol=1e-12)
    assert np.allclose(libraries.prepare(graph)(arrays, {}), want, rtol=1e-12, atol=1e-12)


def test_a_product_of_part_of_an_array_is_no_einsum_of_it():
    x = Node("x", Input(), (), DType.F32, shape_of((3, 4)))
    part = Node("part", View(shape_of((Dim.of("#0") + 1, "#1"))), ("x",), DType.F32, shape_of((2, 4)))
    out = Node("out", Contract("ab,cb->ac"), ("part", "x"), DType.F32, shape_of((2, 3)))
    graph = Graph((x, part, out), ("out",))
    assert libraries.einsum_of(graph) is None
    array = numbers(3, 4)
    assert np.allclose(by_numpy(graph)([array], {})[0], array[1:] @ array.T)


def test_a_product_of_matrices_copies_nothing():
    x, y = numbers(4, 5), numbers(6, 5)
    how = libraries.product("ab,cb->ac")
    assert how.orders == (None, (1, 0))
    assert np.array_equal(libraries.contract("ab,cb->ac", [x, y], np.dtype(np.float32)), x @ y.T)


@pytest.mark.parametrize("equation", ["ab,cb->ac", "ab,cb->ca", "zab,zcb->zac", "zab,zcb->ac"])
def test_a_product_says_nothing_of_what_it_meets(equation):
    """As np.einsum; and the state of errors is as it was."""
    operands = [np.full((2,) * len(term), np.inf) * [1, -1] for term in equation.split("->")[0].split(",")]
    with np.errstate(all="raise"):
        got = libraries.contract(equation, [operands[0], np.abs(operands[1])], np.dtype(np.float64))
        assert set(np.geterr().values()) == {"raise"}
    assert np.isnan(got).all()


@pytest.mark.skipif(np.__version__ < "2", reason="the state of errors was a thread's")
def test_a_call_without_warnings_enters_no_state_of_errors(monkeypatch):
    """np.errstate takes as long as a small product."""
    monkeypatch.setattr(np, "errstate", None)
    x = numbers(2, 3)
    assert np.array_equal(libraries.contract("ab,cb->ac", [x, x], x.dtype), x @ x.T)


@pytest.mark.parametrize(
    ("index", "shape", "want"),
    [
        (("#1", "#0"), (4, 3), lambda x: x.T),
        (("#0", 0), (3, 4), lambda x: np.broadcast_to(x[:, :1], (3, 4))),
        ((Dim.of(2) - "#0", "#1"), (3, 4), lambda x: x[::-1]),
        (("#0", Dim.of("#1") * 2 + 1), (3, 2), lambda x: x[:, 1::2]),
        ((Dim.of("#0") + "#1", "#1"), (2, 2), lambda x: np.array([[x[0, 0], x[1, 1]], [x[1, 0], x[2, 1]]])),
        ((0, 1), (), lambda x: x[0, 1]),
        (("#0", "#1"), (0, 4), lambda x: x[:0]),
    ],
)
def test_a_view_without_a_copy(index, shape, want):
    x = numbers(3, 4)
    places = shape_of(index)
    got = libraries.view(x, places, libraries.slopes_of(places, len(shape)), shape, {})
    assert np.array_equal(got, want(x))
    assert got.size == 0 or np.shares_memory(got, x)


def test_a_view_that_no_strides_say():
    assert libraries.slopes_of(shape_of([Dim.of("#0") // 4, Dim.of("#0") % 4]), 1) is None


def test_views_constants_and_what_has_no_kernel():
    square = shape_of(["n", "n"])
    x = Node("x", Input(), (), DType.F32, square)
    turned = Node("t", View(shape_of(["#1", "#0"])), ("x",), DType.F32, square)
    one = constant("one", np.ones((3, 3), np.float32))
    made = Node("y", Contract("ab,bc->ac"), ("t", "one"), DType.F32, square)
    total = Node("z", Reduce("sum", (0,)), ("y",), DType.F32, shape_of(["n"]))
    given = numbers(3, 3)
    got = libraries.prepare(Graph((x, turned, one, made, total), ("z",)))([given], {"n": 3})
    assert np.allclose(got, (given.T @ np.ones((3, 3))).sum(0), rtol=1e-5)


def test_half_precision_is_computed_in_float32():
    x = Node("x", Input(), (), DType.F16, shape_of([1, "n"]))
    y = Node("y", Contract("ab,ab->a"), ("x", "x"), DType.F16, shape_of([1]))
    given = np.full((1, 4096), 0.25, np.float16)
    assert libraries.prepare(Graph((x, y), ("y",)))([given], {"n": 4096}).tolist() == [256.0]


def test_what_blas_cannot_take_is_copied_and_loses_no_more():
    """np.matmul of an expanded vector adds up in one float32."""
    x = np.broadcast_to(np.float32(0.7654321), (1 << 16,))
    got = libraries.contract("a,a->", [x, x], np.dtype(np.float32))
    assert got == pytest.approx(float(x[0]) ** 2 * x.size, rel=1e-5)


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        (lambda x: x, True),
        (lambda x: x.T, True),
        (lambda x: x[2:5, 1:3], True),
        (lambda x: x[::2], True),
        (lambda x: x[:1], True),
        (lambda x: x[:, :1], True),
        (lambda x: x[:, ::2], False),
        (lambda x: x[::-1], False),
        (lambda x: np.broadcast_to(x[0], x.shape), False),
        (lambda x: np.broadcast_to(x[:, :1], x.shape), False),
    ],
)
def test_matrices_that_blas_takes_as_they_lie(seen, taken):
    x = numbers(6, 8)
    assert libraries.is_blas_s(seen(x)) == taken
    assert np.allclose(libraries.contract("ab,cb->ac", [seen(x), seen(x)], x.dtype), seen(x) @ seen(x).T, rtol=1e-5)


@pytest.mark.parametrize(
    ("index", "shape", "axes"),
    [
        (("#1", "#0"), ("m", "n"), (1, 0)),
        (("#0", "#1"), ("n", "m"), (0, 1)),
        (("#1", "#0"), ("m", 5), None),
        (("#0", 0), ("n", "m"), None),
        (("#0", "#0"), ("n", "n"), None),
        (("#1", "#2"), (3, "n", "m"), None),
        (("#1", Dim.of("#0") + 1), ("m", "n"), None),
    ],
)
def test_a_view_that_is_a_transpose(index, shape, axes):
    assert libraries.transposed_axes(shape_of(index), shape_of(shape), shape_of(["n", "m"])) == axes


def test_a_view_of_a_product_is_in_memory_of_its_own():
    square = shape_of(["n", "n"])
    x = Node("x", Input(), (), DType.F32, square)
    product = Node("p", Contract("ab,bc->ac"), ("x", "x"), DType.F32, square)
    of_product, of_input = (Node("v", View(shape_of(["#0", "#1"])), (name,), DType.F32, square) for name in "px")
    assert not libraries.shows(Graph((x, product, of_product), ("v",)))
    assert libraries.shows(Graph((x, of_input), ("v",))) and not libraries.shows(Graph((x, product), ("p",)))
    given = numbers(3, 3)
    array = libraries.prepare(Graph((x, product, of_product), ("v",)))([given], {"n": 3})
    assert np.array_equal(array, given @ given) and array.flags.c_contiguous
