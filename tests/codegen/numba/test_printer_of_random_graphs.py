"""Random graphs through language numba: none comes out wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from noyau.codegen.numba import printer as numba_printer
from noyau.compiler.schedules.cpu import blocked_folds, strategy_choice
from noyau.compiler.schedules.cpu.strategy_choice import schedule
from noyau.errors import UnsupportedError
from tests.codegen.numba_kernels import of
from tests.random_graphs import Case, graphs
from tests.trying import Try, attempt

LANES = (64, 1, 8, 4)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """So small that a reduction of a few cells has several."""
    monkeypatch.setitem(blocked_folds.full.__kwdefaults__, "block", 16)
    monkeypatch.setattr(blocked_folds, "BLOCK", 16)
    monkeypatch.setattr(strategy_choice, "BLOCK", 16)


def fault(made: Try, seed: int) -> str | None:
    """What is wrong with what the kernel gives, in pieces that run in reverse order, or None; every second one is
    written around the caches where it may be, and has no text for that else."""
    options = replace(numba_printer.SCHEDULE, lanes=LANES[seed % 4], kept=seed % 3 > 0, around_bytes=seed % 2)
    kernel = schedule(made.lowered, options)
    got = of(kernel).call_guarded(*made.arrays(kernel), pieces=1 + seed % 3, order=lambda count: range(count)[::-1])
    return made.wrong(kernel, got)


@pytest.mark.parametrize("seed", range(500, 506))
def test_graphs_of_seeds(seed):
    made = attempt(seed)
    assert made is None or fault(made, seed) is None


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_graphs_that_hypothesis_makes_smaller(case: Case):
    try:
        made = Try(case, 1)
        assert made.lowered
    except UnsupportedError:
        return
    assert fault(made, 0) is None
