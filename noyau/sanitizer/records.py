"""The observations of a watched run, in the words of a report: sites, memories, owners and findings."""

from __future__ import annotations

import ast
import hashlib
import linecache
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from noyau.errors import FindingKind
from noyau.text import several
from noyau.verify.findings import Finding


class Access(IntEnum):
    """An access to a cell, by its number in engine.h."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    SAME_WRITE = 3
    SWAP = 4


ACCESSES = 8  # a row of notes begins with the number of a memory times this, plus the access

_VERBS = {
    Access.READ: ("reads", "read"),
    **dict.fromkeys((Access.WRITE, Access.SAME_WRITE), ("writes", "written")),
    **dict.fromkeys((Access.ATOMIC, Access.SWAP), ("merges into", "merged into")),
}
# Remedies of races on a GPU by the owners that meet: two of a warp, two blocks (both write, or one reads), the host;
# and of updates of one cell. The words of a language: its atomics, its barriers, its wait.
_WORDS = {
    "cuda": ("atomicAdd", "a __syncthreads()", "a __syncwarp()", "cudaDeviceSynchronize()"),
    "numba_cuda": ("cuda.atomic", "cuda.syncthreads()", "cuda.syncwarp()", "cuda.synchronize()"),
}
_IN_WARP = "put {1} between them, or {2} in a branch of one warp; or use {0}"
_BETWEEN_BLOCKS = "no barrier orders two blocks: give each cell one thread, or use {0}"
_READ_BETWEEN_BLOCKS = "no barrier orders two blocks: write to a second array, read in a second launch, or use {0}"
_WITH_HOST = "wait for the grid before the host touches it: {3}"
_OF_UPDATES = "use {0}, or give each cell one thread"
_WITH_STREAMS = {"cuda": "let the later stream wait: cudaEventRecord(event, first), cudaStreamWaitEvent(second, event)"}
_ALLOWED = re.compile(r"#\s*noyau:\s*allow\(([\w\-, ]+)\)\s*(.*)|//\s*noyau:\s*allow\(([\w\-, ]+)\)\s*(.*)")


@dataclass(frozen=True, slots=True)
class Site:
    """A line of a source file, and its text."""

    file: str
    line: int
    text: str = ""

    @staticmethod
    def of(file: str, line: int) -> Site:
        return Site(file, line, linecache.getline(file, line).strip())

    @staticmethod
    def at(place: str) -> Site:
        """Return the site that `FILE:LINE` names; a place without a line is a file."""
        file, _, line = place.rpartition(":")
        return Site.of(file, int(line)) if line.isdigit() else Site(place, 0)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def allows(self, kind: FindingKind) -> str | None:
        """Return the reason of a mark `noyau: allow(KIND) REASON` on the line that silences this kind, else None."""
        match = _ALLOWED.search(self.text)
        if match is None:
            return None
        kinds = [name.strip() for name in (match[1] or match[3]).split(",")]
        return ((match[2] or match[4] or "").strip() or "without a reason") if kind in kinds else None


NOWHERE = Site("", 0)
PAIRS = frozenset({FindingKind.RACE, FindingKind.WRITTEN_TWICE, FindingKind.ORDERED_BY_CHANCE})  # of two accesses
INDICES = FindingKind.OUT_OF_BOUNDS, FindingKind.NEGATIVE_INDEX
ALIGN = "give the pointer the alignment of what it points to"  # the remedy of a misaligned access


@dataclass(frozen=True, slots=True)
class WatchedMemory:
    """A block of watched memory, with its name and shape in the source; `is_one`: a variable without indices; `width`:
    the cells of an element; `fields`: of a record, the first cells and the names."""

    name: str
    shape: tuple[int, ...]
    is_one: bool = False
    width: int = 1
    fields: tuple[tuple[int, str], ...] = ()

    def at(self, cell: int) -> tuple[int, ...]:
        """Return the index, in the packed shape, of the element that contains a cell."""
        index, cell = [], cell // self.width
        for extent in reversed(self.shape):
            cell, position = divmod(cell, max(extent, 1))
            index.append(position)
        return tuple(reversed(index))

    def cell_text(self, cell: int) -> str:
        """Return `x[3, 4]`, or `x.field[3]`."""
        names = [f"{self.name}.{name}" for place, name in self.fields if place <= cell % self.width]
        return self.name if self.is_one else f"{[self.name, *names][-1]}[{', '.join(map(str, self.at(cell))) or '()'}]"


_UNNAMED = WatchedMemory("memory", ())


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of the engine: those with equal kind, accesses, sites and memory are merged, with the numbers of
    the first. Sites, memories and owners are numbers of the watched route; -1 is none."""

    kind: FindingKind
    access: Access
    site: int
    owner: int
    cell: int
    memory: int = -1
    other_access: Access = Access.READ
    other_site: int = -1
    other_owner: int = -1
    block: int = 0
    other_block: int = 0
    axis: int = -1
    extent: int = 0
    count: int = 1
    reach: int = 3  # of a race: 0 within a warp, 1 within a block, 2 between blocks, 3 not in a grid

    @property
    def writes(self) -> int:
        """The number of the two accesses that change the cell."""
        return (self.access is not Access.READ) + (self.other_access is not Access.READ)


@dataclass(frozen=True, slots=True)
class Route:
    """Names on a route for the numbers of observations: its op, kernel and sizes, its sites and memories, and an owner
    in words (`iteration 3`, `thread 5 of block 2`). `remedies`, `messages`: the remedy and the message of a kind, where
    they differ from the language's; `hint`: the remedy of one observation, or ""."""

    language: str
    op: str
    kernel: str
    size: str
    sites: Sequence[Site]
    memories: Mapping[int, WatchedMemory]
    owner: Callable[[int], str]
    remedies: Mapping[FindingKind, str] = field(default_factory=dict)
    messages: Mapping[FindingKind, Callable[[Observation, Route], str]] = field(default_factory=dict)
    hint: Callable[[Observation], str] = lambda observation: ""

    def site(self, number: int) -> Site:
        return self.sites[number] if 0 <= number < len(self.sites) else NOWHERE

    def memory(self, number: int) -> WatchedMemory:
        return self.memories.get(number, _UNNAMED)


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """One run of a kernel with every access watched: its findings, notes on marks that allow some, and the number of
    accesses. `outputs`: its results, if kernels of the language cannot run otherwise here. `lines`: files and lines
    with an access that ran. `is_cut`: it made too many accesses, so it ended early or is watched in part."""

    findings: tuple[Finding, ...]
    accesses: int
    allowed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    outputs: tuple[np.ndarray, ...] | None = None
    lines: frozenset[tuple[str, int]] = frozenset()
    is_cut: bool = False


def findings_of(observations: Collection[Observation], route: Route) -> tuple[list[Finding], list[str]]:
    """Return a run's findings, one per kind and pair of lines, and notes on those that marks in the source allow."""
    findings: dict[str, Finding] = {}
    allowed: dict[str, None] = {}
    raced = {each.memory for each in observations if each.kind is FindingKind.RACE}  # a race leads to early reads
    by_cause = sorted(observations, key=lambda each: each.kind is FindingKind.UNINITIALISED and each.memory in raced)
    updates = _updates(by_cause)
    for each in by_cause:
        site, other = route.site(each.site), route.site(each.other_site)
        marks = [f"{place.place}: {why}" for place in (site, other) if (why := place.allows(each.kind)) is not None]
        if marks:
            allowed[f"{each.kind} allowed at {marks[0]}"] = None
            continue
        finding = _finding(each, route, (each.site, each.other_site, each.memory) in updates)
        if finding.id in findings and each.kind is FindingKind.OUT_OF_BOUNDS:
            name = route.memory(each.memory).name  # a line that stores what it loads may do both outside
            if f" {name} at " not in findings[finding.id].message:
                finding = replace(finding, digest=digest(finding.digest, name))
        findings.setdefault(finding.id, finding)
    return list(findings.values()), list(allowed)


def _updates(observations: Sequence[Observation]) -> set[tuple[int, int, int]]:
    """Return (line, line, memory) of updates as x[0] += 1: owners read and write a cell, all on that line."""
    alone = [each for each in observations if each.kind is FindingKind.RACE and each.site == each.other_site]
    one, both = ({(each.site, each.site, each.memory) for each in alone if each.writes == writes} for writes in (1, 2))
    return one & both


def _remedy(observation: Observation, route: Route, owners: Sequence[str], is_update: bool) -> str:
    kind = observation.kind
    usual = route.hint(observation) or route.remedies.get(kind) or kind.remedies.get(route.language, kind.remedy)
    words, blocks = _WORDS.get(route.language), _BETWEEN_BLOCKS if observation.writes > 1 else _READ_BETWEEN_BLOCKS
    if kind is not FindingKind.RACE or words is None:
        return usual
    if any(" in stream " in owner for owner in owners):
        return _WITH_STREAMS.get(route.language, usual)
    if "the host" in owners:
        return _WITH_HOST.format(*words)
    by_reach = _OF_UPDATES if is_update else (_IN_WARP, "", blocks, "")[observation.reach]
    return by_reach.format(*words) or usual


def _finding(observation: Observation, route: Route, is_update: bool) -> Finding:
    """Return an observation as a finding; `is_update`: several owners update a cell on its line."""
    site, other = route.site(observation.site), route.site(observation.other_site)
    memory, kind = route.memory(observation.memory), observation.kind
    if kind in INDICES and observation.axis < 0:  # in cells, while an index along an axis counts elements
        cell, extent = (each // memory.width for each in (observation.cell, observation.extent))
        observation = replace(observation, cell=cell, extent=extent)
    owners = [route.owner(each) for each in (observation.owner, observation.other_owner) if each >= 0]
    is_drawn = kind not in route.messages and observation.memory >= 0
    return Finding(
        *(route.op, route.kernel, route.language, kind, site.place, route.size),
        route.messages.get(kind, _message)(observation, route),
        cell=None if kind in INDICES or memory.is_one else memory.at(observation.cell),
        severity=kind.severity,
        other_place=other.place if other.line else "",
        owners=tuple(owners),
        digest=digest(kind, route.kernel, site.text, other.text),
        mend=_remedy(observation, route, owners, is_update),
        drawing=_drawing(observation, route, memory, owners) if is_drawn else (),
        change=update_text(site.text, route.language) if is_update else "",
    )


def _drawing(observation: Observation, route: Route, memory: WatchedMemory, owners: Sequence[str]) -> tuple[str, ...]:
    """Draw the owners that touch the cell, in order; () if a drawing would show no more than the message."""
    verb, line = _VERBS[observation.access][0], route.site(observation.site).line
    if observation.kind in INDICES:
        if not owners or observation.extent < 1 or 0 <= observation.cell < observation.extent:
            return ()
        along = f", axis {observation.axis}" if observation.axis >= 0 and len(memory.shape) > 1 else ""
        return outside_drawing(f"{memory.name}{along}", observation.extent, observation.cell, owners[0], verb)
    other = route.site(observation.other_site).line
    between = {FindingKind.RACE: "", FindingKind.ORDERED_BY_CHANCE: "only by chance"}.get(observation.kind)
    if between is None or len(owners) < 2 or not (line and other):
        return ()
    touches = (line, verb), (other, _VERBS[observation.other_access][0])
    return race_drawing(memory.cell_text(observation.cell), route.language, owners, touches, between)


def unwritten(
    memories: Mapping[int, WatchedMemory],
    holes: Callable[[int], tuple[int, int]],
    nobody: str,
    place: Site,
    route: Route,
) -> list[Finding]:
    """Return a finding for each memory with unwritten cells, unless the line at `place` allows it.

    `holes`: the number of a memory's unwritten cells, and the first; `nobody`: the writer, as in `no thread writes`."""
    findings: list[Finding] = []
    for number, memory in memories.items():
        missed, first = holes(number)
        if missed := -(-missed // memory.width):
            many = f" and {missed - 1} more cells" if missed > 1 else ""
            message = f"{nobody} {memory.cell_text(first)}{many} of {math.prod(memory.shape)}"
            messages = {FindingKind.UNWRITTEN: lambda *_, text=message: text}
            worded = replace(route, sites=[place], memories={-1: memory}, messages=messages)
            findings += findings_of([Observation(FindingKind.UNWRITTEN, Access.WRITE, 0, -1, first)], worded)[0]
    return findings


def digest(*parts: str) -> str:
    """Return the name of a finding, independent of line numbers: from its kind, kernel and lines' texts."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:10]


def _message(observation: Observation, route: Route) -> str:
    site, other = route.site(observation.site), route.site(observation.other_site)
    memory = route.memory(observation.memory)
    who, verb = route.owner(observation.owner), _VERBS[observation.access][0]
    times = f" ({observation.count} times)" if observation.count > 1 else ""
    if observation.kind in INDICES:
        along = f" along axis {observation.axis}" if observation.axis >= 0 and len(memory.shape) > 1 else ""
        where = f"at {observation.cell}{along}, which has {several(observation.extent, 'cell')}{times}"
        is_below = observation.kind is FindingKind.NEGATIVE_INDEX
        hint = " (an index below 0 counts from the end here)" if is_below else ""
        return f"{who} {verb} {memory.name} {where}{hint}"
    if observation.kind is FindingKind.UNINITIALISED:
        return f"{who} {verb} {memory.cell_text(observation.cell)}, which nobody wrote before{times}"
    if observation.kind in PAIRS:
        same = ", the same value" if observation.kind is FindingKind.WRITTEN_TWICE else ""
        line = f"line {other.line}" if other.line else "a line of a library"
        where = "the same line" if other == site else line
        past, by = _VERBS[observation.other_access][1], route.owner(observation.other_owner)
        cell, order = memory.cell_text(observation.cell), "nothing orders them"
        if observation.kind is FindingKind.ORDERED_BY_CHANCE:
            order = "only the order in which locks were taken this time orders them"
        return f"{who} {verb} {cell}, {past} by {by} on {where}{same}, and {order}{times}"
    return f"{who}: {observation.kind}{times}"


_ATOMICS = {ast.Add: "add", ast.Sub: "sub"}
_UPDATE = re.compile(r"^(?P<target>[^=;{}]+?)\s*(?P<sign>[+-])=\s*(?P<value>[^;{}]+);")
_INCREMENT = re.compile(r"^(?:(?P<target>[^=;{}+]+)\+\+|\+\+(?P<other>[^=;{}+]+));")


def race_drawing(
    cell: str, language: str, owners: Sequence[str], touches: Sequence[tuple[int, str]], between: str = ""
) -> tuple[str, ...]:
    """Draw two owners side by side, and below each its access to a cell, the earlier first. `touches`: the line and the
    verb of the second owner's access, then of the first one's; `between`: what lies between the two, if anything."""
    (line, verb), (other_line, other_verb) = touches
    one, two = owners
    width = max(len(str(line)), len(str(other_line)))
    columns = [max(len(two), len(other_verb) + len(cell) + 1), max(len(one), len(verb) + len(cell) + 1)]
    head = f"{' ' * width}  {two:<{columns[0]}}  {one}"
    is_in_block = _WORDS.get(language) and len({each.partition(" of block ")[2] for each in owners}) == 1
    missing = between or ("no barrier in between" if is_in_block else "nothing orders the two")
    first = f"{other_line:>{width}}  {f'{other_verb} {cell}':<{columns[0]}}"
    if line == other_line:
        return head, f"{first}  {verb} {cell}   <- {missing}"
    gap = f"{' ' * width}  {f' {missing} ':-^{sum(columns) + 2}}"
    return head, first.rstrip(), gap, f"{line:>{width}}  {' ' * columns[0]}  {verb} {cell}"


def outside_drawing(name: str, extent: int, index: int, owner: str, verb: str) -> tuple[str, ...]:
    """Draw the cells along an axis, and beside them the index that is outside."""
    cells = f"[{' '.join(['0', '1', '...', str(extent - 1)] if extent > 3 else map(str, range(extent)))}]"
    before = f"{name}  " if index >= 0 else f"{name}  {index} "
    line = f"{before}{cells} {index}" if index >= 0 else f"{before}{cells}"
    at = len(line) - len(str(index)) if index >= 0 else len(name) + 2
    return line, f"{' ' * at}^ {owner} {verb} here"


def _in_cuda(text: str) -> str:
    update, increment = _UPDATE.match(text), _INCREMENT.match(text)
    if update is not None and "[" in update["target"]:
        value = update["value"] if update["sign"] == "+" else f"-({update['value']})"
        return f"atomicAdd(&{update['target']}, {value});"
    target = increment and (increment["target"] or increment["other"])
    return f"atomicAdd(&{target}, 1);" if target and "[" in target else ""


def _in_numba_cuda(text: str) -> str:
    with suppress(SyntaxError):
        match ast.parse(text).body:
            case [ast.AugAssign(target=ast.Subscript(value=array, slice=index), op=op, value=value)]:
                name = _ATOMICS.get(type(op))
            case [
                ast.Assign(
                    targets=[ast.Subscript(value=array, slice=index) as cell],
                    value=ast.Call(func=ast.Name("max" | "min" as name), args=[first, value]),
                )
            ] if ast.unparse(first) == ast.unparse(cell):
                pass
            case _:
                return ""
        return f"cuda.atomic.{name}({', '.join(map(ast.unparse, (array, index, value)))})" if name else ""
    return ""


_CHANGES: Mapping[str, Callable[[str], str]] = {"cuda": _in_cuda, "numba_cuda": _in_numba_cuda}


def update_text(text: str, language: str) -> str:
    """Rewrite a line that updates a cell as an atomic; "" for other lines, or without a word in the language."""
    change = _CHANGES.get(language)
    return change(text) if change else ""
