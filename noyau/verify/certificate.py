"""The record of how a kernel's values compare with the truth, all cases together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from noyau.errors import CheckError, InputError
from noyau.text import several
from noyau.verify.failures import Failure, json_number
from noyau.verify.outcomes import SHARE, Errors, Outcome


@dataclass(frozen=True)
class Certificate:
    """The evidence on a kernel's values. `made_up`: the inputs of the captured cases were made up, not a user's.
    `order_independent`: whether its bits are the same however its work is cut; None where that was not tried."""

    name: str
    outcomes: tuple[Outcome, ...]
    made_up: bool = False
    order_independent: bool | None = None

    @cached_property
    def ok(self) -> bool:
        """Whether every cell is allowed, but for one in 100,000 by at most 4 times; never without a case."""
        fine = bool(self.outcomes) and not any(outcome.broken for outcome in self.outcomes)
        return fine and self.beyond <= self.cells // SHARE and self.order_independent is not False

    @property
    def cells(self) -> int:
        return sum(outcome.cells for outcome in self.outcomes)

    @property
    def beyond(self) -> int:
        return sum(outcome.beyond for outcome in self.outcomes)

    @property
    def captured(self) -> bool:
        """Whether activations of a model were among the cases."""
        return any(outcome.captured for outcome in self.outcomes)

    @property
    def cases(self) -> Mapping[str, float]:
        """The worst ratio of an error to what is allowed, by case."""
        ratios: dict[str, float] = {}
        for outcome in self.outcomes:
            ratios[outcome.label] = max(ratios.get(outcome.label, 0.0), outcome.worst_ratio)
        return ratios

    @property
    def worst_ratio(self) -> float:
        return max((outcome.worst_ratio for outcome in self.outcomes), default=0.0)

    @cached_property
    def kernel(self) -> Errors:
        """The errors of the kernel: on the captured cases, or else on the first, which is of normal numbers."""
        return _total(outcome.kernel for outcome in self._shown)

    @cached_property
    def unfused(self) -> Errors:
        """The errors of the unfused computation, as it is, on the same cases. In float64 it is the truth itself."""
        return _total(outcome.unfused for outcome in self._shown)

    @property
    def _shown(self) -> tuple[Outcome, ...]:
        captured = tuple(outcome for outcome in self.outcomes if outcome.captured)
        return captured or self.outcomes[:1]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The first failures, worst kinds first; empty where `ok` and no cell is beyond."""
        broken = [failure for outcome in self.outcomes if outcome.broken for failure in outcome.failures]
        beyond = [failure for outcome in self.outcomes if not outcome.broken for failure in outcome.failures]
        return tuple(broken + beyond)[:8]

    def summary(self) -> str:
        """One line: on how many cases, how exact, and beside what."""
        kinds = "model activations" if self.captured and not self.made_up else "activations of made-up inputs"
        cases = several(len(self.outcomes), "case")
        where = f"{cases}, {kinds} among them" if self.captured else cases
        if not self.ok:
            return f"tried on {where}: {self._reason()}"
        errors = f"error {self.kernel.worst_relative:.1e}, mean {self.kernel.mean_ulp:.2g} ulp"
        beside = f"unfused {self.unfused.worst_relative:.1e}, {self.unfused.mean_ulp:.2g} ulp"
        return f"right on {where}: {errors} ({beside}); at most {self.worst_ratio:.2f} of what is allowed"

    def raise_if_bad(self) -> None:
        """CheckError with the first failure, unless `ok`."""
        if not self.ok:
            raise CheckError(f"{self.name} is {self._reason()}")

    def _reason(self) -> str:
        if self.failures:
            return str(self.failures[0])
        return "not tried on any case" if not self.outcomes else "wrong: its bits depend on how its work is cut"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.ok,
            "captured": self.captured,
            "made_up": self.made_up,
            "order_independent": self.order_independent,
            "cells": self.cells,
            "cells_beyond": self.beyond,
            "worst_ratio": json_number(self.worst_ratio),
            "kernel": self.kernel.to_json(),
            "unfused": self.unfused.to_json(),
            "cases": [outcome.to_json() for outcome in self.outcomes],
            "failures": [failure.to_json() for failure in self.failures],
        }


def _total(errors: Iterable[Errors]) -> Errors:
    return sum(errors, Errors())


def require_tolerance(tolerance: float | None) -> None:
    """InputError for what is no tolerance."""
    if tolerance is not None and not (isinstance(tolerance, int | float) and 0 < tolerance < math.inf):
        raise InputError(f"the tolerance is {tolerance!r}; give a number above 0, such as 1e-3")
