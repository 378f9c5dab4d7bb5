"""The certificate of a kernel: the comparison of its values with the truth, case by case and in total."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from noyau.errors import CheckError
from noyau.text import fields_json, several
from noyau.verify.failures import Failure, json_number
from noyau.verify.floats import Errors

MARGIN = 4.0  # one cell in SHARE may have an error of so many times the allowance
SHARE = 100_000
_NO_ERRORS = Errors()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case: `cells` judged; `beyond`: cells whose error exceeds the allowance; `worst_ratio` of an
    error to its allowance; the errors of the kernel and of the unfused run; and the first failures."""

    PLAIN: ClassVar[str] = "case=label captured cells beyond worst_ratio kernel unfused"
    label: str
    captured: bool
    cells: int = 0
    beyond: int = 0
    worst_ratio: float = 0.0
    kernel: Errors = _NO_ERRORS
    unfused: Errors = _NO_ERRORS
    failures: tuple[Failure, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether an error exceeds even MARGIN, or the run failed as a whole."""
        return self.worst_ratio > MARGIN or (bool(self.failures) and not self.beyond)

    def to_json(self) -> dict[str, Any]:
        return fields_json(self) | {"worst_ratio": json_number(self.worst_ratio)}


@dataclass(frozen=True)
class Certificate:
    """The evidence on a kernel's values. `made_up`: the inputs of captured cases are synthetic, not a user's.
    `order_independent`: its bits do not depend on how its work is cut into pieces; None if that was not tried."""

    PLAIN: ClassVar[str] = """name ok captured made_up order_independent cells cells_beyond=beyond worst_ratio kernel
        unfused cases=outcomes failures"""
    name: str
    outcomes: tuple[Outcome, ...]
    made_up: bool = False
    order_independent: bool | None = None

    @cached_property
    def ok(self) -> bool:
        """Whether errors are within the allowance, one cell in 100,000 within 4 times that; False without a case."""
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
        """Whether activations of a model are among the cases."""
        return any(outcome.captured for outcome in self.outcomes)

    @property
    def cases(self) -> Mapping[str, float]:
        """The worst ratio of an error to its allowance, by case."""
        ratios: dict[str, float] = {}
        for outcome in self.outcomes:
            ratios[outcome.label] = max(ratios.get(outcome.label, 0.0), outcome.worst_ratio)
        return ratios

    @property
    def worst_ratio(self) -> float:
        return max((outcome.worst_ratio for outcome in self.outcomes), default=0.0)

    @cached_property
    def kernel(self) -> Errors:
        """The errors of the kernel on the captured cases; without any, on the first case, of normal numbers."""
        return sum((outcome.kernel for outcome in self._shown), _NO_ERRORS)

    @cached_property
    def unfused(self) -> Errors:
        """The errors of the unfused computation on the same cases; 0 in float64, where it is the truth itself."""
        return sum((outcome.unfused for outcome in self._shown), _NO_ERRORS)

    @property
    def _shown(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.captured) or self.outcomes[:1]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The first failures, those of broken cases first; empty if no cell exceeds its allowance and no run failed."""
        outcomes = sorted(self.outcomes, key=lambda outcome: not outcome.broken)
        return tuple(failure for outcome in outcomes for failure in outcome.failures)[:8]

    @property
    def where(self) -> str:
        """The number of cases as text, and whether activations are among them."""
        kinds = "model activations" if self.captured and not self.made_up else "activations of made-up inputs"
        cases = several(len(self.outcomes), "case")
        return f"{cases}, {kinds} among them" if self.captured else cases

    @property
    def exactness(self) -> str:
        """The errors of the kernel as text, beside those of the unfused computation."""
        errors = f"error {self.kernel.worst_relative:.1e}, mean {self.kernel.mean_ulp:.2g} ulp"
        beside = f"unfused {self.unfused.worst_relative:.1e}, {self.unfused.mean_ulp:.2g} ulp"
        return f"{errors} ({beside}); at most {self.worst_ratio:.2f} of what is allowed"

    def summary(self) -> str:
        """One line on the cases and the errors, or on the first failure."""
        return f"right on {self.where}: {self.exactness}" if self.ok else f"tried on {self.where}: {self._reason()}"

    def raise_if_bad(self) -> None:
        """CheckError with the first failure, unless `ok`."""
        if not self.ok:
            raise CheckError(f"{self.name} is {self._reason()}")

    def _reason(self) -> str:
        if self.failures:
            return str(self.failures[0])
        return "not tried on any case" if not self.outcomes else "wrong: its bits depend on how its work is cut"

    def to_json(self) -> dict[str, Any]:
        return fields_json(self) | {"worst_ratio": json_number(self.worst_ratio)}
