"""Does the clock tell the truth? Is A against A SAME, and a true 10 % FASTER, on an idle machine and under load?

`python benchmarks/clock.py [--runs 100] [--budget 0.6] [-o FILE]` compares a piece of work with itself, and one that
has a tenth more to do with it, as `noyau optimize` compares kernels: in one process, and in two, first as the machine
is, then beside a spinning process for each core. For the first half the machine must do nothing else: it is refused
where processes wanted to run in the last minute, unless `--busy` is said; the load stands beside each piece.

`python benchmarks/clock.py --record FILE` writes how long the same work takes again and again, over the median: the
drift that tests/timing/test_comparison_of_drift.py replays.

`--only idle` or `--only loaded`, and `--where one` or `--where two` (processes), measure a piece, of at most four
minutes, and leave the others in the file as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from record import write as write_record

from noyau.text import as_json
from noyau.timing.comparison import compare, compare_swapped
from noyau.timing.conditions import conditions
from noyau.timing.machine import this_machine
from noyau.timing.sides import SelfTimedSide, WorkerSide
from noyau.timing.verdict import Comparison, Verdict
from noyau.workers.resources import processors
from noyau.workers.worker import Worker, pin

RESULTS = Path(__file__).parent / "results" / "clock.json"
ROUNDS, MORE = 40, 44
CELLS, PLACES = 2000, 4  # of float32: all of them fit into a level 2 cache
RECORDED = 4000
IDLE_LOAD = 0.5
WHERE = {"one": "one process", "two": "two processes"}

# (load, what is compared) -> the least or the most of each verdict in 100.
LIMITS: dict[tuple[str, str], dict[str, tuple[int, int]]] = {
    ("idle", "itself"): {"SAME": (90, 100), "FASTER": (0, 2), "SLOWER": (0, 2)},
    ("idle", "10 % more"): {"FASTER": (95, 100)},
    ("loaded", "itself"): {"SAME": (60, 100), "FASTER": (0, 2), "SLOWER": (0, 2)},
    ("loaded", "10 % more"): {"FASTER": (70, 100), "SLOWER": (0, 0)},
}


@cache
def memory() -> list[tuple[np.ndarray, np.ndarray]]:
    """What works of a process read and write, the same for all of them: places in memory differ by some percent
    (addresses that are taken for one another), and the clock would rightly tell."""
    return [(np.linspace(-3, 3, CELLS, dtype=np.float32), np.empty(CELLS, np.float32)) for _ in range(PLACES)]


@dataclass
class Work:
    """exp of the same cells so many times, in place of a kernel."""

    rounds: int

    def __call__(self) -> None:
        for number in range(self.rounds):
            x, y = memory()[number % PLACES]
            np.exp(x, out=y)

    def lasts(self, calls: int) -> float:
        start_s = time.perf_counter()
        for _ in range(calls):
            self()
        return time.perf_counter() - start_s

    def tell(self) -> dict[str, Any]:
        """There is nothing to tell."""
        return {}


@contextlib.contextmanager
def load(name: str) -> Iterator[None]:
    """Beside a spinning process for each core, or beside nothing."""
    spinning = processors() if name == "loaded" else 0
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(spinning)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def judged(where: str, what: str, runs: int, budget_s: float) -> list[Comparison]:
    """So many comparisons; those in two processes as `noyau.hosts.onnxruntime.session_workers` makes them."""
    before, after = ROUNDS if what == "itself" else MORE, ROUNDS
    if where == "one process":
        works = Work(before), Work(after)
        return [compare(*works, budget_s=budget_s, seed=seed) for seed in range(runs)]
    with Worker("one") as one, Worker("other") as other:
        pin((one, other), threads=1)

        def places(swapped: bool) -> tuple[SelfTimedSide, SelfTimedSide]:
            pair = (other, one) if swapped else (one, other)
            for worker, rounds in zip(pair, (before, after), strict=True):
                worker.open(import_module("clock").Work, rounds)  # this file may be __main__ here
            return WorkerSide(pair[0]), WorkerSide(pair[1])

        return [compare_swapped(places, budget_s=budget_s, seed=seed) for seed in range(runs)]


def row(found: list[Comparison], limits: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """What came of one question, with each comparison's interval."""
    counts = Counter(one.verdict for one in found)
    shares = {verdict.value: counts[verdict] for verdict in Verdict}
    scale = len(found) / 100
    kept = all(low * scale <= shares[name] <= high * scale for name, (low, high) in limits.items())
    intervals = [
        [one.verdict.value, *(round(n, 4) for n in (one.speedup, one.low, one.high)), one.pairs] for one in found
    ]
    return {"verdicts": shares, "wanted": limits, "kept": kept, "comparisons": intervals}


def refused(machines: Sequence[str]) -> str:
    """Why the questions of an idle machine cannot be asked now, or nothing: others have worked on it in this minute."""
    load_now = conditions().load
    if "idle" not in machines or load_now is None or load_now <= IDLE_LOAD:
        return ""
    return f"the machine is not idle: {load_now:.1f} processes wanted to run; wait a minute, or say --busy"


def measured(runs: int, budget_s: float, machines: Sequence[str], places: Sequence[str]) -> list[dict[str, Any]]:
    """The questions of some machines and places, each with how the machine was before and after."""
    questions: list[dict[str, Any]] = []
    for (how, what), limits in LIMITS.items():
        if how not in machines:
            continue
        for where in places:
            start = conditions()
            with load(how):
                found = row(judged(where, what, runs, budget_s), limits)
            questions.append(
                {
                    "machine": how,
                    "against": what,
                    "where": where,
                    "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                    "runs": runs,
                    "budget_s": budget_s,
                    "before": as_json(start),
                    "after": as_json(conditions()),
                    **found,
                }
            )
            told = ", ".join(f"{name} {count}" for name, count in found["verdicts"].items())
            busy = "" if start.load is None else f"   (load before: {start.load:.1f})"
            print(
                f"{how:<8} {what:<10} {where:<14} {told}{'' if found['kept'] else '   NOT AS PROMISED'}{busy}",
                flush=True,
            )
    return questions


def merged(path: Path, found: list[dict[str, Any]]) -> dict[str, Any]:
    """What was found, beside the other questions of a file that was written on the same machine."""
    machine, kept = this_machine().to_json(), []
    if path.exists():
        old = json.loads(path.read_text("ascii"))
        fresh = {_name(question) for question in found}
        same = old["machine"] == machine
        kept = [question for question in old["questions"] if same and _name(question) not in fresh]
    order = [(how, what, where) for how, what in LIMITS for where in WHERE.values()]
    return {"machine": machine, "questions": sorted([*kept, *found], key=lambda each: order.index(_name(each)))}


def _name(question: dict[str, Any]) -> tuple[str, str, str]:
    return question["machine"], question["against"], question["where"]


def recorded() -> list[float]:
    """The times of the same work, over their median."""
    work = Work(16 * ROUNDS)
    times = np.array([work.lasts(1) for _ in range(RECORDED)])
    return [round(float(each), 3) for each in times / np.median(times)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.6, metavar="SECONDS", help="for each comparison")
    parser.add_argument("--only", choices=("idle", "loaded"), help="one half of the questions")
    parser.add_argument("--where", choices=tuple(WHERE), help="in one process, or in two")
    parser.add_argument("--busy", action="store_true", help="ask the questions of an idle machine on a busy one too")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the drift of this machine, and nothing else")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.record is not None:
        arguments.record.write_text(json.dumps(recorded()) + "\n", encoding="ascii")
        return 0
    machines = [arguments.only] if arguments.only else ["idle", "loaded"]
    fault = "" if arguments.busy else refused(machines)
    if fault:
        print(fault, file=sys.stderr)
        return 2
    places = [WHERE[arguments.where]] if arguments.where else list(WHERE.values())
    questions = measured(arguments.runs, arguments.budget, machines, places)
    arguments.output.parent.mkdir(exist_ok=True)
    found = merged(arguments.output, questions)
    write_record(found, arguments.output)
    return 0 if all(question["kept"] for question in questions) else 1


if __name__ == "__main__":
    sys.exit(main())
