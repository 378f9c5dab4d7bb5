"""A script of a user's under Python's profiler: where its time goes, also where it fails or is interrupted."""

from __future__ import annotations

import cProfile
import pstats
import runpy
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from noyau.errors import InputError
from noyau.jobs.report.text import Record, TableRow, hanging, show_of, table
from noyau.text import fields_json
from noyau.timing.floors import ceiling
from noyau.timing.ranges import Event, event, recorded
from noyau.timing.verdict import spell_s
from noyau.workers.import_path import import_path
from noyau.workers.resources import peak_bytes


@dataclass(frozen=True, slots=True)
class FunctionTime:
    """A function: its calls, and the seconds in itself, ufuncs of NumPy among them, and with all that it calls."""

    name: str
    file: str
    calls: int
    self_s: float
    total_s: float


@dataclass(frozen=True, repr=False)
class ScriptProfile(Record):
    """The profile of a script; prints itself. `end`: why it ended early, or nothing; `status`: its exit status;
    `events`: its ranges of time, as Chrome's trace format has them."""

    script: str
    wall_s: float
    end: str
    status: int
    peak_bytes: int | None
    functions: tuple[FunctionTime, ...]
    events: tuple[Event, ...]
    top: int
    schema_version: int = field(default=1, init=False)

    def to_json(self) -> dict[str, Any]:
        return fields_json(self, without=("top", "events"))

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        show, own = show_of(ascii_only=ascii_only), str(Path(self.script).resolve().parent)
        memory = "" if self.peak_bytes is None else f", at most {self.peak_bytes / 1e6:.0f} MB"
        yield from hanging(Text(show(f"{self.script} ran for {spell_s(self.wall_s)}{memory}"), "bold"), width)
        yield from hanging(show(f"It ended early: {self.end}"), width, style="red") if self.end else ()
        rows = []
        for each in self.functions[: self.top]:
            cells = (str(each.calls), spell_s(each.self_s), spell_s(each.total_s), f"{each.self_s / self.wall_s:.0%}")
            rows.append(TableRow(show(each.name), cells))
        yield from table("function", ("calls", "self", "total", "share"), rows, width)
        if hottest := next((each for each in self.functions if str(Path(each.file).resolve()).startswith(own)), None):
            most = ceiling(self.wall_s, [hottest.self_s])
            gain = "more than 20x" if most is None else f"at most {most:.2f}x"
            advice = f"fused into one @noyau.op, the whole would be {gain} as fast"
            yield from hanging(show(f"The hottest of your own is {hottest.name}: {advice}."), width, rest="  ")


def profile_script(path: Path, arguments: Sequence[str], top: int) -> ScriptProfile:
    """Run a script as Python would, in this process, and profile its main thread. InputError where there is none."""
    if not path.is_file():
        raise InputError(f"there is no script {path}")
    profiler, end, status, before = cProfile.Profile(), "", 0, sys.argv
    sys.argv = [str(path), *arguments]
    with recorded() as events, import_path(path):
        start_s = time.perf_counter()
        try:
            profiler.runcall(runpy.run_path, str(path), run_name="__main__")
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except KeyboardInterrupt:
            end, status = "interrupted", 130
        except Exception as fault:  # noqa: BLE001  whatever a script raises
            end, status = f"{type(fault).__name__}: {fault}", 1
        end_s = time.perf_counter()
    sys.argv = before
    spans = (event(path.name, start_s, end_s), *events)
    rows = sorted(_rows(vars(pstats.Stats(profiler))["stats"]), key=lambda each: -each.self_s)
    return ScriptProfile(str(path), end_s - start_s, end, status, peak_bytes(), tuple(rows), spans, top)


def _rows(stats: Mapping[tuple[str, int, str], tuple[int, int, float, float, Any]]) -> Iterator[FunctionTime]:
    for (file, line, name), (_, calls, self_s, total_s, _) in stats.items():
        where = "" if file == "~" else f" ({Path(file).name}:{line})"
        yield FunctionTime(f"{name}{where}", file, calls, self_s, total_s)
