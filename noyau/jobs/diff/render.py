"""The difference of two models as text and as a page: what differs at all, then nodes and weights, then values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.diff.record import ModelsDiff
from noyau.jobs.page import document
from noyau.jobs.page.document import Node, Page, Section, graphs
from noyau.jobs.page.graphs import model_drawing
from noyau.jobs.report.text import hanging, show_of
from noyau.text import fields_json, several

MOST = 20  # lines of a kind
_NOTE = "Red nodes are of the first model alone, green ones of the second, yellow ones differ."


def headline(diff: ModelsDiff) -> str:
    """The answer in one line."""
    if diff.same:
        return "the same model" + (", but for names" if diff.is_renamed else "")
    counts = {"added": len(diff.added), "removed": len(diff.removed), "changed": len(diff.changed)}
    parts = [f"{several(count, 'node')} {word}" for word, count in counts.items() if count]
    parts += [several(len(diff.apart), "value") + " apart"] if diff.apart else []
    return ", ".join([*parts, *diff.facts])


def values_text(diff: ModelsDiff) -> str:
    """Result of running both, in one line; nothing where they did not run."""
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
    """The difference in the order in which it is read, for a terminal of so many columns."""
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
    """The page of a difference."""
    state = "good" if diff.same else "doubt"
    models = ((diff.model, diff.removed), (diff.against, diff.added))
    alone = ({"node": node, "of": model} for model, nodes in models for node in nodes)
    values = ({**fields_json(each), "differs": "differs" if each.differs else "alike"} for each in diff.values)
    sections = [
        document.summary(headline(diff), state, filter(None, (values_text(diff), *diff.notes))),
        *([_graphs(diff)] if diff.sides else []),
        document.table("Changed nodes", map(fields_json, diff.changed)),
        document.table("Nodes of one model alone", alone),
        document.table("Values on the same inputs", values),
        document.lines("Facts", diff.facts),
    ]
    return Page(f"{diff.model} and {diff.against}", "diff", sections)


def _graphs(diff: ModelsDiff) -> Section:
    tones = dict.fromkeys(diff.removed, "removed"), dict.fromkeys(diff.added, "added")
    changes = {each.node: each.changes for each in diff.changed}, {each.twin: each.changes for each in diff.changed}
    drawings = []
    for number, (title, side) in enumerate(zip((diff.model, diff.against), diff.sides or (), strict=False)):
        partners = {ends[number]: str(ends[0]) for ends in diff.pairs}
        nodes = {node.position: (node.label, partners.get(place, "")) for place, node in enumerate(side.nodes)}
        show = partial(_shown, nodes=nodes, tones=tones[number], changes=changes[number])
        drawings.append(model_drawing(title, side.model, show))
    return graphs("Both graphs", drawings, _NOTE)


def _shown(
    position: int,
    node: Node,
    nodes: Mapping[int, tuple[str, str]],
    tones: Mapping[str, str],
    changes: Mapping[str, Sequence[str]],
) -> Node:
    label, twin = nodes.get(position, ("", ""))
    tone = tones.get(label, "changed" if label in changes else "")
    facts = {"node": label, **node["facts"], "differs": "; ".join(changes.get(label, ()))}
    return {**node, "tone": tone, "twin": twin, "facts": facts}
