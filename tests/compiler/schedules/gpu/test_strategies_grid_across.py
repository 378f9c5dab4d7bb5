"""Rows that lie across memory on a GPU, such as columns: side by side in a tile, or a launch for each pass."""

from __future__ import annotations

import numpy as np
import pytest

import noyau
from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.schedules.gpu import strategies
from noyau.dtypes import DType
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Loop, TilePolicy, runs
from noyau.ir.walk import every_statement, folds_in
from noyau.kernels.programs.generate import Specialization, generate
from tests.compiler.schedules.groups import tile_sizes


@noyau.op("f64[n, m] -> f64[n, m]")
def softmax_of_columns(x):
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


@noyau.op("f64[k, n, m] -> f64[k, n, m]")
def standard(x):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + 1)


@noyau.op("f64[n, m] -> f64[n, m]")
def between(x):
    return (x - x.min(0)) / (x.max(0) - x.min(0) + 1)


@noyau.op("f64[n, m] -> f64[m, n]")
def turned_softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).T


def used(op, rank):
    wanted = Specialization(op.usual((DType.F64,), (rank,)), op.description.reference.constants, layouts=(PACKED,))
    (kernel,) = generate(op.description, wanted, "triton").program.kernels
    return check(kernel)


SIZES = {TilePolicy.COVERING: 32, TilePolicy.SHARING: 2, TilePolicy.ALIGNMENT: 2, TilePolicy.LIMITED: 4}


@pytest.mark.parametrize(("many", "tall"), [(0, 0), (1 << 20, 0), (0, 1 << 10)])
@pytest.mark.parametrize("op", [softmax_of_columns, standard, between, turned_softmax], ids=lambda op: op.name)
def test_rows_across_memory_are_right_in_one_launch_and_in_several(op, many, tall, monkeypatch):
    monkeypatch.setattr(strategies, "MANY", many)
    monkeypatch.setattr(strategies, "HIGH", tall)
    monkeypatch.setattr(strategies, "SMALL", 30)
    monkeypatch.setattr(strategies, "TALL", 4)
    rank = 3 if op is standard else 2
    kernel = used(op, rank)
    for shape in ((5, 7), (1, 1), (3, 20), (9, 2)):
        x = np.random.default_rng(shape[1]).normal(size=(2, *shape)[-rank:])
        (got,) = run(kernel, [x], seed=shape[0], sizes=tile_sizes(kernel, SIZES))
        np.testing.assert_allclose(got, op.reference(x), rtol=1e-12)


@pytest.mark.parametrize(("op", "levels"), [(softmax_of_columns, 2), (between, 1), (turned_softmax, 2)])
def test_large_ones_have_a_launch_for_each_level_of_folds(op, levels):
    """Programs have neighbours side by side, so that they read whole lines."""
    kernel, sizes = used(op, 2), {"n": 4096, "m": 4096}
    ran = [launch for launch in kernel.launches if launch.when is None or runs(launch.when, sizes)]
    across = op is not turned_softmax
    tiles = [{s.var for s in every_statement(launch.body) if isinstance(s, Loop) and s.tile} for launch in ran]
    folds = [launch for launch, own in zip(ran, tiles, strict=True) if any("lane" in name for name in own)]
    assert len(folds) == (2 * levels if across else levels)  # of chunks, and of their states
    assert not folds_in(ran[-1].body)
    assert all(any(s.axis is Axis.THREADS for s in launch.body if isinstance(s, Loop)) for launch in ran)


def test_few_cells_are_one_launch():
    kernel = used(softmax_of_columns, 2)
    for sizes in ({"n": 64, "m": 100}, {"n": 1000, "m": 500}, {"n": 200, "m": 1 << 20}, {"n": 1024, "m": 4096}):
        assert sum(launch.when is None or runs(launch.when, sizes) for launch in kernel.launches) == 1
