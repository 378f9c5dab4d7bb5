"""A bench against a baseline: the saved text and the present text, timed alternately in one run.

Times of another day are not comparable: clocks, load and memory have changed. So no saved times are used; both texts
run here, pair by pair, with the same inputs, Python and packages."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from noyau.errors import InputError, NoyauError
from noyau.jobs.bench.baseline import sources
from noyau.jobs.bench.baseline.record import Change, ChangeRecord
from noyau.jobs.bench.baseline.sources import Baseline
from noyau.jobs.bench.record import RETURNING, BenchRecord
from noyau.jobs.bench.tasks import BenchOptions, BenchTask, Entry, tasks_of
from noyau.jobs.bench.track import NumpyTrack, Say, name_of, race
from noyau.jobs.report.text import write_json
from noyau.ops.op_files import load_ops_or_functions
from noyau.text import printable
from noyau.timing.machine import this_machine
from noyau.toolchain.cache import today
from noyau.workers.resources import processors

LEAST, MOST = 3, 6  # races of a pair, until the interval is on one side of the limit
_MARK = " before"


def save(name: str, target: str, what: object, record: BenchRecord) -> None:
    file, mark, names = target.partition("::")
    place = Path(file).resolve().relative_to(sources.root_of(Path(file))).as_posix()
    texts, folders = sources.sources_of(Path(file), what), sources.folders_of(Path(file))
    sizes = tuple(at.sizes for at in record.at)
    baseline = Baseline(name, f"{place}{mark}{names}", today(), record.machine, texts, folders, sizes)
    write_json(baseline.to_json(), sources.baseline_path(name))


def compare(baseline: Baseline, target: str, what: Any, options: BenchOptions, limit: float, say: Say) -> ChangeRecord:
    """Time each present candidate beside the one of the same name in the baseline, at the sizes of `options`, else at
    those of the baseline. InputError if the baseline is of another machine or target, or its text does not run."""
    machine = this_machine()
    baseline.require_machine(machine)
    if target.partition("::")[2] != baseline.target.partition("::")[2]:
        problem = f"is of {printable(baseline.target)}, and this is {target}"
        raise InputError(f"the baseline {printable(baseline.name)} {problem}: save one of this")
    options = replace(options, sizes=options.sizes if any(options.sizes) else list(map(dict, baseline.sizes)))
    changes, faults, notes = list[Change](), dict[str, str](), list[str]()
    with ExitStack() as stack:
        before = _load(baseline, target, stack)
        for now, then in zip(*(tasks_of(each, options) for each in (what, before)), strict=True):
            here, there = (", ".join(f"{a.dtype}{list(a.shape)}" for a in e.drawn.draws[0]) for e in (now, then))
            if here != there:
                problem = f"took {there or 'nothing'}, and this takes {here or 'nothing'}"
                raise InputError(f"the baseline {printable(baseline.name)} {problem}: save it anew")
            for pair in _pairs(now.entries, then.entries, notes):
                races = _changes(replace(now, entries=pair), options, limit, say, faults)
                if not races and pair[1].name not in faults:
                    notes.append(f"{pair[1].name} is not compared: that of the baseline does not run any more")
                changes += races
    facts = (name_of(what), baseline.name, baseline.date, machine)
    return ChangeRecord(*facts, tuple(changes), faults, tuple(dict.fromkeys(notes)), limit)


def _load(baseline: Baseline, target: str, stack: ExitStack) -> Any:
    """Load the op or functions of a baseline. Its files stay until `stack` ends; the present modules are restored."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="noyau-baseline-"))).resolve()
    place, mark, names = baseline.target.partition("::")
    for each, text in baseline.sources.items():
        file = folder / sources.inner_path(each)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    with sources.imports_from(folder, baseline.folders, sources.root_of(Path(target.partition("::")[0]))):
        try:
            return load_ops_or_functions(f"{folder / sources.inner_path(place)}{mark}{names}")[0]
        except NoyauError as error:
            raise InputError(f"the baseline {printable(baseline.name)} does not run any more: {error}") from error


def _pairs(now: Sequence[Entry], then: Sequence[Entry], notes: list[str]) -> Iterator[tuple[Entry, Entry]]:
    """Pairs of a baseline's and a present candidate by name; a note is added for each without a counterpart."""
    old = {entry.name: replace(entry, name=f"{entry.name}{_MARK}", is_peer=True, is_judge=False) for entry in then}
    for entry in now:
        before = old.pop(entry.name, None)
        if entry.skipped:
            notes.append(f"{entry.name} is not timed: {entry.skipped}")
        elif before is None:
            notes.append(f"{entry.name} is new: the baseline has none of that name")
        elif why := before.skipped or before.fault:
            notes.append(f"{entry.name} is not compared: that of the baseline does not run: {why}")
        else:
            yield before, entry
    notes += [f"{name.removesuffix(_MARK)} is gone: only the baseline has it" for name in old]


def _changes(task: BenchTask, options: BenchOptions, limit: float, say: Say, faults: dict[str, str]) -> list[Change]:
    """The changes of one candidate, one for each temperature, by races until each is sure. Occasionally the placement
    of memory makes equal code slower by a sixth, so each race has other memory, and the two alternate in order."""
    changes, cores, name = dict[str, Change](), processors(), task.entries[1].name
    sides = (f"{name}{_MARK}", RETURNING), (name, RETURNING)
    moved = list[np.ndarray]()
    for number in range(MOST):
        track = NumpyTrack(task, options.cold, options.seed + number, cores)
        entries = task.entries[:: -1 if number % 2 else 1]
        at = race(track, entries, budget_s=options.budget_s / LEAST, cores=cores, say=say)
        moved.append(np.zeros(4096 * (number + 1) + 64 * int(np.random.default_rng(number).integers(64)), np.uint8))
        before, now = at.rows[:: -1 if number % 2 else 1]
        if now.out:
            faults[name] = now.out
            return []
        note = f"its values differ from those of the baseline: {before.out}" if before.out else ""
        for temperature, each in at.races.items():
            if set(sides) <= set(each.sides):
                change = Change(at.sizes, name, temperature, each.comparison(*sides), limit, note=note)
                changes[temperature] = changes[temperature].join(change) if temperature in changes else change
        if number + 1 >= LEAST and all(each.is_sure for each in changes.values()):
            break
    return list(changes.values())
