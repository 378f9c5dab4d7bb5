"""The judgement with a tolerance that a user chose, in the place of the one that follows from unfused runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from noyau.errors import InputError
from noyau.ir.graph import Graph
from noyau.verify.values import Array, Arrays, FloatJudge, Judge, KernelFunction, KernelTrial, Spelt


def require_tolerance(tolerance: float | None) -> None:
    """InputError for what is no tolerance."""
    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 < tolerance < math.inf):
        raise InputError(f"the tolerance is {tolerance!r}; give a number above 0, such as 1e-3")


def trial(graph: Graph, kernel: KernelFunction, tolerance: float | None, traced: Spelt | None = None) -> KernelTrial:
    """The judge of a user's kernel: by the certificate, or by a tolerance."""
    if tolerance is None:
        return KernelTrial(graph, kernel, traced, is_check=True)
    return TolerantTrial(graph, kernel, tolerance)


class TolerantTrial(KernelTrial):
    """A trial in which a float may be off by `tolerance` times the truth, and by `tolerance` where that is below 1."""

    def __init__(self, graph: Graph, kernel: KernelFunction, tolerance: float) -> None:
        super().__init__(graph, kernel, is_check=True)
        self.tolerance = tolerance

    def judges(self, inputs: Arrays, results: Sequence[Array], truth: Arrays) -> list[Judge]:
        return [self.tolerant(judge) for judge in super().judges(inputs, results, truth)]

    def tolerant(self, judge: Judge) -> Judge:
        if not isinstance(judge, FloatJudge):
            return judge
        return TolerantJudge(judge, self.tolerance)


class TolerantJudge(FloatJudge):
    """The cells of a float output, judged by a tolerance."""

    def __init__(self, usual: FloatJudge, tolerance: float) -> None:
        super().__init__(usual.node, usual.got, usual.truth, usual.skipped, usual.steps)
        self.tolerance = tolerance

    def allowed(self) -> Array:
        size = np.where(np.isfinite(self.base), np.abs(self.base), 0.0)
        return np.asarray(self.tolerance * np.maximum(1.0, size))
