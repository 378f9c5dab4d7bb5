from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Reduce
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.floats import ulp
from noyau.verify.rounding import LONGER, RandomRounding, is_rounded, otherwise_rounded, sum_loss
from tests.jobs.check import groups
from tests.jobs.check.groups import F32, Group

FINE = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant
LONG = [F32, *([DType.F64] if FINE else [])]


def runs(graph, count=200, **inputs):
    """The results of the only output in so many runs, of which no input moves because it is zero or an integer."""
    rng = np.random.default_rng(0)
    return np.stack([otherwise_rounded(graph, inputs, rng)[graph.outputs[0]] for _ in range(count)])


def from_integers(function, dtype, arity=2):
    """A scalar function of integers cast to floats, which nothing moves."""
    g = Group()
    g.map(function, *(g.map("cast", g.input(f"i{k}", DType.I32, "n"), dtype=dtype) for k in range(arity)))
    return g.graph()


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
def test_a_rounded_result_goes_up_or_down_and_never_beyond_its_neighbours(dtype):
    found = runs(from_integers("divide", dtype), i0=np.array([1, 2, -1], np.int32), i1=np.array([3, 7, 3], np.int32))
    for column, exact in zip(found.T, (1 / np.longdouble(3), 2 / np.longdouble(7), -1 / np.longdouble(3)), strict=True):
        low, high = sorted(set(column))
        assert low < exact < high
        assert high - low == ulp(dtype, np.abs(column[:1].astype(float)))[0]
        assert 0.3 < np.mean(column == low) < 0.7


class Heads:
    """A coin that moves each result."""

    def random(self, count):
        return np.zeros(count)


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
@np.errstate(over="ignore")
def test_a_result_becomes_its_neighbour_on_the_side_of_the_exact_one_where_that_is_finite(dtype):
    most, tiny = np.finfo(dtype.numpy).max, np.finfo(dtype.numpy).smallest_subnormal
    result = np.array([1, 1, -1, -1, 0, 0, -0.0, tiny, most, -most, most, np.inf, np.nan, 1, 1], dtype.numpy)
    sides = np.array([1, -1, 1, -1, 1, -1, 1, -1, 1, -1, -1, -1, 1, 0, np.inf], np.longdouble)
    exact = result.astype(np.longdouble) + sides * np.longdouble(tiny) * np.longdouble(2.0**-8)
    exact = np.where(np.abs(result) == 1, result * np.longdouble(1) + sides * np.longdouble(2.0**-60), exact)
    exact = np.where(np.abs(result) == most, result * (1 + np.sign(result) * sides * np.longdouble(2.0**-60)), exact)
    neighbours = np.nextafter(result, np.where(sides > 0, np.inf, -np.inf).astype(dtype.numpy))
    stays = (sides == 0) | ~np.isfinite(neighbours) | ~np.isfinite(exact)
    found = RandomRounding({}, Heads()).round(result, exact)
    assert found.tobytes() == np.where(stays, result, neighbours).tobytes()


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
def test_an_exact_result_stays(dtype):
    given = {"i0": np.array([6, 0, 5, 1 << 20], np.int32), "i1": np.array([3, 7, -2, 1 << 3], np.int32)}
    for function in ("add", "subtract", "multiply"):
        assert (
            runs(from_integers(function, dtype), 20, **given) == runs(from_integers(function, dtype), 1, **given)
        ).all()
    assert (runs(from_integers("exp", dtype, 1), 20, i0=np.zeros(2, np.int32)) == 1).all()


def test_a_function_keeps_to_its_range():
    """tanh rounds to 1 for large arguments, or to what is just below, and never above."""
    found = runs(from_integers("tanh", F32, 1), i0=np.array([9, 12, 30], np.int32))
    assert found.max() == 1
    assert found[:, 0].min() < 1
    assert found[:, 2].min() >= np.nextafter(np.float32(1), np.float32(0))


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
@pytest.mark.parametrize(("function", "sides"), [("exp", (-1, 1)), ("cos", (-1, -1))])
def test_what_is_1_at_0_alone_is_not_exact_beside_it(function, sides, dtype):
    """Not even where more bits show 1 as well."""
    graph, one = groups.one_map(function, dtype, 1), dtype.numpy.type(1)
    found = runs(graph, 40, x0=np.array([-1e-30, 1e-30], dtype.numpy))
    for column, side in zip(found.T, sides, strict=True):
        assert set(column) == {one, np.nextafter(one, one + side)}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16], ids=lambda dtype: dtype.value)
def test_short_floats_round_as_they_do(dtype):
    given = {"i0": np.array([1, 2], np.int32), "i1": np.array([3, 7], np.int32)}
    assert len(np.unique(runs(from_integers("divide", dtype), 20, **given).astype(float), axis=0)) == 1


def test_infinities_nan_and_what_overflows_stay():
    graph = groups.one_map("multiply", F32, 2)
    found = runs(graph, 20, x0=np.array([np.inf, np.nan, 3e38, 0], np.float32), x1=np.full(4, 3, np.float32))
    assert np.isposinf(found[:, [0, 2]]).all()
    assert np.isnan(found[:, 1]).all()
    assert (found[:, 3] == 0).all()


def test_sums_round_too_and_maxima_do_not():
    rng = np.random.default_rng(0)
    x = rng.integers(1, 1 << 30, (3, 50)).astype(np.int32)
    for monoid, varies in (("sum", True), ("max", False), ("logsumexp", True), ("variance", True)):
        g = Group()
        floats = g.map("cast", g.input("x", DType.I32, "rows", "n"), dtype=F32)
        graph = g.graph(g.reduce(monoid, g.map("multiply", floats, g.full(2.0**-20, floats))))
        assert (len(np.unique(runs(graph, 40, x=x))) > 3) is varies, monoid


def test_every_kind_of_graph_stays_near_its_truth():
    rng = np.random.default_rng(0)
    for make in (groups.softmax, groups.layer_norm, groups.rms_norm, groups.swiglu):
        graph = make()
        shapes = [[{"rows": 5, "n": 9}[str(dim)] for dim in node.shape] for node in graph.inputs]
        given = {n.output: rng.random(s).astype(np.float32) for n, s in zip(graph.inputs, shapes, strict=True)}
        truth = evaluate(graph, given, wide=True)[graph.outputs[0]]
        found = runs(graph, 5, **given)
        assert found.dtype == np.float32
        assert len(np.unique(found, axis=0)) == 5
        np.testing.assert_allclose(found, np.broadcast_to(truth, found.shape), rtol=1e-5, atol=1e-6)


def test_the_same_seed_gives_the_same_run():
    graph, x = groups.softmax(), np.random.default_rng(0).random((4, 6), np.float32)
    once, again = (otherwise_rounded(graph, {"x": x}, np.random.default_rng(3)) for _ in range(2))
    assert once[graph.outputs[0]].tobytes() == again[graph.outputs[0]].tobytes()


def test_an_index_outside_its_table_is_an_error():
    given = {"table": np.ones((11, 2), np.float32), "ids": np.array([11], np.int64)}
    with pytest.raises(InputError):
        otherwise_rounded(groups.embedding(11), given, np.random.default_rng(0))


def test_what_is_exact_by_nature_is_not_rounded():
    g = Group()
    x = g.input("x", F32, "n")
    names = [g.map(function, x) for function in ("negative", "abs", "floor", "sign", "identity")]
    names += [g.map("maximum", x, x), g.map("less", x, x, dtype=DType.BOOL)]
    assert not any(is_rounded(g.node(name), F32.numpy) for name in names)
    assert is_rounded(g.node(g.map("exp", x)), F32.numpy)


def test_longer_floats_are_longer():
    assert LONGER[np.dtype(np.float32)].itemsize > np.dtype(np.float32).itemsize


@pytest.mark.parametrize("function", ["tanh", "erf", "sigmoid"])
@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
def test_one_is_a_rounding_of_what_never_reaches_it(function, dtype):
    """Far out more bits see 1 too: but 1 + tanh(-30) is not 0, and a kernel that knows it is not wrong."""
    found = runs(from_integers(function, dtype, 1), 50, i0=np.array([60, 0], np.int32))
    below = np.nextafter(dtype.numpy.type(1), dtype.numpy.type(0))
    assert set(found[:, 0]) == {below, 1}
    assert len(set(found[:, 1])) == 1
    infinite = Group()
    infinite.map(function, infinite.input("x", dtype, "n"))
    assert (runs(infinite.graph(), 20, x=np.array([np.inf], dtype.numpy)) == 1).all()


@pytest.mark.parametrize(
    ("large", "dtype", "ends"),
    [
        (1e200, DType.F64, [np.nan, np.inf, -np.inf, np.nan]),  # each product overflows, or is added before it does
        (np.inf, DType.F64, [np.nan, np.inf, np.nan, np.nan]),  # one of them is infinite in every order
        (6e4, DType.F16, [np.nan] * 4),  # short floats are added up as they are
    ],
)
def test_sums_of_what_overflows_end_as_in_other_orders(large, dtype, ends):
    g = Group()
    scaled = g.map("multiply", g.input("x", dtype, "n", "m"), g.input("y", dtype, "n", "m"))
    graph = g.graph(g.add(Reduce("sum", (0, 1)), [scaled], dtype, ""))
    y = np.full((2, 2), min(large, 1e200), dtype.numpy)
    x = y * np.array([[1, 0], [0, 0]], dtype.numpy) - y * np.array([[0, 0], [1, 0]], dtype.numpy)
    x[0, 0] = large
    for turn, end in enumerate(ends):
        found = otherwise_rounded(graph, {"x": x, "y": y}, np.random.default_rng(0), turn)[graph.outputs[0]]
        np.testing.assert_equal(float(found), end)


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
def test_a_product_that_overflows_alone_may_be_finite_to_a_sum_that_multiplies_at_once(dtype):
    """x y - y x is NaN, or an infinity where one of the products is not rounded; x y - x is huge, and not infinite."""
    g = Group()
    x, y = g.input("x", dtype, "n"), g.input("y", dtype, "n")
    both = g.map("subtract", g.map("multiply", x, y), g.map("multiply", y, x))
    one = g.map("subtract", g.map("multiply", x, y), x)
    graph, most = g.graph(both, one), np.finfo(dtype.numpy).max
    given = {"x": np.array([most / 2, most], dtype.numpy), "y": np.array([2.5, 1.5], dtype.numpy)}
    with np.errstate(all="ignore"):
        found = [otherwise_rounded(graph, given, np.random.default_rng(0), turn) for turn in range(3)]
    assert np.isnan(found[0][both]).all()
    assert (found[1][both] == -np.inf).all()
    assert (found[2][both] == np.inf).all()
    assert np.isinf(found[0][one]).all()
    assert np.allclose(found[1][one] / most, [0.75, 0.5])


@pytest.mark.parametrize("dtype", LONG, ids=lambda dtype: dtype.value)
def test_a_product_less_itself_leaves_its_rounding_where_it_is_multiplied_and_added_at_once(dtype):
    """As a kernel may do it: x y - mean(x y) over one cell."""
    g = Group()
    x, y = g.input("x", dtype, "n"), g.input("y", dtype, "n")
    product = g.map("multiply", x, y)
    graph = g.graph(g.map("subtract", product, product))
    given = {"x": np.full(50, 0.1, dtype.numpy), "y": np.full(50, 0.3, dtype.numpy)}
    found = [otherwise_rounded(graph, given, np.random.default_rng(0), turn)[graph.outputs[0]] for turn in range(4)]
    assert [bool(np.abs(each).max() > 0) for each in found] == [False, True, True, False]
    assert max(np.abs(each).max() for each in found) < ulp(dtype, 0.03)


def test_a_cast_to_fewer_bits_rounds_too():
    g = Group()
    graph = g.graph(g.map("cast", g.input("x", DType.F64, "n"), dtype=F32))
    x = np.linspace(0.1, 1.1, 400)
    made = otherwise_rounded(graph, {"x": x}, np.random.default_rng(0))[graph.outputs[0]]
    nearest = x.astype(np.float32)
    assert made.dtype == np.float32
    assert 0.3 < np.mean(made != nearest) < 0.7
    assert (np.abs(made - x) < np.spacing(nearest)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_a_sum_loses_is_known_though_its_terms_are_far_apart(dtype):
    rng = np.random.default_rng(0)
    terms = (rng.standard_normal((4, 7, 3)) * 10.0 ** rng.integers(-30, 8, (4, 7, 3))).astype(dtype)
    terms[:, 0, :] = [[1, 0, 0], [0, 1e-37, 0], [0, 0, 0], [0, 0, 0]]
    sums = terms.sum((0, 2))
    exact = [sum(map(Fraction, terms[:, row].ravel().tolist())) - Fraction(float(sums[row])) for row in range(7)]
    assert exact[0] > 0
    assert np.allclose(sum_loss(terms, (0, 2), sums), list(map(float, exact)), rtol=1e-3, atol=0)
