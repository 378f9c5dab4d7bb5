"""The record of the difference of two models, as text and as a page: a summary, nodes and weights, values."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.diff.onnx_sides import ModelSide
from noyau.jobs.page import document
from noyau.jobs.page.document import Node, Page, Section, graphs
from noyau.jobs.page.graphs import model_drawing
from noyau.jobs.report.text import PagedRecord, hanging, show_of
from noyau.text import fields_json, several

MOST = 20  # lines of a kind
_NOTE = "Red nodes are of the first model alone, green ones of the second, yellow ones differ."


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

    PLAIN: ClassVar[str] = "same model against nodes facts added removed changed values is_renamed notes"
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


def headline(diff: ModelsDiff) -> str:
    if diff.same:
        return "the same model" + (", but for names" if diff.is_renamed else "")
    counts = {"added": len(diff.added), "removed": len(diff.removed), "changed": len(diff.changed)}
    parts = [f"{several(count, 'node')} {word}" for word, count in counts.items() if count]
    parts += [several(len(diff.apart), "value") + " apart"] if diff.apart else []
    return ", ".join([*parts, *diff.facts])


def values_text(diff: ModelsDiff) -> str:
    """The result of running both, in one line; empty if they did not run."""
    if not diff.values:
        return ""
    worst = max((each.error or 0.0 for each in diff.values), default=0.0)
    head = f"{several(len(diff.values), 'value')} compared on the same inputs"
    if diff.apart:
        first = diff.apart[0]
        by = first.note or f"by {first.error or math.nan:.2g} of the largest"
        ends = "" if any(each.is_output for each in diff.apart) else "; the outputs are alike"
        return f"{head}: {len(diff.apart)} differ, first {first.value}, made by {first.made_by}: {by}{ends}"
    return f"{head}: " + ("every bit is the same" if not worst else f"alike, at most {worst:.1e} of the largest apart")


def render(diff: ModelsDiff, width: int, *, ascii_only: bool = False) -> Iterator[RenderableType]:
    """The renderables of the difference in reading order, for a terminal of `width` columns."""
    show = show_of(ascii_only=ascii_only)
    yield from hanging(Text(show(f"{diff.model} and {diff.against}: {headline(diff)}"), style="bold"), width, rest="  ")
    changed = [f"{each.node}: {'; '.join(each.changes)}" for each in diff.changed]
    for mark, texts in {"-": diff.removed, "+": diff.added, "~": changed}.items():
        for text in texts[:MOST]:
            yield from hanging(show(text), width, f"  {mark} ", "      ")
        if len(texts) > MOST:
            yield Text(f"  {mark} and {len(texts) - MOST} more: --json has all")
    for text in filter(None, (values_text(diff), *diff.notes)):
        yield from hanging(show(text), width, "  ", "    ")


def page(diff: ModelsDiff) -> Page:
    state = "good" if diff.same else "doubt"
    models = ((diff.model, diff.removed), (diff.against, diff.added))
    alone = ({"node": node, "of": model} for model, nodes in models for node in nodes)
    values = ({**fields_json(each), "differs": "differs" if each.differs else "alike"} for each in diff.values)
    sections = [
        document.summary(headline(diff), state, filter(None, (values_text(diff), *diff.notes))),
        *([graphs("Both graphs", [_drawing(diff, *e) for e in enumerate(diff.sides)], _NOTE)] if diff.sides else []),
        document.table("Changed nodes", map(fields_json, diff.changed)),
        document.table("Nodes of one model alone", alone),
        document.table("Values on the same inputs", values),
        document.lines("Facts", diff.facts),
    ]
    return Page(f"{diff.model} and {diff.against}", "diff", sections)


def _drawing(diff: ModelsDiff, number: int, side: ModelSide) -> Section:
    """The drawing of the first model (`number` 0) or of the second (1)."""
    title, alone, tone = ((diff.model, diff.removed, "removed"), (diff.against, diff.added, "added"))[number]
    tones = {(each.node, each.twin)[number]: "changed" for each in diff.changed} | dict.fromkeys(alone, tone)
    changes = {(each.node, each.twin)[number]: each.changes for each in diff.changed}
    partners = {ends[number]: str(ends[0]) for ends in diff.pairs}
    nodes = {node.position: (node.label, partners.get(place, "")) for place, node in enumerate(side.nodes)}

    def show(position: int, node: Node) -> Node:
        label, twin = nodes.get(position, ("", ""))
        facts = {"node": label, **node["facts"], "differs": "; ".join(changes.get(label, ()))}
        return {**node, "tone": tones.get(label, ""), "twin": twin, "facts": facts}

    return model_drawing(title, side.model, show)
