"""The failures of a kernel: wrong cells, their extent, or what else is wrong with a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.errors import FindingKind
from noyau.text import fields_json
from noyau.verify.cases import Array

PRECISE = 100.0  # times what is allowed: an error up to that is lost precision


@dataclass(frozen=True, slots=True)
class Failure:
    """One wrong cell, or what else is wrong with a run; `inputs` and `note` say of what inputs and how far it goes."""

    kind: FindingKind
    case: str
    inputs: str
    note: str
    output: str = ""
    cell: tuple[int, ...] | None = None
    got: float = math.nan
    want: float = math.nan
    allowed: float = 0.0

    @classmethod
    def of_cell(cls, case: str, inputs: str, note: str, output: str, cell: tuple[int, ...], *numbers: float) -> Failure:
        """A wrong cell, by what it got, wants and is allowed: lost precision where that is near, else a wrong value."""
        got, want, allowed = numbers
        is_near = math.isfinite(got) and math.isfinite(want) and abs(got - want) <= PRECISE * allowed
        kind = FindingKind.PRECISION if is_near else FindingKind.WRONG_VALUE
        return cls(kind, case, inputs, note, output, cell, got, want, allowed)

    def __str__(self) -> str:
        if self.cell is None:
            return f"wrong: {'' if self.note.startswith('two ') else 'it '}{self.note}; for {self.inputs} ({self.case})"
        where = f"{self.output}[{', '.join(map(str, self.cell))}]"
        bound = "got {}, want {} (float64), allowed {:.2g}".format(*apart(self.got, self.want), self.allowed)
        text = "; ".join(filter(None, [bound, self.note]))
        return f"wrong at {where} for {self.inputs} ({self.case}): {text}"

    def to_json(self) -> dict[str, Any]:
        numbers = {name: json_number(getattr(self, name)) for name in ("got", "want", "allowed")}
        return fields_json(self, without=("kind", "inputs")) | {"given": self.inputs} | numbers


def apart(got: float, want: float) -> tuple[str, str]:
    """Two numbers with as many digits as show that they differ: 9, or all."""
    short = f"{got:.9g}", f"{want:.9g}"
    return short if short[0] != short[1] or got == want else (f"{got:.17g}", f"{want:.17g}")


def json_number(value: float) -> float | str:
    """The number itself, or its name: JSON has no infinities and no NaN."""
    return value if math.isfinite(value) else str(value)


def extent_of(wrong: Array, shape: Sequence[int]) -> str:
    """Describe the extent of wrong cells, i64[count, rank]: `all of [:, 40:] is wrong`. Nothing of a single number."""
    if not len(shape):
        return ""
    low, high = wrong.min(0, initial=np.iinfo(np.int64).max), wrong.max(0, initial=-1) + 1
    box = ", ".join(_span(*bounds) for bounds in zip(low, high, shape, strict=True))
    full = len(wrong) == np.prod(high - low, dtype=np.int64)
    if full:
        return f"all of [{box}] is wrong"
    return f"{len(wrong)} of {np.prod(shape, dtype=np.int64)} cells are wrong, in [{box}]"


def _span(low: int, high: int, extent: int) -> str:
    if high - low == 1 and extent > 1:
        return str(low)
    return f"{low or ''}:{high if high < extent else ''}"
