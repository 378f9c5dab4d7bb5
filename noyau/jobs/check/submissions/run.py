"""The run of a problem and its submissions: each in a process of its own, judged here by the files that it leaves."""

from __future__ import annotations

import json
import linecache
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import CheckError, FindingKind
from noyau.jobs.check.submissions.problem import (
    POISONS,
    Answer,
    Complaint,
    Fault,
    Problem,
    Status,
    Submission,
    TrialRecord,
    Truth,
    Verdict,
    faults_of,
    passes,
    replays,
    unset_cells,
)
from noyau.jobs.check.submissions.process import read_results, run_job, write_results
from noyau.jobs.command_line import Step
from noyau.sanitizer.triton.kernel import INTERPRETING
from noyau.text import count_text, few, from_json, printable, several
from noyau.verify.findings import Finding
from noyau.workers.confinement import Ending, Limits
from noyau.workers.resources import wait_factor
from noyau.workers.worker import Worker

_STARTING_S = 300.0  # the time limit for importing torch, Triton and Numba on a busy machine
_CLOCK = 6.0  # seconds on the clock per second of the processor: a process that waits is ended too
_REFERENCE = 3.0  # a reference's time limit over a submission's: it runs seven times per call of that
_OPEN = "the system lets it reach {}: no Landlock, or no namespaces, for this user"
_STATUS_OF = {
    "exit": Status.CRASHED, "raised": Status.CRASHED, "syntax": Status.NOT_BUILT, "memory": Status.OUT_OF_MEMORY,
    "refused": Status.FORBIDDEN, "unsupported": Status.NOT_CHECKED,
}  # fmt: skip
RANK = tuple(Status)[1:]  # the verdict is the first of these that applies
OF_KINDS = {
    **dict.fromkeys((FindingKind.RACE, FindingKind.DIVERGENT_BARRIER, FindingKind.ORDER_DEPENDENT), Status.RACY),
    **dict.fromkeys((FindingKind.OUT_OF_BOUNDS, FindingKind.NEGATIVE_INDEX), Status.OUT_OF_BOUNDS),
    **dict.fromkeys((FindingKind.UNWRITTEN, FindingKind.UNINITIALISED), Status.UNWRITTEN),
    FindingKind.MUTATED_INPUT: Status.CHANGED_INPUTS,
    FindingKind.CRASH: Status.CRASHED,
}


@dataclass(frozen=True, slots=True)
class Referee:
    """The process with all packages in memory, and the limits of each submission that runs in a fork of it."""

    worker: Worker
    limits: Limits

    def job(self, name: str, wish: Mapping[str, Any], folder: Path, limits: Limits, *readable: str) -> Ending:
        """Run a job on a folder. If the intermediate process dies, the job is lost; the next job gets a new one."""
        self.worker.patience_s = _STARTING_S + 2 * limits.clock_s
        try:
            return self.worker.ask(run_job, name, dict(wish), str(folder), readable, limits)
        except CheckError as error:
            if error.kind is not FindingKind.CRASH:  # the job did not start
                raise
            return Ending(-9, False, ())


@contextmanager
def referee(time_s: float, memory_bytes: int) -> Iterator[Referee]:
    """A referee with limits for each submission."""
    with Worker("the process of submissions", _STARTING_S, INTERPRETING) as worker:
        yield Referee(worker, Limits(time_s, _CLOCK * time_s * wait_factor(), memory_bytes))


def check_submissions(
    problem: Problem, submissions: Sequence[Submission], judge: Referee, root: Path, say: Callable[[str], None]
) -> list[Verdict]:
    """The verdict on each submission to a problem, in order. `root`: the folder of files that its workloads name."""
    with tempfile.TemporaryDirectory(prefix="noyau-") as name:
        folder, fault, verdicts = Path(name) / "truth", None, []
        if any(each.refusal is None for each in submissions):
            say(f"evaluating the reference of {problem.name}")
            fault = _evaluate(problem, judge, folder, root)
        for number, submission in enumerate(submissions):
            if refusal := submission.refusal or fault:
                verdicts.append(Verdict(problem, submission.name, *refusal))
            else:
                say(Step(f"checking {submission.name}", number, len(submissions)))
                try:
                    verdicts.append(_Hearing(problem, submission, judge, folder, Path(name) / str(number)).verdict())
                except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
                    reason = f"what it left cannot be judged: {type(error).__name__}: {printable(str(error))[:200]}"
                    verdicts.append(Verdict(problem, submission.name, Status.NOT_CHECKED, reason))
        return verdicts


def _evaluate(problem: Problem, judge: Referee, folder: Path, root: Path) -> tuple[Status, str] | None:
    """Evaluate the reference into a folder; a status with its reason if nothing can be judged by it."""
    _write_files(folder, problem.files)
    limits = Limits(_REFERENCE * judge.limits.cpu_s, _REFERENCE * judge.limits.clock_s, 2 * judge.limits.memory_bytes)
    wish = problem.wish(None, time_s=judge.limits.cpu_s, memory_bytes=judge.limits.memory_bytes, root=str(root))
    ending = judge.job("truth", wish, folder, limits, str(root))
    truths = _truths(problem, folder)
    if any(each.facts["is_random"] for pair in truths.values() for each in pair.values()):
        return Status.BAD_REFERENCE, "the reference gives other results when it is called again on the same values"
    if truths:
        return None
    stored = _json(folder / "ending.json")
    if stored and not stored["fault"]:
        return Status.NOT_CHECKED, "each of its sizes has too many cells for the CPU; give smaller workloads"
    if ending.is_late:
        return Status.BAD_REFERENCE, f"the reference gave no answer within {limits.cpu_s:g} s"
    fault = stored.get("fault") or f"its process ended with status {ending.status}"
    return Status.BAD_REFERENCE, f"the reference fails: {printable(fault)}"


def _truths(problem: Problem, folder: Path) -> dict[int, dict[str, Truth]]:
    """The truth of each trial, by its number and its seed."""
    truths = {}
    for number in range(len(problem.trials)):
        pairs = {
            name: (read_results(folder / f"truth-{number}-{name}"), read_results(folder / f"inputs-{number}-{name}"))
            for name in "ab"
        }
        whole = {name: Truth.of(one, other[0]) for name, (one, other) in pairs.items() if one and other}
        if len(whole) == len(pairs):
            truths[number] = whole
    return truths


def _write_files(folder: Path, files: Mapping[str, str], copied: Iterable[Path] = ()) -> None:
    """Write a folder with texts and copies of files."""
    folder.mkdir()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", "surrogatepass")
    for path in copied:
        shutil.copyfile(path, folder / path.name)


def _json(path: Path) -> dict[str, Any]:
    """A record that a process left, or {} if it is invalid."""
    with suppress(OSError, ValueError, RecursionError):
        record = json.loads(path.read_text("utf-8"))
        return record if isinstance(record, dict) else {}
    return {}


@dataclass(slots=True)
class _Hearing:
    """A submission, and the folder that it runs in."""

    problem: Problem
    submission: Submission
    judge: Referee
    truth: Path
    folder: Path
    complaints: list[Complaint] = field(default_factory=list)
    records: list[TrialRecord] = field(default_factory=list)
    has_stated: bool = False  # a trial ran at sizes that the problem asks for
    faulty: set[int] = field(default_factory=set)  # trials at whose sizes something was found

    def verdict(self) -> Verdict:
        """Run the submission, and judge the files that it leaves."""
        truths = _truths(self.problem, self.truth)
        ending = self.run(truths)
        seen = _json(self.folder / "record.json")
        answers = {number: self.answers(number) for number in truths}
        self.has_stated = any(self.problem.trials[number].is_stated for number, each in answers.items() if each)
        own_faults = self.own_faults(truths)
        self.take_findings(seen)
        for number, by_call in answers.items():
            self.judge_trial(number, by_call, truths[number], own_faults)
        status, reason = self.end(ending, seen)
        errors = [each.status for each in self.complaints if each.finding.severity == "error"]
        if status is Status.RIGHT or (errors and RANK.index(min(errors, key=RANK.index)) < RANK.index(status)):
            status, reason = (min(errors, key=RANK.index), "") if errors else (status, reason)
        notes = [*map(str, seen.get("notes", ())), *self.packed_notes(truths, answers), *map(_OPEN.format, ending.open)]
        records = tuple(replace(each, is_right=each.number not in self.faulty) for each in self.records)
        skipped = tuple(self.skipped_notes(truths, answers) if self.records else ())
        return Verdict(
            self.problem, self.submission.name, status, reason, tuple(self.complaints), records,
            skipped, tuple(_kernel_lines(seen)), tuple(notes),
        )  # fmt: skip

    def run(self, truths: Mapping[int, Mapping[str, Truth]]) -> Ending:
        """Run it on copies of the inputs, so that its writes do not change the originals."""
        inputs = *self.truth.glob("in-*.pt"), *self.truth.glob("marks-*")
        _write_files(self.folder, self.submission.files, inputs)
        unset = {number: pair["a"].facts["unset"] for number, pair in truths.items()}
        own = {"time_s": self.judge.limits.cpu_s, "called": self.submission.name, "unset": unset}
        wish = json.loads(json.dumps(self.problem.wish(self.submission, **own)))
        return self.judge.job("answers", wish, self.folder, self.judge.limits)

    def answers(self, number: int) -> dict[str, Answer]:
        """The answer of each call of a trial."""
        answers = {}
        for call in POISONS:
            if results := read_results(self.folder / f"out-{number}-{call}"):
                with suppress(KeyError, TypeError):  # an invalid record, perhaps forged
                    answers[call] = Answer.of(results)
        return answers

    def own_faults(self, truths: Mapping[int, Mapping[str, Truth]]) -> dict[str, str]:
        """The faults that the task's own check finds, by trial and call."""
        if self.problem.format != "gpu_mode":
            return {}
        folder = self.folder.with_name(f"{self.folder.name}-verdicts")
        _write_files(folder, self.problem.files, self.truth.glob("in-*.pt"))
        for path in self.folder.glob("out-*"):
            results = read_results(path)
            number = path.name.split("-")[1]
            if results is not None and number.isdigit() and int(number) in truths:
                pairs = zip(Answer.of(results).results, truths[int(number)]["a"].native, strict=False)
                # In the shapes of the reference, if they have as many cells.
                shaped = [got.reshape(right.shape) if got.size == right.size else got for got, right in pairs]
                write_results(folder / path.name, shaped, {})
        limits = replace(self.judge.limits, memory_bytes=2 * self.judge.limits.memory_bytes)
        self.judge.job("verdicts", self.problem.wish(None), folder, limits)
        return {str(name): str(text) for name, text in _json(folder / "verdicts.json").items()}

    def judge_trial(
        self, number: int, answers: dict[str, Answer], truths: dict[str, Truth], own_faults: Mapping[str, str]
    ) -> None:
        """Judge the calls of a trial."""
        trial = self.problem.trials[number]
        for call, answer in answers.items():
            if call == "strided":
                continue
            truth = truths["b" if call == "b" else "a"]
            own = own_faults.get(f"{number}-{call}", "")
            faults = list(faults_of(answer, truth, trial.label, trial.tolerance, POISONS[call]))
            if own and not any(each.severity == "error" for each in faults):
                faults.append(Fault(Status.WRONG, FindingKind.WRONG_VALUE, f"the task's own check finds: {own[:300]}"))
            for fault in faults:
                self.complain(number, fault, is_mild=self.has_stated and not trial.is_stated)
            if call == "a":
                self.records.append(_record(number, answer, truth, own if own_faults else None, trial.tolerance))
        for fault in replays(answers, truths):
            self.complain(number, fault, is_mild=False)

    def packed_notes(
        self, truths: Mapping[int, dict[str, Truth]], answers: Mapping[int, dict[str, Answer]]
    ) -> Iterator[str]:
        """A note if its results differ on inputs with a gap behind each value, which problems do not ask for."""
        for number, by_call in answers.items():
            if "strided" in by_call and not any(each.finding.severity == "error" for each in self.complaints):
                trial, answer = self.problem.trials[number], by_call["strided"]
                if any(faults_of(answer, truths[number]["a"], trial.label, trial.tolerance, POISONS["strided"])):
                    yield "it takes its inputs for packed: on others its results are wrong"

    def complain(self, number: int, fault: Fault, *, is_mild: bool) -> None:
        """Keep a fault as a finding, once per status; an error replaces a warning."""
        self.faulty.add(number)
        place = self.place(f"{self.submission.entry[0]}:{self.line()}")
        severity = "warning" if is_mild else fault.severity
        finding = Finding(
            self.problem.name, self.submission.name, ", ".join(self.submission.languages), fault.kind, place,
            self.problem.trials[number].label, fault.message, fault.cell, severity,
        )  # fmt: skip
        same = [each for each in self.complaints if each.status is fault.status]
        if all(each.finding.severity == "warning" for each in same) and (severity == "error" or not same):
            self.complaints = [*(c for c in self.complaints if c not in same), Complaint(fault.status, finding, number)]

    def line(self) -> int:
        """The line of the function that is called."""
        file, function = self.submission.entry
        lines = enumerate(self.submission.files.get(file, "").splitlines(), 1)
        return next((at for at, text in lines if function in text and ("def " in text or "class " in text)), 1)

    def place(self, place: str) -> str:
        """A place in a file of the submission, by a name that stays valid without the folder."""
        file, _, line = place.removeprefix(f"{self.folder}/").rpartition(":")
        if file not in self.submission.files:
            return place
        name, text = f"{self.submission.name}/{file}", self.submission.files[file]
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return f"{name}:{line}"

    def take_findings(self, seen: Mapping[str, Any]) -> None:
        """Take the findings of watched accesses, each once: warnings at noyau's own sizes, if the problem's ran too."""
        ids: dict[str, int] = {}
        entries = seen.get("findings", ())
        for entry in entries if isinstance(entries, list) else ():
            try:
                finding, number, call = from_json(Finding, entry["finding"]), int(entry["trial"]), entry["call"]
                trial = self.problem.trials[number]
            except (KeyError, TypeError, ValueError, IndexError):
                continue  # an invalid record, perhaps forged
            if call == "strided":
                continue
            is_mild = self.has_stated and not trial.is_stated
            self.faulty |= {number} if finding.severity == "error" else set()
            moved = replace(
                finding, op=self.problem.name, place=self.place(finding.place),
                other_place=finding.other_place and self.place(finding.other_place),
                severity="warning" if is_mild else finding.severity,
            )  # fmt: skip
            complaint = Complaint(OF_KINDS.get(finding.kind, Status.WRONG), moved, number)
            earlier = ids.get(finding.id)
            if earlier is None:
                ids[finding.id] = len(self.complaints)
                self.complaints.append(complaint)
            elif self.complaints[earlier].finding.severity == "warning" and moved.severity == "error":
                self.complaints[earlier] = complaint

    def end(self, ending: Ending, seen: Mapping[str, Any]) -> tuple[Status, str]:
        """The status and reason that follow from the end of its process alone."""
        noted = self.folder / "deeds"
        deeds = noted.read_text("utf-8", "replace").splitlines() if noted.is_file() else []
        last, limits = _json(self.folder / "ending.json"), self.judge.limits
        kind, text = str(last.get("kind", "")), str(last.get("text", ""))
        if deeds:
            return Status.FORBIDDEN, f"it {printable(deeds[0])[:200]}"
        if ending.is_late or kind == "late":
            stated = any(self.problem.trials[each.number].is_stated for each in self.records)
            reason = f"it gave none at sizes of the problem within {limits.cpu_s:g} s"
            return (Status.RIGHT, "") if stated else (Status.NO_ANSWER, reason)
        if kind == "memory":
            return Status.OUT_OF_MEMORY, f"it asked for more than {limits.memory_bytes / 2**30:g} GiB"
        if ending.status or not kind:
            how = f"by signal {-ending.status}" if ending.status < 0 else f"with status {ending.status}"
            return Status.CRASHED, f"it ended its process {how} before all was done"
        if kind != "done":
            return _STATUS_OF.get(kind, Status.NOT_CHECKED), printable(text)
        refused = [_json(path) for path in sorted(self.folder.glob("refused-*-a"))]
        if refused and not self.records:
            kind, text = (str(refused[0].get(each, "")) for each in ("kind", "text"))
            return _STATUS_OF.get(kind, Status.NOT_CHECKED), printable(text)
        unseen = _unseen(seen) or ("" if self.records else "there was no time for any of its sizes")
        return (Status.NOT_CHECKED, unseen) if unseen else (Status.RIGHT, "")

    def skipped_notes(self, truths: Mapping[int, Any], answers: Mapping[int, Mapping[str, Answer]]) -> Iterator[str]:
        """The trials that were not run, by reason."""
        reasons: dict[str, list[str]] = {}
        for number, trial in enumerate(self.problem.trials):
            refused = self.folder / f"refused-{number}-a"
            if refused.is_file():
                reason = f"it refuses them: {printable(str(_json(refused).get('text')))[:200]}"
            elif (self.truth / f"large-{number}").is_file() or (trial.is_stated and number not in truths):
                reason = "too large or too slow to be checked on the CPU, or refused by the reference"
            elif number in truths and not answers[number]:
                reason = f"no time was left for them within {self.judge.limits.cpu_s:g} s"
            else:
                continue
            reasons.setdefault(reason, []).append(trial.label)
        yield from (f"not run: {few(labels, 3, '; ')}: {reason}" for reason, labels in reasons.items())


def _record(number: int, answer: Answer, truth: Truth, own: str | None, tolerance: Any) -> TrialRecord:
    """The errors of a call, and the verdict of the benchmark's rule."""
    pairs = [(got, want) for got, want in zip(answer.results, truth.native, strict=False) if got.shape == want.shape]
    # Benchmarks allocate outputs of zeros, so their rule sees zeros in unwritten cells.
    pairs = [(np.where(unset_cells(got, POISONS["a"]), np.zeros((), got.dtype), got), want) for got, want in pairs]
    wide = [(got.astype(np.float64), want.astype(np.float64)) for got, want in pairs]
    with np.errstate(all="ignore"):
        away = [np.abs(got - want) for got, want in wide]
        near = [each / np.maximum(np.abs(want), 1e-2) for each, (_, want) in zip(away, wide, strict=True)]
    rule = (own == "") if own is not None else None
    if tolerance is not None:
        rule = len(pairs) == len(truth.native) and all(passes(got, want, tolerance) for got, want in pairs)
    values = [each for pair in wide for each in pair]
    worst = [finite(max((float(each.max(initial=0.0)) for each in part), default=0.0)) for part in (away, near)]
    has_nan = any(np.isnan(each).any() for each in values)
    has_inf = not has_nan and any(np.isinf(each).any() for each in values)
    return TrialRecord(number, rule, worst[0], worst[1], bool(has_nan), bool(has_inf))


def finite(number: float) -> float:
    """The number, or 0 if it is not finite: the schema of traces demands it."""
    return number if math.isfinite(number) else 0.0


def _kernels(seen: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    has_all = {"name", "calls", "accesses", "unseen"}.issubset
    return [each for each in seen.get("kernels", ()) if isinstance(each, dict) and has_all(each)]


def _kernel_lines(seen: Mapping[str, Any]) -> Iterator[str]:
    """The kernels that were launched, or a line that there were none."""
    kernels = _kernels(seen)
    for each in kernels:
        launches, accesses = several(int(each["calls"]), "launch"), count_text(int(each["accesses"]))
        yield f"{printable(str(each['name']))}: {launches}, {accesses} accesses seen"
    if not kernels:
        yield "no kernel of its own was launched: torch did the work"


def _unseen(seen: Mapping[str, Any]) -> str:
    """Why the accesses of a kernel were not watched, or an empty text."""
    for each in _kernels(seen):
        if each["unseen"] or not each["accesses"]:
            why = str(each["unseen"] or "none of its accesses was seen")
            return f"{printable(str(each['name']))}: {printable(why)}"
    return ""
