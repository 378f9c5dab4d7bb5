"""The record of the difference of two models."""

from dataclasses import dataclass, field
from typing import Any

from noyau.jobs.diff.onnx_sides import ModelSide
from noyau.jobs.report.text import PagedRecord
from noyau.text import fields_json


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """A node of both models that differs, with the differences as texts."""

    node: str
    twin: str
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueGap:
    """A value of both models on the same inputs. `error`: the largest difference, relative to the largest cell;
    `differs`: that exceeds rounding, or shapes or dtypes differ, which `note` then tells."""

    value: str
    made_by: str
    is_output: bool
    error: float | None
    differs: bool
    note: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class ModelsDiff(PagedRecord):
    """The difference of two models; prints itself. `facts`: differences of inputs, outputs and opsets; `added` and
    `removed`: nodes of only the second and only the first; `values`: the compared values in the order of the first,
    empty if the models did not run (see `notes`); `is_renamed`: names differ; `sides`, `pairs`: for a page."""

    model: str
    against: str
    nodes: tuple[int, int]
    facts: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[ChangedNode, ...] = ()
    values: tuple[ValueGap, ...] = ()
    is_renamed: bool = False
    notes: tuple[str, ...] = ()
    sides: tuple[ModelSide, ModelSide] | None = field(default=None, compare=False)
    pairs: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def same(self) -> bool:
        """Whether at most names differ."""
        return not (self.facts or self.added or self.removed or self.changed or self.apart)

    @property
    def apart(self) -> tuple[ValueGap, ...]:
        return tuple(each for each in self.values if each.differs)

    def to_json(self) -> dict[str, Any]:
        record = fields_json(self, without=("sides", "pairs"))
        return {"schema_version": self.schema_version, "same": self.same, **record}
