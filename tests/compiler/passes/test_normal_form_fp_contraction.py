from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.compiler.partition.recomputation import repeat_cheap
from noyau.compiler.passes.normal_form import normalise, round_products
from noyau.dtypes import DType
from noyau.ir.graph import Map
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.graph_verifier import check
from tests.compiler.autodiff.numeric import traced

SHAPE = (5, 7)


def of_a_product(x, y):
    v = x * y
    return np.exp(v - v.max(-1, keepdims=True))


def of_a_sum(x, y):
    v = x * 0.3 + y
    return np.exp(v - v.max(-1, keepdims=True))


def plain(x, y):
    return np.exp(x - x.max(-1, keepdims=True)) * y


def of_another(x, y):
    return x * y - y.max(-1, keepdims=True)


def least(x, y):
    v = x * y
    return v - v.min(-1, keepdims=True)


def greatest_less_all(x, y):
    v = -(x * y)
    return v.max(-1, keepdims=True) - v


def with_its_product(x, y):
    p = x * y
    v = p + y
    return p, v == v.max(-1, keepdims=True)


def with_a_product_within(x, y):
    p = x * y
    v = np.abs((y - p).T)
    return p, v - v.min()


def with_a_choice(x, y):
    v = x * y + np.where(x > 0, np.float32(0), np.float32(-1e9))
    return np.exp(v - v.max(-1, keepdims=True))


def with_its_sum(x, y):
    v = x * y + y
    return v, v == v.max(-1, keepdims=True)


def guarded(x, y):
    v = x * y
    m = v.max(-1, keepdims=True)
    return np.exp(v - np.where(m == -np.inf, np.float32(0), m))


def at_least_zero(x, y):
    v = x * y
    return v - np.maximum(v.max(-1, keepdims=True), np.float32(0))


def less_the_largest_magnitude(x, y):
    v = x * y
    return v - np.abs(v).max(-1, keepdims=True)


def guarded_of_another(x, y):
    m = y.max(-1, keepdims=True)
    return x * y - np.where(m == -np.inf, np.float32(0), m)


def to_grey(x, y):
    return (x * 0.299 + y * 0.587 + (x - y) * 0.114).astype(np.uint8)


def to_floors(x, y):
    return np.floor(np.maximum(x * y - y * 3, -x * x + y))


def to_edges(x, y):
    return (x * 2 - y * 0.25 + y * -3).astype(np.int32)


def to_floor_of_a_function(x, y):
    return np.floor(np.exp(x * y + x))


def to_a_comparison(x, y):
    return x * y + x > 0


def roundings(graph):
    return sum(node.kind == Map("rounded") for node in graph.nodes)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (of_a_product, 1),
        (of_a_sum, 1),
        (plain, 0),
        (of_another, 0),
        (least, 1),
        (greatest_less_all, 1),
        (with_its_product, 1),
        (with_a_product_within, 1),
        (with_a_choice, 1),
        (with_its_sum, 0),
        (guarded, 1),
        (at_least_zero, 1),
        (less_the_largest_magnitude, 1),
        (guarded_of_another, 0),
    ],
)
def test_products_are_rounded_before_their_own_extreme_is_beside_them(function, count):
    graph = traced(function, SHAPE, SHAPE, dtype=DType.F32)
    made = round_products(graph)
    check(made)
    assert roundings(made) == count
    rng = np.random.default_rng(0)
    given = {node.output: rng.standard_normal(SHAPE).astype(np.float32) for node in graph.inputs}
    for one, other in zip(evaluate(graph, given).values(), evaluate(made, given).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("function", "count"),
    [(to_grey, 3), (to_floors, 3), (to_edges, 1), (to_floor_of_a_function, 0), (to_a_comparison, 0)],
)
def test_products_in_sums_before_a_step_are_rounded(function, count):
    made = round_products(traced(function, SHAPE, SHAPE, dtype=DType.F32))
    check(made)
    assert roundings(made) == count


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_grey_values_are_those_of_numpy(dtype):
    """Of 4,096 colours some 50 were one less or more, for a product was fused with a sum."""
    levels = (np.arange(16) * 17).astype(dtype)
    red, green = np.repeat(levels, 256), np.tile(np.repeat(levels, 16), 16)
    blue = np.tile(levels, 256)

    def grey(red, green, blue):
        return (red * 0.299 + green * 0.587 + blue * 0.114).astype(np.uint8)

    np.testing.assert_array_equal(noyau.op(grey)(red, green, blue), grey(red, green, blue))


def test_a_product_to_which_a_choice_is_added_is_rounded_before_the_sum():
    """A branch of the choice keeps a compiler from fusing them in scalars, and not in vectors."""
    made = round_products(traced(with_a_choice, SHAPE, SHAPE, dtype=DType.F32))
    (rounded,) = (node for node in made.nodes if node.kind == Map("rounded"))
    assert [made[name].kind for name in rounded.inputs] == [Map("multiply")]
    assert [node.kind for node in made.nodes if rounded.output in node.inputs] == [Map("add")]


def test_it_is_part_of_the_normal_form_once():
    graph = normalise(traced(of_a_product, SHAPE, SHAPE, dtype=DType.F32))
    assert roundings(graph) == 1
    assert roundings(normalise(graph)) == 1


def test_huge_products_have_a_softmax():
    """With a difference that is contracted no cell of most rows is exp(0), and 0 / 0 or infinity / infinity remains."""

    @noyau.op("f32[m, n], f32[n] -> f32[m, n]")
    def weighted(x, w):
        v = x * w
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    rng = np.random.default_rng(0)
    x = (rng.standard_normal((50, 33)) * 1e30).astype(np.float32)
    w = rng.standard_normal(33).astype(np.float32)
    np.testing.assert_array_equal(weighted(x, w).sum(-1), 1)


def test_a_value_that_is_computed_again_for_its_maximum_is_the_same():
    @noyau.op("f32[m, n], f32[n] -> f32[m, n]")
    def weighted(x, w):
        v = x * w
        return np.exp(v - v.max(0, keepdims=True))

    graph = weighted.generate("c", [DType.F32] * 2, [2, 1]).graph
    assert roundings(normalise(repeat_cheap(graph))) == 1
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((50, 33)) * 1e30).astype(np.float32)
    np.testing.assert_array_equal(weighted(x, rng.standard_normal(33).astype(np.float32)).sum(0), 1)


def test_products_that_are_wanted_as_well_are_rounded_alike_in_every_pass():
    """Fused with the sum where the extremes are found alone, no cell would be the least, nor equal to the greatest."""

    @noyau.op("f32[m, n], f32[m, n], f32[m, n] -> p: f32[m, n], above: f32[m, n], first: bool[m, n]")
    def compared(x, y, z):
        p = x * y
        v = p + z
        return p, v - v.min(-1, keepdims=True), v == v.max(-1, keepdims=True)

    rng = np.random.default_rng(0)
    x, y, z = ((rng.standard_normal((50, 33)) * size).astype(np.float32) for size in (1e15, 1e15, 1e24))
    assert compared.explain(x, y, z).language == "c"
    p, above, first = compared(x, y, z)
    np.testing.assert_array_equal(p, x * y)
    np.testing.assert_array_equal((above == 0).sum(-1), 1)
    np.testing.assert_array_equal(first.sum(-1), 1)
