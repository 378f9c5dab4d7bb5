from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.compiler.schedules.cpu.folds import (
    are_alike,
    expand_together,
    fuse,
    in_one_pass,
    lets_of_folds,
    part_folds,
)
from noyau.compiler.schedules.cpu.strategies import columns
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.compiler.schedules.primitives import chain
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.graph import Reduce
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Call, Fold, Let, Loop, Role, Var
from noyau.ir.walk import every_statement
from tests.batching import build_many
from tests.compiler.schedules.groups import assert_keeps, flat, in_order, inputs_of, lowered
from tests.jobs.check.groups import F32, Group
from tests.judged import Judge
from tests.nests import N, call, load, loop, store


def gradients(dtype=F32, shape=("rows", "n"), axes=(0,)):
    """What a norm gives back to its bias and weight, and the largest of its squares: sums over one array and two."""
    g = Group()
    x, y = g.input("x", dtype, *shape), g.input("y", dtype, *shape)
    left = tuple(dim for at, dim in enumerate(shape) if at not in axes)
    product = g.map("multiply", x, y)
    outputs = [g.add(Reduce("sum", axes), [value], dtype, left) for value in (x, product)]
    return g.graph(*outputs, g.add(Reduce("max", axes), [g.map("multiply", y, y)], dtype, left))


@pytest.mark.parametrize(("shape", "axes"), [(("rows", "n"), (0,)), (("a", "rows", "n"), (0, 1))])
@pytest.mark.parametrize(("width", "rows"), [(4, 4), (16, 3), (64, 1000)])
def test_columns_of_several_folds(width, rows, shape, axes):
    graph = gradients(shape=shape, axes=axes)
    made = check(columns(flat(graph), width=width, rows=rows))
    assert_keeps(graph, made, *({"a": 2, "rows": m, "n": n} for m, n in ((1, 5), (4, 4), (9, 17), (3, 0))))


def test_one_pass_over_the_rows():
    """One loop over the rows of a block and one over the blocks, whatever the number of folds."""
    made = schedule(lowered(gradients()))
    assert len(made.launches) == 2
    for launch in made.launches:
        serial = [s for s in every_statement(launch.body) if isinstance(s, Loop) and s.axis is Axis.SERIAL]
        assert len(serial) == 1
    assert len(made.of(Role.SCRATCH)) == 4  # of max, whether there was a NaN too


def test_in_c_in_any_pieces():
    graphs = [gradients(dtype) for dtype in (F32, DType.BF16)]
    kernels = [replace(schedule(lowered(graph)), name=f"k{k}") for k, graph in enumerate(graphs)]
    for graph, made, native in zip(graphs, kernels, build_many(kernels), strict=True):
        for rows, n in ((1, 64), (256, 65), (257, 1), (700, 2050)):
            inputs = inputs_of(graph, {"rows": rows, "n": n})
            arrays = in_order(made, inputs)
            got = native.call_guarded(*arrays)
            for name, result in zip(graph.outputs, got, strict=True):
                assert Judge(graph, inputs).wrong(name, result) is None
            again = native.call_guarded(*arrays, pieces=5, order=lambda count: range(count)[::-1])
            assert all(np.array_equal(*pair) for pair in zip(got, again, strict=True))


def total(value, name, extent="rows"):
    return Let(name, Fold("sum", (("#r", Dim.of(extent)),), (Let("x_i", value),), Var("x_i", F32), F32))


def test_what_is_alike():
    one, other = total(load("x", "#r"), "one"), total(load("y", "#r"), "other")
    assert are_alike((one, other))
    assert not are_alike((one, total(load("y", "#r"), "other", extent="n")))
    assert not are_alike((one, total(Var("one", F32), "other")))
    assert are_alike((one, store("y", Var("one", F32), 0), other))
    late = Let("late", Call("negative", (Var("one", F32),), F32))
    assert not are_alike((one, late, total(Var("late", F32), "other")))
    found = part_folds((Let("early", load("y", 0)), one, late, other))
    assert [s.name for part in found for s in part] == ["early", "one", "other", "late"]
    assert [let.name for let in lets_of_folds((one, store("y", Var("one", F32), 0), other))] == ["one", "other"]


def test_names_of_other_values_are_other_names():
    """Both folds call what they read x_i; the second one reads something else."""
    one, other = total(load("x", "#r"), "one"), total(load("y", "#r"), "other")
    again = total(load("x", "#r"), "again")
    made = expand_together((one, other, again))
    (rows,) = [s for s in made if isinstance(s, Loop)]
    lets = [s for s in rows.body if isinstance(s, Let)]
    assert [(let.name, let.value.buffer) for let in lets] == [("x_i", "x"), ("x_i_2", "y")]
    assert [s.name for s in made if isinstance(s, Let)] == ["one", "other", "again"]


def test_loops_within_loops_are_joined_too():
    inner = loop("#j", "n", store("y", Var("a", F32), 0))
    parts = [(loop("#i", "n", inner),), (loop("#k", "n", loop("#l", "n", store("z", Var("b", F32), 0))),)]
    (whole,) = in_one_pass(parts)
    assert [each.var for each in chain((whole,))[0]] == ["#i", "#j"]
    assert whole.extent == N
    assert in_one_pass([(store("y", Var("a", F32), 0),), (inner,)]) == (store("y", Var("a", F32), 0), inner)


def test_names_that_two_bodies_have_the_other_way_round_are_not_mixed_up():
    one, other, first, second = load("x", 0), load("x", 1), Var("a", F32), Var("b", F32)
    ends = store("y", call("subtract", first, second), 0), store("y", call("subtract", first, second), 1)
    bodies = [(Let("a", one), Let("b", other), ends[0]), (Let("a", other), Let("b", one), ends[1])]
    assert fuse(bodies) == (*bodies[0], store("y", call("subtract", second, first), 1))


def test_a_place_that_two_bodies_look_up_has_one_name_in_what_reads_by_it_too():
    bodies = [(Let(at, load("k", 0)), store("y", load("x", at), row)) for row, at in enumerate(("#at", "#at_2"))]
    assert fuse(bodies) == (*bodies[0], store("y", load("x", "#at"), 1))


def test_sums_along_columns_of_what_one_place_looks_up_in_two_arrays_are_right():
    def mean(x, w, k):
        return np.sum(x[k] * w[k], axis=1) / np.sum(w[k], axis=1)

    rng = np.random.default_rng(0)
    x, w, k = rng.random(9), rng.random(9) + 1, np.asfortranarray(rng.integers(-9, 9, (5, 7)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(noyau.op(mean)(x, w, k), mean(x, w, k), rtol=1e-14)


@pytest.mark.parametrize("count", [2, 3])
def test_arrays_whose_cells_take_turns_in_a_row_of_known_length(count):
    def turns(x, y, z):
        out = np.empty((len(x), 16 * count), np.float32)
        for at, each in enumerate((x, y, z)[:count]):
            out[:, at::count] = each
        return out

    op = noyau.op(f"f32[rows, 16], f32[rows, 16], f32[rows, 16] -> f32[rows, {16 * count}]")(turns)
    arrays = np.random.default_rng(0).standard_normal((3, 5, 16)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a kernel that is wrong, and left to the reference
        assert np.array_equal(op(*arrays), turns(*arrays))
