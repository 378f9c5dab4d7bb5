"""The records of a baseline and of a comparison with one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.jobs.report.text import Record
from noyau.text import as_json, fields_json, from_json, printable
from noyau.timing.machine import Machine
from noyau.timing.verdict import Comparison

VERSION = 1
KIND = "noyau bench baseline"
_FOLDER = Path(".noyau") / "bench"
_DECIDES = ("cpu", "cores", "level")  # facts of a machine without which times are of another one


@dataclass(frozen=True, slots=True)
class Baseline:
    """A bench that was saved. `target`: the file, as a path from the root of the project, and the names in it;
    `sources`: the texts of that file and of those of the project that it imports, by path from the root; `folders`:
    those beneath the root that imports are looked for in; `sizes`: those that were timed. Times are not
    kept, for nothing is judged by them."""

    name: str
    target: str
    date: str
    machine: Machine
    sources: Mapping[str, str]
    folders: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": VERSION, "kind": KIND, **fields_json(self)}

    def require_machine(self, machine: Machine) -> None:
        """InputError where it is of another machine."""
        pairs = {each: (getattr(self.machine, each), getattr(machine, each)) for each in _DECIDES}
        pairs["os"] = (self.machine.os.partition(" ")[0], machine.os.partition(" ")[0])
        facts = ", ".join(f"{e} {printable(str(old))}, here {now}" for e, (old, now) in pairs.items() if old != now)
        if facts:
            advice = "a commit may be slower on one machine and faster on another: save it on this one"
            raise InputError(f"the baseline {printable(self.name)} is of another machine ({facts}); {advice}")


def baseline_path(name: str) -> Path:
    """The file of a baseline: a name is of one in `.noyau/bench`, anything with a folder or `.json` is a path."""
    path = Path(name)
    return path if len(path.parts) > 1 or path.suffix == ".json" else _FOLDER / f"{name}.json"


def read_baseline(name: str) -> Baseline:
    """The baseline of a name or a path. InputError where there is none, or where the file is something else."""
    path = baseline_path(name)
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        remedy = f"save one with --save {printable(name)}"
        raise InputError(f"there is no baseline {printable(name)} ({path}): {remedy}") from None
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
    one temperature. `limit`: the share of time by which it may be slower; `races`: the slowdown in each of the races
    whose pairs are joined."""

    sizes: Mapping[str, int]
    candidate: str
    temperature: str
    comparison: Comparison
    limit: float
    note: str = ""
    races: tuple[float, ...] = ()

    @property
    def slowdown(self) -> float:
        """The time now over the time of then, 1.1 for a tenth more: the median over pairs."""
        return 1 / self.comparison.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the slowdown."""
        return 1 / self.comparison.high, 1 / self.comparison.low

    @property
    def is_slower(self) -> bool:
        """Whether it is slower by more than the limit: the median is beyond it, the whole interval beyond 1, and so are
        three of four races: where memory happens to lie makes one of them slower by a sixth now and then."""
        agree = not self.races or float(np.quantile(self.races, 0.25)) > 1
        return self.slowdown > 1 + self.limit and self.interval[0] > 1 and agree

    @property
    def is_sure(self) -> bool:
        """Whether the interval lies on one side of the limit."""
        return self.interval[1] <= 1 + self.limit or self.interval[0] > 1 + self.limit

    @property
    def verdict(self) -> str:
        if self.is_slower:
            return "SLOWER"
        return "FASTER" if self.interval[1] < 1 - self.limit else "ok" if self.is_sure else "in doubt"

    def joined(self, other: Change) -> Change:
        """Both as one: the pairs of another race, on other memory, are added."""
        mine, more = self.comparison, other.comparison
        pairs = (mine.before_s + more.before_s, mine.after_s + more.after_s)
        races = (*(self.races or (self.slowdown,)), other.slowdown)
        return replace(self, comparison=Comparison(*pairs, mine.calls, mine.seed), races=races)

    def to_json(self) -> dict[str, Any]:
        judged = {name: as_json(getattr(self, name)) for name in ("slowdown", "interval", "verdict")}
        samples = {name: list(getattr(self.comparison, name)) for name in ("before_s", "after_s")}
        return {**fields_json(self, without=("comparison",)), **judged, **samples}


@dataclass(frozen=True, repr=False)
class ChangeRecord(Record):
    """Candidates of now beside those of a baseline; prints itself. `faults`: what is wrong now, by candidate; `notes`:
    what was not compared, and what else differs."""

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
