"""The threads of a launch, one block after the other: each runs until it waits, and goes on when all have come."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from noyau.errors import FindingKind
from noyau.sanitizer.numba_cuda.arrays import LaunchRecorder
from noyau.sanitizer.numba_cuda.device import SimulatedDevice
from noyau.sanitizer.numba_cuda.requests import WARP, Request, of_block, of_warp, strays
from noyau.sanitizer.records import Access

Thread3 = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class Thread:
    """A thread of the block that runs. `asked`: what it waits for; `answer`: what it goes on with; `left`: where it
    returned, -1 where its last line was passed."""

    at: Thread3
    rank: int
    owner: int
    steps: Generator[Request, Any, Any]
    asked: Request | None = None
    answer: Any = None
    done: bool = False
    left: int = -1

    @property
    def site(self) -> int:
        """The site where it waits, or returned."""
        return self.asked.site if self.asked is not None else self.left


@dataclass(slots=True)
class Lockstep:
    """Runs a grid of threads. `thread`: what one thread runs, a generator where `waits`."""

    recorder: LaunchRecorder
    device: SimulatedDevice
    grid: Thread3
    block: Thread3
    thread: Callable[[], Any]
    waits: bool

    @property
    def block_size(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    def run(self) -> None:
        """All blocks, in order."""
        places = list(_places(self.block))
        for number, at in enumerate(_places(self.grid)):
            self.device.block_begins()
            index = self.device.blockIdx
            index.x, index.y, index.z = at
            if self.waits:
                self._waiting(number, places)
            else:
                self._straight(number, places)

    def _straight(self, block: int, places: Sequence[Thread3]) -> None:
        """Threads that never wait run one after the other."""
        index, enter, thread = self.device.threadIdx, self.recorder.enter, self.thread
        first = block * self.block_size
        for rank, (index.x, index.y, index.z) in enumerate(places):
            enter(first + rank, block, rank // WARP)
            thread()

    def _waiting(self, block: int, places: Sequence[Thread3]) -> None:
        first = block * self.block_size
        threads = [Thread(at, rank, first + rank, self.thread()) for rank, at in enumerate(places)]
        warps = [threads[start : start + WARP] for start in range(0, len(threads), WARP)]
        counts = [0] * len(warps)  # syncwarps that each has passed
        for epoch in itertools.count():
            for number, warp in enumerate(warps):
                counts[number] = self._warp(warp, block, number, epoch, counts[number])
            waiting = [thread for thread in threads if not thread.done]
            if not waiting:
                return
            self._barrier(waiting, threads, block, epoch)

    def _warp(self, warp: list[Thread], block: int, number: int, epoch: int, passed: int) -> int:
        """Its threads run until each has ended or waits for the block; the syncwarps that it has passed then."""
        while True:
            for thread in warp:
                if not thread.done and thread.asked is None:
                    self._step(thread, block, number, epoch, passed)
            waiting = [each for each in warp if each.asked is not None and not each.asked.is_block_wide]
            if not waiting:
                return passed
            together = self._together(waiting, warp)
            is_sync = _word(together) == "syncwarp"
            self._answer(together, warp, block, number, epoch, passed)
            passed += is_sync

    def _step(self, thread: Thread, block: int, warp: int, epoch: int, passed: int) -> None:
        index = self.device.threadIdx
        index.x, index.y, index.z = thread.at
        self.recorder.enter(thread.owner, block, warp, epoch, passed)
        try:
            thread.asked = thread.steps.send(thread.answer)
            thread.answer = None
        except StopIteration as end:
            thread.done, thread.left = True, -1 if end.value is None else end.value

    def _together(self, waiting: list[Thread], warp: list[Thread]) -> list[Thread]:
        """The lanes that are answered next: a group that is whole, else the first one."""
        groups: dict[tuple[str, int, int], list[Thread]] = {}
        for each in waiting:
            assert each.asked is not None
            groups.setdefault((each.asked.word, each.asked.site, each.asked.mask), []).append(each)
        return next((group for group in groups.values() if not _missing(group, warp)), next(iter(groups.values())))

    def _answer(
        self, group: list[Thread], warp: list[Thread], block: int, number: int, epoch: int, passed: int
    ) -> None:
        """Give each lane of a group what it asked for; lanes that its mask names and that are not there are noted."""
        missing = _missing(group, warp)
        if missing:
            self.recorder.enter(group[0].owner, block, number, epoch, passed)
            self._divergent(group[0], missing[0])
        word = _word(group)
        lanes = {each.rank % WARP: each.asked.arguments for each in group if each.asked is not None}
        for lane, source in strays(word, lanes).items():
            reader = next(each for each in group if each.rank % WARP == lane)
            self.recorder.enter(reader.owner, block, number, epoch, passed)
            self._note(FindingKind.UNINITIALISED, reader.site, index=source)
        answers = of_warp(word, lanes)
        for each in group:
            each.answer, each.asked = answers[each.rank % WARP], None

    def _barrier(self, waiting: list[Thread], threads: list[Thread], block: int, epoch: int) -> None:
        """All threads of the block go on; one that waits elsewhere, or has returned, is noted."""
        first = waiting[0]
        other = next((each for each in waiting if each.site != first.site), None)
        absent = other or next((each for each in threads if each.done), None)
        if absent is not None:
            self.recorder.enter(first.owner, block, first.rank // WARP, epoch)
            self._divergent(first, absent)
        word = _word(waiting)
        flags = [each.asked.arguments[0] for each in waiting if each.asked is not None and each.asked.arguments]
        answer = of_block(word, flags)
        for each in waiting:
            each.answer, each.asked = answer, None

    def _divergent(self, thread: Thread, other: Thread) -> None:
        self._note(FindingKind.DIVERGENT_BARRIER, thread.site, other=(other.site, other.owner), index=int(other.done))

    def _note(self, kind: FindingKind, site: int, *, index: int, other: tuple[int, int] = (-1, -1)) -> None:
        self.recorder.play()
        self.recorder.shadow.note(kind, -1, Access.READ, site, other=other, index=index)


def _missing(group: list[Thread], warp: list[Thread]) -> list[Thread]:
    """The lanes of a warp that the mask of a group names and that are not in it."""
    request = group[0].asked
    if request is None or request.word == "activemask":
        return []
    present = {each.rank for each in group}
    return [each for each in warp if request.mask >> each.rank % WARP & 1 and each.rank not in present]


def _word(group: list[Thread]) -> str:
    request = group[0].asked
    return "" if request is None else request.word


def _places(extents: Thread3) -> Iterator[Thread3]:
    """All places of a grid or a block, x first."""
    x, y, z = extents
    return ((i, j, k) for k in range(z) for j in range(y) for i in range(x))
