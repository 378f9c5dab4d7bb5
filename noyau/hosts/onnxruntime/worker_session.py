"""A session in a process of its own: runs that are timed, of which some are looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noyau.errors import CheckError
from noyau.hosts.onnxruntime.runs import BoundRun, bound_run, first_outputs
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.timing.sides import cold_sets, hot_sets
from noyau.workers.array_files import read_arrays
from noyau.workers.tamper_detection import seconds

if TYPE_CHECKING:
    import onnxruntime

Told = dict[str, Any]
MOST_BINDINGS, FEW_BINDINGS = 256, 4
_LEAST_LOOKS = 3
_SHORT_S = 0.03  # below which a run is short: what another process has left of the caches then counts
_LONG_S = 0.1  # from which a run is not repeated just to see whether it gives the same


def open_job(model: Path, inputs: Sequence[Mapping[str, Any]], *, cold: bool, **options: Any) -> ServedSession:
    """In the worker: the session, opened with some `options` of `open_session` and bound."""
    start_s = seconds()
    result = ServedSession([], 0.0, opened=open_session(model.read_bytes(), **options))
    result.feed(inputs, cold)
    result.open_s = seconds() - start_s
    return result


@dataclass(slots=True)
class ServedSession:
    """Bound runs of one session, taken in turn; now and then, at random, the outputs of a timed run are looked at.
    `run_s`: what a run took on what it is fed, the second one where the first did not take long; `cold`: as in a Job.

    `expected`: what the first run gave, without what is random; `unsure`: that is not known yet, for runs are long."""

    runs: Sequence[Callable[[], None] | BoundRun]
    open_s: float
    run_s: float = 0.0
    turn: int = 0
    looks: int = 0
    samples: int = 0
    wrong: str = ""
    expected: dict[str, bytes] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    opened: onnxruntime.InferenceSession | None = None
    unsure: bool = False
    cold: bool = False

    def feed(self, inputs: Sequence[Mapping[str, Any]], cold: bool) -> None:
        """Run on these inputs from now on; the memory of those before goes first."""
        assert self.opened is not None
        self.runs, self.turn, self.samples, self.looks, self.cold = [], 0, 0, 0, cold
        arrays, start_s = read_arrays(inputs), seconds()
        outputs = first_outputs(self.opened, arrays)
        self.run_s = seconds() - start_s
        taken = sum(array.nbytes for array in (*arrays.values(), *outputs.values()))
        count = min(cold_sets(taken), MOST_BINDINGS) if cold else min(hot_sets(taken), FEW_BINDINGS)
        self.runs = [bound_run(self.opened, arrays, outputs) for _ in range(count)]
        self.expected = {name: array.tobytes() for name, array in outputs.items() if not array.dtype.hasobject}
        self.unsure = self.run_s > _LONG_S
        if not self.unsure:
            self.run_s = self_timed(self.runs[:1])
            again = _outputs(self.runs[0])
            self.expected = {name: content for name, content in self.expected.items() if again[name] == content}

    def lasts(self, calls: int) -> float:
        """Seconds of so many calls. Before those that are short and not to be cold, one goes on each place that they
        use, to fetch the caches back that another process has had, and to wake the threads."""
        self.samples += 1
        chosen = int(self.rng.integers(calls))
        order = [self.runs[(self.turn + k) % len(self.runs)] for k in range(calls)]
        self.turn += calls
        if not self.cold and self.run_s < _SHORT_S:
            for run in order[: len(self.runs)]:
                run()
        looks = self.samples <= _LEAST_LOOKS or self.rng.random() < 1 / self.samples
        if looks:
            self._poison(order[chosen])
        took_s = self_timed(order[: chosen + 1])
        if looks:
            self._look(order[chosen])
        return took_s + self_timed(order[chosen + 1 :])

    def tell(self) -> Told:
        """The seconds of a run (`run_s`), and of the timed runs how many were `verified`. CheckError where one of
        those, chosen at random, gave other outputs than the first run."""
        if self.wrong:
            raise CheckError(self.wrong)
        return {"open_s": self.open_s, "run_s": self.run_s, "verified": self.looks, "bindings": len(self.runs)}

    def _poison(self, run: Callable[[], None] | BoundRun) -> None:
        if isinstance(run, BoundRun):
            run.poison()

    def _look(self, run: Callable[[], None] | BoundRun) -> None:
        self.looks += 1
        outputs = _outputs(run)
        for name in [name for name, content in self.expected.items() if outputs[name] != content]:
            if self.unsure and self._is_random(run, name):  # it cannot be compared
                del self.expected[name]
            else:
                self.wrong = f"a timed run gave another {name[:100]!r} than the first one did"

    def _is_random(self, run: Callable[[], None] | BoundRun, name: str) -> bool:
        """Whether two runs that nobody times differ in an output."""
        results = []
        for _ in "ab":
            self._poison(run)
            run()
            results.append(_outputs(run)[name])
        return results[0] != results[1]


def _outputs(run: Callable[[], None] | BoundRun) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.results().items()} if isinstance(run, BoundRun) else {}


def self_timed(order: Sequence[Callable[[], object]]) -> float:
    """The seconds of these calls, one after the other."""
    if not order:
        return 0.0
    start_s = seconds()
    for run in order:
        run()
    return seconds() - start_s
