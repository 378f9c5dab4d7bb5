"""Reader of the traces of onnxruntime's profiler: the times of each node, run by run, and the nodes that it stands for.

A trace is a list of events in the order in which they ended, whose times are whole microseconds, cut off. A node with a
subgraph (If, Loop, Scan) has the nodes that ran in it within its own time.

Before onnxruntime sees the model, each node is named after its position. What its optimizer keeps, keeps that name.
What it makes of several nodes still makes a value of the model: it stands for all nodes between that value and those
that the optimized model still has.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.errors import OutputError
from noyau.hosts.onnxruntime.function_bodies import reads, subgraphs

if TYPE_CHECKING:
    import onnx

_ENDING = "_kernel_time"
_RUN = "model_run"
_CUT_OFF = 0.5  # of a microsecond, on average

Tensor = tuple[str, tuple[int, ...]]  # the element type as onnxruntime calls it, and the shape
Positions = frozenset[int]
_NAME = re.compile(r"n(\d{1,9})(?!\d)")


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """A node that ran once: from `start_us`, for `lasted_us`."""

    name: str
    operator: str
    start_us: int
    lasted_us: int
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(slots=True)
class NodeRuns:
    """A node over all runs. `own_us` has the microseconds of each run, without those of the nodes that ran in it;
    `calls` and `inner` count, of the last run, how often it ran and how many nodes ran directly in it.

    `within` is the node of the model that it ran in, if that is another one."""

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
        """Microseconds of a run: the median of grouped data, which finds its place within the microsecond."""
        return statistics.median_grouped(self.own_us) if self.own_us else 0.0

    @property
    def tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def extents(self) -> int:
        """The number of extents in the shapes of its inputs and outputs."""
        return sum(len(shape) for _, shape in (*self.inputs, *self.outputs))


def read_trace(path: Path) -> list[list[TraceEvent]]:
    """The nodes that ran in each run, in the order in which they ended. OutputError where the file is not whole."""
    runs: list[list[TraceEvent]] = []
    current: list[TraceEvent] = []
    for each in _arguments(path):
        name = each.get("name", "")
        if name == _RUN:
            runs.append(current)
            current = []
        elif each.get("cat") == "Node" and name.endswith(_ENDING):
            current.append(_event(each, name.removesuffix(_ENDING)))
    return runs


def _arguments(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a file, which are a line each: there may be a million, which no memory need hold at a time."""
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
        raise OutputError(
            f"onnxruntime did not write its whole profile to {path.parent}: is there room for it? "
            "TMPDIR=FOLDER names another place"
        ) from error


def _event(entry: Mapping[str, Any], name: str) -> TraceEvent:
    arguments = entry.get("args", {})
    inputs, outputs = (_tensors(arguments.get(f"{side}_type_shape", ())) for side in ("input", "output"))
    return TraceEvent(
        name, sys.intern(str(arguments.get("op_name", ""))), int(entry["ts"]), int(entry["dur"]), inputs, outputs
    )


def _tensors(entries: Sequence[Mapping[str, Sequence[int]]]) -> tuple[Tensor, ...]:
    """Element types and shapes."""
    return _same(tuple([(element, tuple(shape)) for each in entries for element, shape in each.items()]))


@lru_cache(maxsize=1 << 14)
def _same(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The first of those that are equal: they are the same in every run, and a trace may have a million."""
    return tensors


def node_runs(runs: Iterable[Sequence[TraceEvent]], outer: Collection[str]) -> list[NodeRuns]:
    """Each node over the runs, in the order in which they first ended; `outer` names the nodes that have subgraphs."""
    by_node: dict[tuple[str, str], NodeRuns] = {}
    for number, events in enumerate(runs):
        for node in by_node.values():
            node.calls = node.inner = 0
        for event, own_us, inner, within in nested(events, outer):
            node = by_node.setdefault((event.name, event.operator), NodeRuns(event.name, event.operator))
            node.own_us += [0.0] * (number + 1 - len(node.own_us))
            node.own_us[-1] += own_us
            node.calls, node.inner = node.calls + 1, node.inner + inner
            node.within, node.inputs, node.outputs = within, event.inputs, event.outputs
        for node in by_node.values():
            node.own_us += [0.0] * (number + 1 - len(node.own_us))
    return list(by_node.values())


def nested(events: Sequence[TraceEvent], outer: Collection[str]) -> Iterator[tuple[TraceEvent, float, int, str | None]]:
    """Each event, its own microseconds, how many ran directly in it, and the outermost node that it ran in, if any."""
    own = [event.lasted_us + _CUT_OFF for event in events]
    inner, parents = [0] * len(events), [-1] * len(events)
    open_ones: list[int] = []  # that no node is known to hold yet, in order
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
        yield event, own[number], inner[number], events[top].name if top != number else None


def with_numbers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its nodes named n0, n1...; those inside of node 3 are n3_0, n3_1... A name says nothing else, and
    what a hostile file has put into one goes nowhere."""
    copied = type(model)()
    copied.CopyFrom(model)
    _number(copied.graph, "n")
    for number, function in enumerate(copied.functions):
        _number(function, f"f{number}_")
    return copied


def _number(graph: onnx.GraphProto | onnx.FunctionProto, prefix: str) -> None:
    for position, node in enumerate(graph.node):
        node.name = f"{prefix}{position}"
        for inner in subgraphs(node):
            _number(inner, f"{node.name}_")


@dataclass(frozen=True, slots=True)
class Attribution:
    """A node of the optimized model: the positions of the nodes of the file that it stands for (none: not known), the
    values that it makes, and whether onnxruntime's optimizer made it."""

    positions: Positions
    outputs: tuple[str, ...]
    is_new: bool


def attributions_of(original: onnx.ModelProto, optimized: onnx.ModelProto) -> dict[str, Attribution]:
    """Each node of the optimized model, by its name, but those of subgraphs; `original` is `numbered`."""
    walk = _DefUseWalk(original.graph, optimized.graph)
    attributions: dict[str, Attribution] = {}
    by_value: dict[str, set[int]] = {}  # what the readers of a value stand for
    for node in reversed(optimized.graph.node):  # readers come first
        positions, outputs = walk.stands_for(node), tuple(node.output)
        if not positions:
            positions = frozenset[int]().union(*(by_value.get(name, ()) for name in outputs))
        attributions[node.name] = Attribution(positions, outputs, node.name not in walk.names)
        for name in reads(node):
            by_value.setdefault(name, set()).update(positions)
    return dict(reversed(attributions.items()))


def with_subgraphs(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the nodes that hold subgraphs, at any depth."""
    for node in graph.node:
        inner = list(subgraphs(node))
        if inner:
            yield node.name
        for each in inner:
            yield from with_subgraphs(each)


@dataclass(slots=True)
class _DefUseWalk:
    """`makers` has the position of each value's node, `there` the values that the optimized model has, `fixed` the
    positions of nodes that depend on nothing but tensors of the model."""

    original: onnx.GraphProto
    optimized: onnx.GraphProto
    names: dict[str, int] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    fixed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        tensors = _stored(self.original) - {value.name for value in self.original.input}
        for position, node in enumerate(self.original.node):
            self.names[node.name] = position
            self.makers.update((name, position) for name in node.output if name)
            if node.op_type == "Constant" or (node.input and reads(node) <= tensors):
                self.fixed.add(position)
                tensors.update(node.output)
        self.there = {value.name for value in self.original.input} | _stored(self.original)
        self.there |= _stored(self.optimized) | {name for node in self.optimized.node for name in node.output}

    def stands_for(self, node: onnx.NodeProto) -> Positions:
        """By the values of the model that it makes and by its name; that of a node that was fused begins with it."""
        positions = self.behind(name for name in node.output if name in self.makers)
        if node.name in self.names:
            return positions | {self.names[node.name]}
        match = _NAME.match(node.name)
        hint = int(match[1]) if match else -1
        return positions or frozenset({hint} & set(range(len(self.original.node))))

    def behind(self, values: Iterable[str]) -> Positions:
        """The nodes that make some values, back to values that the optimized model has."""
        waiting, positions = [self.makers[name] for name in values], set[int]()
        while waiting:
            position = waiting.pop()
            if position not in positions and position not in self.fixed:
                positions.add(position)
                absent = reads(self.original.node[position]) - self.there
                waiting += [self.makers[name] for name in absent if name in self.makers]
        return frozenset(positions)


def _stored(graph: onnx.GraphProto) -> set[str]:
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return {tensor.name for tensor in graph.initializer} | sparse
