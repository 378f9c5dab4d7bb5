"""The class of each prange of a watched run, with the reason: a map, a reduction, a scan or a race."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from noyau.errors import FindingKind
from noyau.sanitizer.numba.interpreter import Region
from noyau.sanitizer.numba.rewrite import PrangeLoop
from noyau.sanitizer.records import Access, Observation, Site

RANK = ("unseen", "map", "reduction", "scan", "race")  # the later one holds where runs of a loop differ
REMEDIES = {
    "reduction": "update a plain name instead (s = 0.0 before the loop, s += ... in it): Numba then makes a reduction "
    "of it",
    "scan": "an iteration needs what an earlier one made: use a plain range, or split the loop into blocks and sum "
    "those first",
    "copy": "write to another array than the one that is read",
    "index": "give each cell one iteration: write where no other iteration writes, or loop over the cells instead",
    "name": "assign the name in every iteration before it is read, or keep it in an array cell of its own",
}


@dataclass(frozen=True, slots=True)
class LoopClass:
    """A loop's class, and why."""

    file: str
    line: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.reason}"


def classify(
    regions: Sequence[Region],
    observations: Sequence[Observation],
    sites: Sequence[Site],
    carried: Mapping[str, PrangeLoop],
) -> list[LoopClass]:
    """The class of each loop that ran; `carried`: names that hold a value from one iteration to the next."""
    by_place: dict[tuple[str, int], LoopClass] = {}
    for region in regions:
        first, last = region.findings
        loop_class = _of(region, observations[first:last], sites)
        _keep(by_place, loop_class)
    for name, loop in carried.items():
        _keep(by_place, LoopClass(loop.file, loop.line, "scan", f"{name} holds what another iteration left in it"))
    return list(by_place.values())


def _keep(by_place: dict[tuple[str, int], LoopClass], loop_class: LoopClass) -> None:
    before = by_place.get((loop_class.file, loop_class.line))
    if before is None or RANK.index(loop_class.kind) > RANK.index(before.kind):
        by_place[loop_class.file, loop_class.line] = loop_class


def _of(region: Region, observations: Sequence[Observation], sites: Sequence[Site]) -> LoopClass:
    loop, races = region.loop, [each for each in observations if each.kind is FindingKind.RACE]
    if races and is_scan(races):
        where = sites[races[0].site].line
        return LoopClass(loop.file, loop.line, "scan", f"line {where} reads what an earlier iteration wrote")
    if races:
        where = sites[races[0].site].line
        return LoopClass(loop.file, loop.line, "race", f"iterations meet in one cell on line {where}")
    if loop.running:
        name, line = loop.running[0]
        return LoopClass(loop.file, loop.line, "scan", f"line {line} reads the running value of {name}")
    if loop.reductions:
        reductions = ", ".join(f"{name} ({kind})" for name, kind in loop.reductions)
        return LoopClass(loop.file, loop.line, "reduction", f"iterations only update {reductions}")
    if region.iterations and not region.accesses:
        return LoopClass(loop.file, loop.line, "unseen", "it touches no array that is watched: lists are not")
    same = [sites[each.site].line for each in observations if each.kind is FindingKind.WRITTEN_TWICE]
    if same:
        return LoopClass(
            loop.file, loop.line, "map", f"what iterations write to one cell on line {same[0]} is the same"
        )
    return LoopClass(loop.file, loop.line, "map", "no two iterations touch one cell, unless all of them read it")


def is_scan(races: Sequence[Observation]) -> bool:
    """Whether iterations read what earlier ones wrote, and none writes where another one did."""
    reads = [each for each in races if (each.access, each.other_access) == (Access.READ, Access.WRITE)]
    return len(reads) == len(races) and all(each.owner > each.other_owner for each in reads)


def remedy_of(race: Observation, races: Sequence[Observation], sites: Sequence[Site]) -> str:
    """The remedy of a race, by the accesses that meet: an update of one cell, what an earlier iteration made, an old
    value."""
    if is_scan(races):
        return REMEDIES["scan"]
    pairs = {(each.access, each.other_access) for each in races if each.site == race.site == each.other_site}
    if {(Access.READ, Access.WRITE), (Access.WRITE, Access.WRITE)} <= pairs:
        return REMEDIES["reduction"] if _is_one_cell(race, sites) else REMEDIES["index"]
    if not any(each.access is each.other_access is Access.WRITE for each in races):
        return REMEDIES["copy"]
    return REMEDIES["index"]


def _is_one_cell(race: Observation, sites: Sequence[Site]) -> bool:
    """Whether the line updates a cell that it names by numbers alone, as in c[0] += 1: one for all iterations."""
    text = sites[race.site].text if race.site >= 0 else ""
    return re.search(r"\w\[[\s\d,()-]*\]\s*[^\s\w=]{1,2}=", text) is not None
