"""Sizes at which kernels run that do not at usual ones."""

from __future__ import annotations

from noyau.checking.adversarial import usual_sizes
from noyau.checking.launches import MOST_CELLS, covering, runs
from noyau.ir.loops import Kernel
from noyau.lowering.nest import lower
from noyau.schedules.grid import on_gpu
from tests.checking.groups import softmax


def made(rows="rows", columns="n") -> tuple[Kernel, dict[str, int]]:
    graph = softmax(rows, columns)
    return on_gpu(lower(graph, "kernel")), usual_sizes(graph, {})


def covered(kernel, usual, rows="rows", columns="n", most=MOST_CELLS):
    return covering([kernel], usual, softmax(rows, columns), most)


def test_each_launch_runs_at_some_sizes():
    kernel, usual = made()
    found = covered(kernel, usual)
    assert found == [{"rows": 2, "n": 8193}, {"rows": 2, "n": 524289}]
    for launch in kernel.launches:
        assert sum(runs(launch.when, sizes) for sizes in (usual, *found)) == 1


def test_launches_that_take_too_much_are_left_out():
    assert covered(*made(), most=1 << 16) == [{"rows": 2, "n": 8193}]


def test_sizes_that_are_known_stay():
    kernel, usual = made("rows", 100)
    assert covered(kernel, usual, columns=100) == []
    kernel, usual = made("rows", 20000)
    assert covered(kernel, usual, columns=20000, most=1 << 22) == [{"rows": 129}]


def test_what_sizes_do_not_say_does_not_run():
    kernel, _ = made()
    assert not any(runs(launch.when, {}) for launch in kernel.launches)
