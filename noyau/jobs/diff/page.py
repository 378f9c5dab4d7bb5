"""The page of a difference: both graphs with their added, removed and changed nodes, and the values that differ."""

from __future__ import annotations

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
    changes = {each.node: each.changes for each in diff.changed}, {each.twin: each.changes for each in diff.changed}
    alone = set(diff.removed), set(diff.added)
    drawings = []
    for number, (side, word) in enumerate(zip(diff.sides or (), ("removed", "added"), strict=True)):
        labels = {node.position: node.label for node in side.nodes}
        numbers = {ends[number]: str(pair) for pair, ends in enumerate(diff.pairs)}
        groups = {node.position: numbers.get(place, "") for place, node in enumerate(side.nodes)}

        def show(
            position: int,
            node: Node,
            *,
            number: int = number,
            word: str = word,
            labels: dict[int, str] = labels,
            groups: dict[int, str] = groups,
        ) -> Node:
            label = labels.get(position, "")
            tone = word if label in alone[number] else "changed" if label in changes[number] else ""
            facts = {"node": label, **node["facts"], "differs": "; ".join(changes[number].get(label, ()))}
            return {**node, "tone": tone, "twin": groups.get(position, ""), "facts": facts}

        drawings.append(model_drawing(diff.model if number == 0 else diff.against, side.model, show))
    return graphs("Both graphs", drawings, _NOTE)
