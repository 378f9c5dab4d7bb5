"""Watched runs of a kernel under check, maps of small calls, and compute-sanitizer's reports on the same kernels."""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import CheckError, FindingKind, NoyauError
from noyau.jobs.check.attempts import PAST, Attempt, Budget, Costs, usual_case, volume
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.compute_sanitizer.driver import ENVIRONMENT, WISH
from noyau.sanitizer.compute_sanitizer.tool import TOOLS, ToolReport, merge_witnesses, missing, run_tools
from noyau.sanitizer.records import Site, WatchedRun
from noyau.sanitizer.routes import KernelCase, is_watched, watch
from noyau.text import collect, count_text, several, sizes_text
from noyau.verify.checks import KernelCheck, OpCheck
from noyau.verify.findings import Finding
from noyau.workers.array_files import write_arrays
from noyau.workers.worker import spent_s

_APART = "Triton compiles here; TRITON_INTERPRET=1 in the environment has it interpret, which a map needs"
Array = np.ndarray
Inputs = Callable[[Attempt], Sequence[Array] | None]
Watch = Callable[[Attempt, Sequence[Array], str], WatchedRun]  # a run on arrays, with the sizes as text
SMALL = (0, 1, 2, 3, 4, 5, 8, 9, 17, 33, 65)  # values that all sizes take at once
CELLS = 20_000  # the most cells of an attempt's inputs; a larger attempt is left out
CELLS_NAMED = 1 << 20  # the most at sizes that a user names
INSTANCES, FEWEST = 3, 6
EARLY = 1 + PAST  # attempts that are watched before small ones

# Kinds that unwatched runs find too: an error of a watched run explains them.
EXPLAINED = frozenset({
    FindingKind.WRONG_VALUE, FindingKind.PRECISION, FindingKind.ORDER_DEPENDENT, FindingKind.RACE,
    FindingKind.OUT_OF_BOUNDS, FindingKind.UNWRITTEN,
})  # fmt: skip
CRASHING = frozenset(  # kinds that may crash a run
    {FindingKind.OUT_OF_BOUNDS, FindingKind.NEGATIVE_INDEX, FindingKind.UNINITIALISED, FindingKind.DIVERGENT_BARRIER}
)


def maps_of(op: Op[..., Any]) -> list[AccessMap]:
    """A map of a call of each kernel; or why there is none: it cannot be watched, or is watched in another process."""
    maps = list[AccessMap]()
    for kernel in op.kernels.values():
        own = list[AccessMap]()
        try:
            instance, arrays, size = usual_case(op)
            watch(KernelCase(kernel, instance, arrays, {}, size), own)
        except NoyauError as error:
            own = [AccessMap(kernel.title, "", "", {}, (), (str(error),))]
        if not own and LANGUAGES[kernel.language].on_gpu:
            own = [AccessMap(kernel.title, "", "", {}, (), (_APART,))]
        maps += own
    return maps


@dataclass(slots=True)
class SanitizedRuns:
    """The findings of a kernel's watched runs. `why`: why there was none."""

    findings: dict[str, Finding] = field(default_factory=dict)
    accesses: int = 0
    shapes: list[str] = field(default_factory=list)
    allowed: dict[str, None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    why: str = ""
    smallest: dict[str, int] = field(default_factory=dict)  # the fewest cells at which each finding was made
    lines_seen: set[tuple[str, int]] = field(default_factory=set)
    cut: str = ""

    def add(self, watched: WatchedRun, size: str, cells: int) -> None:
        """Add a run at sizes, as text and in cells: a finding replaces the same finding at larger sizes."""
        self.accesses += watched.accesses
        self.shapes.append(size)
        self.allowed |= dict.fromkeys(watched.allowed)
        self.notes |= {note.partition(": ")[0]: note for note in watched.notes}
        self.lines_seen |= watched.lines
        if watched.is_cut and not self.cut:
            self.cut = f"a run at {size} was watched for {count_text(watched.accesses)} accesses, and makes more"
        for finding in watched.findings:
            if cells < self.smallest.get(finding.id, cells + 1):
                self.findings[finding.id], self.smallest[finding.id] = finding, cells

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of a report: the extent of the watch, the accesses that marks allow, the class of each loop."""
        if self.why:
            return (f"its accesses are not seen: {self.why}",)
        if not self.shapes:
            return ()
        shapes = several(len(self.shapes), "shape")
        if not self.accesses and not self.findings:
            return (f"it touches no cell itself on {shapes}: what it calls is not watched", *self.allowed)
        kinds = {each.kind for each in self.findings.values()}
        none = "" if kinds & {FindingKind.RACE, FindingKind.WRITTEN_TWICE} else "no race found "
        many = f"{none or 'watched '}on {shapes}, {count_text(self.accesses)} access{'es' * (self.accesses != 1)}"
        return (many, *self.allowed, *self.notes.values())

    def unverified_reason(self, language: str) -> str:
        """Why a kernel's accesses count as unchecked; an empty text if they were watched, or none can be."""
        if not is_watched(language) or self.findings:
            return ""
        if self.cut:
            return self.cut
        if self.why or not self.shapes:
            return self.why or self.notes.get("raised", "")
        is_idle = not self.accesses and not self.allowed and LANGUAGES[language].on_gpu
        return "it was launched, and made no access to an array" if is_idle else ""


def watch_attempts(
    run: Watch | str,
    attempts: Sequence[Attempt],
    inputs: Inputs,
    budget: Budget,
    runs: SanitizedRuns | None = None,
    work: Callable[[Attempt], int] = lambda attempt: volume(attempt.sizes),
) -> SanitizedRuns:
    """Run a kernel with every access watched, within a budget, and add to `runs`: the first attempts, then small sizes,
    to find errors at the smallest, then the others; at last the largest left, where many threads run. Runs that may
    take the whole budget are left out. The compilation in the first run is not counted. `work`: of an attempt."""
    runs = runs or SanitizedRuns()
    if isinstance(run, str):
        runs.why = run
        return runs
    left = [each for each in _in_order(attempts) if sizes_text(each.sizes) not in runs.shapes]
    while left and not runs.why:
        short = [attempt for attempt in left if budget.affords(work(attempt))]
        if not short or (budget.is_spent and len(runs.shapes) >= FEWEST):
            if any(not budget.affords(work(each)) and _few_arrays(each, inputs) is not None for each in left):
                runs.notes["costly"] = f"not at larger sizes, where a run would take more than {budget.seconds:g} s"
            any(_is_watched(run, attempt, inputs, runs, budget.costs, work(attempt)) for attempt in reversed(short))
            break
        is_first = not runs.shapes
        _is_watched(run, short[0], inputs, runs, budget.costs, work(short[0]))
        if is_first:
            budget = Budget(budget.seconds, Costs(budget.costs.is_steep))
        left = [attempt for attempt in left if attempt is not short[0]]
    return runs


def _is_watched(run: Watch, attempt: Attempt, inputs: Inputs, runs: SanitizedRuns, costs: Costs, work: int) -> bool:
    """Whether a run was possible; its findings are added."""
    arrays = _few_arrays(attempt, inputs)
    if arrays is None:
        return False
    size, began_s = sizes_text(attempt.sizes), spent_s()
    try:
        watched = run(attempt, arrays, size)
    except CheckError as error:
        runs.notes.setdefault("raised", f"a watched run was not finished: {error}")
        return False
    except NoyauError as error:
        runs.why = str(error)
        return True
    costs.note(work, spent_s() - began_s)
    runs.add(watched, size, volume(attempt.sizes))
    return True


def _few_arrays(attempt: Attempt, inputs: Inputs) -> Sequence[Array] | None:
    """The arrays of an attempt, if there are any and they have few cells."""
    arrays = inputs(attempt)
    most = CELLS_NAMED if attempt.is_named else CELLS
    return None if arrays is None or sum(array.size for array in arrays) > most else arrays


def _in_order(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The first attempts, then small variants and the others, the smallest first; each sizes once per instance."""
    first = {attempt.instance: attempt for attempt in reversed(attempts)}
    chosen = [first[each] for each in dict.fromkeys(attempt.instance for attempt in attempts)][:INSTANCES]
    own = [attempt for attempt in attempts if attempt.instance in [each.instance for each in chosen]]
    small = [replace(each, sizes=dict.fromkeys(each.sizes, size)) for each in chosen for size in SMALL]
    others = sorted([*small, *own[EARLY:]], key=lambda attempt: sum(attempt.sizes.values()))
    by_key = collect(((each.instance, tuple(each.sizes.items())), each) for each in [*own[:EARLY], *others])
    return [attempt for attempt, *_ in by_key.values()]


def explain_findings(findings: Sequence[Finding], runs: SanitizedRuns) -> list[Finding]:
    """The findings of a check; watched findings replace the ones that they explain."""
    errors = any(each.severity == "error" for each in runs.findings.values())
    kinds = {each.kind for each in runs.findings.values()}
    explained = kinds | (EXPLAINED if errors else set()) | ({FindingKind.CRASH} if kinds & CRASHING else set())
    others = [each for each in findings if each.kind not in explained]
    crashed = any(each.kind is FindingKind.CRASH for each in others)
    seen_first = [each for each in runs.findings.values() if not (crashed and each.kind is FindingKind.UNWRITTEN)]
    return [*seen_first, *others]


def second_opinion(op: Op[..., Any], checked: OpCheck, target: str) -> OpCheck:
    """A check with compute-sanitizer's reports on the same kernels; a note says why it was not run."""
    if not any(LANGUAGES[each.language].on_gpu for each in checked.kernels):
        return checked
    if why := missing():
        return replace(checked, note="; ".join(filter(None, [checked.note, why])))
    return replace(checked, kernels=tuple(_sanitize(op, each, target) for each in checked.kernels))


def _sanitize(op: Op[..., Any], check: KernelCheck, target: str) -> KernelCheck:
    kernel = op.kernels.get(check.name)
    if kernel is None or not LANGUAGES[kernel.language].on_gpu:
        return check
    try:
        findings, size = _findings(op, kernel, target)
    except NoyauError as error:
        return replace(check, notes=(*check.notes, f"compute-sanitizer: {error}"))
    note = f"compute-sanitizer: {', '.join(TOOLS)} on {size}"
    return replace(check, findings=merge_witnesses(check.findings, findings), seen=(*check.seen, note))


def _findings(op: Op[..., Any], kernel: UserKernel, target: str) -> tuple[list[Finding], str]:
    """The reports of compute-sanitizer on a kernel, launched in a process of its own, and the sizes of the launch."""
    _, arrays, size = usual_case(op)
    with tempfile.TemporaryDirectory(prefix="noyau-") as folder:
        file = write_arrays({str(number): np.asarray(array) for number, array in enumerate(arrays)}, Path(folder))
        wish = {"target": target.partition("::")[0], "op": op.name, "kernel": kernel.name, "given": file}
        command = [sys.executable, "-m", "noyau.sanitizer.compute_sanitizer.driver"]
        reports = run_tools(command, {**ENVIRONMENT, WISH: json.dumps(wish)})
    return list(filter(None, (_of(each, op.name, kernel, size) for each in reports))), size


def _of(report: ToolReport, op: str, kernel: UserKernel, size: str) -> Finding | None:
    """A report as a finding, unless a mark on its line allows it."""
    report = replace(report, site=_in_text(report.site, kernel), other=_in_text(report.other, kernel))
    return None if report.is_allowed else report.finding(op, kernel.name, kernel.language, kernel.place, size)


def _in_text(site: Site | None, kernel: UserKernel) -> Site | None:
    """A site in noyau's terms: the compiler takes the name of a text without a file for a file in this folder."""
    if site is None or Path(kernel.place).is_file() or Path(site.file).name != kernel.place:
        return site
    lines = kernel.text.splitlines()
    return Site(kernel.place, site.line, lines[site.line - 1].strip() if site.line <= len(lines) else "")
