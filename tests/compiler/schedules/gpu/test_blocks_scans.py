"""Scans on a GPU: in rounds of a block, in chunks of several, by threads side by side; each as the graph says."""

from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import blocks
from noyau.compiler.schedules.gpu.blocks import in_blocks, in_threads
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir.loops import runs
from noyau.ir.walk import extent_of
from tests.compiler.schedules.groups import assert_keeps, scanned


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Blocks of 32 threads with rounds of 96 floats, and of few rows three."""
    monkeypatch.setattr(blocks, "BLOCK", 32)
    monkeypatch.setattr(blocks, "GROUP", 8)
    monkeypatch.setattr(blocks, "OWN", 3)
    monkeypatch.setattr(blocks, "ROUNDS", 1)
    monkeypatch.setattr(blocks, "FEW_ROWS", 3)
    monkeypatch.setattr(blocks, "SHORT_ROW", 8)
    monkeypatch.setattr(blocks, "MANY_ROWS", 40)


def scheduled(graph):
    return in_blocks(lower(normalise(graph), "kernel"))


def launched(kernel, sizes):
    """The extents of the grids of the launches that run at some sizes."""
    each = [launch for launch in kernel.launches if launch.when is None or runs(launch.when, sizes)]
    return [int(extent_of(launch).evaluate(sizes)) for launch in each]


@pytest.mark.parametrize(
    ("monoid", "dtype", "exclusive", "reverse"),
    [
        ("sum", DType.F32, False, False),
        ("max", DType.F64, True, False),
        ("prod", DType.I32, False, True),
        ("sum", DType.BF16, True, True),
    ],
)
def test_rows(monoid, dtype, exclusive, reverse):
    graph = scanned(monoid, "rows", "n", axis=1, exclusive=exclusive, reverse=reverse, dtype=dtype)
    kernel = scheduled(graph)
    assert_keeps(normalise(graph), kernel, {"rows": 2, "n": 230}, {"rows": 4, "n": 110}, {"rows": 1, "n": 0})


def test_long_rows_of_few_go_to_several_blocks():
    kernel = scheduled(scanned("sum", "rows", "n", axis=1))
    assert launched(kernel, {"rows": 2, "n": 230}) == [6, 6]
    assert launched(kernel, {"rows": 2, "n": 96}) == [2]
    assert launched(kernel, {"rows": 4, "n": 230}) == [4]


def test_values_of_a_row_beside_its_running_result_are_computed_again():
    @noyau.op("f32[rows, n], f32[rows] -> f32[rows, n]")
    def weighted(x, w):
        return np.cumsum(x, axis=1) * np.sqrt(w)[:, None] / len(x)

    (step,) = weighted.generate("cuda").program.steps
    graph, kernel = step.graph, in_blocks(step.lowered)
    assert launched(kernel, {"rows": 2, "n": 230}) == [6, 6]
    assert_keeps(graph, kernel, {"rows": 2, "n": 230}, {"rows": 4, "n": 110})


def test_rows_that_lie_side_by_side_have_a_thread_each():
    graph = scanned("sum", "n", "columns", axis=0)
    kernel = scheduled(graph)
    assert launched(kernel, {"n": 230, "columns": 40}) == [2]
    assert_keeps(normalise(graph), kernel, {"n": 30, "columns": 40}, {"n": 5, "columns": 3})


def test_many_short_rows_have_a_thread_each():
    graph = scanned("sum", "rows", "n", axis=1, reverse=True)
    kernel = scheduled(graph)
    assert launched(kernel, {"rows": 41, "n": 8}) == [2]
    assert launched(kernel, {"rows": 40, "n": 8}) == [40]
    assert launched(kernel, {"rows": 41, "n": 9}) == [41]
    assert_keeps(normalise(graph), kernel, {"rows": 41, "n": 8}, {"rows": 70, "n": 1})


def test_for_people_who_read_the_launches_are_the_same():
    graph = scanned("sum", "rows", "n", axis=1)
    kernel = in_threads(lower(normalise(graph), "kernel"))
    assert len(kernel.launches) == 4
    assert_keeps(normalise(graph), kernel, {"rows": 2, "n": 230})


def test_two_running_results_are_no_row_of_one():
    @noyau.op("f32[n] -> f32[n]")
    def twice(x):
        return np.cumsum(np.maximum.accumulate(x))

    (step,) = twice.generate("c").program.steps
    with pytest.raises(UnsupportedError, match="no strategy for threads of a GPU carries a state along an axis yet"):
        in_blocks(step.lowered)
    assert len(twice.generate("cuda").program.steps) == 2
