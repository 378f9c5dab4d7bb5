"""A watched call of a Numba kernel, on an op or on a user's arguments: its findings, and the class of each of its
pranges (a map, a reduction, a scan or a race) with the reason."""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from traceback import walk_tb
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher
from numba.typed import List

from noyau.codegen.numba.spellings import KINDS
from noyau.errors import FindingKind, SignatureError, UnsupportedError
from noyau.ir.loops import SIDE
from noyau.kernels.call import FunctionKernel
from noyau.kernels.programs.generate import BuiltProgram
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.access_map import AccessMap, Owner, TracingShadow, map_of_writes
from noyau.sanitizer.compiled_numbers import MATH
from noyau.sanitizer.engine import root_of
from noyau.sanitizer.numba.compiled import Fast, run_compiled
from noyau.sanitizer.numba.interpreter import PrangeRuntime, Region, owner_text, plain_of, require_seen, rewritten_of
from noyau.sanitizer.numba.rewrite import PrangeLoop
from noyau.sanitizer.recording_array import Recorder, Recording, TooManyError
from noyau.sanitizer.records import Access, Observation, Route, Site, WatchedRun, findings_of, unwritten
from noyau.sanitizer.routes import KernelCase, copy_argument, restore, tuple_like
from noyau.toolchain.numba.kernel import NumbaKernel, bits_of, path_of
from noyau.verify.findings import Finding

RANK = ("unseen", "map", "reduction", "scan", "race")  # if runs of a loop differ, the later class holds
REMEDIES = {
    "reduction": "update a plain name instead (s = 0.0 before the loop, s += ... in it): Numba then makes a reduction "
    "of it",
    "scan": "an iteration needs what an earlier one made: use a plain range, or split the loop into blocks and sum "
    "those first",
    "copy": "write to another array than the one that is read",
    "index": "give each cell one iteration: write where no other iteration writes, or loop over the cells instead",
    "name": "assign the name in every iteration before it is read, or keep it in an array cell of its own",
    "after": "an iteration's value ends with it: write it to a cell of an array, or assign the name after the loop",
}
MOST = 500_000  # accesses of one run in Python; a longer one runs compiled
_UNBOUND = re.compile(r"local variable '(\w+)'")
Array = np.ndarray


@dataclass(slots=True)
class Watching:
    """A Numba kernel as a function that records its accesses. `outputs`: arrays without values at the start, by `id`,
    with their names."""

    function: Any
    recorder: Recorder
    outputs: Mapping[int, str] = field(default_factory=dict)
    memories: dict[str, int] = field(default_factory=dict)
    carried: dict[str, tuple[PrangeLoop, int]] = field(default_factory=dict)
    outlived: set[str] = field(default_factory=set)  # names of `carried` that are read after their loop
    returned: list[Recording] = field(default_factory=list)
    shared: Collection[int] = ()  # arrays with several views among the arguments, by `id`
    run: PrangeRuntime = field(init=False)
    note: str = ""
    fast: Fast | None = None
    was_cut: bool = False

    def __post_init__(self) -> None:
        self.run = PrangeRuntime(self.recorder)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the kernel and return its result, with NumPy arrays."""
        names = plain_of(self.function)[0].__code__.co_varnames
        self.recorder.choose_unit(self.function, args)
        roots = Counter(id(root_of(each)) for each in args if isinstance(each, np.ndarray))
        self.shared = {root for root, count in roots.items() if count > 1}
        arguments = [self.record(each, name) for name, each in zip(names, args, strict=False)]
        options = {name: self.record(each, name) for name, each in named.items()}
        function = self.run.function_of(self.function)
        before = copy_argument(args)
        try:
            with np.errstate(all="ignore"):
                result = function(*arguments, **options)
        except TooManyError:
            result = None
            self.hurry(before)
            restore(args, before)
        except UnboundLocalError as fault:
            self.carry(fault)
            restore(args, before)
            result = None
        finally:
            with suppress(TooManyError):
                self.recorder.play()
        return self.plain(result)

    def hurry(self, args: Sequence[Any]) -> None:
        """Run again, compiled; if that is impossible, the observations so far count."""
        self.was_cut = True
        unset = frozenset(self.recorder.memories[memory].name for memory in self.memories.values())
        try:
            self.fast = None if self.shared else run_compiled(self.function, args, unset)
        except UnsupportedError:
            self.fast = None
        if self.fast is None:
            self.note = f"ended after {self.recorder.shadow.accesses} accesses"

    @property
    def accesses(self) -> int:
        return self.recorder.shadow.accesses + (self.fast.shadow.accesses if self.fast else 0)

    @property
    def place(self) -> tuple[str, int]:
        """The file and the line of its `def`."""
        text = rewritten_of(self.function)
        return text.file, text.line

    def record(self, value: Any, name: str) -> Any:
        """Wrap an argument; arrays in a tuple, or in a list that is not changed, are recorded like the others."""
        refuse = partial(require_seen, value, name, Site.of(*self.place).place)
        if isinstance(value, tuple | list | List):
            parts = [self.record(each, f"{name}[{at}]") for at, each in enumerate(value)]
            return tuple_like(value, parts) if isinstance(value, tuple) else self.run.hold(parts, refuse)
        refuse()
        if not isinstance(value, np.ndarray):
            return value
        output = self.outputs.get(id(value))
        if id(root_of(value)) in self.shared:
            return self.recorder.part_of_root(value, name)
        recording = self.recorder.array(value, name, is_set=output is None)
        if output is not None:
            self.memories[output] = recording.memory
        return recording

    def plain(self, result: Any) -> Any:
        match result:
            case tuple():
                return tuple(map(self.plain, result))
            case list():
                return list(map(self.plain, result))
            case dict():
                return {key: self.plain(each) for key, each in result.items()}
            case set():
                return set(result)
            case Recording():
                self.returned.append(result)
        return result.data if isinstance(result, Recording) else result

    def carry(self, fault: UnboundLocalError) -> None:
        """Record that a name was read before the iteration had assigned it."""
        name = "".join(_UNBOUND.findall(str(fault)))
        loops = [loop for loop in self.run.loops.values() if name in loop.private]
        if not loops:
            raise fault
        lines = [(frame.f_code.co_filename, line) for frame, line in walk_tb(fault.__traceback__)]
        own = [place for place in lines if place[0] in self.recorder.files]
        self.carried[name] = loops[-1], self.recorder.site_at(*own[-1]) if own else 0
        if not self.run.inside:
            self.outlived.add(name)

    def classes(self) -> list[LoopClass]:
        observations = self.recorder.shadow.observations()
        loops = {name: loop for name, (loop, _) in self.carried.items()}
        return classify(self.run.regions, observations, self.recorder.sites, loops)

    def report_run(self, op: str, kernel: str, size: str) -> WatchedRun:
        """Return its findings, and the classes of its loops as notes."""
        findings, allowed = self.findings(op, kernel, size)
        notes = (*map(str, self.classes()), *([self.note] if self.note else []))
        sites = [*self.recorder.sites, *(self.fast.sites if self.fast else ())]
        lines, is_cut = frozenset((site.file, site.line) for site in sites), bool(self.note)
        return WatchedRun(tuple(findings), self.accesses, tuple(allowed), notes, lines=lines, is_cut=is_cut)

    def route(self, op: str, kernel: str, size: str) -> Route:
        return Route("numba", op, kernel, size, self.recorder.sites, self.recorder.memories, owner_text)

    def findings(self, op: str, kernel: str, size: str) -> tuple[list[Finding], list[str]]:
        """Return the findings, merged per updating line, and notes on those that marks allow."""
        route = self.route(op, kernel, size)
        by_id, allowed = _findings(self.recorder.shadow.observations(), route)
        if self.fast:
            more = replace(route, sites=self.fast.sites, memories=self.fast.memories)
            others, marks = _findings(self.fast.shadow.observations(), more)
            by_id, allowed = others | by_id, allowed | marks
        for each in self.by_name(route):
            by_id.setdefault(each.id, each)
        return list(by_id.values()), list(allowed)

    def by_name(self, route: Route) -> list[Finding]:
        """Return findings on names: a name carried between iterations, and a running value that is read."""
        places = [(name, place, loop) for name, (loop, place) in self.carried.items()]
        for loop in dict.fromkeys(region.loop for region in self.run.regions if region.iterations > 1):
            places += [(name, self.recorder.site_at(loop.file, line), loop) for name, line in loop.running]
        findings = []
        for name, place, loop in places:
            message = f"{name} is read with what another iteration left in it, and nothing orders them"
            other = self.recorder.site_at(loop.file, loop.line)
            observation = Observation(FindingKind.RACE, Access.READ, place, 1, 0, other_site=other, other_owner=0)
            messages = {FindingKind.RACE: lambda *_, t=message: t}
            remedy = REMEDIES["after" if name in self.outlived else "name"]
            worded = replace(route, messages=messages, remedies={FindingKind.RACE: remedy})
            findings += [replace(each, cell=None) for each in findings_of([observation], worded)[0]]
        return findings

    def unwritten(self, op: str, kernel: str, size: str) -> list[Finding]:
        """Return a finding for each output with cells that were never written."""
        if self.note or self.carried or self.fast is not None:
            return []
        memories = {memory: self.recorder.memories[memory] for memory in self.memories.values()}
        sizes = {memory: math.prod(each.shape) for memory, each in self.recorder.memories.items()}
        empty = (each for each in self.returned if each.memory in self.recorder.unset)
        empty = (each for each in empty if each.data.size == sizes[each.memory])  # not a part of an array
        for each in empty:
            whole = self.recorder.memories[each.memory]
            memories[each.memory] = replace(whole, name="the result", shape=each.data.shape)
        place, route = Site.of(*self.place), self.route(op, kernel, size)
        return unwritten(memories, self.recorder.shadow.unwritten, "nobody writes", place, route)


def _findings(observations: Sequence[Observation], route: Route) -> tuple[dict[str, Finding], dict[str, None]]:
    """Return findings by identifier, merged per updating line, and notes on those that marks allow."""
    by_id: dict[str, Finding] = {}
    allowed: dict[str, None] = {}
    groups = defaultdict[tuple[FindingKind, int, frozenset[int]], list[Observation]](list)
    for each in observations:
        groups[each.kind, each.memory, frozenset((each.site, each.other_site))].append(each)
    for group in groups.values():
        first, remedies = max(group, key=lambda each: each.writes), {}
        if first.kind is FindingKind.RACE:
            races = [each for each in observations if each.kind is FindingKind.RACE and each.memory == first.memory]
            remedies = {FindingKind.RACE: remedy_of(first, races, route.sites)}
        group_findings, marks = findings_of([first], replace(route, remedies=remedies))
        by_id |= {each.id: each for each in group_findings if each.id not in by_id}
        allowed |= dict.fromkeys(marks)
    return by_id, allowed


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Watch the kernel on its arrays; `maps` receives its access map. UnsupportedError if it cannot be watched;
    BuildError without a C compiler."""
    traced = None if maps is None else TracingShadow()
    recorder = Recorder(MOST, traced)
    kernel = case.kernel
    watching = Watching(kernel.function, recorder)
    run = FunctionKernel(replace(kernel, function=watching), case.instance, case.constants)
    outputs, initial = case.zero_outputs(), kernel.usage.init
    if not callable(initial):
        ends = zip(case.instance.outputs, outputs, strict=True)
        watching.outputs = {id(output): value.name for value, output in ends if value.name not in initial}
    results = tuple(run.run(case.arrays, outputs))
    words = kernel.target.op, kernel.name, case.size
    watched, unset = watching.report_run(*words), watching.unwritten(*words)
    if maps is not None and traced is not None:
        names = {each.name for each in recorder.memories.values()}
        maps.append(map_of(kernel.title, recorder, traced, names, watching.was_cut))
    return replace(watched, findings=(*watched.findings, *unset), outputs=results)


def map_of(name: str, recorder: Recorder, traced: TracingShadow, names: Collection[str], is_cut: bool) -> AccessMap:
    """Return the access map of a call for the arrays of these names."""
    own = {number: each for number, each in recorder.memories.items() if each.name in names}
    return map_of_writes(name, "()", "iteration", lambda owner: Owner("", str(owner)), own, traced, is_cut=is_cut)


def watch_call(
    function: Any, args: Sequence[Any], size: str = "", op: str = "", watching: Watching | None = None
) -> tuple[WatchedRun, Any]:
    """Watch a call of a Numba function on a script's own arguments, changed as by the call; also return its result.

    UnsupportedError if it cannot be watched; its own exceptions propagate."""
    watching = watching or Watching(function, Recorder(MOST))
    result = watching(*args)
    if watching.was_cut or watching.carried:
        result = function(*args)
    name = function.py_func.__name__
    watched = watching.report_run(op or name, name, size)
    parts = result if isinstance(result, tuple) else (result,)
    if all(isinstance(each, np.ndarray) for each in parts):  # a number beside them may be the length in use
        watched = replace(watched, findings=(*watched.findings, *watching.unwritten(op or name, name, size)))
    return watched, result


def call(function: Any, args: Sequence[Any], launch: Any, size: str, op: str) -> tuple[WatchedRun, Any]:
    """Watch a call, as sanitizer/routes.py specifies. SignatureError for a launch, or unsuitable arguments."""
    name = python_function(function).__name__
    if launch is not None:
        raise SignatureError(f"{name} is called, not launched: leave out launch=")
    try:
        arguments = inspect.signature(python_function(function)).bind(*args)
    except TypeError as fault:
        raise SignatureError(f"{name}: {fault}") from None
    arguments.apply_defaults()
    return watch_call(function, arguments.args, size, op)


@dataclass(frozen=True, slots=True)
class LoopClass:
    """A loop's class, and the reason."""

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
    """Return the class of each loop that ran; `carried`: names that carry a value between iterations."""
    classes = [(each.loop, *_class_of(each, observations[slice(*each.findings)], sites)) for each in regions]
    classes += [(loop, "scan", f"{name} holds what another iteration left in it") for name, loop in carried.items()]
    by_place: dict[tuple[str, int], LoopClass] = {}
    for loop, kind, reason in classes:
        before = by_place.get((loop.file, loop.line))
        if before is None or RANK.index(kind) > RANK.index(before.kind):
            by_place[loop.file, loop.line] = LoopClass(loop.file, loop.line, kind, reason)
    return list(by_place.values())


def _class_of(region: Region, observations: Sequence[Observation], sites: Sequence[Site]) -> tuple[str, str]:
    """Return the class of a loop in one of its runs, and the reason."""
    loop, races = region.loop, [each for each in observations if each.kind is FindingKind.RACE]
    if races and is_scan(races):
        return "scan", f"line {sites[races[0].site].line} reads what an earlier iteration wrote"
    if races:
        return "race", f"iterations meet in one cell on line {sites[races[0].site].line}"
    if loop.running:
        name, line = loop.running[0]
        return "scan", f"line {line} reads the running value of {name}"
    if loop.reductions:
        reductions = ", ".join(f"{name} ({kind})" for name, kind in loop.reductions)
        return "reduction", f"iterations only update {reductions}"
    if region.iterations and not region.accesses:
        return "unseen", "it touches no array that is watched: lists are not"
    if same := [sites[each.site].line for each in observations if each.kind is FindingKind.WRITTEN_TWICE]:
        return "map", f"what iterations write to one cell on line {same[0]} is the same"
    return "map", "no two iterations touch one cell, unless all of them read it"


def is_scan(races: Sequence[Observation]) -> bool:
    """Whether iterations read what earlier ones wrote, and no two write to one cell."""
    reads = [each for each in races if (each.access, each.other_access) == (Access.READ, Access.WRITE)]
    return len(reads) == len(races) and all(each.owner > each.other_owner for each in reads)


def remedy_of(race: Observation, races: Sequence[Observation], sites: Sequence[Site]) -> str:
    """Return the remedy of a race by its accesses: updates of one cell, reads of earlier results, or old values."""
    if is_scan(races):
        return REMEDIES["scan"]
    pairs = {(each.access, each.other_access) for each in races if each.site == race.site == each.other_site}
    if {(Access.READ, Access.WRITE), (Access.WRITE, Access.WRITE)} <= pairs:
        # A line whose index is constant, as in c[0] += 1, updates one cell in all iterations.
        is_one = race.site >= 0 and re.search(r"\w\[[\s\d,()-]*\]\s*[^\s\w=]{1,2}=", sites[race.site].text)
        return REMEDIES["reduction" if is_one else "index"]
    return REMEDIES["index" if any(each.access is each.other_access is Access.WRITE for each in races) else "copy"]


def watch_generated(program: BuiltProgram, arrays: Sequence[Array], op: str, name: str, size: str) -> WatchedRun:
    """Watch every kernel of a generated program in language numba, on arrays in its layout."""
    findings, accesses = list[Finding](), list[int]()

    def call(kernel: Any, arrays: Sequence[Array]) -> list[Array]:
        """Watch one kernel, and return its results."""
        assert isinstance(kernel, NumbaKernel)
        inputs, outputs = kernel.open(arrays)
        bits = [bits_of(output) for output in outputs]
        names = {id(each): f"output {n}" for n, each in enumerate(bits)}
        watching = Watching(plainly(kernel.text)[kernel.name], Recorder(MOST), names)
        watching(*inputs, *bits)
        findings.extend((*watching.findings(op, name, size)[0], *watching.unwritten(op, name, size)))
        accesses.append(watching.recorder.shadow.accesses)
        return outputs

    results = program.run(arrays, call)
    return WatchedRun(tuple(findings), sum(accesses), outputs=tuple(results))


@lru_cache(maxsize=16)
def plainly(text: str) -> dict[str, Any]:
    """Return the names of a generated text for watching: Python stands in for LLVM intrinsics, and scalar functions,
    which touch no memory, are plain Python. So nothing is compiled."""
    path = path_of(text)
    scope: dict[str, Any] = {"__name__": f"noyau_plain_{path.parent.name}", "__file__": str(path)}
    exec(compile(text, str(path), "exec"), scope)  # noqa: S102  made by codegen/numba/printer.py
    own = {name: each for name, each in scope.items() if name.startswith("noyau_")}
    scope.update((name, each.py_func) for name, each in own.items() if isinstance(each, CPUDispatcher))
    scope.update((name, each) for name, each in _PLAIN.items() if name in scope)
    return scope


def _bits(of: type[np.generic], result: type[np.generic]) -> Callable[[Any], np.generic]:
    return lambda x: of(x).view(result)


def _write(cells: Any, at: int, tile: Any, first: int, count: int) -> None:
    flat = cells.reshape(-1)
    for k in range(count):
        flat[at + k] = tile[first + k]


def _turn(tile: Any, at: int, there: int, cells: Any, begin: int, here: int) -> None:
    flat = cells.reshape(-1)
    for line in range(SIDE):
        for cell in range(SIDE):
            tile[at + cell * there + line] = flat[begin + line * here + cell]


def _merging(merge: Callable[[Any, Any], Any]) -> Callable[[Any, int], None]:
    """Return a function that merges the lanes of an array into the first by halves."""

    def merged(lanes: Any, count: int) -> None:
        while count > 1:
            count //= 2
            for lane in range(count):
                lanes[lane] = merge(lanes[lane], lanes[count + lane])

    return merged


_MERGES: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "multiply": operator.mul, "max": lambda a, b: max(b, a), "min": lambda a, b: min(b, a),
    "or": operator.or_, "and": operator.and_,
}  # fmt: skip
_PLAIN: dict[str, Any] = {
    **{f"noyau_merge_{word}_{kind}": _merging(merge) for word, merge in _MERGES.items() for kind in KINDS.values()},
    "math": MATH, "noyau_bits_f32": _bits(np.float32, np.uint32), "noyau_bits_f64": _bits(np.float64, np.uint64),
    "noyau_cells": np.empty, "noyau_fetch": lambda cells, at, count: None,
    "noyau_flat": lambda cells: cells.reshape(-1), "noyau_from_bits_f32": _bits(np.uint32, np.float32),
    "noyau_from_bits_f64": _bits(np.uint64, np.float64), "noyau_row": np.empty, "noyau_turn": _turn,
    "noyau_write_around": _write, "noyau_written_around": lambda: None,
}  # fmt: skip
