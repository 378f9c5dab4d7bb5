"""The page of a difference: both graphs with their added, removed and changed nodes, and the values that differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from noyau.jobs.diff.record import ModelsDiff
from noyau.jobs.diff.render import headline, values_text
from noyau.jobs.page.document import Page, Section, lines, summary, table
from noyau.jobs.page.graphs import Node, graphs, model_drawing
from noyau.text import as_json

_NOTE = "Red nodes are of the first model alone, green ones of the second, yellow ones differ."


def page(diff: ModelsDiff) -> Page:
    """The page of a difference."""
    state = "good" if diff.same else "doubt"
    rows = [{"node": each.node, "twin": each.twin, "changes": each.changes} for each in diff.changed]
    sections = [
        summary(headline(diff), state, filter(None, (values_text(diff), *diff.notes))),
        *([_graphs(diff)] if diff.sides else []),
        table("Changed nodes", rows),
        table(
            "Nodes of one model alone",
            [{"node": each, "of": diff.model} for each in diff.removed]
            + [{"node": each, "of": diff.against} for each in diff.added],
        ),
        table(
            "Values on the same inputs",
            ({**as_json(each), "differs": "differs" if each.differs else "alike"} for each in diff.values),
        ),
        lines("Facts", diff.facts),
    ]
    return Page(f"{diff.model} and {diff.against}", "diff", sections)


def _graphs(diff: ModelsDiff) -> Section:
    words, titles = ("removed", "added"), (diff.model, diff.against)
    alone = set(diff.removed), set(diff.added)
    changes = {each.node: each.changes for each in diff.changed}, {each.twin: each.changes for each in diff.changed}
    drawings = []
    for number, side in enumerate(diff.sides or ()):
        partners = {ends[number]: str(ends[0]) for ends in diff.pairs}
        nodes = {node.position: (node.label, partners.get(place, "")) for place, node in enumerate(side.nodes)}
        show = partial(_shown, nodes=nodes, alone=alone[number], word=words[number], changes=changes[number])
        drawings.append(model_drawing(titles[number], side.model, show))
    return graphs("Both graphs", drawings, _NOTE)


def _shown(
    position: int,
    node: Node,
    nodes: Mapping[int, tuple[str, str]],
    alone: Collection[str],
    word: str,
    changes: Mapping[str, Sequence[str]],
) -> Node:
    label, twin = nodes.get(position, ("", ""))
    tone = word if label in alone else "changed" if label in changes else ""
    facts = {"node": label, **node["facts"], "differs": "; ".join(changes.get(label, ()))}
    return {**node, "tone": tone, "twin": twin, "facts": facts}
