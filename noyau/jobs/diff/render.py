"""The difference of two models as text: what differs at all, then nodes and weights, then values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from noyau.jobs.diff.record import ModelsDiff
from noyau.jobs.report.text import hanging, show_of
from noyau.text import several

MOST = 20  # lines of a kind


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
        yield from _listed(mark, [show(text) for text in texts], width)
    for text in filter(None, (values_text(diff), *diff.notes)):
        yield from hanging(show(text), width, "  ", "    ")


def _listed(mark: str, texts: Sequence[str], width: int) -> Iterator[Text]:
    for text in texts[:MOST]:
        yield from hanging(text, width, f"  {mark} ", "      ")
    if len(texts) > MOST:
        yield Text(f"  {mark} and {len(texts) - MOST} more: --json has all")
