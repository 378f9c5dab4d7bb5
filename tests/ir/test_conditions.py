"""Which launches of a kernel run at which sizes."""

from __future__ import annotations

import pytest

from noyau.ir.conditions import conditions_of, runs
from noyau.lowering.nest import lower
from noyau.schedules.grid import on_gpu
from tests.checking.groups import softmax


@pytest.mark.parametrize(("rows", "n"), [(5, 3), (2, 8193), (129, 8193), (129, 16385), (1, 1 << 20)])
def test_some_launches_run_at_any_sizes_and_not_all(rows, n):
    found = [runs(when, {"rows": rows, "n": n}) for when in conditions_of(on_gpu(lower(softmax(), "kernel")))]
    assert len(found) > 2
    assert 0 < sum(found) < len(found)


def test_what_sizes_do_not_say_does_not_run():
    kernel = on_gpu(lower(softmax(), "kernel"))
    assert not any(runs(when, {}) for when in conditions_of(kernel))
