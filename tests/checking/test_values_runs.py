"""How many unfused runs are made, and what each lets the next one allow."""

from __future__ import annotations

import numpy as np

from noyau.checking import values
from noyau.checking.rounding import otherwise_rounded
from noyau.checking.values import Case
from tests.checking import groups
from tests.checking.groups import F32, Group


def test_what_overflowed_in_every_run_so_far_is_run_as_often_as_can_be(monkeypatch):
    """Until one is finite there, a cell may stray as far as any: more runs allow less."""
    made = []
    monkeypatch.setattr(values, "otherwise_rounded", lambda *given: made.append(1) or otherwise_rounded(*given))
    g = Group()
    x, y = g.input("x", F32, "n"), g.input("y", F32, "n")
    g.map("multiply", g.map("multiply", x, x), y)
    for size, runs in ((1e10, 2), (1e30, 8)):
        given = np.array([size], np.float32), np.array([1e-30], np.float32)
        kernel = [np.float32([size * size * 1e-30])]
        assert values.certify(g.graph(), lambda _, kernel=kernel: kernel, [Case("it", given)], name="k").ok
        assert len(made) == runs
        made.clear()


def test_cells_without_a_finite_truth_do_not_tell_what_is_usual():
    node = groups.one_map("exp").nodes[-1]
    truth = np.array([np.inf, np.inf, np.inf, 1.0, 1.0])
    judged = values.judge_of(node, np.ones(5, np.float32), truth, np.zeros(5, bool), False)
    with np.errstate(invalid="ignore"):
        judged.see(np.float32([np.inf, np.inf, np.inf, 1.001, 1.001]))
        before = judged.allowed()[3:]
        judged.see(np.float32([9, 9, 9, 1, 1]))
    assert (judged.allowed()[3:] == before).all()
    assert judged.allowed()[0] > 8 * 9 * 0.0009  # as much as is usual
