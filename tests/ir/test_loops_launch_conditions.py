"""Which launches of a kernel run at which sizes."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.dims import Dim
from noyau.ir.loops import all_of, at_most, conditions_of, opposite, runs, when
from tests.jobs.check.groups import softmax


@pytest.mark.parametrize(("rows", "n"), [(5, 3), (2, 8193), (129, 8193), (129, 16385), (1, 1 << 20)])
def test_some_launches_run_at_any_sizes_and_not_all(rows, n):
    found = [runs(when, {"rows": rows, "n": n}) for when in conditions_of(on_gpu(lower(softmax(), "kernel")))]
    assert len(found) > 2
    assert 0 < sum(found) < len(found)


def test_what_sizes_do_not_say_does_not_run():
    kernel = on_gpu(lower(softmax(), "kernel"))
    assert not any(runs(when, {}) for when in conditions_of(kernel))


def test_what_is_known_asks_no_size():
    n, four = Dim.of("n"), Dim.of(4)
    asked = at_most(n, four)
    assert at_most(four, four) is True
    assert at_most(n + 1, n) is False
    assert all_of(()) is True
    assert all_of((asked, False)) is False
    assert all_of((True, asked, asked)) == asked
    assert when(True) is None
    with pytest.raises(ValueError, match="never runs"):
        when(False)


@pytest.mark.parametrize(("n", "holds"), [(2, False), (3, True), (4, True), (5, False)])
def test_what_is_asked_holds_by_size(n, holds):
    between = all_of((at_most(Dim.of(3), Dim.of("n")), at_most(Dim.of("n"), Dim.of(4))))
    assert runs(when(between), {"n": n}) is holds
    assert runs(when(opposite(between)), {"n": n}) is not holds
