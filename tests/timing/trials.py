"""A candidate against another one, hot and cold, as `noyau bench` has them: verified on runs that are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from noyau.timing.comparison import compare
from noyau.timing.sides import Check, Contender, RotatingSide, Rotation, cold_sets, first_run, hot_sets
from noyau.timing.verdict import Comparison
from noyau.workers.tamper_detection import Watch


def trial(
    before: Contender,
    after: Contender,
    draws: Sequence[Sequence[np.ndarray]],
    check: Check,
    clock: Callable[[], float],
    *,
    budget_s: float = 0.05,
    seed: int = 0,
) -> tuple[list[Comparison], int]:
    """The hot and the cold comparison, and how many timed runs were verified. CheckError where a side is wrong or
    cheats."""
    watch, rng, verified = Watch(), np.random.default_rng(seed), 0
    pairs = [(each, first_run(each, draws[-1])[0]) for each in (before, after)]
    set_bytes = sum(array.nbytes for array in draws[0])
    tracks = [
        [RotatingSide(each, Rotation(draws, sets, rng), like, rng, clock) for each, like in pairs]
        for sets in (hot_sets(set_bytes), cold_sets(set_bytes))
    ]
    comparisons = [compare(*sides, budget_s=budget_s / 2, seed=seed, clock=clock) for sides in tracks]
    for side in (side for sides in tracks for side in sides):
        watch.refuse(side.candidate.name)
        side.refuse(check)
        verified += len(side.snapshots)
    return comparisons, verified
