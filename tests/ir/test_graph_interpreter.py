from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from noyau.dtypes import DType
from noyau.errors import GraphError, InputError
from noyau.ir.dims import Dim, shape_of
from noyau.ir.graph import (
    Constant,
    Contract,
    Gather,
    Iota,
    Lookup,
    Map,
    Node,
    Opaque,
    Part,
    Reduce,
    Scan,
    Scatter,
    Select,
)
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.monoids import MONOIDS
from tests.nodes import BF16, BOOL, F16, F32, F64, I8, I32, I64, at, given, graph, value, view

NOISE = np.random.default_rng(0)
X = NOISE.normal(size=(3, 5)).astype(np.float32)


def run(node: Node, *others: Node, wide=False, **arrays):
    return evaluate(graph(node.output, *others, node), arrays, wide=wide)[node.output]


def test_input_constant_and_iota():
    assert run(value("y", Map("identity"), "x", F32, 3, 5), given("x", F32, 3, 5), x=X) is not None
    assert list(run(value("y", Constant(np.int8([1, -2])), "", I8, 2))) == [1, -2]
    made = run(value("y", Iota(at(1) * 10 + at(0) + "n"), "", I64, "n", 2), given("x", F32, "n"), x=X[:, 0])
    assert made.tolist() == [[3, 13], [4, 14], [5, 15]]
    assert made.dtype == np.int64
    assert run(value("y", Iota(Dim.of("n")), "", F32), given("x", F32, "n"), x=X[:, 0]) == 3


def test_maps_compute_in_their_dtype():
    operands = given("a", I8, 2), given("b", I8, 2)
    got = run(value("y", Map("multiply"), "a b", I8, 2), *operands, a=np.int8([100, 3]), b=np.int8([2, 4]))
    assert got.tolist() == [-56, 12]
    assert got.dtype == np.int8


@pytest.mark.parametrize(("dtype", "eps"), [(F16, 2.0**-10), (BF16, 2.0**-7)])
def test_halves_compute_in_float32_and_round_at_each_node(dtype, eps):
    x = np.array([1.0], dtype.numpy)
    nodes = [
        given("x", dtype, 1),
        value("e", Constant(np.array([eps / 2], dtype.numpy)), "", dtype, 1),
        value("s", Map("add"), "x e", dtype, 1),
        value("t", Map("add"), "s e", dtype, 1),
        value("d", Map("subtract"), "t x", dtype, 1),
    ]
    whole = graph("d s", *nodes)
    assert evaluate(whole, {"x": x})["d"] == 0  # half an ulp is lost twice
    assert evaluate(whole, {"x": x}, wide=True)["d"] == eps
    assert evaluate(whole, {"x": x})["s"].dtype == dtype.numpy
    assert evaluate(whole, {"x": x}, wide=True)["s"].dtype == np.float64


def test_wide_drops_casts_among_floats_and_obeys_those_to_integers():
    x = np.float64([1 + 2.0**-40, 3.7, -3.7])
    narrow = value("h", Map("cast"), "x", F16, 3)
    back = value("y", Map("cast"), "h", F64, 3)
    assert run(back, given("x", F64, 3), narrow, x=x).tolist() == np.float16(x).astype(float).tolist()
    assert run(back, given("x", F64, 3), narrow, x=x, wide=True).tolist() == x.tolist()
    whole = value("y", Map("cast"), "x", I32, 3)
    for wide in (False, True):
        assert run(whole, given("x", F64, 3), x=x, wide=wide).tolist() == [1, 3, -3]
    assert run(value("y", Map("cast"), "x", BOOL, 2), given("x", F32, 2), x=np.float32([0, np.nan])).tolist() == [0, 1]


def test_wide_sums_are_exact_where_narrow_ones_are_not():
    x = np.float32([1e8, 1, -1e8])
    total = value("y", Reduce("sum", (0,)), "x", F32)
    assert run(total, given("x", F32, 3), x=x) == 0
    assert run(total, given("x", F32, 3), x=x, wide=True) == 1


REFERENCES = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "argmax": lambda x, axis: np.argmax(x, axis),
    "argmin": lambda x, axis: np.argmin(x, axis),
    "variance": np.var,
    "logsumexp": lambda x, axis: np.log(np.sum(np.exp(x), axis)),
    "any": np.any,
    "all": np.all,
}


@pytest.mark.parametrize("name", MONOIDS)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions(name, axes):
    dtype = F64 if "float" in MONOIDS[name].accepts else BOOL
    x = X.astype(np.float64) if dtype is F64 else X > 0
    reference = REFERENCES[name.removesuffix("_apart")]
    if name.startswith("arg") and len(axes) == 2:
        wanted = reference(x.ravel(), 0)  # the flat position over all reduced axes
    else:
        wanted = reference(x, axes if len(axes) == 2 else axes[0])
    shape = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    got = run(
        value("y", Reduce(name, axes), "x", MONOIDS[name].result(dtype), *shape), given("x", dtype, *x.shape), x=x
    )
    assert np.allclose(got, wanted, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "dtype", "want"),
    [("sum", F32, 0), ("max", F32, -math.inf), ("max", I8, -128), ("min", I8, 127), ("logsumexp", F32, -math.inf)],
)
def test_reductions_of_nothing(name, dtype, want):
    got = run(value("y", Reduce(name, (0,)), "x", dtype, 2), given("x", dtype, 0, 2), x=np.zeros((0, 2), dtype.numpy))
    assert got.tolist() == [want, want]


def test_a_nan_is_kept_by_max_and_found_by_argmax():
    x = np.float32([1, np.nan, 5])
    assert np.isnan(run(value("y", Reduce("max", (0,)), "x", F32), given("x", F32, 3), x=x))
    assert run(value("y", Reduce("argmax", (0,)), "x", I64), given("x", F32, 3), x=x) == 1


def test_scans():
    def scan(*args):
        return run(value("y", Scan(*args), "x", I32, 4), given("x", I32, 4), x=np.int32([1, 5, 2, 4])).tolist()

    assert scan("sum", 0) == [1, 6, 8, 12]
    assert scan("sum", 0, True) == [0, 1, 6, 8]
    assert scan("sum", 0, False, True) == [12, 11, 6, 4]
    assert scan("sum", 0, True, True) == [11, 6, 4, 0]
    assert scan("max", 0) == [1, 5, 5, 5]
    got = run(value("y", Scan("prod", 1), "x", F32, 3, 5), given("x", F32, 3, 5), x=X)
    assert np.allclose(got, np.cumprod(X, 1))


@pytest.mark.parametrize(
    ("index", "shape", "want"),
    [
        ((at(1), at(0)), (5, 3), X.T),
        ((at(0) // 5, at(0) % 5), (15,), X.ravel()),
        ((2 - at(0), at(1) * 2), (3, 3), X[::-1, ::2]),
        ((at(0), 0), (3,), X[:, 0]),
        ((0, at(2)), (2, 4, 5), np.broadcast_to(X[0], (2, 4, 5))),
        ((1, 1), (), X[1, 1]),
    ],
)
def test_views(index, shape, want):
    assert np.array_equal(run(value("y", view(*index), "x", F32, *shape), given("x", F32, 3, 5), x=X), want)


def test_a_view_of_a_scalar():
    got = run(value("y", view(), "x", F32, 2, 3), given("x", F32), x=np.float32(7))
    assert got.tolist() == [[7, 7, 7]] * 2
    got[0, 0] = 1  # of its own memory


def test_a_broadcast_that_is_only_known_as_it_runs():
    from noyau.ir.graph import expand_index

    shape = shape_of(["n", 2])
    node = Node("y", view(*expand_index(shape_of(["p", 2]), shape)), ("x",), F32, shape)
    for extent in (1, 3):
        x = np.arange(extent * 2, dtype=np.float32).reshape(extent, 2)
        got = run(node, given("x", F32, "p", 2), given("z", F32, "n"), x=x, z=np.zeros(3, np.float32))
        assert np.array_equal(got, np.broadcast_to(x, (3, 2)))


def test_select_joins_pieces():
    node = value("y", Select(1, shape_of([0, 5, 5])), "x e x", F32, 3, 10)
    got = run(node, given("x", F32, 3, 5), given("e", F32, 3, 0), x=X, e=X[:, :0])
    assert np.array_equal(got, np.concatenate([X, X], 1))


def test_gathers():
    rows = value("y", Gather((Lookup(1, (at(0), at(1))), at(2))), "x k", F32, 2, 2, 5)
    k = np.array([[2, 0], [1, 1]])
    assert np.array_equal(run(rows, given("x", F32, 3, 5), given("k", I64, 2, 2), x=X, k=k), X[k])
    cells = value("y", Gather((at(0), Lookup(1, (at(0), at(1))))), "x k", F32, 3, 2)
    k = np.array([[4, 0], [1, 1], [2, 3]], np.int32)
    assert np.array_equal(
        run(cells, given("x", F32, 3, 5), given("k", I32, 3, 2), x=X, k=k), np.take_along_axis(X, k, 1)
    )


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_gather_outside_is_an_input_error(bad):
    node = value("y", Gather((Lookup(1, (at(0),)), at(1))), "x k", F32, 2, 5)
    with pytest.raises(InputError, match=r"an index is outside \[0, 3\) along axis 0 of a gather"):
        run(node, given("x", F32, 3, 5), given("k", I64, 2), x=X, k=np.array([0, bad]))


def test_scatters():
    operands = given("x", F32, 3, 5), given("k", I64, 3), given("u", F32, 3, 5)
    index = (Lookup(1, (at(0),)), at(1))
    k, u = np.array([1, 1, 0]), np.ones((3, 5), np.float32)
    got = run(value("y", Scatter(index, "sum"), "x k u", F32, 3, 5), *operands, x=X, k=k, u=u)
    assert np.array_equal(got, X + np.float32([[1], [2], [0]]))
    got = run(value("y", Scatter(index, None), "x k u", F32, 3, 5), *operands, x=X, k=k, u=u)
    assert np.array_equal(got, np.concatenate([u[:2], X[2:]]))


def test_contracts():
    got = run(value("y", Contract("ij,kj->ik"), "x x", F32, 3, 3), given("x", F32, 3, 5), x=X)
    assert np.allclose(got, X @ X.T)


def test_opaque_nodes_and_their_parts():
    halves = Opaque("halves", lambda x: (x[:1], x[1:]))
    nodes = [given("x", F32, 3), value("o", halves, "x", DType.OTHER), value("y", Part(1), "o", F32, 2)]
    assert evaluate(graph("y", *nodes), {"x": X[:, 0]})["y"].tolist() == X[1:, 0].tolist()
    alone = value("y", Opaque("double", lambda x: (x * 2,)), "x", F32, 3)
    assert run(alone, given("x", F32, 3), x=X[:, 0]).tolist() == (X[:, 0] * 2).tolist()
    with pytest.raises(GraphError, match="y is made by magic, which cannot be evaluated here"):
        run(value("y", Opaque("magic"), "x", F32, 3), given("x", F32, 3), x=X[:, 0])


def test_inputs_that_are_missing_or_do_not_fit():
    node = value("y", Map("exp"), "x", F32, "n", 5)
    with pytest.raises(InputError, match="no array is given for the input x"):
        run(node, given("x", F32, "n", 5))
    with pytest.raises(InputError, match=r"x has shape \(3, 4\), which does not fit \[n, 5\] where n=3"):
        run(node, given("x", F32, "n", 5), x=X[:, :4])


def test_sizes_that_no_input_binds_are_given():
    made = graph("y", value("y", Iota(at(0)), "", I64, "n"))
    assert evaluate(made, {}, sizes={"n": 3})["y"].tolist() == [0, 1, 2]


def test_softmax_by_pieces_in_every_float_type():
    def softmax(dtype):
        col = view(at(0))
        return graph(
            "y",
            given("x", dtype, "b", "n"),
            value("m", Reduce("max", (1,)), "x", dtype, "b"),
            value("mm", col, "m", dtype, "b", "n"),
            value("d", Map("subtract"), "x mm", dtype, "b", "n"),
            value("e", Map("exp"), "d", dtype, "b", "n"),
            value("s", Reduce("sum", (1,)), "e", dtype, "b"),
            value("ss", col, "s", dtype, "b", "n"),
            value("y", Map("divide"), "e ss", dtype, "b", "n"),
        )

    truth = np.exp(X.astype(float)) / np.exp(X.astype(float)).sum(1, keepdims=True)
    for dtype, near in [(F64, 1e-15), (F32, 1e-6), (F16, 2e-3), (BF16, 2e-2)]:
        x = X.astype(dtype.numpy)
        got = evaluate(softmax(dtype), {"x": x})["y"]
        assert got.dtype == dtype.numpy
        if dtype in (F64, F32):
            assert np.allclose(got, truth, rtol=near)
        assert np.allclose(got.astype(float), evaluate(softmax(dtype), {"x": x}, wide=True)["y"], rtol=near)


def test_bfloat16_is_kept_as_bfloat16():
    x = np.array([1.5, -2.25], ml_dtypes.bfloat16)
    got = run(value("y", Map("negative"), "x", BF16, 2), given("x", BF16, 2), x=x)
    assert got.dtype == ml_dtypes.bfloat16
    assert got.tolist() == [-1.5, 2.25]
