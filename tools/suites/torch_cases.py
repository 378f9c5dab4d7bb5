"""Cases that run by torch and under `torch.compile(backend="noyau")`: judged in other processes, and summed up."""

from __future__ import annotations

import argparse
import gc
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import torch
from torch.testing._comparison import default_tolerances

from noyau.errors import CheckError, UnansweredError
from noyau.jobs.optimize.torch import candidates
from noyau.toolchain.c import compiler
from noyau.workers.worker import ForkedWorker

FAULTS = ("wrong", "exception", "hang")
_CASES_A_PROCESS = 150  # what torch compiles it keeps
Judge = Callable[[Any], tuple[str, str]]


def difference(
    theirs: Sequence[torch.Tensor], ours: Sequence[torch.Tensor], truth: Callable[[], Any], most: float = 2
) -> str:
    """How the values of results differ from torch's, or nothing. `truth`: them in float64, or why not; `most`: the
    errors of torch's that ours may have."""
    if len(theirs) != len(ours):
        return f"{len(ours)} results, and torch has {len(theirs)}"
    for at, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        try:
            torch.testing.assert_close(other, one, equal_nan=True)
        except AssertionError as error:
            exact = truth()
            if isinstance(exact, str) or other.dtype != one.dtype or not other.shape == one.shape == exact[at].shape:
                return f"result {at}: {error}"
            errors = [(each.to(exact[at].dtype) - exact[at]).abs().nan_to_num(0) for each in (other, one)]
            rtol, atol = default_tolerances(one, other)
            far = errors[0][~other.isclose(one, rtol, atol)].max()  # a cell that is as torch's may be any error away
            near = errors[1].max()
            if far > most * near or not torch.equal(other.isnan(), one.isnan()):
                return f"result {at} is off by {far:.3g}, torch by {near:.3g}: {error}"
    return ""


def outcome(run: Callable[..., list[torch.Tensor]], *arguments: Any) -> list[torch.Tensor] | str:
    """The results of a run, or why it did not come to an end."""
    try:
        return run(*arguments)
    except Exception as error:  # noqa: BLE001  any is a verdict
        return f"{type(error).__name__}: {error}"


@contextmanager
def faults(words: str = "a defect of noyau") -> Iterator[list[str]]:
    """The warnings of noyau within that have these words, once that is left."""
    result: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield result
    result += [str(each.message) for each in said if words in str(each.message)]


class _Unjudged(nullcontext["_Unjudged"]):
    """Certifiers to whom every kernel is right."""

    def __init__(self, *_: object) -> None:
        super().__init__(self)

    def start(self) -> None:
        """Nothing, for nothing is judged."""

    def certificate(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(ok=True)


def pass_over_certificates() -> None:
    """Let every kernel that builds run, right or not, and let it be built quickly."""
    candidates.Certifiers = _Unjudged  # type: ignore[misc, assignment]
    compiler._FLAGS = tuple("-Og" if flag == "-O3" else flag for flag in compiler._FLAGS)


def prepare() -> None:
    """Make ready a process that judges."""
    torch.set_num_threads(1)
    gc.freeze()  # torch's descriptions are large, and each compilation collects


def judge_in_turn(judge: Judge, cases: SimpleQueue[Any], time_s: float, say: Callable[..., None]) -> None:
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


def add_options(parser: argparse.ArgumentParser, time_s: float) -> None:
    """Add what every such suite is asked, with the usual time for a case."""
    for name, usual, meaning in (
        ("keep", "faster", "kernels that are kept: faster, not-slower, all (default: faster)"),
        ("processes", 1, "cases at a time (default: 1)"),
        ("time", time_s, f"seconds on the clock for each case (default: {time_s:g})"),
    ):
        parser.add_argument(f"--{name}", default=usual, type=type(usual), help=meaning)
    parser.add_argument("--quick", action="store_true", help="kernels built at -Og and kept without a certificate")
    parser.add_argument("--log", type=Path, default=os.devnull, help="a file of verdicts: what it has is not run again")


def judge_all(judge: Judge, asked: Iterable[Any], wishes: argparse.Namespace) -> int:
    """Judge cases, those that the log has not, and say what is not right and the sums; the exit status."""
    if wishes.quick:
        pass_over_certificates()
    lines = wishes.log.read_text().splitlines() if wishes.log.exists() else ()
    verdicts = {case: verdict for verdict, case, _ in (line.split("\t") for line in lines)}
    cases, counts, begin = SimpleQueue[Any](), Counter[str](), time.monotonic()
    for case in asked:
        if repr(case) in verdicts:
            counts[verdicts[repr(case)]] += 1
        else:
            cases.put(case)

    def say(case: Any, verdict: str, message: str, time_s: float) -> None:
        counts[verdict] += 1
        line = " ".join(message.split())[:400]
        if verdict not in ("right", "none"):
            print(f"{case}: {verdict} in {time_s:.1f} s: {line}", flush=True)
        with wishes.log.open("a") as log:
            log.write(f"{verdict}\t{case!r}\t{line}\n")

    with ThreadPoolExecutor(wishes.processes) as pool:
        list(pool.map(lambda _: judge_in_turn(judge, cases, wishes.time, say), range(wishes.processes)))
    sums = ", ".join(f"{counts[each]} {each}" for each in ("right", *FAULTS, "torch's", "refused"))
    print(f"{sums}, in {time.monotonic() - begin:.0f} s")
    return int(any(counts[each] for each in FAULTS) or not counts["right"])
