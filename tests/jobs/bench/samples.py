"""Ops and records that tests of `noyau.bench` share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import noyau
from noyau.jobs.bench.record import COLD, FILLING, HOT, RETURNING, BenchPoint, CandidateTimes, Race, Workload
from noyau.ops.op import Op
from noyau.timing.conditions import Conditions
from noyau.timing.rounds import Series

CALM = Conditions(2000.0, 1e-4, 0.1, 0.0)
TEXT = """
void {name}(const float *x, const float *y, float *out, long n)
{{
    for (long i = 0; i < n - {missed}; i++) out[i] = x[i] + y[i];
    for (long i = n - {missed}; i < n; i++) out[i] = 0;
}}
"""


def add_op() -> Op:
    """x + y with a right kernel in C, one in Python, and a broken twin that misses the last cell."""

    @noyau.op("f32[n], f32[n] -> f32[n]")
    def add(x, y):
        return x + y

    add.kernel(TEXT.format(name="by_cells", missed=0), language="c", name="by_cells")
    add.kernel(TEXT.format(name="twin", missed=1), language="c", name="twin")

    @add.kernel
    def in_numpy(x, y, out):
        np.add(x, y, out=out)

    return add


def at(
    seconds: Mapping[tuple[str, str], float],
    *rows: CandidateTimes,
    cold: Mapping[str, float] | None = None,
    work: Workload | None = None,
) -> BenchPoint:
    """A record of eight equal rounds: `seconds` by candidate and way, `cold` by candidate."""
    races = {HOT: _race(seconds)}
    if cold is not None:
        races[COLD] = _race({(name, RETURNING): each for name, each in cold.items()})
    moved = work or Workload(8_000_000, 4_000_000, exact=True)
    known = rows or tuple(CandidateTimes(name) for name, way in seconds if way == RETURNING)
    return BenchPoint({"n": 1000}, ("float32[1000]",), known, races, moved, 1e-3, (CALM, CALM), 2)


def _race(seconds: Mapping[tuple[str, str], float]) -> Race:
    samples = tuple((each,) * 8 for each in seconds.values())
    return Race(tuple(seconds), Series(samples, (1,) * len(samples)))


WAYS = (RETURNING, FILLING)
