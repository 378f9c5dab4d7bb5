"""Reader of the traces of onnxruntime's profiler: the times of each node, run by run.

A trace is a list of events in the order of their ends, with times truncated to microseconds. The time of a node with a
subgraph (If, Loop, Scan) includes that of the nodes that ran in it."""

import json
import statistics
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from noyau.errors import OutputError

ADVICE = "TMPDIR=FOLDER names another place"  # for errors about lack of room
_ENDING = "_kernel_time"
_CUT_OFF = 0.5  # of a microsecond, on average

Tensor = tuple[str, tuple[int, ...]]  # onnxruntime's name of the element type, and the shape


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One execution of a node: from `start_us`, for `lasted_us`."""

    name: str
    operator: str
    start_us: int
    lasted_us: int
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(slots=True)
class NodeRuns:
    """A node over all runs. `own_us`: its microseconds in each run, without the nodes that ran in it; `calls`: its
    executions in the last run; `inner`: the nodes that ran directly in it there; `within`: the outermost node that it
    ran in, if any."""

    name: str
    operator: str
    within: str | None = None
    own_us: list[float] = field(default_factory=list)
    calls: int = 0
    inner: int = 0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    @property
    def median_us(self) -> float:
        """The median of its microseconds in a run, interpolated within the microsecond as for grouped data."""
        return statistics.median_grouped(self.own_us) if self.own_us else 0.0

    @property
    def tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def extents(self) -> int:
        return sum(len(shape) for _, shape in (*self.inputs, *self.outputs))


def unwritten(what: str, path: Path) -> OutputError:
    """The error for a file that onnxruntime did not write completely."""
    return OutputError(f"onnxruntime did not write {what} to {path.parent}: is there room for it? {ADVICE}")


def read_trace(path: Path) -> list[list[TraceEvent]]:
    """The executed nodes of each run, in the order of their ends. OutputError where the file is incomplete."""
    runs, current = list[list[TraceEvent]](), list[TraceEvent]()
    for each in _arguments(path):
        name = each.get("name", "")
        if name == "model_run":
            runs.append(current)
            current = []
        elif each.get("cat") == "Node" and name.endswith(_ENDING):
            facts = each.get("args", {})
            operator, place = sys.intern(str(facts.get("op_name", ""))), (int(each["ts"]), int(each["dur"]))
            sides = [facts.get(f"{side}_type_shape", ()) for side in ("input", "output")]
            tensors = [_same(tuple([(kind, tuple(e)) for one in side for kind, e in one.items()])) for side in sides]
            current.append(TraceEvent(name.removesuffix(_ENDING), operator, *place, *tensors))
    return runs


def _arguments(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a file, one a line; it is read line by line, since there may be a million."""
    last = ""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                last = line.strip()
                if last not in ("[", "]", ""):
                    yield json.loads(last.removesuffix(","))
        if last != "]":
            raise EOFError
    except (OSError, ValueError, EOFError) as error:
        raise unwritten("its whole profile", path) from error


@lru_cache(maxsize=1 << 14)
def _same(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The first of equal tuples, so that equal runs share memory; a trace may have a million events."""
    return tensors


def node_runs(runs: Iterable[Sequence[TraceEvent]], outer: Collection[str]) -> list[NodeRuns]:
    """Each node over the runs, in the order of their first ends; `outer`: names of the nodes with subgraphs."""
    by_node: dict[tuple[str, str], NodeRuns] = {}
    for number, events in enumerate(runs):
        for node in by_node.values():
            node.calls = node.inner = 0
            node.own_us.append(0.0)
        for event, own_us, inner, within in nest(events, outer):
            node = by_node.setdefault((event.name, event.operator), NodeRuns(event.name, event.operator))
            node.own_us += [0.0] * (number + 1 - len(node.own_us))
            node.own_us[-1] += own_us
            node.calls, node.inner = node.calls + 1, node.inner + inner
            node.within, node.inputs, node.outputs = within, event.inputs, event.outputs
    return list(by_node.values())


def nest(events: Sequence[TraceEvent], outer: Collection[str]) -> Iterator[tuple[TraceEvent, float, int, str | None]]:
    """Each event with its own microseconds, the count of events directly in it, and its outermost node, if any."""
    own = [event.lasted_us + _CUT_OFF for event in events]
    inner, parents = [0] * len(events), [-1] * len(events)
    open_ones: list[int] = []  # events without a known parent, in order
    for number, event in enumerate(events):
        while event.name in outer and open_ones and events[open_ones[-1]].start_us >= event.start_us:
            child = open_ones.pop()
            parents[child] = number
            own[number] -= events[child].lasted_us + _CUT_OFF
            inner[number] += 1
        open_ones.append(number)
    for number, event in enumerate(events):
        top = number
        while parents[top] >= 0:
            top = parents[top]
        yield event, own[number], inner[number], None if top == number else events[top].name
