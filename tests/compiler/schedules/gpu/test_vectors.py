"""Cells that threads share: vectors where all arrays are aligned alike, one by one where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import vectors
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.dtypes import DType
from noyau.ir.dims import Dim
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from noyau.ir.loops import Axis, Buffer, Load, Loop, Role, Store
from noyau.ir.walk import every_statement
from tests.jobs.check.groups import one_map, softmax


def buffer(name, dtype, *, role=Role.INPUT, strides=None):
    return Buffer(name, dtype, (Dim.of("n"),) * (1 if strides is None else 2), role, strides=strides)


@pytest.mark.parametrize(
    ("dtypes", "cells"),
    [([DType.F32], 4), ([DType.BF16, DType.F32], 8), ([DType.F64], 2), ([DType.BOOL, DType.I64], 8), ([DType.I8], 8)],
)
def test_the_narrowest_array_fills_16_bytes_of_2_bytes_or_more_each(dtypes, cells):
    assert vectors.width_of([buffer(str(at), dtype) for at, dtype in enumerate(dtypes)]) == cells


def test_what_moves_with_the_loop_is_walked_along():
    cell = Dim.of("#j")
    x, y, out = buffer("x", DType.F32), buffer("y", DType.F32), buffer("out", DType.F32, role=Role.OUTPUT)
    every_second = Load("y", (cell * 2,), DType.F32)
    body = (Store(("out",), (cell + 3,), (Load("x", (cell,), DType.F32),)), Store(("out",), (cell,), (every_second,)))
    places = vectors.places_along({"x": x, "y": y, "out": out}, body, "#j")
    assert places == [("x", (Dim.of(0),)), ("out", (Dim.of(3),)), ("out", (Dim.of(0),))]


def test_arrays_of_other_strides_are_not_walked_along():
    strided = buffer("x", DType.F32, strides=(Dim.of("s"), Dim.of("t")))
    assert not vectors.is_along(strided, (Dim.of("#i"), Dim.of("#j")), "#j")
    inner = buffer("x", DType.F32, strides=(Dim.of("s"), Dim.of(1)))
    assert vectors.is_along(inner, (Dim.of("#i"), Dim.of("#j")), "#j")


@pytest.mark.parametrize("n", [1, 3, 4, 9, 40])
@pytest.mark.parametrize("seed", range(4))
def test_every_cell_is_taken_once_wherever_memory_begins(n, seed):
    """The interpreter has arrays begin at other cells for other seeds."""
    kernel = check(in_blocks(lower(normalise(one_map("negative", DType.F32)), "kernel")))
    assert any(isinstance(s, Loop) and s.axis is Axis.VECTOR for s in every_statement(kernel.launches[0].body))
    (buffer_in,) = kernel.of(Role.INPUT)
    x = np.arange(n, dtype=np.float32).reshape((1,) * (len(buffer_in.shape) - 1) + (n,))
    (got,) = run(kernel, [x], seed=seed)
    np.testing.assert_array_equal(got, -x)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_begin_anywhere_are_right(seed):
    kernel = check(in_blocks(lower(normalise(softmax()), "kernel")))
    x = np.random.default_rng(seed).standard_normal((3, 5), dtype=np.float32)
    (got,) = run(kernel, [x], seed=seed)
    e = np.exp(x.astype("f8"))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-6)
