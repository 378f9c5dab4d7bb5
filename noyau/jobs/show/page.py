"""The page of a view: a model's graph in the colours of its kernels, their sources, and why the rest is as it is."""

from __future__ import annotations

from collections.abc import Iterator

from noyau.codegen.plan import spell
from noyau.errors import InputError
from noyau.ir.loops import Role
from noyau.jobs.page.document import Page, Section, lines, source_of, summary, table
from noyau.jobs.page.graphs import graphs, plan_drawing
from noyau.jobs.show.model import ShownModel
from noyau.jobs.show.stages import Staged
from noyau.text import printable

TRY = "Not tried yet: noyau optimize certifies it and times it."


def page(shown: Staged) -> Page:
    """The page of a view of a model; of an op or a module, its text and the sources of its kernels."""
    if isinstance(shown, ShownModel):
        sources = {each.operator: source_of(each, TRY) for each in shown.plan.kernels}
        return Page(printable(shown.title), "show", list(_sections(shown)), sources)
    head, *rest = str(shown).splitlines()
    try:
        texts = {each.name: {"text": each.text("text"), "evidence": TRY} for each in shown.stages}
    except InputError:  # nothing is generated, which the lines say
        texts = {}
    rows = ({"kernel": name, "lines": each["text"].count("\n")} for name, each in texts.items())
    return Page(
        head.partition(" ")[0], "show", [summary(head, "plain"), table("Kernels", rows), lines("Steps", rest)], texts
    )


def _sections(shown: ShownModel) -> Iterator[Section]:
    yield summary(shown.count, "plain", filter(None, (shown.origin,)))
    if shown.original is not None:
        yield graphs("The graph", [plan_drawing("The model", shown.original, shown.partition.cuts, shown.plan, {})])
    rows = [
        {
            "kernel": each.operator,
            "places": len(each.groups),
            "reads": [printable(spell(buffer)) for buffer in each.kernel.of(Role.INPUT)],
            "writes": [printable(spell(buffer)) for buffer in each.kernel.of(Role.OUTPUT)],
            "replaces": each.replaces,
        }
        for each in shown.plan.kernels
    ]
    yield table("Kernels", rows, "Choose a kernel for its source.")
    yield table("Why the rest is as it is", ({"where": where, "reason": reason} for where, reason in shown.left))
