"""The trial of a kernel: its values against float64, beside those of the computation that it replaces.

The truth is the graph evaluated with every float widened to float64. The allowance follows, cell by cell, from the
distances of nine runs of the unfused computation from the truth: one unchanged, eight with each float input moved by an
ulp and with other roundings. The roundings inside a reference (one Opaque) are those of its traced graph, if that is
given: as far as the graph strays from its own truth, the reference may stray from its truth."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Protocol, assert_never

import numpy as np

from noyau.errors import CheckError, FindingKind, InputError, NoyauError, OutputError, UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Graph
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.ranges import simplify
from noyau.toolchain.guard_zones import Order
from noyau.verify.certificate import Certificate, Outcome
from noyau.verify.failures import Array, Arrays, Case, Failure, changed_input, inputs_text, misfit
from noyau.verify.floats import shift_run
from noyau.verify.judges import MORE_RUNS, MOVED_RUNS, Judge, Stage, decide, first_runs, is_rare, is_wrong, judge_of
from noyau.verify.rounding import DIRECTIONS, longer_runs, move_runs, runs_at_jumps, step_values
from noyau.verify.undefined import undefined_cells

KernelFunction = Callable[[Sequence[Array]], Sequence[Array]]
LazyGraph = Callable[[], "Graph | None"]  # the graph of a reference, traced at the first call
PIECES = 3


class KernelTrial:
    """The trial of a kernel against the graph of its truth. `is_check`: a user's kernel, whose failures are reported;
    `tolerance`: a user's, in place of the allowance by unfused runs; `refuses`: the kernel can refuse inputs."""

    def __init__(
        self,
        graph: Graph,
        kernel: KernelFunction,
        traced: LazyGraph | None = None,
        *,
        is_check: bool = False,
        tolerance: float | None = None,
        refuses: bool = True,
    ) -> None:
        self.graph, self.kernel, self.stepped = graph, kernel, step_values(graph)
        self.lazy_graph = traced if tolerance is None else None
        self.is_check, self.tolerance, self.refuses = is_check, tolerance, refuses
        self.first_runs = first_runs(self.stepped, graph.outputs)

    @cached_property
    def traced(self) -> Graph | None:
        """The traced graph of the reference, traced at the first wrong cell."""
        return None if self.lazy_graph is None else self.lazy_graph()

    def outcome(self, case: Case, seed: int) -> Outcome:
        """Run and judge a case; `seed` determines the moves of its inputs."""
        inputs = dict(zip((node.output for node in self.graph.inputs), case.inputs, strict=True))
        try:
            truth, as_it_is = evaluate(self.graph, inputs, wide=True), evaluate(self.graph, inputs)
        except InputError as refusal:
            return self.judge_refusal(case, refusal)
        copies = tuple(np.copy(array, order="C") for array in case.inputs)
        try:
            results = self.kernel(copies)
        except NoyauError as error:
            if isinstance(error, InputError) and not any(truth[name].size for name in self.graph.outputs):
                return Outcome(case.label, case.captured)  # outputs are empty, and NumPy too refuses unused bad indices
            return self.judge_error(case, error)
        unfit, written_to = misfit(self.graph, results, truth), changed_input(copies, case.inputs)
        if unfit:
            return self.fail(case, FindingKind.WRONG_VALUE, unfit)
        if written_to:
            return self.fail(case, FindingKind.MUTATED_INPUT, written_to)
        judges = self.judges(inputs, results, truth)
        return decide(case, inputs_text(self.graph, case.inputs), judges, self.stages(inputs, truth, as_it_is, seed))

    def stages(self, inputs: Arrays, truth: Arrays, as_it_is: Arrays, seed: int) -> Iterator[Stage]:
        """The stages of unfused runs of a case, the cheapest first."""
        runs = self.in_order(chain([as_it_is], move_runs(self.graph, inputs, seed, MOVED_RUNS)))
        yield Stage(islice(runs, 1 + self.first_runs))
        yield Stage(runs)
        for directions in (DIRECTIONS, [None] * MOVED_RUNS) if self.lazy_graph is None else ():
            yield Stage(self.in_order(longer_runs(self.graph, inputs, seed, directions)), is_wrong)
        yield Stage(self.in_order(runs_at_jumps(self.graph, inputs)), is_wrong)
        yield Stage(self.in_order(self.move_traced_runs(inputs, truth, seed, MOVED_RUNS)), is_wrong)
        yield Stage(self.in_order(self.more_runs(inputs, truth, seed)), is_rare)

    def in_order(self, runs: Iterable[Arrays]) -> Iterator[Sequence[Array]]:
        return ([run[name] for name in self.graph.outputs] for run in runs)

    def judges(self, inputs: Arrays, results: Sequence[Array], truth: Arrays) -> list[Judge]:
        """A judge for each output; cells that the operator table leaves undefined are skipped."""
        undefined = undefined_cells(self.graph, inputs)
        judges = []
        for name, got in zip(self.graph.outputs, results, strict=True):
            skipped = np.broadcast_to(undefined.get(name, np.array(False)), got.shape)
            judges.append(judge_of(self.graph[name], got, truth[name], skipped, name in self.stepped, self.tolerance))
        return judges

    def move_traced_runs(self, inputs: Arrays, truth: Arrays, seed: int, count: int) -> Iterator[Arrays]:
        """Runs of the traced graph with other roundings, moved by the difference between its truth and the reference's,
        so that a wrong trace does not change the truth. Nothing without a traced graph."""
        if self.traced is None:
            return
        with suppress(InputError):
            own = evaluate(self.traced, inputs, wide=True)
            longer = longer_runs(self.traced, inputs, seed, [*DIRECTIONS, *[None] * count])
            for run in chain(runs_at_jumps(self.traced, inputs), move_runs(self.traced, inputs, seed, count), longer):
                yield {name: shift_run(run[name], own[name], truth[name]) for name in self.graph.outputs}

    def more_runs(self, inputs: Arrays, truth: Arrays, seed: int) -> Iterator[Arrays]:
        """More runs, to judge a few wrong cells again."""
        if self.traced is None:
            yield from move_runs(self.graph, inputs, seed, MORE_RUNS)
            yield from longer_runs(self.graph, inputs, seed, [None] * (MORE_RUNS // 2))
        yield from self.move_traced_runs(inputs, truth, seed, MORE_RUNS)

    def judge_refusal(self, case: Case, refusal: InputError) -> Outcome:
        """Judge a kernel on inputs that the graph refuses: it must refuse them too. Any result is right if the kernel
        cannot refuse, or Python or NumPy has no value, as for the maximum of no cells or a quotient by 0."""
        try:
            self.kernel(tuple(np.copy(array, order="C") for array in case.inputs))
        except InputError:
            return Outcome(case.label, case.captured)
        except NoyauError as error:
            return self.judge_error(case, error)
        if not self.refuses or isinstance(refusal.__cause__, ValueError | ArithmeticError):
            return Outcome(case.label, case.captured)
        return self.fail(case, FindingKind.WRONG_VALUE, f"accepted what it must refuse: {refusal}")

    def judge_error(self, case: Case, error: NoyauError) -> Outcome:
        """The outcome of a run that raised; a check omits the class of a CheckError, and raises what says nothing about
        the kernel again: an UnsupportedError, as noyau cannot run it here, and an OutputError, as of a full disk."""
        if self.is_check and isinstance(error, UnsupportedError | OutputError):
            raise error
        is_plain = self.is_check and isinstance(error, CheckError)
        note = str(error) if is_plain else f"ended with {type(error).__name__}: {error}"
        return self.fail(case, kind_of(error), note)

    def fail(self, case: Case, kind: FindingKind, note: str) -> Outcome:
        failure = Failure(kind, case.label, inputs_text(self.graph, case.inputs), note)
        return Outcome(case.label, case.captured, failures=(failure,))


def kind_of(error: NoyauError) -> FindingKind:
    """The kind of finding of a kernel's error: that of a CheckError, else a wrong value."""
    return error.kind if isinstance(error, CheckError) else FindingKind.WRONG_VALUE


def certify(
    graph: Graph,
    kernel: KernelFunction,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
    refuses: bool = True,
) -> Certificate:
    """Compare the values of a kernel with the truth of its graph.

    `kernel` maps arrays in the order of the graph's inputs to arrays in the order of its outputs. It must refuse with
    InputError what the graph refuses so (an index outside its table), if it `refuses` at all; on a GPU it need only
    access its own memory. `made_up`: the captured cases come from synthetic inputs. `traced` returns the same
    computation as a graph of the same inputs and outputs, if `graph` is one Opaque. If two of the eight moved runs
    allow every cell, the others are skipped, since more runs allow no less, unless all runs so far overflowed in some
    cell. The same arguments give the same certificate."""
    trial = KernelTrial(graph, kernel, traced, refuses=refuses)
    with np.errstate(all="ignore"):
        return Certificate(name, tuple(trial.outcome(case, number) for number, case in enumerate(cases)), made_up)


class GuardedKernel(Protocol):
    """Protocol of a kernel that runs on copies between guard zones, such as `noyau.toolchain.c.library.Native`."""

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]: ...


def certify_native(
    graph: Graph,
    native: GuardedKernel,
    cases: Iterable[Case],
    *,
    name: str,
    made_up: bool = False,
    traced: LazyGraph | None = None,
    is_deterministic: bool = True,
    refuses: bool = True,
) -> Certificate:
    """Certify a built kernel against its graph.

    Each case runs twice between guard zones, on poisoned outputs: whole, and in three pieces, the last first. A kernel
    that accesses memory out of bounds or leaves a cell unwritten is wrong; with `is_deterministic` also one whose two
    runs differ in a bit. The other arguments are those of `certify`."""
    runs = PieceRuns(native)
    certificate = certify(graph, runs, cases, name=name, made_up=made_up, traced=traced, refuses=refuses)
    return replace(certificate, order_independent=runs.is_deterministic if is_deterministic else None)


@dataclass(slots=True)
class PieceRuns:
    """A function that runs a kernel twice, whole and in pieces; `is_deterministic`: no two runs differed so far."""

    native: GuardedKernel
    is_deterministic: bool = field(default=True, init=False)

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        whole = self.native.call_guarded(*inputs)
        pieces = self.native.call_guarded(*inputs, pieces=PIECES, order=last_first)
        self.is_deterministic &= all(one.tobytes() == other.tobytes() for one, other in zip(whole, pieces, strict=True))
        return whole


def last_first(count: int) -> Iterable[int]:
    """The pieces in reverse order."""
    return reversed(range(count))


# Independent rows: a few different ones, repeated in a random order, test a kernel as well as many different ones.
# The truth and the unfused runs are evaluated for the few. The kernel runs on all rows, and each must have the bits
# of the first row with the same inputs: so every cell is judged, and a cell taken from another row is found, as is a
# row at an end that is computed differently.
Axis = int | None


def axes_of(graph: Graph, output: str, axis: int) -> dict[str, Axis] | None:
    """The axis of rows of each value, None for a value that all rows share, if `output` has its rows along `axis`; None
    if rows are mixed or depend on their positions."""
    rows = graph[output].shape[axis]
    axes = _spread(graph, output, axis, rows, {})
    for name in graph.outputs:
        if axes is None:
            return None
        places: list[Axis] = [at for at, dim in enumerate(graph[name].shape) if dim == rows]
        choices = [axes[name]] if name in axes else [*places, None]
        tried = (_spread(graph, name, choice, rows, axes) for choice in choices)
        axes = next((extended for extended in tried if extended is not None), None)
    return axes if axes is not None and len(axes) == len(graph.nodes) else None


def _spread(graph: Graph, name: str, axis: Axis, rows: Dim, known: Mapping[str, Axis]) -> dict[str, Axis] | None:
    """The `known` axes of rows, extended by those of a value and all its ancestors; None on a conflict."""
    axes, waiting = dict(known), [(name, axis)]
    while waiting:
        name, axis = waiting.pop()
        node = graph[name]
        if name in axes:
            if axes[name] != axis:
                return None
            continue
        if axis is not None and node.shape[axis] != rows:
            return None
        axes[name] = axis
        operands = _operands(node, axis)
        if operands is None:
            return None
        waiting += zip(node.inputs, operands, strict=True)
    return axes


def _operands(node: nodes.Node, axis: Axis) -> list[Axis] | None:
    """The axes of rows of a node's operands, if its own is `axis`; None if no operands can have such rows."""
    if axis is None:
        return [None] * len(node.inputs)
    match node.kind:
        case nodes.Input():
            return []
        case nodes.Map():
            return [axis] * len(node.inputs)
        case nodes.Reduce(_, axes):
            return [[at for at in range(len(node.shape) + len(axes)) if at not in axes][axis]]
        case nodes.Select(along, _):
            return None if along == axis else [axis] * len(node.inputs)
        case nodes.Iota(index):
            return None if f"#{axis}" in index.names else []
        case nodes.View(index):
            return _read_axes(node, [(0, index)], axis)
        case nodes.Gather(index):
            entries = tuple(Dim.of(0) if isinstance(entry, nodes.Lookup) else entry for entry in index)
            return _read_axes(node, [(0, entries), *_lookups(index)], axis)
        case nodes.Scatter(index, _):
            return _merge_axes(node, index, axis)
        case nodes.Constant() | nodes.Scan() | nodes.Contract() | nodes.Opaque() | nodes.Part():
            return None
        case _:
            assert_never(node.kind)


def _lookups(index: Sequence[Dim | nodes.Lookup]) -> list[tuple[int, Shape]]:
    return [(entry.input, entry.at) for entry in index if isinstance(entry, nodes.Lookup)]


def _merge_axes(node: nodes.Node, index: Sequence[Dim | nodes.Lookup], axis: int) -> list[Axis] | None:
    """The `_operands` of a Scatter: an axis of the updates must map to the result's axis of rows unchanged."""
    own = next((at for at in range(len(index)) if index[axis] == Dim.of(f"#{at}")), None)
    others = [entry for at, entry in enumerate(index) if at != axis and isinstance(entry, Dim)]
    if own is None or any(f"#{own}" in entry.names for entry in others):
        return None
    axis_of_input = _read_axes(node, _lookups(index), own)
    return None if axis_of_input is None else [axis, axis_of_input[1], own]


def _read_axes(node: nodes.Node, looks: Sequence[tuple[int, Shape]], axis: int) -> list[Axis] | None:
    """The axes of rows of operands by `looks`, index maps into them; None if a map uses more than `axis` itself."""
    own, axes, inputs = Dim.of(f"#{axis}"), list[Axis]([None] * len(node.inputs)), set[int]()
    for operand, index in looks:
        plain = [simplify(dim, node.extents) for dim in index]
        using = [at for at, dim in enumerate(plain) if f"#{axis}" in dim.names]
        if len(using) > 1 or any(plain[at] != own for at in using):
            return None
        place = using[0] if using else None
        if operand in inputs and axes[operand] != place:
            return None
        axes[operand] = place
        inputs.add(operand)
    return axes


REPEATS = 4  # repetitions of a row on average, at least; fewer do not pay
CELLS = 1 << 13  # of the largest value with few rows, within MOST_ROWS and FEWEST_ROWS
MOST_ROWS, FEWEST_ROWS = 8, 4


@dataclass(frozen=True, slots=True)
class FewRows:
    """A graph with `count` rows instead of `rows`; the axes of rows of its inputs and outputs, None for none."""

    graph: Graph
    count: int
    rows: int
    inputs: tuple[Axis, ...]
    outputs: tuple[Axis, ...]


def few_rows(graph: Graph) -> FewRows | None:
    """The graph with few rows, if it has many that are independent of each other and of their positions; else None."""
    largest = max((graph[name] for name in graph.outputs), key=_cells, default=None)
    if largest is None or graph.demands or any(dim.constant is None for node in graph.nodes for dim in node.shape):
        return None
    for axis, extent in enumerate(largest.shape):
        rows = extent.constant or 0
        count = min(MOST_ROWS, max(FEWEST_ROWS, CELLS * rows // max(1, _most(graph))))
        axes = axes_of(graph, largest.output, axis) if rows >= REPEATS * count else None
        if axes is not None:
            return _with(graph, axes, count, rows)
    return None


def _with(graph: Graph, axes: dict[str, Axis], count: int, rows: int) -> FewRows:
    few = Dim.of(count)
    shapes = (tuple(few if at == axes[n.output] else dim for at, dim in enumerate(n.shape)) for n in graph.nodes)
    fewer = tuple(replace(node, shape=shape) for node, shape in zip(graph.nodes, shapes, strict=True))
    inputs, outputs = tuple(axes[node.output] for node in graph.inputs), tuple(axes[name] for name in graph.outputs)
    return FewRows(replace(graph, nodes=fewer), count, rows, inputs, outputs)


def _cells(node: nodes.Node) -> int:
    return math.prod(dim.constant or 0 for dim in node.shape)


def _most(graph: Graph) -> int:
    """The number of cells of the largest computed value."""
    computed = (node for node in graph.nodes if not isinstance(node.kind, nodes.Input | nodes.Constant))
    return max(map(_cells, computed), default=0)


@dataclass(slots=True)
class RepeatedRows:
    """Adapter of a kernel of many rows to few, each repeated about equally often, in an order that `rng` draws at each
    call, so that neighbours vary. `alike`: no row has had other bits than the first row of the same inputs."""

    kernel: GuardedKernel
    few: FewRows
    rng: np.random.Generator
    alike: bool = field(default=True, init=False)

    def call_guarded(self, *arrays: np.ndarray, pieces: int = 1, order: Order = range) -> list[np.ndarray]:
        """The results for the few rows, of each the first repetition."""
        places = self.rng.permutation(np.resize(np.arange(self.few.count), self.few.rows))
        pairs = zip(arrays, self.few.inputs, strict=True)
        inputs = [array if axis is None else np.take(array, places, axis) for array, axis in pairs]
        outputs = self.kernel.call_guarded(*inputs, pieces=pieces, order=order)
        return [self.first_of_each(array, axis, places) for array, axis in zip(outputs, self.few.outputs, strict=True)]

    def first_of_each(self, array: np.ndarray, axis: Axis, places: np.ndarray) -> np.ndarray:
        if axis is None:
            return array
        few = np.take(array, np.unique(places, return_index=True)[1], axis)
        self.alike &= np.take(few, places, axis).tobytes() == array.tobytes()
        return few
