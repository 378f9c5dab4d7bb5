"""The programs of a grid: many are run as one while they take the same way, else one after the other; one that waits
for another in a loop lets others go on meanwhile.

A program runs in the thread of its caller until it waits; then another takes over the rest. One always runs."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from noyau.errors import UnansweredError, UnsupportedError

Place = tuple[int, int, int]
PATIENCE = 1000  # rounds of loops after which a program lets others go on
_BATCH = 31  # programs that are run as one, until it is known how large their blocks are
_CELLS = 1 << 16  # then so many that their largest blocks have these cells: they stay in a core's cache
_NARROWEST, _WIDEST, _MOST_CELLS = 3, 1000, 1 << 21
_FEWEST = 8  # programs of a grid that is run so
_MOST_WAITING = 64  # programs at once
_TURNS = 100  # of each waiting program in which nothing ends
_SPINNING = "programs wait for one another, and none makes progress"
_ELSEWHERE = f"; check it where there is a GPU, with --sanitizer, or with at most {_MOST_WAITING} programs"


class ApartError(Exception):
    """Programs of a batch take several ways. `parts`: for each way the numbers of its programs in the batch."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self.parts = parts


class Batch:
    """Programs that are run as one. The cells of a block then have an axis before its own, as long as there are
    programs, or of 1 where all hold the same; no extent of a block is as long, so that none is taken for it.

    `size`: how many there are, 0 while programs are run one by one; `axes`: 1 or 0; `cells`: of the largest block of
    one; `undo`: puts back what they stored."""

    def __init__(self) -> None:
        self.size = self.axes = 0
        self.cells = 1
        self.undo: list[Callable[[], object]] = []

    @property
    def width(self) -> int:
        """The number of programs that should be run as one: no power of two, as extents of blocks are."""
        return min(_WIDEST, max(_NARROWEST, _CELLS // self.cells - 1))

    def meet(self, block: np.ndarray) -> None:
        """Note the size of a block. ApartError where it is much larger than those before."""
        self.cells = max(self.cells, block.size // len(block))
        if block.size > _MOST_CELLS and self.size > _BATCH:
            numbers, width = range(self.size), self.width
            raise ApartError([numbers[start : start + width] for start in range(0, self.size, width)])

    def one_value(self, cells: np.ndarray) -> Any:
        """The value of a tensor of one cell. ApartError where programs of the batch have several."""
        if cells.size > 1 and (cells != cells.flat[0]).any():
            values, first = np.unique(cells, return_index=True)
            raise ApartError([np.flatnonzero(cells == value).tolist() for value in values[np.argsort(first)]])
        return cells.flat[0].item()


BATCH = Batch()


class Programs:
    """The programs of a grid. `enter`: called before a program begins or goes on, or a batch, with the places of its
    programs along each axis; `run`: a program, or a batch; `settle`: ends a batch, which stays or is taken back."""

    def __init__(
        self, grid: Place, enter: Callable[[Any], object], run: Callable[[], object], settle: Any = None
    ) -> None:
        self.enter, self.run, self.settle = enter, run, settle
        x, y, z = map(range, grid)
        self.places: Iterator[Place] = product(x, y, z)
        self.width = _BATCH if settle is not None and prod(grid) >= _FEWEST else 1
        self.slowest = 0  # the axis along which one goes last; -1 where it stays so
        self.groups: list[list[Place]] = []  # of programs that were taken from the places, and come next
        self.waiting: deque[tuple[Place, threading.Semaphore]] = deque()
        self.rounds = self.idle = 0
        BATCH.cells = 1
        self.has_more, self.place = True, (0, 0, 0)
        self.fault: BaseException | None = None
        self.done = threading.Event()

    def __call__(self) -> None:
        """Run them all; whatever one of them raises. UnansweredError where all that are left wait for one another
        without end, UnsupportedError where too many wait for others to begin."""
        self.go_on()
        self.done.wait()
        if self.fault is not None:
            raise self.fault

    def go_on(self) -> None:
        """The programs that have not begun, then those that wait."""
        try:
            while self.fault is None and (group := self.next_group()):
                if len(group) > 1:
                    self.run_batch(group)
                else:
                    self.begin(group[0])
                    self.run()
                self.idle = 0
            self.has_more = False
        except BaseException as fault:  # noqa: BLE001  it is raised in the thread of the caller
            self.fault = self.fault or fault
        self.hand_over()

    def next_group(self) -> list[Place]:
        """The programs that are run next: one, or as many as no extent of a block is."""
        group = self.groups.pop() if self.groups else list(islice(self.places, self.width))
        if len(group) > 1 and len(group).bit_count() == 1:
            self.groups.append([group.pop()])
        return group

    def run_batch(self, group: list[Place]) -> None:
        """Run programs as one; where that cannot be, what they stored is put back, and they come again in parts."""
        parts: Sequence[Sequence[int]] = []
        BATCH.size, BATCH.axes, self.rounds = len(group), 1, 0
        try:
            axes = np.array(group, np.int32).T
            self.enter([axis[:1] if (axis == axis[0]).all() else axis for axis in axes])
            self.run()
        except ApartError as apart:
            parts = apart.parts
            self.order_by([[group[number] for number in part] for part in parts])
        except Exception:  # noqa: BLE001  the program that it is of raises it again
            parts, self.slowest = [[number] for number in range(len(group))], -1
        finally:
            self.settle(not parts)
            BATCH.size = BATCH.axes = 0
        self.width = BATCH.width
        self.groups += [[group[number] for number in part] for part in reversed(parts)]

    def order_by(self, parts: Sequence[Sequence[Place]]) -> None:
        """Let programs that take the same way come together, where an axis of the grid tells the ways apart."""
        places = [[place[axis] for part in parts for place in part] for axis in range(3)]
        apart = [axis for axis in range(3) if all(len({place[axis] for place in part}) == 1 for part in parts)]
        axis = next((axis for axis in apart if len(set(places[axis])) > 1), 0)
        if self.slowest == 0 != axis:
            self.places, self.slowest = iter(sorted(self.places, key=lambda place: place[axis])), axis

    def begin(self, place: Place) -> None:
        self.place, self.rounds = place, 0
        self.enter(place)

    def hand_over(self) -> None:
        """Let the next one that waits go on, where there is one."""
        if self.waiting:
            self.waiting.popleft()[1].release()
        else:
            self.done.set()

    def turn(self) -> None:
        """Called in each round of a loop of a program: after many of them others go on first."""
        self.rounds += 1
        if self.rounds < PATIENCE:
            return
        if BATCH.size:
            raise UnsupportedError(_SPINNING)
        self.rounds, place, own = 0, self.place, threading.Semaphore(0)
        self.idle += 1
        if self.idle > _TURNS * (len(self.waiting) + 1) and (self.waiting or self.has_more or self.idle > 10 * _TURNS):
            if self.has_more:  # who is waited for may not have begun
                raise UnsupportedError(_SPINNING + _ELSEWHERE)
            raise UnansweredError(f"does not end: its {_SPINNING}")
        is_new = self.has_more and len(self.waiting) < _MOST_WAITING
        if not is_new and not self.waiting:
            return
        self.waiting.append((place, own))
        if is_new:
            threading.Thread(target=contextvars.copy_context().run, args=(self.go_on,), daemon=True).start()
        else:
            self.hand_over()
        own.acquire()
        if self.fault is not None:
            raise self.fault
        self.begin(place)
