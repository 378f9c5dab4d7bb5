"""A bench against a baseline: the text that was saved and the text of now, timed in turns in one run.

Times of another day are of another machine: its clock, its neighbours and its memory have changed. So nothing is judged
by the times that were saved; both texts run here, pair by pair, with the same inputs, Python and packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from noyau.errors import InputError, NoyauError
from noyau.jobs.bench.baseline.record import Baseline, Change, ChangeRecord, baseline_of, baseline_path
from noyau.jobs.bench.baseline.sources import folders_of, imports_from, inner_path, root_of, sources_of, write_sources
from noyau.jobs.bench.candidates import Entry
from noyau.jobs.bench.numpy_track import NumpyTrack
from noyau.jobs.bench.record import RETURNING, BenchPoint, BenchRecord
from noyau.jobs.bench.tasks import BenchOptions, BenchTask, function_tasks, op_tasks
from noyau.jobs.bench.track import Say, name_of, race
from noyau.ops.op import Op
from noyau.ops.op_files import load_ops_or_functions
from noyau.text import printable
from noyau.timing.machine import this_machine
from noyau.workers.resources import processors

TRIES = 8  # races of a pair, each on memory of its own, until the interval lies on one side of the limit
_MARK = " before"


def save(name: str, target: str, what: object, record: BenchRecord) -> Path:
    """Keep a bench as a baseline: where it lies now."""
    file, _, names = target.partition("::")
    place = Path(file).resolve().relative_to(root_of(Path(file))).as_posix()
    sources, folders = sources_of(Path(file), what), folders_of(Path(file))
    baseline = baseline_of(name, f"{place}::{names}" if names else place, record, sources, folders)
    path = baseline_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    baseline.write(path)
    return path


def compare(
    baseline: Baseline, target: str, what: Any, options: BenchOptions, *, limit: float, say: Say
) -> ChangeRecord:
    """Time each candidate of now beside the one of the same name in the baseline, at the sizes of `options`, else at
    those of the baseline. InputError where the baseline is of another machine or target, or its text does not run."""
    machine = this_machine()
    baseline.require_machine(machine)
    _require_target(baseline, target)
    options = replace(options, sizes=options.sizes if any(options.sizes) else baseline.sizes)
    changes, faults, notes = [], dict[str, str](), _versions(baseline, machine.versions)
    with ExitStack() as stack:
        say(f"reading the baseline {baseline.name}")
        before = _load(baseline, target, stack)
        for now, then in zip(_tasks(what, options), _tasks(before, options), strict=True):
            _require_like(now, then, baseline)
            pairs, left = _pairs(now.entries, then.entries, baseline)
            notes += [each for each in left if each not in notes]
            for pair in pairs:
                races = _changes(replace(now, entries=pair), options, limit, say, faults)
                if not races and pair[1].name not in faults:
                    notes.append(f"{pair[1].name} is not compared: that of the baseline does not run any more")
                for each in races:
                    saved_s = baseline.saved_s(each.sizes, each.candidate, each.temperature)
                    changes.append(replace(each, saved_s=saved_s))
    facts = (baseline.name, baseline.date, machine)
    return ChangeRecord(name_of(what), *facts, tuple(changes), faults, tuple(notes), limit)


def _load(baseline: Baseline, target: str, stack: ExitStack) -> Any:
    """The op or the functions of the baseline. Its files stay until `stack` ends, for what compiles late reads them;
    the modules of now are back at once."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="noyau-baseline-"))).resolve()
    place, mark, names = baseline.target.partition("::")
    write_sources(baseline.sources, folder)
    with imports_from(folder, baseline.folders, root_of(Path(target.partition("::")[0]))):
        try:
            return load_ops_or_functions(f"{folder / inner_path(place)}{mark}{names}")[0]
        except NoyauError as error:
            raise InputError(f"the baseline {printable(baseline.name)} does not run any more: {error}") from error


def _tasks(what: Any, options: BenchOptions) -> Iterator[BenchTask]:
    return op_tasks(what, options) if isinstance(what, Op) else function_tasks(what, options)


def _require_target(baseline: Baseline, target: str) -> None:
    names = target.partition("::")[2]
    place, _, saved = baseline.target.partition("::")
    if names != saved:
        wanted = f"{printable(place)}{f'::{printable(saved)}' if saved else ''}"
        raise InputError(
            f"the baseline {printable(baseline.name)} is of {wanted}, and this is {target}: save one of this"
        )


def _require_like(now: BenchTask, then: BenchTask, baseline: Baseline) -> None:
    """InputError where the two are not of the same inputs."""
    texts = [", ".join(f"{a.dtype}{list(a.shape)}" for a in task.drawn.draws[0]) for task in (now, then)]
    if texts[0] != texts[1]:
        problem = f"took {texts[1] or 'nothing'}, and this takes {texts[0] or 'nothing'}"
        raise InputError(f"the baseline {printable(baseline.name)} {problem}: save it anew")


def _pairs(
    now: Sequence[Entry], then: Sequence[Entry], baseline: Baseline
) -> tuple[list[tuple[Entry, Entry]], list[str]]:
    """The candidates of then and of now by name, and what has no other half, in words."""
    old = {entry.name: replace(entry, name=f"{entry.name}{_MARK}", is_peer=True, is_judge=False) for entry in then}
    pairs, notes = [], []
    for entry in now:
        before = old.pop(entry.name, None)
        if entry.skipped:
            notes.append(f"{entry.name} is not timed: {entry.skipped}")
        elif before is None:
            notes.append(f"{entry.name} is new: the baseline has none of that name")
        elif before.skipped or before.fault:
            notes.append(
                f"{entry.name} is not compared: in the baseline it does not run: {before.skipped or before.fault}"
            )
        else:
            pairs.append((before, entry))
    notes += [f"{name.removesuffix(_MARK)} is gone: the baseline {baseline.name} has it" for name in old]
    return pairs, notes


def _changes(task: BenchTask, options: BenchOptions, limit: float, say: Say, faults: dict[str, str]) -> list[Change]:
    """The changes of one candidate, one a temperature: races until each is sure, at most so many."""
    changes = dict[str, Change]()
    cores, name = processors(), task.entries[1].name
    for number in range(TRIES):
        track = NumpyTrack(task, options.cold, options.seed + number, cores)
        at = race(track, task.entries, budget_s=options.budget_s, cores=cores, say=say)
        before, now = at.rows
        if now.out:
            faults[name] = now.out
            return []
        for each in _of_point(at, name, limit, before.out):
            known = changes.get(each.temperature)
            changes[each.temperature] = each if known is None else known.joined(each)
        if all(each.is_sure for each in changes.values()):
            break
    return list(changes.values())


def _of_point(at: BenchPoint, name: str, limit: float, fault: str) -> Iterator[Change]:
    note = f"its values differ from those of the baseline: {fault}" if fault else ""
    for temperature, each in at.races.items():
        sides = (f"{name}{_MARK}", RETURNING), (name, RETURNING)
        if all(side in each.sides for side in sides):
            facts: dict[str, Any] = {"sizes": at.sizes, "candidate": name, "temperature": temperature, "note": note}
            places = [each.sides.index(side) for side in sides]
            yield Change(comparison=each.series.comparison(*places), limit=limit, **facts)


def _versions(baseline: Baseline, versions: Mapping[str, str]) -> list[str]:
    """What differs from the moment at which the baseline was saved, in words."""
    differ = [
        f"{name} {old} (now {versions.get(name, 'none')})"
        for name, old in baseline.machine.versions.items()
        if old != versions.get(name, "none")
    ]
    return [f"the baseline was saved with {', '.join(differ)}: both texts were run with what is here"] if differ else []
