"""Who writes which cell in the regions of a program in C, C++ or CUDA C++: a map of each that is small."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from noyau.shadow.c.elf import Lines
from noyau.shadow.c.running import Launch, Ran
from noyau.shadow.c.telling import Told, memory_of, site_of
from noyau.shadow.mapping import Map, Owner, mapped, thread_owner
from noyau.shadow.records import Memory, Site
from noyau.shadow.tracing import Writes

_BEGINS_THREADS = re.compile(r"\b(?:j?thread|async|packaged_task|promise|emplace_back|push_back)\b")
LAUNCHED = re.compile(r"([A-Za-z_]\w*)\s*(?:<[^<>]*>)?\s*<<<")


@dataclass(frozen=True, slots=True)
class _Region:
    """Where a region begins, and its launch where it is a grid."""

    address: int
    launch: Launch | None


def maps_of(ran: Ran, lines: Lines, told: Told) -> tuple[Map, ...]:
    """The first map of each launch, or of each region of threads, that writes anything."""
    regions, memories, writes, cut = _read(ran.drawn, lines, told)
    made: dict[tuple[str, str], Map] = {}
    for number, region in enumerate(regions):
        site = site_of(lines.at(region.address), told)
        at = "" if site is None else f" on line {site.line}"
        if region.launch is None:
            label, owner = (told.kernel, at), _thread
        else:
            names = set(LAUNCHED.findall(site.text)) if site else set()
            label = (names.pop() if len(names) == 1 else told.kernel, str(region.launch))
            owner = partial(thread_owner, grid=region.launch.grid, block=region.launch.block)
        is_cut = cut is not None and number >= cut
        drawn = mapped(*label, "thread", owner, memories, writes.get(number, Writes()), is_cut=is_cut)
        if (drawn.arrays or drawn.left) and not (label in made and made[label].arrays):
            made[label] = drawn
    return tuple(made.values())


def _is_of_the_library(name: str, made: Site | None) -> bool:
    """Whether a block is what the library of C++ keeps of its threads, which the user's text never names."""
    return _BEGINS_THREADS.search(made.text) is not None if made is not None else name.startswith("the block of ")


def _thread(number: int) -> Owner:
    return Owner("", str(number))


def _read(
    drawn: Sequence[str], lines: Lines, told: Told
) -> tuple[list[_Region], Mapping[int, Memory], Mapping[int, Writes], int | None]:
    """The regions, the memories by number, the writes of each region; and the region from which on they are cut."""
    regions: list[_Region] = []
    memories: dict[int, Memory] = {}
    units: dict[int, int] = {}
    rows: dict[int, list[tuple[int, int, int]]] = {}
    known: dict[str, list[int]] = {}
    cut = None
    for line in drawn:
        word, *parts = line.split("\t")
        if word == "R":
            grid = [int(each) for each in parts[1:]]
            launch = Launch((grid[0], grid[1], grid[2]), (grid[3], grid[4], grid[5])) if any(grid) else None
            regions.append(_Region(int(parts[0], 16), launch))
        elif word == "B" and int(parts[0]) not in memories:
            number, size, units[int(parts[0])] = int(parts[0]), int(parts[2]), int(parts[3])
            site = site_of(lines.at(int(parts[4], 16)), told)
            if _is_of_the_library(parts[1], site):
                continue
            memory = memory_of(parts[1], size, units[number], site, told)
            known.setdefault(memory.name, []).append(number)
            again = known[memory.name].index(number) + 1
            memories[number] = memory if again == 1 else replace(memory, name=f"{memory.name} ({again})")
        elif word == "W":
            region, number, offset, owner = map(int, parts)
            rows.setdefault(region, []).append((number, offset // units[number], owner))
        elif word == "C":
            cut = int(parts[0])
    writes = {region: Writes() for region in rows}
    for region, each in rows.items():
        writes[region].keep(np.array(each, np.int64))
    return regions, memories, writes, cut
