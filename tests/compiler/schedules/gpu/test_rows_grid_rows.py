"""Rows on a GPU: how many lie side by side in a program, with how many warps, and what rounds around them share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.dtypes import DType
from noyau.ir.dims import DimOp
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop, TilePolicy, runs
from noyau.ir.walk import every_statement, loads_of, on_threads
from noyau.kernels.programs.generate import Specialization, generate
from tests.compiler.schedules.groups import residual_rms_norm, rotary, tile_sizes
from tests.jobs.check.groups import layer_norm, rms_norm, softmax


def kernel_of(graph):
    return check(on_gpu(lower(normalise(graph), "kernel")))


def used(op, *ranks):
    """The kernel of an op on float32."""
    instance = op.usual((DType.F32,) * len(ranks), ranks)
    wanted = Specialization(instance, op.description.reference.constants, layouts=(PACKED,) * len(ranks))
    (kernel,) = generate(op.description, wanted, "triton").program.kernels
    return kernel


def names_of(launch):
    return [tile.name for tile in launch.tiles]


@pytest.mark.parametrize(
    ("graph", "factor"), [(rms_norm(), 2), (softmax(), 2), (residual_rms_norm(), 2), (layer_norm(), 1)]
)
def test_more_warps_where_one_fold_or_what_is_dear_waits_for_a_row(graph, factor):
    (kept,) = [launch for launch in kernel_of(graph).launches if "COLUMNS" in names_of(launch)]
    assert next(tile.warp_factor for tile in kept.tiles if tile.name == "ROWS") == factor


@pytest.mark.parametrize(("graph", "cells"), [(rms_norm(), 16384), (residual_rms_norm(), 32768)])
def test_several_long_rows_at_once_are_read_in_larger_tiles(graph, cells):
    assert next(t.number for t in kernel_of(graph).launches[-1].tiles if t.policy is TilePolicy.GROWING) == cells


@pytest.mark.parametrize(("graph", "cells"), [(layer_norm(), 1 << 17), (softmax(), 0), (residual_rms_norm(), 0)])
def test_the_longest_rows_of_two_folds_are_read_in_tiles_of_twice_as_many_cells(graph, cells):
    """As many as a thread has registers for: not where exp is computed again, nor of several arrays."""
    assert next(t.doubled_from for t in kernel_of(graph).launches[-1].tiles if t.name == "BLOCK") == cells


@pytest.mark.parametrize(
    ("graph", "held"),
    [(rms_norm(), 1), (layer_norm(), 0), (residual_rms_norm(), 0), (softmax(), 0), (rms_norm(dtype=DType.F64), 0)],
)
def test_the_longest_rows_of_one_fold_hold_a_tile(graph, held):
    """Not of several arrays, nor of float64: there are no registers for as much of them."""
    launches = [launch for launch in kernel_of(graph).launches if rows.HELD in launch.tiles]
    assert len(launches) == held
    assert not any("ALIGN" in names_of(launch) for launch in launches)  # each row begins at a multiple of 16 bytes


@pytest.mark.parametrize(
    ("columns", "held"), [(32768, 0), (49152, 0), (50304, 1), (50257, 0), (65536, 0), (65552, 1), (131072, 1)]
)
def test_rows_of_full_tiles_that_stay_nearby_hold_none(columns, held):
    kernel, sizes = used(times_square, 2), {"n": 500, "m": columns}
    ran = [launch for launch in kernel.launches if launch.when is not None and runs(launch.when, sizes)]
    assert [rows.HELD in launch.tiles for launch in ran] == [held]


SIZES = {
    TilePolicy.COVERING: 32,
    TilePolicy.FIXED: 8,
    TilePolicy.SHARING: 2,
    TilePolicy.OCCUPYING: 4,
    TilePolicy.ALIGNMENT: 4,
    TilePolicy.GROWING: 4,
}


def ran(kernel, *inputs):
    """The result of tiles of a few cells."""
    numbers = tile_sizes(kernel, SIZES)
    (got,) = run(kernel, inputs, seed=inputs[0].size, sizes=numbers)
    return got


@noyau.op("f32[n, m] -> f32[n, m]")
def times_square(x):
    return x * (x * x).sum(-1, keepdims=True)


@pytest.mark.parametrize("n", [0, 4, 8, 12, 13, 20])
def test_the_last_tile_of_the_longest_rows_is_on_its_own(n, monkeypatch):
    monkeypatch.setattr(rows, "KEPT", 0)
    monkeypatch.setattr(rows, "FEWEST", 1)
    monkeypatch.setattr(rows, "NEAR", 0)
    kernel = used(times_square, 2)
    serial = [s.extent for s in every_statement(kernel.launches[-2].body) if isinstance(s, Loop)]
    assert sum(str(extent).endswith("_full") for extent in serial) == 2  # of both passes
    x = np.random.default_rng(n).integers(-3, 4, (3, n)).astype(np.float32)
    assert np.array_equal(ran(kernel, x), x * (x * x).sum(-1, keepdims=True))


@noyau.op("f32[n, m], f32[n, k] -> f32[n, k]")
def scaled(x, y):
    return y * (x * x).sum(-1, keepdims=True)


@pytest.mark.parametrize("k", [0, 3])
def test_a_last_tile_is_on_its_own_only_where_every_loop_has_cells(k, monkeypatch):
    """Long rows, and what is written beside them, of another length, which may be 0."""
    monkeypatch.setattr(rows, "KEPT", 8)
    monkeypatch.setattr(rows, "FEWEST", 9)
    monkeypatch.setattr(rows, "NEAR", 0)
    x, y = (np.random.default_rng(k).integers(-3, 4, (2, n)).astype(np.float32) for n in (16, k))
    assert np.array_equal(ran(used(scaled, 2, 2), x, y), y * (x * x).sum(-1, keepdims=True))


@noyau.op("f32[heads, n, 2*k], f32[n, 2*k] -> f32[heads, n, 2*k]")
def halves_swapped(x, table):
    half = x.shape[-1] // 2
    return np.concatenate([x[..., half:], x[..., :half]], -1) * table


def test_rows_that_read_cells_in_common_follow_each_other():
    """Rows of all heads, which are turned by the same angles: where they lie needs no division, except as one run."""
    kernel = used(halves_swapped, 3, 2)
    of_rows = [launch for launch in kernel.launches if rows.RUN not in launch.tiles]
    assert len(of_rows) == len(kernel.launches) - 1
    for launch in of_rows:
        assert sum("n" in loop.extent.names for loop in on_threads(launch.body)[1]) == 1
        places = {load.index for load in loads_of(launch.body) if load.buffer == "x"}
        assert places
        assert not any(isinstance(atom, DimOp) for (at,) in places for atoms, _ in at.terms for atom in atoms)
    numbers = tile_sizes(kernel, SIZES | {TilePolicy.COVERING: 16, TilePolicy.LIMITED: 4})
    noise = np.random.default_rng(0)
    for heads, n, k in ((3, 5, 8), (1, 1, 16), (2, 3, 6), (0, 2, 4), (2, 0, 4)):
        x, table = (noise.standard_normal(shape).astype(np.float32) for shape in ((heads, n, k), (n, k)))
        (got,) = run(kernel, [x, table], seed=heads, sizes=numbers)
        assert np.array_equal(got, np.concatenate([x[..., k // 2 :], x[..., : k // 2]], -1) * table)


def test_what_is_stored_of_several_pieces_is_stored_last():
    """A load behind a store would wait for it."""
    (launch,) = kernel_of(rotary()).launches
    cells = [s for s in every_statement(launch.body) if isinstance(s, Loop)][-1].body
    kinds = [type(s).__name__ for s in cells]
    assert kinds == sorted(kinds) == ["Let"] * kinds.count("Let") + ["Store"] * 2


@noyau.op("f32[n, m], i64[n] -> f32[n, m]")
def named_cells(x, at):
    return np.where(np.arange(x.shape[1]) == at[:, None], x * x[np.arange(x.shape[0]), at][:, None], x)


def test_long_rows_without_folds_are_in_pieces_of_which_a_program_has_one():
    """A program for each row would leave most of a GPU idle where rows are few."""
    wanted = Specialization(named_cells.usual((DType.F32, DType.I64), (2, 1)), {}, layouts=(PACKED,) * 2)
    (kernel,) = generate(named_cells.description, wanted, "triton").program.kernels
    launch = kernel.launches[-1]
    assert [loop.var for loop in on_threads(launch.body)[1]] == ["#i0", "#piece"]
    assert not any(isinstance(s, Loop) and s.axis is Axis.SERIAL for s in every_statement(launch.body))
    assert not launch.hints.shares_inputs  # a number for each row is no tile of cells
    alone, noise = replace(kernel, launches=(replace(launch, when=None),)), np.random.default_rng(0)
    for n, m in ((3, 21), (1, 8), (5, 16)):
        x, at = noise.integers(-3, 4, (n, m)).astype(np.float32), noise.integers(0, m, n)
        (got,) = run(alone, [x, at], seed=m, sizes=tile_sizes(kernel, SIZES | {TilePolicy.LIMITED: 4}))
        assert np.array_equal(got, named_cells(x, at))
