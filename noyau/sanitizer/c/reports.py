"""The faults of runs as findings, and maps of the owners that write each cell of the small arrays of a region."""

import linecache
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from noyau.errors import FindingKind
from noyau.kernels.c.syntax import blank_comments, syntax
from noyau.kernels.user_kernel import LaunchConfig, three
from noyau.sanitizer.access_map import AccessMap, Owner, Writes, map_of_writes, thread_owner
from noyau.sanitizer.c.build import OWN
from noyau.sanitizer.c.debug_info import LineTable
from noyau.sanitizer.c.pragmas import remedy_of_race
from noyau.sanitizer.c.run import UNUSED, Fault, RunResult
from noyau.sanitizer.lint.constants import named_numbers
from noyau.sanitizer.records import ALIGN, PAIRS, Access, Observation, Route, Site, WatchedMemory, findings_of
from noyau.text import several
from noyau.verify.findings import Finding

T = TypeVar("T")
_OF_PROGRAMS = {  # no op specifies the contents of outputs
    FindingKind.UNINITIALISED: "write each cell on every path before it is read; wait where another thread writes",
    FindingKind.UNWRITTEN: "let the loop reach the last cells",
}
_ON_STACK = "a variable on the stack"
_GOES_ON = "may still go on"
AWAIT = "let who copies wait for it (__pipeline_wait_prior, consumer_wait, cg::wait), and put a barrier behind that"
# Targets of the assignments on a line; a call with arguments counts, since it may write too.
_TARGETS = re.compile(
    r"(?:\+\+|--)\s*(\w+)|(\S*?[\w\])])\s*(?:[-+*/%|&^]?=(?!=)|\+\+|--)|\b(?!(?:if|for|while)\b)(\w+\()(?!\))"
)
# Kinds whose message comes from the run.
_WORDED = (FindingKind.DIVERGENT_BARRIER, FindingKind.CRASH, FindingKind.LAUNCH, FindingKind.UNWRITTEN)
_WARPS = {
    "ended": "waits at a barrier which {other} never reaches: it has returned{line}",
    "mask": "calls with a mask that leaves out its own lane",
    "no lane": "asks for the value of a lane that the block does not have",
    "lane ended": "asks for the value of {other}, which has returned{line}",
    "lane": "asks for the value of {other}, which is not there{line}",
    "warp": "waits for {other}, which is elsewhere{line}",
    "phase": "waits at a barrier for threads that never arrive",
    "": "waits at a barrier, and {other} at another one{line}",
}
# A pointer to memory that its line allocates, on the host or on a device.
_ALLOCATES = re.compile(
    r"(\w+)\s*(?:=|\()\s*(?:\([^()]*\)\s*|static_cast<[^()]*>\(\s*)?(?:std::)?(?:malloc|calloc|aligned_alloc|realloc|new)\b"
    r"|cudaMalloc\w*\s*\(\s*(?:\([^()]*\)\s*)?&(\w+)"
    r"|(\w+)\s*=\s*(?:torch|at)::(?:empty|zeros)\w*\s*\("
)
# A call that launches a kernel by its name.
_LAUNCHES = re.compile(
    r"\bcudaLaunch\w*Kernel\w*\s*\((?:\s*&\w+\s*,)?\s*(?:\(\s*(?:const\s+)?void\s*\*\s*\)\s*)?&?(?:\w+::)*(\w+)"
    r"|\b(thrust::\w+)\s*\("
)
_BEGINS_THREADS = re.compile(r"\b(?:j?thread|async|packaged_task|promise|emplace_back|push_back)\b")


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The subject of findings: the op, the kernel and its function, its language, the `place` of its text, the text,
    and the arrays of the call by name."""

    op: str
    kernel: str
    entry: str
    language: str
    place: str
    text: str
    shapes: Mapping[str, tuple[int, ...]]
    size: str

    @property
    def entry_site(self) -> Site:
        """The line of the kernel's own name, for faults without a line."""
        name = re.escape(re.sub(r"<.*>$", "", self.entry))
        texts = self.text.splitlines()
        at = next((k for k, line in enumerate(texts) if re.search(rf"\b{name}\s*\(", line)), 0)
        return Site(self.place, at + 1, texts[at].strip() if texts else "")

    def finding(self, kind: FindingKind, message: str) -> Finding:
        """Return a finding at that line."""
        return Finding(self.op, self.kernel, self.language, kind, self.entry_site.place, self.size, message)


@dataclass(slots=True)
class _Numbers:
    """The numbers of sites, memories and owners, in order of appearance."""

    sites: dict[Site, int] = field(default_factory=dict)
    memories: dict[WatchedMemory, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)


def _number(numbers: dict[T, int], value: T | None) -> int:
    """Return the number of a value, the next one for a new value; -1 for none."""
    return numbers.setdefault(value, len(numbers)) if value else -1


def findings_of_runs(
    runs: Sequence[RunResult], lines: LineTable, context: ReportContext
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Return the findings of all runs of a call, each kind and pair of lines once, and notes on allowed ones."""
    numbers = _Numbers()
    words = _observations(runs, lines, context, numbers)
    raced = {_sides(each) for each in words if each.kind is FindingKind.RACE}
    lesser = PAIRS - {FindingKind.RACE}
    worded = {each: text for each, text in words.items() if text and each.kind not in _WORDED}
    others = [each for each in words if each not in worded and (each.kind not in lesser or _sides(each) not in raced)]
    remedies = {kind: text for kind, text in _OF_PROGRAMS.items() if context.language not in kind.remedies}
    owners = list(numbers.owners)
    route = Route(
        context.language,
        *(context.op, context.kernel, context.size),
        list(numbers.sites),
        dict(enumerate(numbers.memories)),
        lambda owner: owners[owner] if 0 <= owner < len(owners) else "it",
        remedies if context.entry == "main" else {},
        {kind: lambda each, _: words[each] for kind in _WORDED},
    )
    findings, allowed = findings_of(others, route)
    by_words = replace(route, messages={each.kind: lambda each, _: worded[each] for each in worded})
    more_findings, more_allowed = findings_of(worded, by_words)
    by_case = [_with_remedy(each, context) for each in (*findings, *more_findings)]
    unset = [each for run in runs for each in run.faults if each.kind is FindingKind.UNINITIALISED]
    used, unused = ([lines.at(each.site) for each in unset if (each.words == UNUSED) is it] for it in (False, True))
    places = {site.place for each in unused if each not in used and (site := site_of(each, context))}
    is_unused = [each.kind is FindingKind.UNINITIALISED and each.place in places for each in by_case]
    by_case = [each.without_effect() if it else each for each, it in zip(by_case, is_unused, strict=True)]
    return tuple(dict.fromkeys(by_case)), tuple(dict.fromkeys([*allowed, *more_allowed]))


def _with_remedy(finding: Finding, context: ReportContext) -> Finding:
    """Replace the remedy of a finding by that of OpenMP's constructs, private variables, alignment or copies."""
    if finding.kind is FindingKind.CRASH and " not a multiple of " in finding.message:
        return replace(finding, mend=ALIGN)
    if finding.kind is FindingKind.UNINITIALISED and _GOES_ON in finding.message:
        return replace(finding, mend=AWAIT)
    if finding.kind is FindingKind.UNINITIALISED and _ON_STACK in finding.message:
        return replace(finding, mend="private gives it no value: set it before it is read, or say firstprivate")
    file, _, line = finding.place.rpartition(":")
    other_file, _, other = (finding.other_place or finding.place).rpartition(":")
    if finding.kind is not FindingKind.RACE or {file, other_file} != {context.place}:
        return finding
    remedy = remedy_of_race(blank_comments(context.text), int(line), int(other), finding.owners)
    return replace(finding, mend=remedy) if remedy else finding


def _shown_faults(runs: Sequence[RunResult]) -> Iterator[Fault]:
    """Yield the faults of all runs, except unwritten reads by a side of a race that only later runs show."""
    faults = [(number, fault) for number, run in enumerate(runs) for fault in run.faults]
    sides = {site for _, each in faults if each.kind is FindingKind.RACE for site in (each.site, each.other_site)}
    for number, fault in faults:
        if not (number and fault.kind is FindingKind.UNINITIALISED and fault.site in sides):
            yield fault


def _observations(
    runs: Sequence[RunResult], lines: LineTable, context: ReportContext, numbers: _Numbers
) -> dict[Observation, str]:
    """Return the faults of runs, each kind and pair of lines once, with their own messages if they have any."""
    words: dict[tuple[object, ...], tuple[Observation, str]] = {}
    for fault in _shown_faults(runs):
        addresses = fault.site, fault.other_site, fault.allocation
        site, other, allocation = (site_of(lines.at(address), context) for address in addresses)
        if site is None and other is not None and fault.kind is FindingKind.RACE:
            # The library's access came second: a race is reported from the user's line.
            mirrored = replace(fault, how=fault.other_how, owner=fault.other_owner)
            fault = replace(mirrored, other_how=fault.how, other_owner=fault.owner)
            site, other = other, site
        if fault.kind is FindingKind.DIVERGENT_BARRIER and fault.words == "" and site == other:
            continue  # one barrier that the compiler has duplicated
        memory = memory_of(fault.name, fault.size, fault.unit, allocation, context) if fault.name else None
        if memory and memory.name == _ON_STACK and fault.kind in PAIRS:
            memory = replace(memory, name=_variable(fault, site, other))
        observation = _observation(fault, site or context.entry_site, other, numbers, memory)
        sites = (observation.site, observation.other_site)[: 1 + (observation.kind in PAIRS)]
        key = (observation.kind, *sites, observation.memory)
        words.setdefault(key, (observation, _message(fault, site, other, memory)))
    return dict(words.values())


def _variable(fault: Fault, site: Site | None, other: Site | None) -> str:
    """Return the variable of a race: the only target of its writing lines, if both of its lines name it."""
    sides = [(each.text, how) for each, how in ((site, fault.how), (other, fault.other_how)) if each]
    matches = [match for text, how in sides if how != Access.READ for match in _TARGETS.finditer(text)]
    name, *others = {(match[1] or match[2] or match[3]).lstrip("({") for match in matches} or {""}
    is_sure = name.isidentifier() and all(re.search(rf"\b{name}\b", text) for text, _ in sides)
    return name if is_sure and not others else _ON_STACK


def _sides(observation: Observation) -> tuple[frozenset[int], int]:
    """Return the two lines of a pair of accesses, in any order, and the memory."""
    return frozenset((observation.site, observation.other_site)), observation.memory


def site_of(place: tuple[str, int], context: ReportContext) -> Site | None:
    """Return the user's line that a line table names, else None."""
    file, line = place
    if not line or file == "noyau_call":
        return None
    if file != OWN:
        return Site.of(file, line)
    texts = context.text.splitlines()
    return Site(context.place, line, texts[line - 1].strip() if line <= len(texts) else "")


def source_of(site: Site, context: ReportContext) -> str:
    """Return the text of the file of a line."""
    return context.text if site.file == context.place else "".join(linecache.getlines(site.file))


def kernel_name_at(site: Site, context: ReportContext) -> str:
    """Return the kernel that a line launches; that of the context if the line names none."""
    launch = syntax(source_of(site, context), "cuda").launch_on(site.line)
    call = _LAUNCHES.search(site.text)
    return launch.name if launch else call[1] or call[2] if call else context.kernel


@cache
def _declared_axes(name: str, cells: int, text: str) -> tuple[int, ...]:
    """Return the axes that a text declares for an array, where one declaration has so many cells, else one axis."""
    plain, shapes = blank_comments(text), set[tuple[int, ...]]()
    numbers = named_numbers(plain)
    for match in re.finditer(rf"[\w>*,]\s*\b{re.escape(name)}((?:\s*\[[^][]+\]){{2,}})\s*[;=,]", plain):
        sums = [[each.split("*") for each in axis.split("+")] for axis in re.findall(r"\[([^]]*)", match[1])]
        with suppress(ValueError):  # of one that depends on a template
            axes = (sum(math.prod(int(numbers.get(k.strip(), k)) for k in each) for each in axis) for axis in sums)
            shapes.add(tuple(axes))
    fitting = [each for each in shapes if math.prod(each) == cells]
    return fitting[0] if len(fitting) == 1 else (cells,)


def memory_of(name: str, size: int, unit: int, allocation: Site | None, context: ReportContext) -> WatchedMemory:
    """Return a block of memory; an allocated one is named by the pointer on its line, or by that line."""
    if name == "the stack":
        return WatchedMemory(_ON_STACK, (1,), is_one=True)
    shape = context.shapes.get(name) or _declared_axes(name, size // (unit or 1), context.text)
    if allocation is not None:
        pointers = {match[1] or match[2] or match[3] for match in _ALLOCATES.finditer(allocation.text)}
        file = "" if allocation.file == context.place else f"{Path(allocation.file).name}, "
        name = pointers.pop() if len(pointers) == 1 else f"memory of {file}line {allocation.line}"
    is_one = allocation is None and name not in context.shapes and shape == (1,)
    return WatchedMemory(name, shape or (1,), is_one)


def _observation(
    fault: Fault, site: Site, other: Site | None, numbers: _Numbers, memory: WatchedMemory | None
) -> Observation:
    unit = fault.unit or 1
    kind = FindingKind.WRITTEN_TWICE if fault.kind is FindingKind.RACE and not fault.changed else fault.kind
    return Observation(
        *(kind, _access(fault.how), _number(numbers.sites, site), _number(numbers.owners, fault.owner)),
        fault.offset // unit,
        _number(numbers.memories, memory),
        *(_access(fault.other_how), _number(numbers.sites, other), _number(numbers.owners, fault.other_owner)),
        extent=fault.size // unit,
        count=fault.count,
        reach=fault.reach,
    )


def _access(how: int) -> Access:
    """Return the kind of an access; a fault without an access has another number there."""
    return Access(how) if how in tuple(Access) else Access.READ


def _message(fault: Fault, site: Site | None, other: Site | None, memory: WatchedMemory | None) -> str:
    """Return the message of a fault; "" for one that the record of findings words."""
    who, by = fault.owner or "it", fault.other_owner or "another"
    line = f" on line {other.line}" if other else ""
    unit = fault.unit or 1
    match fault.kind:
        case FindingKind.DIVERGENT_BARRIER:
            return f"{who} {_WARPS[fault.words].format(other=by, line=line)}"
        case FindingKind.UNWRITTEN if fault.words == "copied" and memory is not None:
            cells = f"{fault.count} of the {several(fault.size // unit, 'cell')} of {memory.name}"
            return f"the host copies {cells}, which nobody wrote; the first is {memory.cell_text(fault.offset // unit)}"
        case FindingKind.UNWRITTEN:
            cells = f"{fault.count} of the {fault.size // unit} cells of {fault.name}"
            return f"never wrote {cells}; the first is [{fault.offset // unit}]"
        case FindingKind.CRASH:
            after = f" at {memory.name}" if memory else ""
            return f"{fault.words}{after}" + (f", after {who} reached line {site.line}" if site else "")
        case FindingKind.LAUNCH:
            return fault.words
        case FindingKind.UNINITIALISED if fault.words == "copied" and memory is not None:
            cell, copies = memory.cell_text(fault.offset // unit), f"the copy by {by}{line} {_GOES_ON}"
            return f"{who} reads {cell}, into which {copies}" + (f" ({fault.count} times)" if fault.count > 1 else "")
        case FindingKind.OUT_OF_BOUNDS if fault.words == "freed":
            return f"{who} touches {fault.name} after it was freed"
        case FindingKind.OUT_OF_BOUNDS if fault.words == "unseen":
            return f"it wrote outside {fault.name}, at {fault.offset // unit}, in a way that is not watched"
    return ""


def maps_of(ran: RunResult, lines: LineTable, context: ReportContext) -> tuple[AccessMap, ...]:
    """Return the first map of each launch, or of each region of threads, that writes anything."""
    regions, memories, writes, cut = _read_writes(ran.write_log, lines, context)
    maps: dict[tuple[str, str], AccessMap] = {}
    for number, (address, config) in enumerate(regions):
        site = site_of(lines.at(address), context)
        if config is None:
            label, owner = (context.kernel, f" on line {site.line}" if site else ""), lambda k: Owner("", str(k))
        else:
            label = (kernel_name_at(site, context) if site else context.kernel, str(config))
            owner = partial(thread_owner, grid=config.grid, block=config.block)
        is_cut = cut is not None and number >= cut
        access_map = map_of_writes(*label, "thread", owner, memories, writes[number], is_cut=is_cut)
        if (access_map.arrays or access_map.left) and not (label in maps and maps[label].arrays):
            maps[label] = access_map
    return tuple(maps.values())


def _read_writes(
    log: Sequence[str], lines: LineTable, context: ReportContext
) -> tuple[list[tuple[int, LaunchConfig | None]], Mapping[int, WatchedMemory], Mapping[int, Writes], int | None]:
    """Read the regions (the start of each, and the launch of a grid), the memories by number, the writes of each
    region, and the region from which on they are cut."""
    regions: list[tuple[int, LaunchConfig | None]] = []
    memories: dict[int, WatchedMemory] = {}
    units: dict[int, int] = {}
    rows, numbers = defaultdict[int, list[tuple[int, int, int]]](list), defaultdict[str, list[int]](list)
    cut = None
    for line in log:
        word, *parts = line.split("\t")
        if word == "R":
            grid = [int(each) for each in parts[1:]]
            launch = LaunchConfig(three(grid[:3]), three(grid[3:6])) if any(grid) else None
            regions.append((int(parts[0], 16), launch))
        elif word == "B" and int(parts[0]) not in memories:
            number, size, units[int(parts[0])] = int(parts[0]), int(parts[2]), int(parts[3])
            site = site_of(lines.at(int(parts[4], 16)), context)
            if _BEGINS_THREADS.search(site.text) if site else parts[1].startswith("the block of "):
                continue  # the C++ library's memory for its threads, which the user's text never names
            memory = memory_of(parts[1], size, units[number], site, context)
            numbers[memory.name].append(number)
            again = numbers[memory.name].index(number) + 1
            memories[number] = memory if again == 1 else replace(memory, name=f"{memory.name} ({again})")
        elif word == "W":
            region, number, offset, owner = map(int, parts)
            rows[region].append((number, offset // units[number], owner))
        elif word == "C":
            cut = int(parts[0])
    writes = defaultdict[int, Writes](Writes)
    for region, each in rows.items():
        writes[region].keep(np.array(each, np.int64))
    return regions, memories, writes, cut
