"""Hints of launches on a GPU, as a schedule sets them."""

from __future__ import annotations

import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.ir.loops import Hints
from tests.compiler.schedules.groups import log_softmax, reduced, rotary
from tests.jobs.check.groups import one_map, quantise, rms_norm, softmax


def hints_of(graph):
    return [launch.hints for launch in on_gpu(lower(graph, "k")).launches]


@pytest.mark.parametrize(("dtype", "is_loose"), [(DType.F16, True), (DType.BF16, True), (DType.F32, False)])
def test_values_that_are_rounded_to_halves_may_be_loose(dtype, is_loose):
    assert {hints.is_loose for hints in hints_of(one_map("exp", dtype))} == {is_loose}
    assert {hints.is_loose for hints in hints_of(log_softmax(dtype=dtype))} == {is_loose}


def test_what_jumps_is_not_loose():
    assert not any(hints.is_loose for hints in hints_of(one_map("floor", DType.F16)))
    assert not any(hints.is_loose for hints in hints_of(quantise()))


def test_a_map_of_cells_that_rows_have_in_common_keeps_them_in_the_cache():
    assert any(hints.shares_inputs for hints in hints_of(rotary()))
    assert hints_of(one_map("exp")) == [Hints()]


def test_rows_are_passed_over_or_loaded_again():
    """One that fits into a tile is loaded once more to write with; a longer one, in tiles, is read in two passes."""
    reloads = [hints.reload for hints in hints_of(rms_norm()) if hints.reload is not None]
    assert {(reload.tile, reload.cell_bytes) for reload in reloads} == {(rows.ROW, 4)}
    passes = [loops for hints in hints_of(rms_norm()) for _, loops in hints.passes]
    assert max(map(len, passes)) == 2
    assert not any(hints.reload for hints in hints_of(softmax()) if hints.passes)


def test_states_of_columns_are_left_for_a_later_launch():
    first, second = hints_of(reduced("sum", "rows", "n", axes=(0,)))
    assert first.reads_once
    assert not second.reads_once
    assert not first.follows
    assert second.follows
