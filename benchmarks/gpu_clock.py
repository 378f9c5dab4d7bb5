"""Does the clock of a GPU tell the truth? Is A against A SAME, and a true 10 % FASTER?

`python benchmarks/gpu_clock.py [--runs 100] [--budget 0.1] [-o FILE]` compares a kernel of torch's with itself, and
with one that has a tenth more to do, as `noyau.bench` compares kernels on a GPU: single calls on a queue that is held,
in turns, with a flushed L2. Writes results/gpu_clock.json.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from record import write as write_record

from noyau.hosts.torch.cuda.clock import clock_of, device_text
from noyau.timing.comparison import compare_all
from noyau.timing.queue_clock import BlockedClock, Hold
from noyau.timing.verdict import Comparison, Verdict

RESULTS = Path(__file__).parent / "results" / "gpu_clock.json"
CELLS, TENTH = 20 << 20, 2 << 20  # of float32: about 40 us on an H200

# What is compared -> the least or the most of each verdict in 100.
LIMITS: dict[str, dict[str, tuple[int, int]]] = {
    "itself": {"SAME": (95, 100)},
    "10 % more": {"FASTER": (95, 100)},
}


@dataclass
class Work:
    """exp of so many cells."""

    clock: BlockedClock
    x: torch.Tensor
    y: torch.Tensor

    def __post_init__(self) -> None:
        self.hold = Hold()

    def lasts(self, calls: int) -> float:
        return sum(self._one() for _ in range(calls))

    def _one(self) -> float:
        sample = self.clock.sample(lambda: torch.exp(self.x, out=self.y), hold=self.hold)
        self.hold.learn(sample)
        return sample.took_s

    def tell(self) -> None:
        """There is nothing to tell."""


def judged(what: str, runs: int, budget_s: float) -> list[Comparison]:
    """So many comparisons, each in memory of its own."""
    clock, found = clock_of(torch.cuda.current_device()), []
    for seed in range(runs):
        sizes = CELLS + (TENTH if what != "itself" else 0), CELLS
        sides = [Work(clock, torch.zeros(n, device="cuda"), torch.empty(n, device="cuda")) for n in sizes]
        found.append(compare_all(sides, budget_s=budget_s, seed=seed, sample_s=0).comparison(0, 1))
    return found


def row(what: str, found: list[Comparison]) -> dict[str, Any]:
    """What came of one question, with each comparison's interval."""
    counts, scale = Counter(one.verdict for one in found), len(found) / 100
    shares = {verdict.value: counts[verdict] for verdict in Verdict}
    kept = all(low * scale <= shares[name] <= high * scale for name, (low, high) in LIMITS[what].items())
    intervals = [
        [one.verdict.value, *(round(n, 4) for n in (one.speedup, one.low, one.high)), one.pairs] for one in found
    ]
    return {"against": what, "verdicts": shares, "wanted": LIMITS[what], "kept": kept, "comparisons": intervals}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.1, metavar="SECONDS", help="for each comparison")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device", file=sys.stderr)
        return 2
    questions = []
    for what in LIMITS:
        questions.append(row(what, judged(what, given.runs, given.budget)))
        told = ", ".join(f"{name} {count}" for name, count in questions[-1]["verdicts"].items())
        print(f"{what:<10} {told}{'' if questions[-1]['kept'] else '   NOT AS PROMISED'}", flush=True)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    record = {"date": day, "device": device_text(), "runs": given.runs, "budget_s": given.budget}
    write_record({**record, "questions": questions}, given.output)
    return 0 if all(question["kept"] for question in questions) else 1


if __name__ == "__main__":
    sys.exit(main())
