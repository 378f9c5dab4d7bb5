"""The programs of a grid, one after the other; one that waits for another in a loop lets others go on meanwhile.

A program runs in the thread of its caller until it waits; then another takes over the rest. One always runs."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import product

from noyau.errors import UnansweredError, UnsupportedError

Place = tuple[int, int, int]
PATIENCE = 1000  # rounds of loops after which a program lets others go on
_MOST_WAITING = 64  # programs at once
_TURNS = 100  # of each waiting program in which nothing ends
_SPINNING = "programs wait for one another, and none makes progress"
_ELSEWHERE = f"; check it where there is a GPU, with --sanitizer, or with at most {_MOST_WAITING} programs"


class Programs:
    """The programs of a grid. `enter`: called before a program begins or goes on; `run`: a program."""

    def __init__(self, grid: Place, enter: Callable[[Place], object], run: Callable[[], object]) -> None:
        self.enter, self.run = enter, run
        x, y, z = map(range, grid)
        self.places: Iterator[Place] = product(x, y, z)
        self.waiting: deque[tuple[Place, threading.Semaphore]] = deque()
        self.rounds = self.idle = 0
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
            for place in self.places:
                self.begin(place)
                self.run()
                self.idle = 0
                if self.fault is not None:
                    break
            self.has_more = False
        except BaseException as fault:  # noqa: BLE001  it is raised in the thread of the caller
            self.fault = self.fault or fault
        self.hand_over()

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
