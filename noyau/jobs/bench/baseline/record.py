"""The records of a baseline and of a comparison with one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from noyau.errors import InputError
from noyau.jobs.bench.record import BenchRecord
from noyau.jobs.report.text import Record, write_json
from noyau.text import as_json, fields_json, from_json, printable
from noyau.timing.machine import Machine
from noyau.timing.verdict import Comparison
from noyau.toolchain.cache import today

VERSION = 1
KIND = "noyau bench baseline"
FOLDER = Path(".noyau") / "bench"
_LARGEST_BYTES = 64 << 20
_DECIDES = ("cpu", "cores", "level")  # facts of a machine without which times are of another one


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was timed under a name. `target`: the file, as a path from the root of the project, and the names in it;
    `sources`: the text of that file and of each file of the project that it imports, by path from the root; `folders`:
    those beneath the root that imports are looked for in; `times`: sizes, candidate, temperature, median seconds."""

    name: str
    target: str
    date: str
    machine: Machine
    sources: Mapping[str, str]
    folders: tuple[str, ...]
    times: tuple[SavedTime, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": VERSION, "kind": KIND, **fields_json(self)}

    def write(self, path: Path) -> None:
        write_json(self.to_json(), path)

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes that were timed, in order."""
        return list({tuple(each.sizes.items()): dict(each.sizes) for each in self.times}.values())

    def saved_s(self, sizes: Mapping[str, int], candidate: str, temperature: str) -> float | None:
        """The median seconds of then, where the same was timed."""
        key = (dict(sizes), candidate, temperature)
        return next((e.median_s for e in self.times if (dict(e.sizes), e.candidate, e.temperature) == key), None)

    def require_machine(self, machine: Machine) -> None:
        """InputError where it is of another machine."""
        differ = [name for name in _DECIDES if getattr(self.machine, name) != getattr(machine, name)]
        if self.machine.os.partition(" ")[0] != machine.os.partition(" ")[0]:
            differ.append("os")
        if differ:
            facts = ", ".join(
                f"{e} {printable(str(getattr(self.machine, e)))}, here {getattr(machine, e)}" for e in differ
            )
            advice = "a commit may be slower on one machine and faster on another: save it on this one"
            raise InputError(f"the baseline {printable(self.name)} is of another machine ({facts}); {advice}")


@dataclass(frozen=True, slots=True)
class SavedTime:
    """The median seconds of a candidate, called as users call it."""

    sizes: Mapping[str, int]
    candidate: str
    temperature: str
    median_s: float


def baseline_path(name: str) -> Path:
    """Where a baseline is kept: a name is of a file in `.noyau/bench`, anything with a folder or `.json` is a path."""
    path = Path(name)
    if not name or name in (".", ".."):
        raise InputError("a baseline needs a name: --save main")
    return path if len(path.parts) > 1 or path.suffix == ".json" else FOLDER / f"{name}.json"


def baseline_of(
    name: str, target: str, record: BenchRecord, sources: Mapping[str, str], folders: Sequence[str]
) -> Baseline:
    """The baseline of a bench that has run."""
    times = tuple(
        SavedTime(at.sizes, row.name, temperature, time_s)
        for at in record.at
        for row in at.ranked
        for temperature in at.races
        if (time_s := at.time_s(row.name, temperature=temperature)) is not None
    )
    return Baseline(name, target, today(), record.machine, sources, tuple(folders), times)


def read_baseline(name: str) -> Baseline:
    """The baseline of a name or a path. InputError where there is none, or where the file is something else."""
    path = baseline_path(name)
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputError(f"{path} has {path.stat().st_size} bytes, too many for a baseline: save one anew")
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"there is no baseline {printable(name)} ({path}): save one with --save {printable(name)}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"the baseline {path} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise InputError(f"{path} is no baseline of noyau bench: name one that --save wrote")
    if data.get("schema_version") != VERSION:
        problem = f"has the format {data.get('schema_version')!r}, and this noyau reads {VERSION}"
        raise InputError(f"the baseline {path} {problem}: save it anew with this noyau")
    try:
        return from_json(Baseline, {each: data[each] for each in Baseline.__slots__})  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the baseline {path} is damaged ({type(error).__name__}: {error}): save it anew") from error


@dataclass(frozen=True, slots=True)
class Change:
    """A candidate then and now, timed in turns in one run, the text of then being `before`: at one set of sizes and
    one temperature. `limit`: the share of time by which it may be slower; `saved_s`: what it took when it was saved."""

    sizes: Mapping[str, int]
    candidate: str
    temperature: str
    comparison: Comparison
    limit: float
    saved_s: float | None = None
    note: str = ""

    @property
    def slowdown(self) -> float:
        """The time now over the time of then, and 1.1 for a tenth more: the median over pairs."""
        return 1 / self.comparison.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the slowdown."""
        low, high = self.comparison.interval
        return (1 / high, 1 / low) if low > 0 else (math.nan, math.nan)

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by more than the limit: the median is beyond it, and the whole interval beyond 1."""
        return self.slowdown > 1 + self.limit and self.interval[0] > 1

    @property
    def is_sure(self) -> bool:
        """Whether more pairs would not change that: the interval lies on one side of the limit."""
        low, high = self.interval
        return high <= 1 + self.limit or low > 1 + self.limit

    @property
    def verdict(self) -> str:
        if self.is_slower:
            return "SLOWER"
        high = self.interval[1]
        return "FASTER" if high < 1 - self.limit else "ok" if high <= 1 + self.limit else "in doubt"

    def joined(self, other: Change) -> Change:
        """Both as one: the pairs of another race on other memory are added."""
        mine, more = self.comparison, other.comparison
        pairs = (mine.before_s + more.before_s, mine.after_s + more.after_s)
        return replace(self, comparison=Comparison(*pairs, mine.calls, mine.seed))

    def to_json(self) -> dict[str, Any]:
        names = ("slowdown", "interval", "verdict", "is_slower")
        timed = {name: as_json(getattr(self, name)) for name in names}
        before_s, after_s = self.comparison.before_median_s, self.comparison.after_median_s
        return {
            **fields_json(self, without=("comparison",)), **timed, "before_s": before_s, "after_s": after_s,
            "pairs": self.comparison.pairs, "before_samples_s": list(self.comparison.before_s),
            "after_samples_s": list(self.comparison.after_s),
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class ChangeRecord(Record):
    """What is timed now beside what it was when its baseline was saved; prints itself. `faults`: what is wrong now, by
    candidate; `notes`: what was not compared, and what else differs."""

    name: str
    baseline: str
    date: str
    machine: Machine
    changes: tuple[Change, ...]
    faults: Mapping[str, str]
    notes: tuple[str, ...]
    limit: float
    schema_version: int = field(default=VERSION, init=False)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, or slower by more than the limit."""
        return not self.faults and not any(each.is_slower for each in self.changes)

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": self.schema_version, "ok": self.ok, **fields_json(self, without=("schema_version",))}
