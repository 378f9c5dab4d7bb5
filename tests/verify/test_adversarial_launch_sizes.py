"""Sizes at which kernels run that do not at usual ones."""

from __future__ import annotations

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.ir.loops import Kernel
from noyau.verify.adversarial import MOST_CELLS, covering
from noyau.verify.awkward_sizes import usual_sizes
from tests.jobs.check.groups import F32, Group, rms_norm, softmax


def made(rows="rows", columns="n") -> tuple[Kernel, dict[str, int]]:
    graph = softmax(rows, columns)
    return on_gpu(lower(graph, "kernel")), usual_sizes(graph, {})


def covered(called, rows="rows", columns="n", most=MOST_CELLS):
    kernel, usual = made(rows, columns)
    return covering([kernel], softmax(rows, columns), [usual], called, most)


def test_the_launches_of_a_call_run_at_some_sizes():
    assert covered({"rows": 500, "n": 100}) == []
    assert covered({"rows": 4, "n": 50257}) == [{"rows": 2, "n": 8193}]
    assert covered({"rows": 500, "n": 50257}) == covered({"rows": 1, "n": 1 << 20}) == [{"rows": 2, "n": 524289}]


def test_rows_of_several_axes_are_one_along_some_where_they_are_long():
    g = Group()
    shape = ("batch", "rows", "n")
    x = g.input("x", F32, *shape)
    g.map("subtract", x, g.expand(g.reduce("max", x), shape))
    kernel, usual = on_gpu(lower(g.graph(), "kernel")), usual_sizes(g.graph(), {})
    called = {"batch": 8, "rows": 512, "n": 50257}
    assert covering([kernel], g.graph(), [usual], called) == [{"batch": 2, "rows": 1, "n": 524289}]


def test_rows_that_follow_each_other_at_multiples_of_16_bytes_are_some_of_them():
    graph = rms_norm()
    kernel = on_gpu(lower(graph, "kernel"))
    found = covering([kernel], graph, [usual_sizes(graph, {})], {"rows": 500, "n": 128256})
    assert found == [{"rows": 2, "n": 524304}]


def test_without_a_call_every_launch_is_covered_that_no_other_sizes_run():
    assert covered(None) == [{"rows": 2, "n": 8193}, {"rows": 2, "n": 524289}]
    kernel, usual = made()
    tried = [{"rows": 1, "n": 10000}]
    assert covering([kernel], softmax(), [usual, *tried]) == [{"rows": 2, "n": 524289}]
    assert covering([kernel], softmax(), tried) == [{"rows": 2, "n": 2}, {"rows": 2, "n": 524289}]


def test_launches_that_take_too_much_are_left_out():
    assert covered({"rows": 500, "n": 50257}, most=1 << 16) == []


def test_sizes_that_are_known_stay():
    assert covered({"rows": 500}, columns=100) == []
    assert covered({"rows": 500}, columns=20000, most=1 << 22) == [{"rows": 129}]


def test_a_call_of_sizes_that_are_not_known_has_no_launches():
    assert covered({}) == []
