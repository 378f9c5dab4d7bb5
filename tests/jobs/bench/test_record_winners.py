from __future__ import annotations

import time

import numpy as np

import noyau
from noyau.errors import OutputError
from noyau.jobs.bench.record import RETURNING, winner_of
from noyau.kernels.programs.generate import specialization_of
from noyau.ops.dispatch.choice import REFERENCE
from noyau.signatures.instances import bind
from noyau.toolchain import cache
from tests.jobs.bench.samples import add_op, at

X = np.zeros(40, np.float32)


def slow(x, y, out):
    time.sleep(1e-3)
    out[...] = x + y


def won(op, seconds, device="cpu"):
    bound = bind(op.signature, (X, X), {}, op.name)
    found = at({(name, RETURNING): each for name, each in seconds.items()})
    return winner_of(op, found, specialization_of(op.signature, bound, {}, device), 40)


def test_on_a_gpu_the_sizes_of_tiles_are_part_of_what_won():
    usual, other = "generated triton", "generated triton (TILE=512, num_warps=4)"
    assert won(add_op(), {usual: 1.0, other: 0.99}, "cuda:0").constants == ()
    winner = won(add_op(), {usual: 2.0, other: 1.0, "torch": 0.5}, "cuda:0")
    assert (winner.kernel, winner.constants) == ("triton", (("TILE", 512), ("num_warps", 4)))
    assert winner.title == "triton (TILE=512, num_warps=4)"


def test_what_may_not_run_does_not_win():
    winner = won(add_op(), {REFERENCE: 3.0, "generated c": 2.0, "by_cells": 1.0, "np.add": 0.5})
    assert (winner.kernel, winner.median_s, winner.cells) == ("c", 2.0, 40)


def test_what_runs_by_default_stays_where_nothing_is_surely_faster():
    assert won(add_op(), {REFERENCE: 0.99, "generated c": 1.0}).kernel == "c"
    assert won(add_op(), {REFERENCE: 0.5, "generated c": 1.0}).kernel == REFERENCE


def test_a_bench_of_an_op_is_remembered_unless_that_is_not_wanted():
    op = add_op()
    op.kernel(slow, trust=True)
    noyau.bench(op, (X, X), budget_s=0.05, record=False)
    assert "runs slow" in str(op.explain(X, X))
    noyau.bench(op, (X, X), budget_s=0.05)
    assert "runs slow" not in str(op.explain(X, X))
    assert "the fastest at 40 cells" in str(op.explain(X, X))


def test_nothing_is_recorded_where_the_cache_cannot_be_written(monkeypatch):
    def refuse(key, told):
        raise OutputError("the cache is read-only")

    monkeypatch.setattr(cache, "keep", refuse)
    assert noyau.bench(add_op(), (X, X), budget_s=0.05).at[0].ranked
