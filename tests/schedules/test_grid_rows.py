"""Rows on a GPU: how many lie side by side in a program, with how many warps, and what rounds around them share."""

from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.dispatching.generating import Wanted, generate
from noyau.dispatching.layouts import PACKED
from noyau.dtypes import DType
from noyau.ir.loops import Loop
from noyau.ir.running import run
from noyau.ir.walk import every_statement
from noyau.ir.wellformed import check
from noyau.lowering.nest import lower
from noyau.passes.normal import normalise
from noyau.schedules.grid import on_gpu
from noyau.schedules.grid_tiles import tiles_in
from tests.checking.groups import layer_norm, rms_norm, softmax
from tests.schedules.groups import residual_rms_norm, rotary


def kernel_of(graph):
    return check(on_gpu(lower(normalise(graph), "kernel")))


def names_of(launch):
    return [tile.name for tile in tiles_in(launch.body)]


@pytest.mark.parametrize(
    ("graph", "warps"), [(rms_norm(), -1), (softmax(), -1), (residual_rms_norm(), -1), (layer_norm(), 0)]
)
def test_more_warps_where_one_fold_or_what_is_dear_waits_for_a_row(graph, warps):
    (kept,) = [launch for launch in kernel_of(graph).launches if "COLUMNS" in names_of(launch)]
    assert next(tile.warps for tile in tiles_in(kept.body) if tile.name == "ROWS") == warps


@pytest.mark.parametrize(("graph", "cells"), [(rms_norm(), 16384), (residual_rms_norm(), 32768)])
def test_several_long_rows_at_once_are_read_in_larger_tiles(graph, cells):
    assert next(t.number for t in tiles_in(kernel_of(graph).launches[-1].body) if t.how == "grows") == cells


@pytest.mark.parametrize(
    ("graph", "cells"),
    [
        (rms_norm(), 1 << 17),
        (layer_norm(), 1 << 17),
        (softmax(), 0),
        (residual_rms_norm(), 0),
        (rms_norm(dtype=DType.F64), 0),
    ],
)
def test_the_longest_rows_of_one_array_are_read_in_tiles_of_twice_as_many_cells(graph, cells):
    """As many as a thread has registers for: not where exp is computed again, nor of several arrays, nor of float64."""
    assert next(t.twice for t in tiles_in(kernel_of(graph).launches[-1].body) if t.name == "BLOCK") == cells


def test_what_two_rounds_read_alike_is_loaded_once():
    """Heads of an attention, which are turned by the same angles."""
    (launch,) = kernel_of(rotary()).launches
    assert "OUTER" in names_of(launch)


@noyau.op("f32[heads, n, 2*k], f32[n, 2*k] -> f32[heads, n, 2*k]")
def halves_swapped(x, table):
    half = x.shape[-1] // 2
    return np.concatenate([x[..., half:], x[..., :half]], -1) * table


def test_rounds_are_taken_together_where_rows_begin_at_multiples_of_16_bytes():
    instance = halves_swapped.usual((DType.F32, DType.F32), (3, 2))
    wanted = Wanted(instance, halves_swapped.description.reference.constants, layouts=(PACKED, PACKED))
    (kernel,) = generate(halves_swapped.description, wanted, "triton").program.kernels
    assert ["OUTER" in names_of(launch) for launch in kernel.launches] == [True, False, False]
    sizes = {"fits": 8, "shares": 2, "aligns": 4, "grows": 4}
    numbers = {str(t.size): sizes[t.how] for launch in kernel.launches for t in tiles_in(launch.body)}
    numbers |= {str(t.size): 2 for t in tiles_in(kernel.launches[0].body) if t.name == "OUTER"}
    noise = np.random.default_rng(0)
    for heads, n, k in ((3, 5, 8), (1, 1, 16), (2, 3, 6)):
        x, table = (noise.standard_normal(shape).astype(np.float32) for shape in ((heads, n, k), (n, k)))
        (got,) = run(kernel, [x, table], seed=heads, sizes=numbers)
        assert np.array_equal(got, np.concatenate([x[..., k // 2 :], x[..., : k // 2]], -1) * table)


def test_what_is_stored_of_several_pieces_is_stored_last():
    """A load behind a store would wait for it."""
    (launch,) = kernel_of(rotary()).launches
    cells = [s for s in every_statement(launch.body) if isinstance(s, Loop)][-1].body
    kinds = [type(s).__name__ for s in cells]
    assert kinds == sorted(kinds) == ["Let"] * kinds.count("Let") + ["Store"] * 2
