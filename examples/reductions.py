"""
A reduction of one's own
========================

noyau.reductions has distinct counts, groups, quantiles, histograms, samples, least squares and nearest rows; an op
whose NumPy reference folds its rows is a reduction by itself. Others are written so: a monoid of arrays. Run::

    noyau check examples/reductions.py
    noyau stream examples/reductions.py::WeightedMean SOURCE --column x=PRICE --column weight=PIECES
"""

from __future__ import annotations

from typing import Any

import numpy as np

import noyau


@noyau.reduction
class WeightedMean:
    """The mean of x by weights; `above`: of weights above this alone. A state is the weight and the sum of all rows, so
    that two have one merge: of means without their weights there is none."""

    def __init__(self, above: float = 0.0) -> None:
        self.above = above

    def zero(self) -> Any:
        return 0.0, 0.0

    def step(self, state: Any, x: np.ndarray, weight: np.ndarray) -> Any:
        used = np.where(weight > self.above, weight, 0.0)
        return self.merge(state, (used.sum(), (used * x).sum()))

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]

    def finish(self, state: Any) -> float:
        return float(state[1] / state[0]) if state[0] else float("nan")
