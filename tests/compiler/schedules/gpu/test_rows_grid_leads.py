"""Rows that begin at any cell: tiles begin before them, where 16 bytes do, and compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import rows
from noyau.compiler.schedules.gpu.rows import strides_in
from noyau.compiler.schedules.gpu.strategies import on_gpu
from noyau.compiler.schedules.gpu.tiles import offset_of
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Buffer, Role, TilePolicy
from tests.compiler.schedules.groups import log_softmax, residual_rms_norm, tile_sizes
from tests.judged import Judge


def aligned(graph):
    """The numbers of cells that fill 16 bytes, where a launch asks for them."""
    made = on_gpu(lower(normalise(graph), "kernel"))
    return {t.number for launch in made.launches for t in launch.tiles if t.policy is TilePolicy.ALIGNMENT}


def test_rows_of_unknown_length_may_begin_anywhere():
    assert aligned(log_softmax()) == {4}
    assert aligned(residual_rms_norm(DType.BF16)) == {8}


def test_rows_of_a_known_length_are_aligned_or_not():
    assert aligned(log_softmax(columns=64)) == set()
    assert aligned(log_softmax(columns=66)) == {4}


def test_only_what_is_no_multiple_of_16_bytes_counts():
    row = Dim.of("#i0") * "s" * 16 + Dim.of("#i1") * 6 + Dim.of("#i2") * 8
    assert strides_in(row, 8) == [Dim.of(6)]
    assert strides_in(row, 2) == []


def test_the_offset_of_a_cell_in_memory_that_lies_in_any_way():
    at = (Dim.of("#i0"), Dim.of("#i1"))
    shape = (Dim.of("a"), Dim.of("b"))
    assert offset_of(Buffer("x", DType.F32, shape, Role.INPUT, strides=(Dim.of("s"), Dim.of(1))), at) == (
        Dim.of("#i0") * "s" + "#i1"
    )
    assert offset_of(Buffer("x", DType.F32, (), Role.INPUT), ()) == Dim.of(0)


@pytest.mark.parametrize("kept", [0, 64], ids=["streamed", "kept"])
@pytest.mark.parametrize("n", [0, 1, 3, 5, 13])
def test_tiles_that_begin_early_give_the_same(kept, n, monkeypatch):
    monkeypatch.setattr(rows, "KEPT", kept)
    graph = log_softmax()
    kernel = check(on_gpu(lower(normalise(graph), "kernel")))
    x = np.random.default_rng(n).standard_normal((3, n)).astype(np.float32)
    sizes = {
        TilePolicy.COVERING: 32,
        TilePolicy.FIXED: 4,
        TilePolicy.SHARING: 2,
        TilePolicy.OCCUPYING: 4,
        TilePolicy.ALIGNMENT: 4,
        TilePolicy.GROWING: 4,
    }
    numbers = tile_sizes(kernel, sizes)
    (got,) = run(kernel, [x], seed=n, sizes=numbers)
    assert Judge(graph, {"x": x}).wrong(graph.outputs[0], got) is None
