"""The cases that a kernel is tried on, and its failures: wrong cells and their extent, or a fault of a whole run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import FindingKind
from noyau.ir.graph import Graph
from noyau.text import fields_json, printable

Array = np.ndarray
Arrays = Mapping[str, Array]
PRECISE = 100.0  # errors up to this multiple of the allowance count as lost precision


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs in the order of a graph's inputs; `captured`: they are activations of a model."""

    label: str
    inputs: tuple[Array, ...]
    captured: bool = False


def spell(dtype: DType, shape: Sequence[int]) -> str:
    return f"{dtype.value}{list(shape)}"


def inputs_text(graph: Graph, arrays: Sequence[Array]) -> str:
    """The inputs of a graph as text: `x: f32[4, 41], w: f32[41]`."""
    pairs = zip(graph.inputs, arrays, strict=True)
    return ", ".join(f"{printable(node.output)}: {spell(node.dtype, array.shape)}" for node, array in pairs)


def changed_input(arrays: Sequence[Array], originals: Sequence[Array]) -> str | None:
    """A text that names the first input that the kernel wrote to; None if there is none."""
    for number, (after, before) in enumerate(zip(arrays, originals, strict=True)):
        if after.tobytes() != before.tobytes():
            return f"changed its input {number}"
    return None


def misfit(graph: Graph, results: Sequence[Array], truth: Mapping[str, Array]) -> str | None:
    """A text on the first difference of the results from the truth in number, dtype or shape; None if they fit."""
    if len(results) != len(graph.outputs):
        return f"gave {len(results)} outputs, not {len(graph.outputs)}"
    for name, got in zip(graph.outputs, results, strict=True):
        expected, dtype = spell(graph[name].dtype, truth[name].shape), from_numpy(got.dtype)
        actual = spell(dtype, got.shape) if dtype else f"{got.dtype}{list(got.shape)}"
        if actual != expected:
            return f"gave {actual} as {printable(name)}, not {expected}"
    return None


@dataclass(frozen=True, slots=True)
class Failure:
    """A wrong cell, or with `cell` None another fault of a run; `note`: the extent of wrong cells, or the fault."""

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
        """A wrong cell with `numbers` got, want, allowed: lost precision if got is near want, else a wrong value."""
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
    """Two numbers as texts of 9 digits, or of 17 where 9 do not show that they differ."""
    short = f"{got:.9g}", f"{want:.9g}"
    return short if short[0] != short[1] or got == want else (f"{got:.17g}", f"{want:.17g}")


def json_number(value: float) -> float | str:
    """The number itself, or its name as text if it is infinite or NaN, which JSON does not have."""
    return value if math.isfinite(value) else str(value)


def extent_of(wrong: Array, shape: Sequence[int]) -> str:
    """Describe the extent of wrong cells, i64[count, rank]: `all of [:, 40:] is wrong`. Empty for a scalar output."""
    if not len(shape):
        return ""
    low, high = wrong.min(0, initial=np.iinfo(np.int64).max), wrong.max(0, initial=-1) + 1
    box = ", ".join(_span(*bounds) for bounds in zip(low, high, shape, strict=True))
    if len(wrong) == np.prod(high - low, dtype=np.int64):
        return f"all of [{box}] is wrong"
    return f"{len(wrong)} of {np.prod(shape, dtype=np.int64)} cells are wrong, in [{box}]"


def _span(low: int, high: int, extent: int) -> str:
    return str(low) if high - low == 1 and extent > 1 else f"{low or ''}:{high if high < extent else ''}"
