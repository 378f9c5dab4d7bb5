"""The operators of PyTorch under `torch.compile(backend="noyau")`: `python -m tools.suites.opinfo`.

Each operator of torch's own list, on samples that torch makes up for it, in the midst of `f(x * 2).abs() + 1`. A case
is right within the dtype's tolerances, or where it is as near to a run in float64 as torch is; refused where torch
itself does not run it; torch's where `backend="aot_eager"` fails too. Exit status 0 where no fault is noyau's."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from queue import Empty, SimpleQueue

import torch

from noyau.errors import CheckError, UnansweredError
from noyau.workers.worker import ForkedWorker
from tools.suites.opinfo_cases import FAULTS, OPERATORS, Case, judge, samples_of

_CASES_A_PROCESS = 150  # what torch compiles it keeps
_UNTOLD = ("empty", "new_empty")  # their cells are what was in memory


def cases_of(wishes: argparse.Namespace) -> Iterator[Case]:
    """The cases that the command line asks for."""
    named = set(filter(None, wishes.only.split(",")))
    for name, operator in OPERATORS.items():
        if name.startswith(_UNTOLD) or (named and not named & {name, operator.name}):
            continue
        for dtype in wishes.dtypes.split(","):
            has = getattr(torch, dtype) in (operator.backward_dtypes if wishes.gradients else operator.dtypes)
            if has and (operator.supports_autograd or not wishes.gradients):
                for at in range(wishes.sample or len(samples_of(name, dtype, wishes.gradients, 0))):
                    yield Case(name, dtype, at, wishes.sample, wishes.dynamic, wishes.gradients, wishes.keep)


def prepare() -> None:
    """Make ready a process that judges."""
    torch.set_num_threads(1)
    gc.freeze()  # torch's descriptions are large, and each compilation collects


def judge_in_turn(cases: SimpleQueue[Case], time_s: float, say: Callable[..., None]) -> None:
    """Judge cases in a process; in another one after so many, and after one has hung or died."""
    with ForkedWorker("its process", time_s) as worker:
        for number in count(1):
            try:
                case, begin = cases.get_nowait(), time.monotonic()
                if not worker.is_running:
                    worker.ask(prepare)
                verdict, message = worker.ask(judge, case)
            except Empty:
                break
            except CheckError as error:
                verdict, message = "hang" if isinstance(error, UnansweredError) else "exception", str(error)
            say(case, verdict, message, time.monotonic() - begin)
            if number % _CASES_A_PROCESS == 0:
                worker.end()


def main(words: Sequence[str] | None = None) -> int:
    """Run the suite as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual, meaning in (
        ("only", "", "operators: max.reduction_with_dim,gather"),
        ("dtypes", "float32", "float32,bfloat16,float64,int64 (default: float32)"),
        ("sample", 1, "samples of each, 0 for all (default: 1)"),
        ("keep", "faster", "kernels that are kept: faster, not-slower, all (default: faster)"),
        ("processes", 1, "cases at a time (default: 1)"),
        ("time", 60.0, "seconds on the clock for each case (default: 60)"),
    ):
        parser.add_argument(f"--{name}", default=usual, type=type(usual), help=meaning)
    parser.add_argument("--dynamic", action="store_true", help="with sizes that are names")
    parser.add_argument("--gradients", action="store_true", help="with gradients")
    wishes = parser.parse_args(words)
    cases, counts, begin = SimpleQueue[Case](), Counter[str](), time.monotonic()
    for case in cases_of(wishes):
        cases.put(case)

    def say(case: Case, verdict: str, message: str, time_s: float) -> None:
        counts[verdict] += 1
        if verdict not in ("right", "none"):
            name = f"{case.operator} {case.dtype} {case.sample}"
            print(f"{name}: {verdict} in {time_s:.1f} s: {' '.join(message.split())[:400]}", flush=True)

    with ThreadPoolExecutor(wishes.processes) as pool:
        list(pool.map(lambda _: judge_in_turn(cases, wishes.time, say), range(wishes.processes)))
    verdicts = ", ".join(f"{counts[each]} {each}" for each in ("right", *FAULTS, "torch's", "refused"))
    print(f"{verdicts}, in {time.monotonic() - begin:.0f} s")
    return int(any(counts[each] for each in FAULTS) or not counts["right"])


if __name__ == "__main__":
    sys.exit(main())
