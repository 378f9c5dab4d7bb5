"""Owners of cells merge their updates in order: the bits are those of one thread, in whatever order threads run."""

from __future__ import annotations

import numpy as np
import pytest

from noyau.compiler.lowering.nest import lower
from noyau.compiler.passes.normal_form import normalise
from noyau.compiler.schedules.gpu import scatters
from noyau.compiler.schedules.gpu.blocks import in_blocks
from noyau.compiler.schedules.gpu.scatters import Way
from noyau.dtypes import DType
from noyau.ir.loop_interpreter import run
from noyau.ir.loop_verifier import check
from tests.compiler.schedules.groups import in_order, inputs_of, scattered, scattered_cells

SIZES = {"words": 7, "rows": 21, "n": 8, "a": 7, "b": 3}, {"words": 5, "rows": 40, "n": 9, "a": 6, "b": 5}
GRAPHS = {
    "rows": scattered(),
    "rows of halves": scattered(dtype=DType.BF16),
    "the last row": scattered(None),
    "cells": scattered_cells(0),
    "the last cell": scattered_cells(1, None),
}


@pytest.mark.parametrize("buckets", [2, 64], ids=["several owners of a bucket", "one"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_bits_are_those_of_one_thread(name, buckets, monkeypatch):
    monkeypatch.setattr(scatters, "THREADS", 4)
    monkeypatch.setattr(scatters, "PIECES", 4)
    monkeypatch.setattr(scatters, "MOST_BUCKETS", buckets)
    lowered = lower(normalise(GRAPHS[name]), "kernel")
    kernel = check(in_blocks(lowered, Way.OWNER))
    for seed, sizes in enumerate(SIZES):
        inputs = in_order(kernel, inputs_of(GRAPHS[name], sizes, seed))
        (got,), (want,) = run(kernel, inputs, seed=seed), run(lowered, inputs)
        if "halves" in name:  # their sum is rounded once, not after each update
            np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=0.05, atol=0.05)
        else:
            assert got.tobytes() == want.tobytes()


def test_there_may_be_no_update_and_no_cell():
    kernel = in_blocks(lower(normalise(scattered()), "kernel"), Way.OWNER)
    for sizes in ({"words": 2, "rows": 0, "n": 3}, {"words": 0, "rows": 0, "n": 4}, {"words": 2, "rows": 0, "n": 0}):
        inputs = inputs_of(scattered(), sizes)
        assert run(kernel, in_order(kernel, inputs))[0].tolist() == inputs["data"].tolist()
