"""What each prange of a watched run is: a map, a reduction, a scan or a race; with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from noyau.errors import FindingKind
from noyau.sanitizer.numba.interpreter import Region
from noyau.sanitizer.numba.rewrite import Loop
from noyau.sanitizer.records import Access, Seen, Site

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
class Classed:
    """A loop's class, and why."""

    file: str
    line: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.reason}"


def classed(
    regions: Sequence[Region], seen: Sequence[Seen], sites: Sequence[Site], carried: Mapping[str, Loop]
) -> list[Classed]:
    """The class of each loop that ran; `carried`: names that hold a value from one iteration to the next."""
    found: dict[tuple[str, int], Classed] = {}
    for region in regions:
        first, last = region.findings
        made = _of(region, seen[first:last], sites)
        _keep(found, made)
    for name, loop in carried.items():
        _keep(found, Classed(loop.file, loop.line, "scan", f"{name} holds what another iteration left in it"))
    return list(found.values())


def _keep(found: dict[tuple[str, int], Classed], made: Classed) -> None:
    before = found.get((made.file, made.line))
    if before is None or RANK.index(made.kind) > RANK.index(before.kind):
        found[made.file, made.line] = made


def _of(region: Region, seen: Sequence[Seen], sites: Sequence[Site]) -> Classed:
    loop, races = region.loop, [each for each in seen if each.kind is FindingKind.RACE]
    if races and is_scan(races):
        where = sites[races[0].site].line
        return Classed(loop.file, loop.line, "scan", f"line {where} reads what an earlier iteration wrote")
    if races:
        where = sites[races[0].site].line
        return Classed(loop.file, loop.line, "race", f"iterations meet in one cell on line {where}")
    if loop.running:
        name, line = loop.running[0]
        return Classed(loop.file, loop.line, "scan", f"line {line} reads the running value of {name}")
    if loop.reductions:
        told = ", ".join(f"{name} ({kind})" for name, kind in loop.reductions)
        return Classed(loop.file, loop.line, "reduction", f"iterations only update {told}")
    if region.iterations and not region.accesses:
        return Classed(loop.file, loop.line, "unseen", "it touches no array that is watched: lists are not")
    same = [sites[each.site].line for each in seen if each.kind is FindingKind.WRITTEN_TWICE]
    if same:
        return Classed(loop.file, loop.line, "map", f"what iterations write to one cell on line {same[0]} is the same")
    return Classed(loop.file, loop.line, "map", "no two iterations touch one cell, unless all of them read it")


def is_scan(races: Sequence[Seen]) -> bool:
    """Whether iterations read what earlier ones wrote, and none writes where another one did."""
    reads = [each for each in races if (each.access, each.other_access) == (Access.READ, Access.WRITE)]
    return len(reads) == len(races) and all(each.owner > each.other_owner for each in reads)


def remedy_of(race: Seen, races: Sequence[Seen], sites: Sequence[Site]) -> str:
    """What mends a race, by what meets: an update of one cell, what an earlier iteration made, an old value."""
    if is_scan(races):
        return REMEDIES["scan"]
    pairs = {(each.access, each.other_access) for each in races if each.site == race.site == each.other_site}
    if {(Access.READ, Access.WRITE), (Access.WRITE, Access.WRITE)} <= pairs:
        return REMEDIES["reduction"] if _is_one_cell(race, sites) else REMEDIES["index"]
    if not any(each.access is each.other_access is Access.WRITE for each in races):
        return REMEDIES["copy"]
    return REMEDIES["index"]


def _is_one_cell(race: Seen, sites: Sequence[Site]) -> bool:
    """Whether the line updates a cell that it names by numbers alone, as in c[0] += 1: one for all iterations."""
    text = sites[race.site].text if race.site >= 0 else ""
    return re.search(r"\w\[[\s\d,()-]*\]\s*[^\s\w=]{1,2}=", text) is not None
