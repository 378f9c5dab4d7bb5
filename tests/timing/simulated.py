"""A device that works by itself, simulated: what is put on its queue runs in order, beside a host with a clock."""

from __future__ import annotations

from dataclasses import dataclass, field

CYCLE_S = 1e-9


@dataclass
class Mark:
    queue: SimulatedQueue
    at_s: float

    def is_reached(self):
        return self.queue.host_s >= self.at_s

    def wait(self):
        self.queue.host_s = max(self.queue.host_s, self.at_s)

    def seconds_since(self, earlier):
        return self.at_s - earlier.at_s


@dataclass
class SimulatedQueue:
    """`done_s`: when all that is on the queue will be done; `pair_s`: what a mark costs; `told`: what was done."""

    pair_s: float = 0.0
    host_s: float = 0.0
    done_s: float = 0.0
    told: list[str] = field(default_factory=list)

    def clock(self):
        return self.host_s

    def host(self, takes_s):
        self.host_s += takes_s

    def work(self, takes_s):
        self.done_s = max(self.done_s, self.host_s) + takes_s

    def settle(self):
        self.host_s = max(self.host_s, self.done_s)
        self.told.append("settle")

    def overwrite(self):
        self.work(70e-6)
        self.told.append("overwrite")

    def hold(self, cycles):
        self.work(cycles * CYCLE_S)
        self.told.append("hold")

    def mark(self):
        self.work(self.pair_s)
        self.told.append("mark")
        return Mark(self, self.done_s)
