"""How many unfused runs a case is judged by."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.errors import InputError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph, Input, Node, Opaque
from noyau.verify import judges, rounding
from noyau.verify.failures import Case
from noyau.verify.judges import FIRST_RUNS, MOVED_RUNS, judge_of
from noyau.verify.trial import certify
from tests.jobs.check import groups, kernels
from tests.jobs.check.groups import F32, Group

X = np.random.default_rng(0).standard_normal((24, 100)).astype(np.float32)


@pytest.fixture
def counted(monkeypatch):
    """The unfused runs that are rounded otherwise, as they are made."""
    made, run = [], rounding.otherwise_rounded

    def counting(*given):
        made.append(given)
        return run(*given)

    monkeypatch.setattr(rounding, "otherwise_rounded", counting)
    return made


def judge(graph, kernel, x=X):
    return certify(graph, lambda inputs: kernel(*inputs), [Case("it", (x,))], name="k")


def test_where_few_runs_allow_every_cell_they_are_enough(counted, monkeypatch):
    few = judge(groups.softmax(), kernels.softmax)
    assert few.ok and len(counted) == FIRST_RUNS
    monkeypatch.setattr(judges, "FIRST_RUNS", MOVED_RUNS)
    full = judge(groups.softmax(), kernels.softmax)
    assert len(counted) == FIRST_RUNS + MOVED_RUNS
    assert few.cells == full.cells and few.kernel == full.kernel
    assert few.worst_ratio >= full.worst_ratio  # few allow less


def test_where_they_do_not_all_are_made(counted, monkeypatch):
    def wrong(x):
        (made,) = kernels.softmax(x)
        made[3, 7] *= 1.01
        return [made]

    few = judge(groups.softmax(), wrong)
    assert not few.ok
    assert len(counted) > MOVED_RUNS  # a single cell has a second look
    monkeypatch.setattr(judges, "FIRST_RUNS", MOVED_RUNS)
    assert few.to_json() == judge(groups.softmax(), wrong).to_json()


def test_of_what_jumps_all_runs_are_seen(counted):
    assert judge(groups.one_map("floor"), lambda x: [np.floor(x)], X[0]).ok
    assert len(counted) == MOVED_RUNS


def test_what_overflowed_in_every_run_so_far_is_run_as_often_as_can_be(counted):
    """Until one is finite there, a cell may stray as far as any: more runs may allow less."""
    g = Group()
    x, y = g.input("x", F32, "n"), g.input("y", F32, "n")
    g.map("multiply", g.map("multiply", x, x), y)
    for size, runs in ((1e10, FIRST_RUNS), (1e30, FIRST_RUNS + MOVED_RUNS)):
        case = Case("it", (np.array([size], np.float32), np.array([1e-30], np.float32)))
        right = [np.array([size * size * 1e-30], np.float32)]
        assert certify(g.graph(), lambda _, right=right: right, [case], name="k").ok
        assert len(counted) == runs


@pytest.mark.filterwarnings("error")
def test_cells_without_a_finite_truth_do_not_tell_what_is_usual():
    node = groups.one_map("exp").nodes[-1]
    truth = np.array([np.inf, np.inf, np.inf, 1.0, 1.0])
    judge = judge_of(node, np.ones(5, np.float32), truth, np.zeros(5, bool), False, None)
    judge.see(np.array([np.inf, np.inf, np.inf, 1.001, 1.001], np.float32))
    before = judge.allowance()[3:]
    judge.see(np.array([9, 9, 9, 1, 1], np.float32))
    assert (judge.allowance()[3:] == before).all()
    assert judge.allowance()[0] > 8 * 9 * 0.0009  # as much as is usual


def test_what_is_looked_up_for_nothing_may_be_refused():
    """As NumPy refuses it."""
    graph = groups.embedding(11)
    given = Case("ids", (np.ones((11, 0), np.float32), np.array([99], np.int64)))

    def refusing(inputs):
        raise InputError("an index is outside the axis that it looks into")

    assert certify(graph, refusing, [given], name="k").ok
    assert not certify(
        graph, refusing, [Case("ids", (np.ones((11, 3), np.float32), np.array([1], np.int64)))], name="k"
    ).ok


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError])
def test_what_numpy_or_python_has_no_value_for_may_be_anything(error):
    def quotient(*arrays):
        try:
            raise error("of nothing")
        except error as fault:
            raise InputError(str(fault)) from fault

    value = Node("y", Opaque("quotient", quotient), ("x",), F32, shape_of(["n"]))
    graph = Graph((Node("x", Input(), (), F32, shape_of(["n"])), value), ("y",))
    assert certify(graph, lambda inputs: [inputs[0]], [Case("it", (np.ones(3, np.float32),))], name="k").ok
