from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.schedules.cpu import folds
from noyau.compiler.schedules.cpu.folds import expand_folds, in_blocks, position, state_of, total_of
from noyau.compiler.schedules.cpu.strategy_choice import nan_apart
from noyau.compiler.schedules.primitives import with_bodies
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Alloc, Axis, Call, Fold, Let, Load, Store, Var
from noyau.ir.monoids import MONOIDS
from noyau.ir.walk import every_statement
from tests.compiler.schedules.groups import assert_keeps, flat, in_order, inputs_of, log_softmax, loops, reduced
from tests.jobs.check.groups import Group, softmax
from tests.nests import F32, N, call, kernel, load, store
from tests.nodes import F64, I32

PLAIN = sorted(name for name in MONOIDS if not name.endswith("_apart"))
DTYPES = {"float": [DType.F32, DType.F64, DType.F16, DType.BF16], "int": [DType.I32], "uint": [DType.U8]}
DTYPES |= {"bool": [DType.BOOL]}
CASES = [(name, dtype) for name in PLAIN for kind in sorted(MONOIDS[name].accepts) for dtype in DTYPES[kind]]


def expanded(graph, lanes, *, rests=True):
    return with_bodies(flat(graph), lambda body: expand_folds(body, lanes, rests=rests))


@pytest.mark.parametrize("lanes", [1, 2, 16])
@pytest.mark.parametrize(("monoid", "dtype"), CASES, ids=lambda case: getattr(case, "value", case))
def test_every_monoid_in_every_dtype(monoid, dtype, lanes, monkeypatch):
    monkeypatch.setattr(folds, "BLOCK", 32)
    graph = reduced(monoid, "rows", "n", axes=(1,), dtype=dtype)
    some = [{"rows": 2, "n": n} for n in (1, lanes - 1 or 2, lanes, lanes + 1, 70)]
    empty = [] if monoid in ("variance", "logsumexp") or "arg" in monoid else [{"rows": 2, "n": 0}]
    assert_keeps(graph, expanded(graph, lanes), *some, *empty)


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("columns", ["n", 1, 5, 31, 33, 64, 130])
def test_rows_shorter_and_longer_than_the_lanes(lanes, columns, monkeypatch):
    monkeypatch.setattr(folds, "BLOCK", 64)
    graph = reduced("sum", "rows", columns, axes=(1,))
    sizes = (0, 1, 31, 32, 33, 64, 65, 129) if columns == "n" else (1,)
    assert_keeps(graph, expanded(graph, lanes), *({"rows": 2, "n": n} for n in sizes))


@pytest.mark.parametrize("monoid", ["sum", "max_apart", "variance"])
def test_what_is_left_in_the_loops_of_the_rest_gives_the_same_bits(monoid, monkeypatch):
    monkeypatch.setattr(folds, "BLOCK", 64)
    graph = reduced(monoid, "rows", "n", axes=(1,))
    apart, as_one = expanded(graph, 8), expanded(graph, 8, rests=False)
    assert (len(loops(as_one)) < len(loops(apart))) == (monoid != "max_apart")  # which is no quicker so
    for n in (1, 7, 8, 9, 63, 64, 65, 130):
        inputs = in_order(apart, inputs_of(graph, {"rows": 2, "n": n}, n))
        for one, other in zip(run(apart, inputs), run(as_one, inputs), strict=True):
            assert np.array_equal(one, other)


def test_what_is_dear_is_not_spelt_for_what_is_left_of_whole_blocks(monkeypatch):
    monkeypatch.setattr(folds, "BLOCK", 64)
    graph = softmax()
    apart, as_one = expanded(graph, 8), expanded(graph, 8, rests=False)
    assert [_exps(made) for made in (apart, as_one)] == [4, 3]
    for n in (0, 1, 8, 63, 64, 65, 130):
        inputs = in_order(apart, inputs_of(graph, {"rows": 2, "n": n}, n))
        for one, other in zip(run(apart, inputs), run(as_one, inputs), strict=True):
            assert np.array_equal(one, other)


def test_a_known_length_bounds_the_lanes():
    graph = reduced("sum", "rows", 12, axes=(1,))
    memory = [s for s in every_statement(expanded(graph, 32).launches[0].body) if isinstance(s, Alloc)]
    assert [alloc.shape for alloc in memory] == [(Dim.of(8),)]


def test_no_fold_is_left_and_lanes_are_there():
    made = expanded(log_softmax(), 16)
    assert not [s for s in every_statement(made.launches[0].body) if isinstance(s, Let) and isinstance(s.value, Fold)]
    assert any(name.startswith("#lane") for name in loops(made, Axis.LANES))
    assert not any(name.startswith("#lane") for name in loops(made, Axis.SERIAL))


def test_several_reduced_axes():
    for axes in ((0, 2), (0, 1, 2), (1, 2)):
        graph = reduced("sum", "a", "b", "c", axes=axes)
        assert_keeps(graph, expanded(graph, 4), {"a": 3, "b": 2, "c": 5}, {"a": 0, "b": 2, "c": 5})
        graph = reduced("argmax", "a", "b", "c", axes=axes, dtype=I32)
        assert_keeps(graph, expanded(graph, 4), {"a": 3, "b": 2, "c": 5})


def test_a_fold_within_a_fold():
    """The sum over rows of the largest of each."""
    g = Group()
    x = g.input("x", F32, "rows", "n")
    largest = g.reduce("max", x)
    g.reduce("sum", largest, axis=0)
    graph = g.graph()
    made = expanded(graph, 8)
    assert_keeps(graph, made, {"rows": 3, "n": 5}, {"rows": 9, "n": 1})


def test_the_first_of_ties_and_nan_win_whatever_the_lanes():
    for lanes in (1, 4, 32):
        for row, wanted in (
            ([1, 3, 3, 2, 3, 0, 3, 3, 3], 1),
            ([1, np.nan, 5, np.nan, 9, 0, 0, 0, 1], 1),
            ([-np.inf] * 9, 0),
        ):
            made = expanded(reduced("argmax", "rows", "n", axes=(1,)), lanes)
            for seed in range(3):
                assert run(check(made), [np.array([row], np.float32)], seed=seed)[0] == [wanted]


@pytest.mark.parametrize("monoid", ["max", "min"])
def test_nan_is_kept_by_a_state_of_its_own(monoid):
    made = expanded(reduced(monoid, "rows", "n", axes=(1,)), 4)
    assert {s.merge for s in every_statement(made.launches[0].body) if isinstance(s, Store)} >= {f"{monoid}_apart"}
    for at in range(7):
        row = np.arange(7, dtype=np.float32)
        row[at] = np.nan
        assert np.isnan(run(made, [row[None]])[0]).all()
    assert run(made, [np.float32([[np.inf, -np.inf]])])[0] == {"max": np.inf, "min": -np.inf}[monoid]


def test_long_sums_of_floats_go_through_float64():
    made = expanded(reduced("sum", "rows", "n", axes=(1,)), 32)
    memory = {s.name: s.dtype for s in every_statement(made.launches[0].body) if isinstance(s, Alloc)}
    assert {dtype.value for dtype in memory.values()} == {"f32", "f64"}
    short = expanded(reduced("sum", "rows", folds.BLOCK, axes=(1,)), 32)
    assert [s.dtype for s in every_statement(short.launches[0].body) if isinstance(s, Alloc)] == [DType.F32]


def test_blocks_change_nothing_where_order_does_not_matter():
    for monoid, dtype in (("max", F32), ("sum", I32), ("argmax", F32)):
        made = expanded(reduced(monoid, "rows", "n", axes=(1,), dtype=dtype), 32)
        assert not any("block" in name for name in loops(made))


def test_a_fold_in_blocks():
    fold = Fold("sum", (("#r", N),), (), load("x", "#r"), F32)
    count, (length,), block = in_blocks(fold, 8, "#b")
    assert count == (N + 7) // 8
    assert [length.value.dim.evaluate({"n": n, "#b": b}) for n, b in ((8, 0), (9, 1), (20, 2))] == [8, 1, 4]
    assert block.loops == (("#r", Dim.of(length.name)),)
    assert block.value.index == (Dim.of("#r") + Dim.of("#b") * 8,)
    assert position(block) == Dim.of("#r") + Dim.of("#b") * 8


def test_a_fold_over_several_loops_in_blocks_of_the_outermost():
    fold = Fold("argmax", (("#r", N), ("#s", Dim.of(4))), (), load("x", Dim.of("#r") * 4 + Dim.of("#s")), DType.I64)
    count, _, block = in_blocks(fold, 12, "#b")
    assert count == (N + 2) // 3
    assert [extent for _, extent in block.loops[1:]] == [Dim.of(4)]
    assert position(block) == (Dim.of("#b") * 3 + Dim.of("#r")) * 4 + Dim.of("#s")


def test_a_size_that_divides_needs_no_minimum():
    fold = Fold("sum", (("#r", Dim.of(64)),), (), load("x", "#r"), F32)
    _, length, block = in_blocks(fold, 16, "#b")
    assert length == ()
    assert block.loops == (("#r", Dim.of(16)),)


def test_states_have_a_part_for_each_name():
    for name in PLAIN:
        kind = min(MONOIDS[name].accepts)
        fold = Fold(name, (("#r", N),), (), Load("x", (Dim.of("#r"),), DTYPES[kind][0]), F32)
        for wide in (False, True):
            state = state_of(fold, "y", wide=wide)
            assert len(state.names) == len(set(state.names)) == len(state.dtypes)
            assert len(state.memory(4)) == len(state.names)


def test_a_total_can_be_stored_instead_of_finished():
    fold = Fold("variance", (("#r", N),), (), load("x", "#r"), F32)
    statements, state = total_of(fold, "v", 4, wide=True)
    outputs = [(name, F32, [1]) for name in ("count", "mean", "spread")]
    body = (*statements, Store(("count", "mean", "spread"), (Dim.of(0),), state.load(Dim.of(0))))
    x = np.arange(10, dtype=np.float32)
    got = run(check(kernel(*body, outputs=outputs)), [x])
    np.testing.assert_allclose(np.ravel(got), [10, 4.5, 82.5])


def test_a_state_is_cast_to_the_dtype_of_its_memory():
    fold = Fold("sum", (("#r", N),), (), load("x", "#r"), F32)
    state = state_of(fold, "y", wide=True)
    assert state.dtypes == (F64,)
    stored = state.store(Dim.of(0), (Var("a", F32),), merge=True)
    assert stored.values == (Call("cast", (Var("a", F32),), F64),)
    assert state.result(Dim.of(0), F32).dtype is F32
    assert state.empty(Dim.of(0)).values[0].dtype is F64


def test_the_body_of_a_fold_goes_with_it():
    """What a fold stores by the way is stored once for each value."""
    fold = Fold("sum", (("#r", N),), (store("z", load("x", "#r"), "#r"),), call("negative", load("x", "#r")), F32)
    body = (Let("a", fold), store("y", Var("a", F32), 0))
    made = kernel(*body, outputs=[("y", F32, [1]), ("z", F32, ["n"])])
    for lanes in (1, 4):
        x = np.arange(11, dtype=np.float32)
        total, copy = run(check(with_bodies(made, lambda body, lanes=lanes: expand_folds(body, lanes))), [x])
        assert total == [-55]
        np.testing.assert_array_equal(copy, x)


@pytest.mark.parametrize("value", [1.0, 0.1, 0.7])
def test_the_error_of_a_sum_of_equal_numbers_stays_small(value, monkeypatch):
    """Each addition to a growing float32 sum of equal numbers rounds the same way."""
    monkeypatch.setattr(folds, "BLOCK", 128)
    graph = reduced("sum", "n")
    made = expanded(graph, 4)
    x = np.full(20000, value, np.float32)
    truth = evaluate(graph, {"x": x}, wide=True)[graph.outputs[0]]
    error = abs(float(run(made, [x])[0]) - truth) / truth
    assert error <= 8 * 2.0**-24
    serial = float(np.cumsum(x, dtype=np.float32)[-1])
    assert value == 1.0 or abs(serial - truth) / truth > 10 * error


def test_streamed_rows_of_a_softmax_in_any_order():
    graph = softmax()
    made = expanded(graph, 4)
    inputs = inputs_of(graph, {"rows": 4, "n": 9})
    results = {run(made, in_order(made, inputs), seed=seed)[0].tobytes() for seed in range(5)}
    assert len(results) == 1


@pytest.mark.parametrize(("extent", "lanes"), [("n", 16), (100, 16), (8, 8), (511, 16), (512, 32), (4096, 32)])
def test_as_many_lanes_as_suit_the_length(extent, lanes):
    """More lanes take longer to merge than a short row takes; unknown rows may be short."""
    assert lanes_of(expanded(reduced("sum", "rows", extent, axes=(1,)), 0)) == lanes


@pytest.mark.parametrize(("extent", "lanes"), [("n", 32), (100, 32), (8, 8), (31, 16)])
def test_what_chooses_between_values_has_many_lanes(extent, lanes):
    """The compiler vectorises it with those alone."""
    made = with_bodies(nan_apart(flat(reduced("max", "rows", extent, axes=(1,)))), lambda body: expand_folds(body, 0))
    assert lanes_of(made) == lanes


def lanes_of(kernel):
    return max(s.shape[0].constant for s in every_statement(kernel.launches[0].body) if isinstance(s, Alloc))


def _exps(made):
    """How often an exp is spelt."""
    found = [each for launch in made.launches for each in every_statement(launch.body)]
    return sum(
        isinstance(each, Let) and isinstance(each.value, Call) and each.value.function == "exp" for each in found
    )
