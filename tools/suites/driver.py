"""Cases of a suite under `noyau check`, several at a time: verdicts, a table of them, and a record for docs/defects.md.

A suite lists its cases and calls `main`. Each case runs in a process of its own with a time limit, and its JSON says
what was found. A case counts as defective where an error of one of its kinds was found, as undecided where the check
came to no end or did not see all of it, and as right otherwise."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import monotonic
from typing import Any

from noyau.workers.resources import wait_factor
from tools.suites.forks import TELLS_S, run_check

RESULTS = Path(__file__).with_name("results.json")
UNVERIFIED = 3  # the exit status of a check that did not see everything
RACES = frozenset({"race"})


@dataclass(frozen=True, slots=True)
class Case:
    """A program, a script or an op of a suite. `words`: the target and the options of `noyau check`, which runs in
    `folder`; `is_defective`: its label, None where it has none; `kinds`: the findings that make it defective, any error
    where there are none; `loads`: modules that one process loads for all such cases, each of which is a fork of it;
    `may_be_empty`: one that runs no kernel is no case."""

    name: str
    words: tuple[str, ...]
    folder: Path
    is_defective: bool | None
    kinds: frozenset[str] = frozenset()
    loads: tuple[str, ...] = ()
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a case. `verdict`: "defective", "right", "undecided", or "empty" where it runs no kernel; `findings`:
    kind, line and message of each error; `reason`: how it ended badly, or the last line that was printed, of those that
    say what was not verified if there are any; `unseen`: why kernels of it were not checked, or it ended."""

    case: Case
    verdict: str
    status: int | None
    time_s: float
    findings: tuple[str, ...]
    reason: str
    unseen: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the verdict is not the label."""
        label = self.case.is_defective
        return label is not None and self.verdict not in ("defective" if label else "right", "empty")


@dataclass(frozen=True, slots=True)
class Score:
    """The counts of a suite. `defective`: cases with that label; `found`: those of them that were found; `accused`:
    right ones that were called defective; `tool`: who judged; `source`: who measured it."""

    suite: str
    tool: str
    cases: int
    defective: int
    found: int
    accused: int
    undecided: int
    missed: int
    source: str = "measured by tools/suites"

    @property
    def precision(self) -> float:
        """The share of true ones among the findings."""
        return self.found / (self.found + self.accused) if self.found + self.accused else 1.0

    @property
    def recall(self) -> float:
        """The share of the defective ones that was found."""
        return self.found / self.defective if self.defective else 1.0

    @property
    def recall_of_decided(self) -> float:
        """The share of the defective ones with a verdict that was found."""
        decided = self.found + self.missed
        return self.found / decided if decided else 1.0


def check_case(case: Case, time_s: float, environment: dict[str, str] | None = None) -> Outcome:
    """The verdict of `noyau check` on a case, for up to `time_s` on the clock, longer where others compute as well."""
    begin, limit_s = monotonic(), time_s * wait_factor()
    with tempfile.TemporaryDirectory(prefix="noyau-suite-") as folder:
        record = Path(folder) / "record.json"
        words = [*case.words, "--json", str(record)]
        if case.loads:
            status, printed = run_check(words, case.folder, limit_s, case.loads, environment or {})
        else:
            status, printed = _run([sys.executable, "-m", "noyau", "check", *words], case.folder, limit_s, environment)
        found = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    errors = [each for each in found.get("findings", ()) if each["severity"] == "error"]
    counted = [each for each in errors if not case.kinds or each["kind"] in case.kinds]
    is_undecided = status is None or status == UNVERIFIED or not found or bool(found.get("fault"))
    verdict = "defective" if counted else "undecided" if is_undecided else "right"
    may_be_empty = case.may_be_empty and not case.is_defective  # where a defect is known, one that is not seen counts
    if verdict == "undecided" and may_be_empty and status is not None and _is_empty(found):
        verdict = "empty"
    texts = tuple(f"{each['kind']}, line {each['line']}: {each['message']}" for each in errors)
    told = [each for each in lines if ": not verified: " in each or ": not checked: " in each]
    told = told or [found["fault"]] if found.get("fault") else told or lines
    reason = f"no end within {time_s:g} s" if status is None else told[-1] if told else ""
    unseen = (found.get("fault"), *(each.get("unseen") for each in found.get("checked", ())))
    return Outcome(case, verdict, status, monotonic() - begin, texts, reason, tuple(filter(None, unseen)))


def _is_empty(found: dict[str, Any]) -> bool:
    """Whether no kernel was there to be watched, and nothing else than an assertion ended the script before one was."""
    fault, notes = found.get("fault", "no record"), " ".join(found.get("notes", ()))
    is_plain = not fault or re.match("it ended with sys.exit: (skipped|Skipped|AssertionError)", fault) is not None
    is_plain |= "without a GPU nothing is compiled" in notes  # which a test of the compiler asks for
    touched = any(each["accesses"] or each["unseen"] for each in found.get("checked", ()))
    return is_plain and not touched and "accesses are not seen" not in notes


def _run(
    command: Sequence[str], folder: Path, time_s: float, environment: dict[str, str] | None
) -> tuple[int | None, bytes]:
    """The exit status of a command, None where it is past its time, and what it printed."""
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})}, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=time_s)
        return process.returncode, printed
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it tells what it saw until then
        with suppress(subprocess.TimeoutExpired):
            process.wait(TELLS_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        return None, printed


def check_cases(cases: Sequence[Case], jobs: int, time_s: float, say: Callable[[Outcome], None]) -> list[Outcome]:
    """The verdicts on cases in order, `jobs` of them at a time; each is said as it comes."""

    def check(case: Case) -> Outcome:
        outcome = check_case(case, time_s)
        say(outcome)
        return outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(check, cases))


def _fields(outcome: Outcome) -> dict[str, Any]:
    """An outcome for a log, without its case."""
    return {field.name: getattr(outcome, field.name) for field in fields(outcome) if field.name != "case"}


def _outcomes_in(log: Path | None, cases: Sequence[Case]) -> dict[str, Outcome]:
    """The outcomes of these cases that a log holds, by name; ValueError with the line that is none."""
    named, outcomes = {each.name: each for each in cases}, {}
    lines = log.read_text("utf-8").splitlines() if log is not None and log.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            name = row.pop("name")
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
            if name in named:
                outcomes[name] = Outcome(named[name], **values)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"line {number} of {log} is no outcome of a case; remove the line") from None
    return outcomes


def score_of(suite: str, tool: str, outcomes: Sequence[Outcome]) -> Score:
    """The counts of the outcomes that have a label."""
    labelled = [each for each in outcomes if each.case.is_defective is not None and each.verdict != "empty"]
    defective = [each for each in labelled if each.case.is_defective]
    verdicts = [each.verdict for each in defective]
    accused = sum(each.verdict == "defective" for each in labelled if not each.case.is_defective)
    undecided = sum(each.verdict == "undecided" for each in labelled)
    counts = len(labelled), len(defective), verdicts.count("defective"), accused, undecided, verdicts.count("right")
    return Score(suite, tool, *counts)


def table_of(score: Score, outcomes: Sequence[Outcome]) -> list[str]:
    """The lines of a report: the score, then each case whose verdict is not its label."""
    shares = f"precision {score.precision:.3f}, recall {score.recall:.3f} of all"
    counts = f"{score.found} of {score.defective} found, {score.accused} accused, {score.undecided} undecided"
    empty = sum(each.verdict == "empty" for each in outcomes)
    counts += f"; {empty} more run no kernel" if empty else ""
    lines = [
        f"{score.suite}: {score.cases} cases: {shares} and {score.recall_of_decided:.3f} of those decided ({counts})"
    ]
    for each in outcomes:
        if each.differs:
            label = "defective" if each.case.is_defective else "right"
            why = each.findings[0] if each.verdict == "defective" else each.reason
            lines.append(f"  {each.case.name}: {each.verdict}, labelled {label}: {why}")
    return lines


def keep_score(score: Score, path: Path = RESULTS) -> None:
    """Put a score into the file of results, in place of the one of the same suite and tool."""
    scores = scores_of(path)
    others = [each for each in scores if (each.suite, each.tool) != (score.suite, score.tool)]
    rows = sorted([*others, score], key=lambda each: (each.suite, each.tool))
    path.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n", encoding="utf-8")


def scores_of(path: Path = RESULTS) -> list[Score]:
    """The scores that the file of results holds."""
    return [Score(**row) for row in json.loads(path.read_text("utf-8"))] if path.is_file() else []


def main(suite: str, cases_of: Callable[[Path], list[Case]], words: Sequence[str] | None = None) -> int:
    """Run a suite as its command line says; 0 where every verdict is its label."""
    parser = argparse.ArgumentParser(description=f"run {suite} under noyau check")
    parser.add_argument("checkout", type=Path, help="the folder that the suite was fetched to")
    parser.add_argument("--only", default="", help="cases whose name has one of these words: 001,simd")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (default: 2)")
    parser.add_argument("--time", type=float, default=120.0, help="seconds on the clock for each case (default: 120)")
    parser.add_argument("--log", type=Path, help="a JSON line a case; those that it holds are not run again")
    parser.add_argument("--keep", action="store_true", help=f"put the score into {RESULTS.name}, for docs/defects.md")
    arguments = parser.parse_args(words)
    wanted = arguments.only.split(",")
    cases = [each for each in cases_of(arguments.checkout.resolve()) if any(word in each.name for word in wanted)]
    if not cases:
        parser.error(f"{arguments.checkout} holds no case of {suite}; give the folder of a checkout")

    def say(outcome: Outcome) -> None:
        mark = " <-" if outcome.differs else ""
        print(f"{outcome.case.name}: {outcome.verdict} in {outcome.time_s:.1f} s{mark}", file=sys.stderr, flush=True)
        if arguments.log is not None:
            with arguments.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": outcome.case.name, **_fields(outcome)}) + "\n")

    try:
        done = _outcomes_in(arguments.log, cases)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    left = [each for each in cases if each.name not in done]
    done |= {each.case.name: each for each in check_cases(left, arguments.jobs, arguments.time, say)}
    outcomes = [done[each.name] for each in cases]
    score = score_of(suite, "noyau", outcomes)
    print("\n".join(table_of(score, outcomes)))
    if arguments.keep:
        keep_score(score)
    return int(any(each.differs for each in outcomes))
