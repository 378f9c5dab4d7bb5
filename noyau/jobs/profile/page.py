"""The page of a profile: where the time of a model goes, on its graph and in tables."""

from __future__ import annotations

from collections.abc import Iterator

from noyau.jobs.page.document import Page, Section, SizedTime, lines, source_of, summary, sweeps, table
from noyau.jobs.page.graphs import Node, graphs, plan_drawing
from noyau.jobs.profile.record import Profile, ProfiledSize
from noyau.jobs.profile.render import ceiling_text, header, label, memory_text, run_text
from noyau.jobs.profile.tables import BETWEEN, share_text
from noyau.jobs.profile.wall import Wall
from noyau.jobs.report.text import WIDE
from noyau.text import fields_json, printable
from noyau.timing.verdict import spell_s

UNTRIED = "Not made yet: noyau optimize makes it, certifies it and times it."
_NOTE = "A time is of one run; nodes that onnxruntime joins show the time of all. A colour is a fusable path."


def page(profile: Profile | Wall) -> Page:
    """The page of a profile, size by size; of a call of a module of torch, its kernels."""
    if isinstance(profile, Wall):
        head, *rest = str(profile).splitlines()
        kernels = ({"kernel": name, "time_s": time_s, "launches": count} for name, time_s, count in profile.longest)
        return Page("a call", "profile", [summary(head, "plain", rest[-1:]), table("Longest kernels", kernels)])
    facts = dict(zip(("model", "machine"), (each.plain for each in header(profile, WIDE, printable)), strict=False))
    wheres = {id(each): f"with {label(each)}" if each.sizes else "here" for each in profile.at}
    gains = [ceiling_text(each, wheres[id(each)], printable).plain for each in profile.at]
    runs = [
        text
        for each in profile.at
        for text in (run_text(each, printable), f"Memory {wheres[id(each)]}: {memory_text(each.memory)}.")
    ]
    sections = [summary(gains[0], "plain", (*gains[1:], *runs), facts)]
    for each in profile.at:
        sections += _at(profile, each, f" {wheres[id(each)]}" if len(profile.at) > 1 else "")
    varying = [name for name in profile.at[0].sizes if len({each.sizes.get(name) for each in profile.at}) > 1]
    if varying:
        times = [SizedTime(each.sizes[varying[0]], each.run_s, each.low_s, each.high_s) for each in profile.at]
        sections.append(sweeps("A run at each size", varying[0], {"a run": times}))
    sections.append(lines("Notes", dict.fromkeys(note for each in profile.at for note in each.notes)))
    planned = profile.subject.plan.kernels if profile.subject else ()
    return Page(
        printable(profile.model), "profile", sections, {each.operator: source_of(each, UNTRIED) for each in planned}
    )


def _at(profile: Profile, size: ProfiledSize, where: str) -> Iterator[Section]:
    """The sections of one size; `where`: the size in words, where there are several."""
    if profile.subject is not None:
        subject = profile.subject
        extra = _timed(size, subject.original.labels)
        drawing = plan_drawing(f"The model{where}", subject.original, subject.cuts, subject.plan, extra)
        yield graphs(f"Time on the graph{where}", [drawing], _NOTE)
    between = {"operator": BETWEEN, "nodes": None, "time_s": size.between_s, "median_s": None, "in_file": None}
    tables = {
        "Operators": [*map(fields_json, size.operators), between],
        "Fusable paths": map(fields_json, size.paths),
        "Nodes that ran": sorted(map(fields_json, size.nodes), key=lambda node: -float(node["time_s"])),
        "Largest values": map(fields_json, size.memory.largest),
    }
    for title, rows in tables.items():
        shares = ({**row, "share": row["time_s"] / size.run_s} if "time_s" in row else row for row in rows)
        yield table(f"{title}{where}", shares)


def _timed(size: ProfiledSize, labels: tuple[str, ...]) -> dict[int, Node]:
    """The time of each node of the file, by its position: that of the node that ran for it."""
    positions = {name: position for position, name in enumerate(labels) if name}
    result: dict[int, Node] = {}
    for node in size.nodes:
        time, count = f"{spell_s(node.time_s)} {share_text(node.time_s, size.run_s)}", len(node.stands_for)
        words = f"{time} of a run" + (f", in {node.operator} with {count - 1} other nodes" if count > 1 else "")
        for name in node.stands_for:
            result[positions[name]] = {"lines": [time], "facts": {"time": words}}
    return result
