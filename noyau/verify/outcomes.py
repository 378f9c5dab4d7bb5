"""The outcome of one case: the errors of a kernel beside those of the unfused run, and its first failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.verify.cases import Array
from noyau.verify.failures import Failure, json_number

MARGIN = 4.0  # times what is allowed, for one cell in SHARE
SHARE = 100_000


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors over the finite cells: in ulp of the output's dtype at the truth (integers: in units), and relative to
    the largest |truth| of the output, which says more where cells nearly vanish."""

    worst_ulp: float = 0.0
    total_ulp: float = 0.0
    worst_relative: float = 0.0
    total_relative: float = 0.0
    cells: int = 0

    @classmethod
    def of(cls, ulps: Array, away: Array, truth: Array) -> Errors:
        """The errors of cells by their distance from the truth, in ulp and as it is."""
        relative = away / (float(np.abs(truth).max(initial=0.0)) or 1.0)
        worst_ulp, worst_relative = float(ulps.max(initial=0.0)), float(relative.max(initial=0.0))
        return cls(worst_ulp, float(ulps.sum()), worst_relative, float(relative.sum()), ulps.size)

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            max(self.worst_ulp, other.worst_ulp),
            self.total_ulp + other.total_ulp,
            max(self.worst_relative, other.worst_relative),
            self.total_relative + other.total_relative,
            self.cells + other.cells,
        )

    @property
    def mean_ulp(self) -> float:
        return self.total_ulp / max(1, self.cells)

    @property
    def mean_relative(self) -> float:
        return self.total_relative / max(1, self.cells)

    def to_json(self) -> dict[str, float]:
        names = ("worst_ulp", "mean_ulp", "worst_relative", "mean_relative")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: how many cells it judged, the worst ratio of an error to what is allowed, how many cells are beyond
    it (`worst_ratio` > 1), the errors of the kernel and of the unfused run, and the first failures."""

    label: str
    captured: bool
    cells: int = 0
    beyond: int = 0
    worst_ratio: float = 0.0
    kernel: Errors = Errors()
    unfused: Errors = Errors()
    failures: tuple[Failure, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether it is beyond what one cell in SHARE may be."""
        return self.worst_ratio > MARGIN or (bool(self.failures) and not self.beyond)

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.label,
            "captured": self.captured,
            "cells": self.cells,
            "beyond": self.beyond,
            "worst_ratio": json_number(self.worst_ratio),
            "kernel": self.kernel.to_json(),
            "unfused": self.unfused.to_json(),
        }
