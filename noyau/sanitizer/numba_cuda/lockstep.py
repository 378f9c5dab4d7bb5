"""The threads of a launch in lockstep, block by block: each runs until it waits, and continues when all have arrived;
and the results of numba.cuda's words that wait."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noyau.errors import FindingKind
from noyau.kernels.user_kernel import Three
from noyau.sanitizer.engine import ReplayEvent
from noyau.sanitizer.numba_cuda.arrays import LaunchRecorder
from noyau.sanitizer.records import Access

if TYPE_CHECKING:
    from noyau.sanitizer.numba_cuda.device import SimulatedDevice

WARP = 32
LEFT_OUT = 2  # marks a waiting lane whose own mask excludes it
_ENTER = int(ReplayEvent.ENTER)
FULL = (1 << WARP) - 1

# A waiting thread has yielded a request (word, site, arguments). Within a block all threads wait together, within a
# warp the lanes of the mask, which is the first argument.
BLOCK_WIDE = ("syncthreads", "syncthreads_count", "syncthreads_and", "syncthreads_or")
GRID_WIDE = "grid.sync"  # a barrier of each block, and then of all blocks
Lanes = Mapping[int, Sequence[Any]]  # the arguments of each lane that takes part


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One call: its word, its site, and its arguments."""

    word: str
    site: int
    arguments: tuple[Any, ...] = ()
    is_block_wide: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_block_wide", self.word in (*BLOCK_WIDE, GRID_WIDE))

    @property
    def mask(self) -> int:
        """The lanes that a call of a warp function names."""
        return int(self.arguments[0]) & FULL if self.arguments else FULL


def of_block(word: str, flags: Sequence[Any]) -> Any:
    """Return a barrier's result for each thread of a block; `flags`: the arguments of all threads."""
    answers: dict[str, Callable[[Iterable[bool]], int]]
    answers = {"syncthreads_count": sum, "syncthreads_and": all, "syncthreads_or": any}
    return int(answers[word](map(bool, flags))) if word in answers else None


def of_warp(word: str, lanes: Lanes) -> dict[int, Any]:
    """Return the result of a warp function for each lane. A shuffle from a lane that takes no part gives the lane's own
    value, since the hardware's is undefined; `strays` returns these lanes."""
    if word.startswith("shfl_"):
        return {lane: lanes.get(_source(word, lane, own), own)[1] for lane, own in lanes.items()}
    return _VOTES[word](lanes)


def strays(word: str, lanes: Lanes) -> dict[int, int]:
    """Return the lanes that read from a lane that takes no part, with the latter."""
    if not word.startswith("shfl_"):
        return {}
    sources = {lane: _source(word, lane, arguments) for lane, arguments in lanes.items()}
    return {lane: source for lane, source in sources.items() if source not in lanes}


def _source(word: str, lane: int, arguments: Sequence[Any]) -> int:
    """Return the lane that a shuffle reads from: the lane itself if the source lies outside its segment (CUDA C++
    Programming Guide, "Warp Shuffle Functions")."""
    by = int(arguments[2])
    width = int(arguments[3]) if len(arguments) > 3 else WARP
    first = lane - lane % width
    match word:
        case "shfl_sync":
            return first + by % width
        case "shfl_up_sync":
            return lane - by if lane - by >= first else lane
        case "shfl_down_sync":
            return lane + by if lane + by < first + width else lane
        case _:
            other = lane ^ by
            return other if other < first + width else lane


def _mask(lanes: Iterable[int]) -> int:
    return sum(1 << lane for lane in lanes)


def _vote(judge: Callable[[list[bool]], bool]) -> Callable[[Lanes], dict[int, Any]]:
    return lambda lanes: dict.fromkeys(lanes, bool(judge([bool(arguments[1]) for arguments in lanes.values()])))


def _match_any(lanes: Lanes) -> dict[int, Any]:
    alike: dict[Any, int] = {}
    for lane, arguments in lanes.items():
        alike[arguments[1]] = alike.get(arguments[1], 0) | 1 << lane
    return {lane: alike[arguments[1]] for lane, arguments in lanes.items()}


def _match_all(lanes: Lanes) -> dict[int, Any]:
    values = [arguments[1] for arguments in lanes.values()]
    alike = all(value == values[0] for value in values)
    return dict.fromkeys(lanes, (_mask(lanes) if alike else 0, alike))


_VOTES: dict[str, Callable[[Lanes], dict[int, Any]]] = {
    "syncwarp": dict.fromkeys, "activemask": lambda lanes: dict.fromkeys(lanes, _mask(lanes)),
    "ballot_sync": lambda lanes: dict.fromkeys(lanes, _mask(lane for lane, own in lanes.items() if own[1])),
    "all_sync": _vote(all), "any_sync": _vote(any), "eq_sync": _vote(lambda flags: all(flags) or not any(flags)),
    "match_any_sync": _match_any, "match_all_sync": _match_all,
}  # fmt: skip
SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
WAITING = (*BLOCK_WIDE, *SHUFFLES, *_VOTES)


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of the running block. `request`: what it waits for; `answer`: the result with which it continues;
    `left`: the site where it returned, -1 at the end of its text."""

    at: Three
    rank: int
    owner: int
    step: Callable[[Any], Request]  # resumes its generator
    request: Request | None = None
    answer: Any = None
    done: bool = False
    left: int = -1

    @property
    def site(self) -> int:
        """The site where it waits, or returned."""
        return self.request.site if self.request is not None else self.left


@dataclass(slots=True)
class Lockstep:
    """Runs a grid of threads. `thread`: runs one thread, as a generator if `waits`."""

    recorder: LaunchRecorder
    device: SimulatedDevice
    grid: Three
    block: Three
    thread: Callable[[], Any]
    waits: bool

    @property
    def block_size(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    def run(self) -> None:
        """Run all blocks in order; if they wait for the grid, each up to its next wait."""
        places = list(_places(self.block))
        blocks: Iterable[tuple[int, Iterator[Thread]]]
        blocks = ((number, self._block(number, at, places)) for number, at in enumerate(_places(self.grid)))
        while waiting := self._together_in_grid(blocks):
            self.recorder.region(serial=False)
            blocks = waiting

    def _together_in_grid(self, blocks: Iterable[tuple[int, Iterator[Thread]]]) -> list[tuple[int, Iterator[Thread]]]:
        """Run each block until it ends or waits for the grid; return the waiting ones, and report one that ended."""
        waiting, first, ended = [], None, -1
        for number, steps in blocks:
            thread = next(steps, None)
            if thread is None:
                ended = number
            else:
                waiting.append((number, steps))
                first = first or (thread, number)
        if first is not None and ended >= 0:
            self.recorder.enter(first[0].owner, first[1], 0)
            self._note(FindingKind.DIVERGENT_BARRIER, first[0].left, other=(-1, ended * self.block_size), index=1)
        return waiting

    def _block(self, number: int, at: Three, places: Sequence[Three]) -> Iterator[Thread]:
        """Run a block; yield one of its threads whenever all of them wait for the grid."""
        self.device.begin_block(at)
        if not self.waits:  # the threads run one after the other
            index, note, run = self.device.threadIdx, self.recorder.note, self.thread
            first, team = number * self.block_size, number << 32
            for rank, (index.x, index.y, index.z) in enumerate(places):
                note(_ENTER, first + rank, team | rank // WARP)
                run()
            return
        for thread in self._waiting(number, places):
            with self.device.other_blocks():
                yield thread

    def _waiting(self, block: int, places: Sequence[Three]) -> Iterator[Thread]:
        first = block * self.block_size
        threads = [Thread(at, rank, first + rank, self.thread().send) for rank, at in enumerate(places)]
        warps = [threads[start : start + WARP] for start in range(0, len(threads), WARP)]
        counts = [0] * len(warps)  # syncwarps that each has passed
        for epoch in itertools.count():
            for number, warp in enumerate(warps):
                counts[number] = self._warp(warp, block, number, epoch, counts[number])
            waiting = [thread for thread in threads if not thread.done]
            if not waiting:
                return
            is_grid_wide, waiting[0].left = _word(waiting) == GRID_WIDE, waiting[0].site
            self._barrier(waiting, threads, block, epoch)
            if is_grid_wide:
                yield waiting[0]

    def _warp(self, warp: list[Thread], block: int, number: int, epoch: int, passed: int) -> int:
        """Run a warp until each thread has ended or waits for the block; return how many syncwarps it has passed."""
        while True:
            self._step(warp, block << 32 | number, epoch << 32 | passed)
            waiting = [each for each in warp if each.request is not None and not each.request.is_block_wide]
            if not waiting:
                return passed
            together = self._together(waiting, warp)
            is_sync = _word(together) == "syncwarp"
            self._answer(together, _missing(together, warp), block, number, epoch, passed)
            passed += is_sync

    def _step(self, warp: list[Thread], team: int, when: int) -> None:
        """Run each thread of a warp that waits for nothing until it waits or ends; `team`, `when`: the shadow's words
        for its block and warp, and for the barriers that each has passed."""
        index, note = self.device.threadIdx, self.recorder.note
        for thread in warp:
            if thread.request is not None or thread.done:
                continue
            index.x, index.y, index.z = thread.at
            note(_ENTER, thread.owner, team, when)
            try:
                thread.request = thread.step(thread.answer)
            except StopIteration as end:
                thread.done, thread.left = True, -1 if end.value is None else end.value

    def _together(self, waiting: list[Thread], warp: list[Thread]) -> list[Thread]:
        """Return the lanes to answer next: a complete group, else the first one."""
        groups = defaultdict[tuple[str, int, int], list[Thread]](list)
        for each in waiting:
            if (request := each.request) is not None:
                groups[request.word, request.site, request.mask].append(each)
        return next((group for group in groups.values() if not _missing(group, warp)), next(iter(groups.values())))

    def _answer(self, group: list[Thread], missing: list[Thread], *when: int) -> None:
        """Answer each lane of a group; `missing`: lanes from `_missing`, to report; `when`: for `enter`."""
        if missing:
            self.recorder.enter(group[0].owner, *when)
            self._divergent(group[0], missing[0], is_left_out=missing[0] in group)
        word, by_lane = _word(group), {each.rank % WARP: each for each in group}
        lanes = {lane: each.request.arguments for lane, each in by_lane.items() if each.request is not None}
        for lane, source in strays(word, lanes).items():
            self.recorder.enter(by_lane[lane].owner, *when)
            self._note(FindingKind.UNINITIALISED, by_lane[lane].site, index=source)
        answers = of_warp(word, lanes)
        for lane, each in by_lane.items():
            each.answer, each.request = answers[lane], None

    def _barrier(self, waiting: list[Thread], threads: list[Thread], block: int, epoch: int) -> None:
        """Release all threads of the block; report one that waits elsewhere, or has returned."""
        first, requests = waiting[0], {each.request for each in waiting}
        other = next((each for each in waiting if each.site != first.site), None) if len(requests) > 1 else None
        absent = other or next((each for each in threads if each.done), None)
        if absent is not None:
            self.recorder.enter(first.owner, block, first.rank // WARP, epoch)
            self._divergent(first, absent)
        flags = [each.request.arguments[0] for each in waiting if each.request is not None and each.request.arguments]
        answer = of_block(_word(waiting), flags)
        for each in waiting:
            each.answer, each.request = answer, None

    def _divergent(self, thread: Thread, other: Thread, *, is_left_out: bool = False) -> None:
        index = LEFT_OUT if is_left_out else int(other.done)
        self._note(FindingKind.DIVERGENT_BARRIER, thread.site, other=(other.site, other.owner), index=index)

    def _note(self, kind: FindingKind, site: int, *, index: int, other: tuple[int, int] = (-1, -1)) -> None:
        self.recorder.play()
        if not self.recorder.was_cut:
            self.recorder.shadow.note(kind, -1, Access.READ, site, other=other, index=index)


def _missing(group: list[Thread], warp: list[Thread]) -> list[Thread]:
    """Return lanes of a warp that a group's mask names and that are not in the group, or the reverse. A lane that has
    ended is missing only if another reads from it (CUDA C++ Programming Guide, "Warp Shuffle Functions")."""
    request = group[0].request
    if request is None or request.word == "activemask":
        return []
    lanes = {each.rank % WARP: each.request.arguments for each in group if each.request is not None}
    absent = [each for each in warp if bool(request.mask >> each.rank % WARP & 1) != (each.rank % WARP in lanes)]
    return [each for each in absent if not each.done or each.rank % WARP in strays(request.word, lanes).values()]


def _word(group: list[Thread]) -> str:
    request = group[0].request
    return "" if request is None else request.word


def _places(extents: Three) -> Iterator[Three]:
    """Return all places of a grid or a block, x first."""
    x, y, z = extents
    return ((i, j, k) for k in range(z) for j in range(y) for i in range(x))
