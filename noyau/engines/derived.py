"""Reductions derived from ops whose references fold their rows by monoids of `ir/monoids.py`.

The graph is cut at its folds. The part before them has kernels, which run on each chunk; states are merged by the
monoids, as those of lanes and threads are; the part after them is evaluated once."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from noyau.compiler.lowering.input_layouts import PACKED
from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType, from_numpy
from noyau.engines.laws import is_near
from noyau.engines.reduction import Reduction, add_exactly, fits, overflow
from noyau.errors import BuildError, InputError, SignatureError, UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, index_name
from noyau.ir.graph import Graph, Input, Lookup, Node, Reduce, Scatter, dims_of
from noyau.ir.graph_interpreter import Evaluator, Numeric, evaluate
from noyau.ir.monoids import MONOIDS, Monoid
from noyau.ir.operators import Algebra
from noyau.ir.sizes import bind
from noyau.kernels.programs.generate import Specialization, build, generate_from_graph, trace_with_sizes
from noyau.kernels.reference import runs_as_written
from noyau.ops.dispatch.fast_entries import array_runner
from noyau.ops.op import Op


@dataclass
class RowPlan:
    """The values of a graph by their dependence on rows. `axes`: the axis of rows, by name of a value with rows;
    `late`: values that depend on all rows, or on their number; `folds`: the monoid of each value that folds rows."""

    graph: Graph
    size: str
    axes: dict[str, int] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    folds: dict[str, str] = field(default_factory=dict)

    @property
    def is_map(self) -> bool:
        """Whether each output has a row, along its first axis, for each row of the inputs."""
        return all(self.axes.get(name) == 0 for name in self.graph.outputs)

    def add(self, node: Node) -> None:
        """Classify a value, after its operands. UnsupportedError where its rows cannot come in chunks."""
        rows = {name: self.axes[name] for name in node.inputs if name in self.axes}
        spread = [axis for axis, dim in enumerate(node.shape) if self.size in dim.names]
        is_late = not self.late.isdisjoint(node.inputs)
        if is_late and (rows or spread):
            raise self.refusal(node, "reads the rows and also a result of all of them, which takes two passes")
        if is_late or (not rows and not spread and any(self.size in dim.names for dim in dims_of(node))):
            self.late.add(node.output)
        elif rows:
            if (axis := self.move(node, rows)) is not None:
                self.axes[node.output] = axis
        elif spread:
            self.axes[node.output] = self.begin(node, spread)

    def begin(self, node: Node, spread: Sequence[int]) -> int:
        """The axis of rows of an input, or of a value that is equal in each row."""
        axis, *others = spread
        index = (node.kind.index,) if isinstance(node.kind, nodes.Iota) else getattr(node.kind, "index", ())
        numbered = any(index_name(axis) in dim.names for dim in index if isinstance(dim, Dim))
        if others or node.shape[axis] != Dim.of(self.size) or numbered or (isinstance(node.kind, nodes.Input) and axis):
            raise self.refusal(node, "reads the number of a row, or has rows along another axis than the first")
        return axis

    def move(self, node: Node, rows: Mapping[str, int]) -> int | None:
        """The axis of rows of a value whose operands have `rows`; None if it folds them."""
        axes = {self._axis(node, name, axis) for name, axis in rows.items()}
        if self._folds(node, axes):
            self.late.add(node.output)
            return None
        if len(axes) != 1 or None in axes:
            raise self.refusal(node, "moves rows, or combines a row with others")
        return axes.pop()

    def _axis(self, node: Node, name: str, axis: int) -> int | None:
        if isinstance(node.kind, nodes.Map):
            return axis
        match node.kind:
            case nodes.Reduce(_, axes):
                return None if axis in axes else axis - sum(each < axis for each in axes)
            case nodes.Scan(_, along) | nodes.Select(along, _):
                return None if axis == along else axis
            case nodes.View(index):
                return self._place(index, axis, node)
            case nodes.Gather(index):
                return self._look_up(index, node, name, axis)
            case nodes.Contract(equation):
                terms, out = equation.split("->")[0].split(","), equation.split("->")[1]
                letters = {term[axis] for term, each in zip(terms, node.inputs, strict=True) if each == name}
                return out.find(letters.pop()) if len(letters) == 1 and letters <= set(out) else None
            case _:
                return None

    def _look_up(self, index: Sequence[Dim | Lookup], node: Node, name: str, axis: int) -> int | None:
        if name == node.inputs[0]:
            return self._place([each if isinstance(each, Dim) else Dim.of(0) for each in index], axis, node)
        ways = {self._place(each.at, axis, node) for each in index if isinstance(each, Lookup)}
        return ways.pop() if len(ways) == 1 else None

    def _place(self, index: Sequence[Dim], axis: int, node: Node) -> int | None:
        """The axis of a value along which its rows are the operand's, one by one; None if there is none."""
        for at, dim in enumerate(node.shape):
            alone = index[axis] == Dim.of(index_name(at)) and dim == Dim.of(self.size)
            if alone and sum(index_name(at) in each.names for each in index) == 1:
                return at
        return None

    def _folds(self, node: Node, axes: set[int | None]) -> bool:
        """Whether a value folds all rows by a monoid, which is then noted in `folds`."""
        match node.kind:
            case nodes.Reduce(monoid, along) if axes == {None} and self.axes[node.inputs[0]] in along:
                several = monoid.startswith("arg") and len(along) > 1
                if not several and not MONOIDS[monoid].ordered:
                    self.folds[node.output] = monoid
            case nodes.Contract(equation) if axes == {None}:
                terms = list(zip(equation.split("->")[0].split(","), node.inputs, strict=True))
                letters = {term[self.axes[name]] for term, name in terms if name in self.axes}
                if len(letters) == 1 and all(name in self.axes or letters.isdisjoint(term) for term, name in terms):
                    self.folds[node.output] = "sum"
            case nodes.Scatter(index, monoid) if monoid is not None and self._is_neutral(node.inputs[0], monoid):
                at, updates = (self.axes.get(name) for name in node.inputs[1:])
                rows = self.graph[node.inputs[2]]  # the indices of a Scatter run over its updates
                lookups = [each.at for each in index if isinstance(each, Lookup)]
                if at is not None and updates is not None and {self._place(x, at, rows) for x in lookups} == {updates}:
                    self.folds[node.output] = monoid
            case _:
                pass
        return node.output in self.folds

    def _is_neutral(self, name: str, monoid: str) -> bool:
        """Whether a value is the monoid's identity in each cell, so that each chunk may start from it."""
        node = self.graph[name]
        if isinstance(node.kind, nodes.View):
            return self._is_neutral(node.inputs[0], monoid)
        neutral = MONOIDS[monoid].init(node.dtype)[0]
        return isinstance(node.kind, nodes.Constant) and bool(np.all(node.kind.value == neutral))

    def refusal(self, node: Node, fault: str) -> UnsupportedError:
        kind = type(node.kind).__name__
        return UnsupportedError(f"the value {node.output} ({kind}) {fault}; write it as a @noyau.reduction")


def plan_rows(graph: Graph, size: str) -> RowPlan:
    """The RowPlan of a graph whose rows are counted by `size`. UnsupportedError where rows cannot come in chunks."""
    plan = RowPlan(graph, size)
    for node in graph.nodes:
        plan.add(node)
    if not plan.is_map and any(name in plan.axes for name in graph.outputs):
        raise UnsupportedError("some results have rows and others do not; make two ops of them")
    return plan


_ARG = "arg"  # prefix of monoids whose states contain a position too
ALGEBRA = Numeric()
_TRIED = 4096  # rows of the first chunk on which kernels are tried
Arrays = Sequence[np.ndarray]


class ChunkKernels:
    """A graph as kernels in C. On the first rows they must agree with float64 to half of their digits; otherwise, or
    without a compiler, NumPy evaluates the graph."""

    def __init__(self, graph: Graph, name: str, size: str) -> None:
        self.graph, self.name, self.size = graph, name, size
        self.lock = threading.Lock()
        self.run: Callable[..., Any] | None = None

    def __call__(self, arrays: Arrays) -> list[Any]:
        """The outputs, for arrays in the order of the inputs."""
        pairs = zip(self.graph.inputs, arrays, strict=True)
        packed = [np.asarray(array, node.dtype.numpy, order="C") for node, array in pairs]
        if runs_as_written():
            return self.evaluate(*packed)
        with self.lock:
            self.run = self.run or self._try(packed)
        return list(self.run(*packed))

    def evaluate(self, *arrays: np.ndarray, wide: bool = False) -> list[Any]:
        names = [node.output for node in self.graph.inputs]
        return list(evaluate(self.graph, dict(zip(names, arrays, strict=True)), wide=wide).values())

    def _try(self, arrays: Arrays) -> Callable[..., Any]:
        """The kernels if they can be built and are right, else `evaluate`."""
        shapes = [node.shape for node in self.graph.inputs]
        rows = [bool(shape) and shape[0] == Dim.of(self.size) for shape in shapes]
        first = [array[:_TRIED] if has else array for has, array in zip(rows, arrays, strict=True)]
        try:
            generated = generate_from_graph(self.graph, f"{self.name}_of_a_chunk", [PACKED] * len(arrays), "c")
            run = array_runner(build(generated))
        except (BuildError, UnsupportedError):
            return self.evaluate
        truth = self.evaluate(*first, wide=True)
        return run if all(map(is_near, run(*first), truth)) else self.evaluate


@dataclass(frozen=True)
class OpReduction(Reduction):
    """An op as a reduction. `before`: the kernels of a chunk, which compute `values`; `after`: the graph from the folds
    to the results; `others`: the inputs without rows; `sizes`: all but the number of rows. A state is the number of
    rows, then the state of each fold, with floats in float64."""

    op: Op[..., Any]
    plan: RowPlan
    before: ChunkKernels
    values: tuple[str, ...]
    after: Graph
    others: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    in_order: bool  # a position among all rows is part of the result

    @property
    def name(self) -> str:
        return self.op.name

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(node.output for node in self.plan.graph.inputs if node.output in self.plan.axes)

    @cached_property
    def folds(self) -> list[tuple[Node, Monoid]]:
        return [(self.plan.graph[name], MONOIDS[monoid]) for name, monoid in self.plan.folds.items()]

    @cached_property
    def nothing(self) -> Any:
        """The state of no rows, shared: steps and merges do not modify states in place."""
        shape = Evaluator(False, self.sizes).shape
        folds = [(shape(node), zip(m.init(_of(node)), state_dtypes(node, m), strict=True)) for node, m in self.folds]
        return np.array(0), *(np.full(cells, part, dtype.numpy) for cells, pairs in folds for part, dtype in pairs)

    def zero(self) -> Any:
        return self.nothing

    def step(self, state: Any, *columns: Any) -> Any:
        if not len(columns[0]):
            return state
        arrays = {**self.others, **dict(zip(self.columns, columns, strict=True))}
        results = self.before([arrays[node.output] for node in self.plan.graph.inputs])
        values = dict(zip(self.values, results, strict=True))
        if wide := [node for node, _ in self.folds if not self._is_safe(node, values, len(columns[0]))]:
            if len(columns[0]) == 1:
                raise overflow(self.name, wide[0].dtype.numpy)
            half = len(columns[0]) // 2  # halve the chunk until no sum can wrap; merges check their own sums
            lower, upper = ([column[part] for column in columns] for part in (slice(half), slice(half, None)))
            return self.merge(state, self.merge(self.step(self.zero(), *lower), self.step(self.zero(), *upper)))
        chunk = self.lift(len(columns[0]), {name: np.asarray(each) for name, each in values.items()}, ALGEBRA)
        return self.merge(state, tuple(np.asarray(e, none.dtype) for e, none in zip(chunk, self.nothing, strict=True)))

    def lift(self, rows: Any, values: Mapping[str, Any], algebra: Algebra) -> list[Any]:
        """The state of `rows` rows whose folds are `values`, in an algebra."""
        pairs = [(values[node.output], node, monoid) for node, monoid in self.folds]
        states = [monoid.lift(algebra, values.get(best_of(node), place), place) for place, node, monoid in pairs]
        return [rows, *itertools.chain.from_iterable(states)]

    def merge(self, a: Any, b: Any) -> Any:
        if not a[0] or not b[0]:
            return a if a[0] else b
        return self.join(a, b, ALGEBRA)

    def join(self, a: Any, b: Any, algebra: Algebra) -> Any:
        """Merge two states that are not empty, in an algebra."""
        merged = [algebra.call("add", a[0], b[0])]
        for monoid, left, right in zip((m for _, m in self.folds), self._parts(a), self._parts(b), strict=True):
            if monoid.name.startswith(_ARG):  # positions of the later state begin after the earlier one's rows
                right = right[0], algebra.call("add", right[1], a[0])
            is_sum = monoid.name == "sum" and algebra is ALGEBRA
            merged += [add_exactly(left[0], right[0], self.name)] if is_sum else monoid.merge(algebra, left, right)
        return tuple(merged)

    def _is_safe(self, node: Node, values: Mapping[str, np.ndarray], rows: int) -> bool:
        """Whether no sum of a chunk can wrap around, by the least and the largest summand."""
        low, high = (values.get(f"{node.output}_{end}") for end in ("min", "max"))
        if low is None or high is None:
            return True
        shape = Evaluator(False, {**self.sizes, self.plan.size: rows}).shape(self.plan.graph[node.inputs[-1]])
        return fits(low, high, math.prod(shape), node.dtype.numpy)

    def _parts(self, state: Any) -> Iterator[Any]:
        """The state of each fold: slices of the arrays that follow the number of rows."""
        rest = iter(state[1:])
        return (tuple(itertools.islice(rest, len(monoid.init(_of(node))))) for node, monoid in self.folds)

    def fold_values(self, state: Any, algebra: Algebra) -> dict[str, Any]:
        """The value of each fold."""
        pairs = zip(self.folds, self._parts(state), strict=True)
        return {node.output: algebra.cast(m.finish(algebra, parts), node.dtype) for (node, m), parts in pairs}

    def finish(self, state: Any) -> Any:
        inputs = {**self.others, **self.fold_values(state, ALGEBRA)}
        sizes = {**self.sizes, self.plan.size: int(state[0])}
        if not all(demand.holds(sizes) for demand in self.after.demands):
            raise InputError(f"{self.name}: no row came through, of which it has no result")
        results = evaluate(self.after, {node.output: inputs[node.output] for node in self.after.inputs}, sizes=sizes)
        values = tuple(results[name][()] for name in self.after.outputs)
        return values if len(values) > 1 else values[0]


def _of(node: Node) -> DType:
    """The dtype in which a fold starts: float64 for floats."""
    return DType.F64 if node.dtype.is_float else node.dtype


def state_dtypes(node: Node, monoid: Monoid) -> list[DType]:
    """The dtypes of a fold's state; floats of any width are merged in float64."""
    return [DType.F64 if dtype.is_float else dtype for dtype in monoid.states(_of(node))]


def _ends(graph: Graph, node: Node) -> list[Node]:
    """Nodes of the least and the largest integer that a fold sums, if the integers are as wide as their sum."""
    source = graph[node.inputs[-1]]
    sums = isinstance(node.kind, Reduce | Scatter) and node.kind.monoid == "sum" and node.dtype.numpy.kind in "iu"
    if not sums or source.dtype.numpy.kind not in "iu" or source.dtype.numpy.itemsize < node.dtype.numpy.itemsize:
        return []
    return ends_of(source, node.output)


def ends_of(values: Node, name: str) -> list[Node]:
    """Nodes `NAME_min` and `NAME_max` of the least and the largest of some values."""
    axes = tuple(range(len(values.shape)))
    return [Node(f"{name}_{end}", Reduce(end, axes), (values.output,), values.dtype, ()) for end in ("min", "max")]


def best_of(node: Node) -> str:
    return f"{node.output}_best"


def rows_of(op: Op[..., Any]) -> str:
    """The size that counts the rows: that of the first axis of the first array. SignatureError without one."""
    for term in op.require_signature().inputs:
        first = term.dims[0] if term.dims else None
        for name in first.names if isinstance(first, Dim) else ():
            if first == Dim.of(name):
                return name
    raise SignatureError(f"{op.name}: no input has rows: let the first axis of one be a name: f64[n]")


def derive(op: Op[..., Any], columns: Mapping[str, np.ndarray]) -> OpReduction | RowPlan:
    """Derive the reduction of an op, for columns and other inputs like these; for an op with a result for each row, its
    RowPlan. UnsupportedError, with the value, where the reference needs all rows at once."""
    reference = op.description.reference
    names, constants = reference.parameters, {**reference.constants}
    for name, value in columns.items():
        if name not in names and name not in constants:
            raise SignatureError(f"{op.name} has no parameter {name}; it takes {', '.join((*names, *constants))}")
        constants |= {name: value} if name in constants else {}
    arrays = [np.asarray(columns[name]) for name in names]
    dtypes = [from_numpy(array.dtype) for array in arrays]
    instance = op.instance([dtype for dtype in dtypes if dtype is not None], [array.ndim for array in arrays])
    wanted = Specialization(instance, constants)
    try:
        graph, _ = trace_with_sizes(reference, wanted)
        plan = plan_rows(graph, rows_of(op))
    except UnsupportedError as error:
        raise UnsupportedError(f"{op.name} does not run on a stream: {error}") from error
    if plan.is_map:
        return plan
    folds = {name: graph[name] for name in plan.folds}
    bests = [
        replace(node, output=best_of(node), kind=Reduce(kind.monoid[len(_ARG) :], kind.axes), dtype=dtype)
        for node, kind, dtype in [(node, node.kind, graph[node.inputs[0]].dtype) for node in folds.values()]
        if isinstance(kind, Reduce) and kind.monoid.startswith(_ARG)
    ]
    ends = [end for node in folds.values() for end in _ends(graph, node)]
    values = (*folds, *(node.output for node in (*bests, *ends)))
    before = drop_unused(Graph((*graph.nodes, *bests, *ends), values))
    rest = tuple(replace(node, kind=Input(), inputs=()) if node.output in folds else node for node in graph.nodes)
    after = drop_unused(replace(graph, nodes=rest), inputs_too=True)
    shapes = [np.shape(columns[node.output]) for node in graph.inputs]
    sizes = bind([node.shape for node in graph.inputs], shapes, names)
    others = {name: array for name, array in zip(names, arrays, strict=True) if name not in plan.axes}
    return OpReduction(op, plan, ChunkKernels(before, op.name, plan.size), values, after, others, sizes, bool(bests))
