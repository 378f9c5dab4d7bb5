"""The clock of an asynchronous queue, such as a GPU's: each call runs between two marks on a queue that is blocked
until the whole call is enqueued, so that Python's time to enqueue is not measured; that is reported beside it.

The kind of queue is defined elsewhere; this file knows of no GPU. The protocol is that of triton's do_bench and of
nvbench's blocking kernel, with the overhead of an empty pair of marks subtracted as in pygpubench."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from random import Random
from typing import Any, Protocol

from noyau.workers.tamper_detection import seconds

Call = Callable[[], object]

FIRST_CYCLES = 1 << 20  # for which a queue is blocked at first: about 0.6 ms
MOST_CYCLES = 1 << 25
HELD_FOR = 4  # times as long as the host takes
CYCLES_A_SECOND = 2e9  # about; a faster GPU is blocked for less
EMPTY_PAIRS = 20
WARM_CALLS = 3


class Mark(Protocol):
    """A position in a queue."""

    def is_reached(self) -> bool:
        """Whether all work enqueued before it is done."""

    def wait(self) -> None:
        """Wait until it is reached."""

    def seconds_since(self, earlier: Any) -> float:
        """The seconds from an earlier mark to this one; both have been reached."""


class Queue(Protocol):
    """A device that runs calls in order, asynchronously to the host."""

    def settle(self) -> None:
        """Wait until all queues of the device are idle."""

    def overwrite(self) -> None:
        """Enqueue work that evicts all earlier data from the device's caches."""

    def hold(self, cycles: int) -> None:
        """Enqueue work that delays everything after it for so many cycles."""

    def mark(self) -> Mark:
        """Enqueue a mark."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The times of one call. `took_s`: on the device, without the overhead of an empty pair; `host_s`: the host's time
    to enqueue it; `blocked`: whether the queue was blocked until then, else `took_s` may include some of it."""

    took_s: float
    host_s: float
    blocked: bool


@dataclass(frozen=True, slots=True)
class Around:
    """Steps around a measured call, outside of the measurement. `first`: before all else; `before`: enqueued while the
    queue is blocked; `after`: enqueued right after the call, with its result."""

    first: Call | None = None
    before: Call | None = None
    after: Callable[[object], object] | None = None


@dataclass(slots=True)
class Hold:
    """Cycles that a queue is blocked for a callable: more if they were too few, never many more than the host takes."""

    cycles: int = FIRST_CYCLES

    def learn(self, sample: Sample) -> None:
        if not sample.blocked:
            self.cycles = min(2 * self.cycles, MOST_CYCLES)
        else:
            self.cycles = max(FIRST_CYCLES, min(self.cycles, int(HELD_FOR * sample.host_s * CYCLES_A_SECOND)))


class BlockedClock:
    """A clock that measures one call at a time on a queue, which is blocked for longer if a call takes longer to
    enqueue. `overhead_s`: the median of empty pairs, measured in the same way."""

    def __init__(self, queue: Queue, clock: Callable[[], float] = seconds) -> None:
        self.queue, self.clock, self.overhead_s, self.usual = queue, clock, 0.0, Hold()
        empty = [self.sample(lambda: None).took_s for _ in range(EMPTY_PAIRS)]
        self.overhead_s = statistics.median(empty[EMPTY_PAIRS // 4 :])

    def sample(self, call: Call, *, cold: bool = True, around: Around = Around(), hold: Hold | None = None) -> Sample:
        """Time one call; `cold`: after the device's caches were overwritten; `hold`: the cycles learned for this
        call."""
        queue, holder = self.queue, hold or self.usual
        if around.first is not None:
            around.first()
        queue.settle()
        if cold:
            queue.overwrite()
        queue.hold(holder.cycles)
        if around.before is not None:
            around.before()
        start = queue.mark()
        begin_s = self.clock()
        result = call()
        host_s = self.clock() - begin_s
        end = queue.mark()
        blocked = not start.is_reached()
        if around.after is not None:
            around.after(result)
        end.wait()
        sample = Sample(max(0.0, end.seconds_since(start) - self.overhead_s), host_s, blocked)
        holder.learn(sample)
        return sample


@dataclass(frozen=True, slots=True)
class Times:
    """The measured times of one call, without the overhead of an empty pair of events. `host_s`: Python's time to
    enqueue each. `unblocked`: how many may include some of that, since they had begun."""

    samples_s: tuple[float, ...]
    host_s: tuple[float, ...]
    unblocked: int

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)


def interleave(
    clock: BlockedClock, calls: Mapping[str, Call], *, rounds: int, cold: bool, seed: int
) -> dict[str, Times]:
    """Time each call once a round, in a new order each round, after three warm-up calls of the same kind."""
    random, holds = Random(seed), {name: Hold() for name in calls}  # noqa: S311  an order, no secret
    warm = [name for name in calls for _ in range(WARM_CALLS)]
    turns = [name for _ in range(rounds) for name in random.sample(list(calls), len(calls))]
    samples: dict[str, list[Sample]] = {name: [] for name in calls}
    for name in (*warm, *turns):
        samples[name].append(clock.sample(calls[name], cold=cold, hold=holds[name]))
    columns = {name: zip(*map(astuple, every[WARM_CALLS:]), strict=True) for name, every in samples.items()}
    return {name: Times(took_s, host_s, blocked.count(False)) for name, (took_s, host_s, blocked) in columns.items()}
