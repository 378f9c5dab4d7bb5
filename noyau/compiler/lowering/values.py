"""Lower values of a graph at an index: each becomes a Let in the outermost loop whose variables its index names.

So reductions are hoisted out of loops that they do not depend on, and a value that is used twice at one index is
computed once. Known arrays are expressions of their index: a kernel has no memory for constants. A scan is a state in
memory, which the loop over the scanned axis carries from one index to the next. Where at most one update of a scatter
can meet a cell, and its place is the cell's but for looked-up indices, a cell selects whether it does; else updates are
merged in memory, one after the other. Each index is inside for certain, or by a guard of the kernel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never, cast

import numpy as np

from noyau.compiler.lowering.loop_nest import dependence
from noyau.compiler.lowering.names import Names
from noyau.compiler.passes.algebra import is_clamped
from noyau.compiler.passes.cleanup import piece_at
from noyau.compiler.passes.rewrite import view_of
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import graph as nodes
from noyau.ir import loops as ir
from noyau.ir.dims import Dim, Shape, equal, index_name, maximum, never_negative, product
from noyau.ir.monoids import MONOIDS, Symbolic
from noyau.ir.ranges import at_least_one, simplify, within
from noyau.ir.sizes import Demand, plan
from noyau.ir.walk import dims_in

MOST = 4096  # the most cells that are searched for constant steps


def cell_of(node: nodes.Node, value: np.ndarray, index: Shape) -> ir.Expr:
    """A cell of a constant whose cells are all equal, or integers in even steps; else UnsupportedError."""
    cells, dtype = value.astype(node.dtype.compute.numpy), node.dtype.compute
    if not cells.size or cells.tobytes() == cells.flat[0].tobytes() * cells.size:
        return ir.Const(cells.flat[0].item() if cells.size else 0, dtype)
    steps = _steps(cells)
    if steps is None:
        reason = f"the {cells.size} cells of a constant follow no rule, and no kernel spells them out"
        raise UnsupportedError(f"{node.output}: {reason}; make it an input")
    position = ir.Index(sum((at * step for at, step in zip(index, steps, strict=True)), Dim.of(int(cells.flat[0]))))
    return position if dtype is DType.I64 else ir.Call("cast", (position,), dtype)


def _steps(cells: np.ndarray) -> list[int] | None:
    """Give the constant step of integers along each axis; None where a step is not constant."""
    if cells.dtype.kind not in "iu" or cells.size > MOST or cells.dtype == np.uint64:
        return None
    first, shape = int(cells.flat[0]), cells.shape
    steps = [int(cells.take(1, axis).flat[0]) - first if shape[axis] > 1 else 0 for axis in range(cells.ndim)]
    grid = np.indices(shape, object)
    whole = sum((along * step for along, step in zip(grid, steps, strict=True)), np.full(shape, first, object))
    return steps if (whole == cells).all() else None


@dataclass(frozen=True, slots=True, eq=False)
class ConditionOfUse:
    """A condition under which values are used, one object for each: a hash of its tree at each value would be
    quadratic. `names`: the variables that it depends on."""

    condition: ir.Expr
    names: frozenset[str]


Key = tuple[str, Shape, ir.Expr | ConditionOfUse | None, tuple[Dim, ...]]
MOST_VALUES = 1024  # of a nest: nested pieces, each lowered again, multiply


@dataclass(slots=True)
class LoopScope:
    """An open loop: its variables, its statements so far, and the values that it holds."""

    variables: set[str] = field(default_factory=set)
    statements: list[ir.Statement] = field(default_factory=list)
    known: dict[Key, ir.Expr] = field(default_factory=dict)


class NeededCut(Exception):
    """The loop over `variable` must be cut at `point`, the end of a piece of a Select; `by_cells`: pieces are cells."""

    def __init__(self, variable: str, point: Dim, *, by_cells: bool) -> None:
        self.variable, self.point, self.by_cells = variable, point, by_cells


class Lowering:
    """Lowering of one nest: the stack of open scopes, the extents of all variables, the names in use."""

    def __init__(self, graph: nodes.Graph, names: Names, buffers: Mapping[str, str]) -> None:
        self.graph, self.names, self.buffers = graph, names, buffers
        self.dependence = dependence(graph)
        equal = [(demand.left, demand.right) for demand in graph.demands if demand.relation == "equal"]
        self.empty = {difference for a, b in equal for difference in (a - b, b - a)}  # extents that are 0 by a demand
        self.read = {name for node in graph.nodes for name in node.inputs}
        self.scopes = [LoopScope()]
        self.extents: dict[str, Dim] = {}
        self.offsets: dict[str, Dim] = {}  # the starts of the open segments of the nest's loops
        self.folds: list[frozenset[str]] = []  # the variables that each Fold depends on
        self.inside = 0  # the number of open Folds
        self.folded: dict[str, int] = {}  # the number of open Folds around each reduction
        self.around: list[Dim] = []  # the extents of the loops out of which a Fold was hoisted
        self.guard: ConditionOfUse | None = None  # the condition under which the current values are used
        self.uses: dict[ir.Expr, ConditionOfUse] = {}
        # Looked-up indices that are 0 where nothing uses them, with the extents of the loops that alone ensure them.
        self.guarded: dict[str, list[Dim]] = {}
        self.found_at: dict[str, frozenset[str]] = {}  # looked-up indices, with the variables that they depend on
        self.lifted = False  # whether a value was guarded because of the loops out of which it was hoisted
        self.count = self.lets = 0

    def value(self, name: str, index: Sequence[Dim]) -> ir.Expr:
        """The value `name` at an index, in the scope where it belongs."""
        node, depends = self.graph[name], self.dependence[name]
        exact = tuple(simplify(dim, self.extents) if axis in depends else Dim.of(0) for axis, dim in enumerate(index))
        if self.guard is not None and self.is_anyway(node, exact):
            outer, self.guard = self.guard, None
            expr = self.value(name, exact)
            self.guard = outer
            return expr
        depth = self.depth(exact)
        values = self.scopes[depth].known
        key: Key = (name, exact, self.guard, ())
        lifted_key: Key = (name, exact, self.guard, self.outer_extents(depth))
        if key not in values and lifted_key not in values:
            before, self.lifted = self.lifted, False
            expr = self.make(node, exact)
            if isinstance(expr, ir.Call | ir.Load | ir.Fold):
                expr = self.let(self.scopes[depth], node, expr, exact)
            key = lifted_key if self.lifted else key
            values[key] = expr
            self.lifted |= before
        elif key not in values:
            key, self.lifted = lifted_key, True
        return values[key]

    def store_output(self, buffer: str, output: str, index: Shape) -> ir.Store:
        """The Store of an output at an index."""
        return ir.Store((buffer,), index, (self.value(output, index),))

    def let(self, scope: LoopScope, node: nodes.Node, expr: ir.Expr, index: Shape) -> ir.Var:
        """Bind a value to a name. UnsupportedError where there are too many."""
        self.lets += 1
        if self.lets > MOST_VALUES:
            raise UnsupportedError(f"{node.output}: with all that it reads there are over {MOST_VALUES} values a cell")
        name = self.names.fresh(node.output)
        scope.statements.append(ir.Let(name, expr, (node.output, index)))
        return ir.Var(name, expr.dtype)

    def is_anyway(self, node: nodes.Node, index: Shape) -> bool:
        """Whether a value exists whatever the guard, and is computed less often without the guard."""
        free = self.depth(index, guarded=False) < self.depth(index)
        return free and all(within(at, extent, self.extents) for at, extent in zip(index, node.shape, strict=True))

    def depth(self, index: Shape, *, guarded: bool = True) -> int:
        """The position of the innermost scope whose variables the index, or the guard, names."""
        names = {name for dim in index for name in dim.names}
        if guarded and self.guard is not None:
            names |= self.guard.names
        return max((at for at, scope in enumerate(self.scopes) if scope.variables & names), default=0)

    def variables(self, index: Shape) -> frozenset[str]:
        """The loop variables that an index depends on, also through looked-up indices."""
        names = [name for dim in index for name in dim.names if name.startswith("#")]
        return frozenset[str]().union(*(self.found_at.get(name, {name}) for name in names))

    def outer_extents(self, depth: int) -> tuple[Dim, ...]:
        """The extents of the loops out of which a value at this depth is hoisted."""
        inner = [self.extents[name] for scope in self.scopes[depth + 1 :] for name in sorted(scope.variables)]
        return tuple(dict.fromkeys([*inner, *self.around]))

    def doubts(self, index: Shape, shape: Shape, depth: int, reads: Iterable[str]) -> list[Dim]:
        """The extents of the loops that a cell was hoisted out of and that must run at all: only that ensures that the
        cell exists, that it was looked up, or that the sizes `reads` are not 0."""
        run = [name for scope in self.scopes[: depth + 1] for name in scope.variables if name not in self.guarded]
        positive = frozenset[str]().union(*(at_least_one(self.extents[name]) for name in run))
        sure = all(within(at, end, self.extents, positive) for at, end in zip(index, shape, strict=True))
        left_out = [extent for extent in self.outer_extents(depth) if not never_negative(extent - 1, positive)]
        may_be_empty = [at for at, end in zip(index, shape, strict=True) if not never_negative(end - 1, positive)]
        looked_up = {each for at in may_be_empty for name in at.names for each in self.guarded.get(name, ())}
        return [each for each in left_out if not sure or each in looked_up or each.names & (set(reads) - positive)]

    def guard_of(self, index: Shape, shape: Shape, depth: int, reads: Iterable[str] = ()) -> ir.Expr | None:
        """The condition under which a cell may be read: its use's, and that the loops in doubt run."""
        doubtful = self.doubts(index, shape, depth, reads)
        self.lifted |= bool(doubtful)
        runs = [ir.Call("less", (ir.Index(Dim.of(0)), ir.Index(extent)), DType.BOOL) for extent in doubtful]
        return ir.when(ir.all_of([*([] if self.guard is None else [self.guard.condition]), *runs]))

    def make(self, node: nodes.Node, index: Shape) -> ir.Expr:
        here = {index_name(axis): dim for axis, dim in enumerate(index)}
        match node.kind:
            case nodes.Input():
                guard = self.guard_of(index, node.shape, self.depth(index))
                other = None if guard is None else ir.Const(0, node.dtype.compute)
                return ir.Load(self.buffers[node.output], index, node.dtype.compute, guard, other)
            case nodes.Constant(value):
                return cell_of(node, value, index)
            case nodes.Iota(dim):
                position = ir.Index(simplify(dim.replace(here), self.extents))
                return position if node.dtype is DType.I64 else ir.Call("cast", (position,), node.dtype.compute)
            case nodes.Map(function):
                operands = tuple(self.value(operand, index) for operand in node.inputs)
                if function == "cast" and node.dtype.is_half and node.output in self.read:
                    operands = (ir.Call("cast", operands, node.dtype),)  # else the Store rounds it
                elif function == "identity" or (function == "cast" and operands[0].dtype is node.dtype.compute):
                    return operands[0]
                return ir.Call(function, operands, node.dtype.compute)
            case nodes.View(index=source):
                return self.value(node.inputs[0], [dim.replace(here) for dim in source])
            case nodes.Select(axis, starts):
                return self.select(node, axis, starts, index)
            case nodes.Gather(index=source):
                operand = self.graph[node.inputs[0]]
                return self.value(operand.output, self.places(node, source, index, operand.shape))
            case nodes.Reduce(monoid, axes):
                return self.fold(node, monoid, axes, index)
            case nodes.Scan():
                return lower_scan(self, node, node.kind, index)
            case nodes.Scatter() if asks_each_cell(self.graph, node):
                return ask(self, node, node.kind, index)
            case nodes.Scatter():
                raise UnsupportedError(f"{node.output}: what reads a Scatter waits until all of it is merged")
            case nodes.Contract():
                raise UnsupportedError(f"{node.output}: a product is no loop of a kernel; a library runs it")
            case nodes.Opaque() | nodes.Part():
                raise UnsupportedError(f"{node.output}: noyau does not see into it; where it came from it is run")
            case _:
                assert_never(node.kind)

    def select(self, node: nodes.Node, axis: int, starts: Shape, index: Shape) -> ir.Expr:
        """The piece that contains the index: certain, made so by cutting the loop, or chosen at run time."""
        at, ends = index[axis], (*starts[1:], node.shape[axis])
        if certain := piece_at(at, starts, node.shape[axis], self.extents):
            return self.value(node.inputs[certain[0]], (*index[:axis], certain[1], *index[axis + 1 :]))
        pieces = [
            (piece, (*index[:axis], at - start, *index[axis + 1 :]), start, end)
            for piece, start, end in zip(node.inputs, starts, ends, strict=True)
            if start != end
        ]
        if pieces and (shown := self.one_view(at, pieces)) is not None:
            return self.value(*shown)
        by_cells = all(start + 1 == end for _, _, start, end in pieces)
        for _, _, start, _ in pieces[1:]:
            self.cut(at, start, by_cells=by_cells)
        return self.choose(node, at, pieces)

    def one_view(self, at: Dim, pieces: Sequence[tuple[str, Shape, Dim, Dim]]) -> tuple[str, Shape] | None:
        """The array that all pieces show, and the place in it, which is chosen once a round of an outer loop; None
        where they show several, or the place differs in the innermost loop."""
        views = [view_of(self.graph.by_name, piece) for piece, _, _, _ in pieces]
        heres = [{index_name(axis): dim for axis, dim in enumerate(where)} for _, where, _, _ in pieces]
        index, base = list[Dim](), self.graph[views[0][0]]
        for axis, extent in enumerate(base.shape) if len({name for name, _ in views}) == 1 else ():
            dims = [simplify(v[axis].replace(here), self.extents) for (_, v), here in zip(views, heres, strict=True)]
            depth, place = self.depth((at, *dims), guarded=False), cast(ir.Expr, ir.Index(dims[-1]))
            for dim, (_, _, _, end) in zip(dims[-2::-1], pieces[-2::-1], strict=True):
                before = ir.Call("less", (ir.Index(at), ir.Index(end)), DType.BOOL)
                place = ir.Call("where", (before, ir.Index(dim), place), DType.I64)
            if len({*dims}) == 1:
                index.append(dims[0])
            elif depth < len(self.scopes) - 1:
                index.append(self.name_place(depth, (base.output, (at, *dims, extent), place, ()), place, extent))
        return (base.output, tuple(index)) if index and len(index) == len(base.shape) else None

    def name_place(self, depth: int, key: Key, place: ir.Expr, extent: Dim) -> Dim:
        """A name that Dims can use for a place along an axis of some extent, at the index of its key."""
        scope = self.scopes[depth]
        if key not in scope.known:
            variable = f"#{self.names.fresh('at')}"
            scope.statements.append(ir.Let(variable, place))
            scope.variables.add(variable)
            self.extents[variable], self.found_at[variable] = extent, self.variables(key[1])
            scope.known[key] = ir.Index(Dim.of(variable))
        return cast(ir.Index, scope.known[key]).dim

    def cut(self, at: Dim, start: Dim, *, by_cells: bool = False) -> None:
        """Request a cut of the loop where `at` reaches `start`, if a single loop of the nest decides that."""
        mine = [name for name in at.names if name.startswith("#")]
        if len(mine) != 1 or mine[0] not in self.offsets:
            return
        variable = mine[0]
        point = start - (at - Dim.of(variable))
        inside = never_negative(point) and never_negative(self.extents[variable] - point)
        if not [name for name in point.names if name.startswith("#")] and inside and point != Dim.of(0):
            raise NeededCut(variable, self.offsets[variable] + point, by_cells=by_cells)

    def choose(self, node: nodes.Node, at: Dim, pieces: Sequence[tuple[str, Shape, Dim, Dim]]) -> ir.Expr:
        """Nested selects; the branch that is not taken touches no memory."""
        if not pieces:
            return ir.Const(0, node.dtype.compute)  # the extent is 0: nothing reads it
        outer, chosen, left = self.guard, None, ir.Index(at)
        below: list[ir.Expr] = [ir.Call("less", (left, ir.Index(end)), DType.BOOL) for _, _, _, end in pieces]
        for position in reversed(range(len(pieces))):
            guards = [] if outer is None else [outer.condition]
            guards += [ir.Call("logical_not", (below[position - 1],), DType.BOOL)] if position else []
            guards += [below[position]] if position < len(pieces) - 1 else []
            self.guard = self.use(ir.when(ir.all_of(guards)))
            got = self.value(pieces[position][0], pieces[position][1])
            chosen = got if chosen is None else ir.Call("where", (below[position], got, chosen), node.dtype.compute)
        self.guard = outer
        assert chosen is not None, "a Select with pieces"
        return chosen

    def use(self, condition: ir.Expr | None) -> ConditionOfUse | None:
        """The one object for a condition on indices; None for none."""
        if condition is not None and condition not in self.uses:
            names = [dim.names for dim in dims_in((ir.Let("", condition),))]
            self.uses[condition] = ConditionOfUse(condition, frozenset[str]().union(*names))
        return None if condition is None else self.uses[condition]

    def places(self, node: nodes.Node, source: Sequence[Dim | nodes.Lookup], index: Shape, shape: Shape) -> Shape:
        """The index in memory of a shape that an index map gives for a node at an index."""
        here = {index_name(axis): dim for axis, dim in enumerate(index)}
        return tuple(
            self.lookup(node, entry, here, extent) if isinstance(entry, nodes.Lookup) else entry.replace(here)
            for entry, extent in zip(source, shape, strict=True)
        )

    def lookup(self, node: nodes.Node, entry: nodes.Lookup, here: Mapping[str, Dim], extent: Dim) -> Dim:
        """A looked-up index, required to be in bounds, under a name for Dims."""
        indices = node.inputs[entry.input]
        at = tuple(simplify(dim.replace(here), self.extents) for dim in entry.at)
        place = self.value(indices, at)
        depth = self.depth(at)
        guard = self.guard_of(at, self.graph[indices].shape, depth, extent.names)
        scope, key = self.scopes[depth], (f"#{indices}", (*at, extent), guard, ())
        if key not in scope.known:
            wide = place if place.dtype is DType.I64 else ir.Call("cast", (place,), DType.I64)
            doubts = self.doubts(at, self.graph[indices].shape, depth, extent.names)
            wide = wide if guard is None else ir.Call("where", (guard, wide, ir.Const(0, DType.I64)), DType.I64)
            named = self.name_place(depth, key, wide, extent)
            if guard is not None:
                self.guarded[str(named)] = doubts
            if isinstance(node.kind, nodes.Scatter) or not is_clamped(self.graph.by_name, indices, extent):
                inside = ir.Require(named, extent)
                scope.statements.append(inside if guard is None else ir.If(guard, (inside,)))
        return self.name_place(depth, key, place, extent)

    def fold(self, node: nodes.Node, monoid: str, axes: tuple[int, ...], index: Shape) -> ir.Fold:
        operand, depth = self.graph[node.inputs[0]], self.depth(index)
        if operand.dtype.kind not in MONOIDS[monoid].accepts:
            raise UnsupportedError(f"{node.output}: no {monoid} of {operand.dtype.value}")
        exact = MONOIDS[monoid].exact or not node.dtype.is_float
        if (self.folded.setdefault(node.output, self.inside) > 0) != (self.inside > 0) and not exact:
            raise UnsupportedError(f"{node.output}, within a reduction and outside it, would be rounded in two orders")
        self.folds.append(self.variables(index))
        loops, full, rest = [], [], list(index)
        for axis, extent in enumerate(operand.shape):
            if axis in axes:
                self.count += 1
                loops.append((f"#r{self.count}", extent))
                full.append(Dim.of(loops[-1][0]))
            else:
                full.append(rest.pop(0))
        hidden, around, left_out = self.scopes, self.around, self.outer_extents(depth)
        self.scopes, self.around = self.scopes[: depth + 1], list(left_out)
        scope = LoopScope({name for name, _ in loops})
        self.scopes.append(scope)
        self.extents |= dict(loops)
        self.inside += 1
        value = self.value(operand.output, full)
        self.inside -= 1
        self.scopes, self.around = hidden, around
        return ir.Fold(monoid, tuple(loops), tuple(scope.statements), value, node.dtype.compute)


class NeededLoop(Exception):
    """The loop over `variable` must run backwards, or else within the other loops."""

    def __init__(self, variable: str, *, backwards: bool) -> None:
        self.variable, self.backwards = variable, backwards


def lower_scan(lowering: Lowering, node: nodes.Node, scan: nodes.Scan, index: Shape) -> ir.Expr:
    """The running result at an index: the state of the loop over the axis, before or after it takes the value in.

    NeededLoop where the loop's order differs from the scan's; UnsupportedError where it cannot be changed."""
    variable, depth = _variable(lowering, node, scan, index), lowering.depth(index)
    if variable not in lowering.scopes[depth].variables:
        raise NeededLoop(variable, backwards=False)
    others = {name for axis, dim in enumerate(index) if axis != scan.axis for name in dim.names}
    if others & lowering.scopes[depth].variables:
        raise UnsupportedError(f"{node.output}: the loop along the scan goes from row to row of it")
    lowering.folds.append(frozenset(name for dim in index for name in dim.names if name.startswith("#")))
    monoid, operand = MONOIDS[scan.monoid], lowering.graph[node.inputs[0]]
    if operand.dtype.kind not in monoid.accepts:
        raise UnsupportedError(f"{node.output}: no {scan.monoid} of {operand.dtype.value}")
    dtypes, zero = monoid.states(operand.dtype), (Dim.of(0),)
    names = tuple(lowering.names.fresh(f"{node.output}_{scan.monoid}") for _ in dtypes)
    empty = tuple(map(ir.Const, monoid.init(operand.dtype), dtypes))
    around, inside = lowering.scopes[depth - 1].statements, lowering.scopes[depth].statements
    pairs = list(zip(names, dtypes, strict=True))
    around += [ir.Alloc(name, dtype, (Dim.of(1),), ir.Space.REGISTER) for name, dtype in pairs]
    around.append(ir.Store(names, zero, empty))
    value = lowering.value(operand.output, index)
    state: tuple[ir.Expr, ...] = tuple(ir.Load(name, zero, dtype) for name, dtype in pairs)
    accumulate = ir.Store(names, zero, monoid.lift(Symbolic(), value, ir.Index(Dim.of(variable))), scan.monoid)
    inside += [] if scan.exclusive else [accumulate]
    result: ir.Var = lowering.let(lowering.scopes[depth], node, monoid.finish(Symbolic(), state), index)
    inside += [accumulate] if scan.exclusive else []
    return result


def _variable(lowering: Lowering, node: nodes.Node, scan: nodes.Scan, index: Shape) -> str:
    """The variable of the loop that runs along the whole axis."""
    at, extent = index[scan.axis], node.shape[scan.axis]
    mine = [name for name in at.names if name.startswith("#")]
    whole = len(mine) == 1 and lowering.offsets.get(mine[0]) == Dim.of(0) and lowering.extents[mine[0]] == extent
    ways = [Dim.of(name) for name in mine[:1]] + [extent - 1 - Dim.of(name) for name in mine[:1]]
    if not whole or at not in ways or lowering.guard is not None:
        raise UnsupportedError(f"{node.output}: no loop runs along the whole axis of the scan")
    if (at == ways[0]) == scan.reverse:
        raise NeededLoop(mine[0], backwards=True)
    return mine[0]


ONE = Dim.of(1)


def asks_each_cell(graph: nodes.Graph, node: nodes.Node) -> bool:
    """Whether each cell of a Scatter can identify the only update that may meet it: every axis of the updates that is
    longer than 1 is a whole axis of the result."""
    assert isinstance(node.kind, nodes.Scatter)
    updates, places = graph[node.inputs[2]], _places(node.kind)
    whole = all(equal(updates.shape[own], node.shape[axis]) for own, axis in places.items())
    plain = len(places) + sum(isinstance(entry, nodes.Lookup) for entry in node.kind.index) == len(node.shape)
    free = [axis for axis, extent in enumerate(updates.shape) if axis not in places and extent != ONE]
    return whole and plain and not free


def _places(kind: nodes.Scatter) -> dict[int, int]:
    """Map the axes of the updates to the axes of the result that they are."""
    names = {entry: axis for axis, entry in enumerate(kind.index) if not isinstance(entry, nodes.Lookup)}
    return {own: names[at] for own in range(len(kind.index)) if (at := Dim.of(index_name(own))) in names}


def ask(lowering: Lowering, node: nodes.Node, kind: nodes.Scatter, index: Shape) -> ir.Expr:
    """The value of a cell: the base's, or the update's if it meets the cell."""
    data, _, updates = node.inputs
    places = _places(kind)
    at = tuple(index[places[own]] if own in places else Dim.of(0) for own in range(len(lowering.graph[updates].shape)))
    here = {index_name(own): dim for own, dim in enumerate(at)}
    same = list[ir.Expr]()
    for axis, entry in enumerate(kind.index):
        if isinstance(entry, nodes.Lookup):
            position = lowering.lookup(node, entry, here, node.shape[axis])
            same.append(ir.Call("equal", (ir.Index(index[axis]), ir.Index(position)), DType.BOOL))
    old, new = lowering.value(data, index), lowering.value(updates, at)
    if kind.monoid is not None:
        (new,) = MONOIDS[kind.monoid].merge(Symbolic(), (old,), (new,))
    meets = ir.when(ir.all_of(same))
    return new if meets is None else ir.Call("where", (meets, new, old), new.dtype)


def guards(graph: nodes.Graph) -> tuple[ir.Guard, ...]:
    """The guards of a graph, each once: its demands on sizes that inputs bind, and the needs of its views."""
    bound = {binding.size for binding in plan([node.shape for node in graph.inputs])}
    demanded = [demand for demand in graph.demands if demand.left.names | demand.right.names <= bound]
    conditions = [guard for demand in demanded for guard in _guards_of(demand)]
    return tuple(dict.fromkeys([*conditions, *(guard for node in graph.nodes for guard in _of_views(graph, node))]))


def _guards_of(demand: Demand) -> Iterator[ir.Guard]:
    always, left, right = Dim.of(1), demand.left, demand.right
    match demand.relation:
        case "at most":
            yield ir.Guard(always, left, right)
        case "equal":
            yield from (ir.Guard(always, left, right), ir.Guard(always, right, left))
        case _:
            apart = (left - right) * (left - 1) * (right - 1)
            yield from (ir.Guard(always, apart, Dim.of(0)), ir.Guard(always, Dim.of(0), apart))
            if not never_negative(left - 2) and not never_negative(right - 2):  # 0 and 1 are 0, which no larger one is
                empty_left, empty_right = maximum(1 - left, 0), maximum(1 - right, 0)
                yield from (ir.Guard(always, empty_left, empty_right), ir.Guard(always, empty_right, empty_left))


def _of_views(graph: nodes.Graph, node: nodes.Node) -> Iterator[ir.Guard]:
    """Guards that the highest index of an axis is below the extent, where that is neither certain nor unknowable."""
    if isinstance(node.kind, nodes.View | nodes.Gather):
        for entry, extent in zip(node.kind.index, graph[node.inputs[0]].shape, strict=True):
            if isinstance(entry, nodes.Lookup) and is_clamped(graph.by_name, node.inputs[entry.input], extent):
                yield ir.Guard(product(node.shape), Dim.of(0), extent - 1)
            at = Dim.of(0) if isinstance(entry, nodes.Lookup) else simplify(entry, node.extents)
            if not isinstance(entry, nodes.Lookup) and not within(at, extent, node.extents):
                highest = _highest(node, at)
                if highest is not None and highest != extent - 1:
                    yield ir.Guard(product(node.shape), highest, extent - 1)


def _highest(node: nodes.Node, at: Dim) -> Dim | None:
    """The highest value of an index that is linear in the indices of its value; None if it is not linear."""
    rest, total = at, Dim.of(0)
    for name, extent in node.extents.items():
        slope = at.replace({name: Dim.of(name) + 1}) - at
        if any(other.startswith("#") for other in slope.names):
            return None
        total = total + maximum(slope * (extent - 1), 0)
        rest = rest.replace({name: 0})
    return total + rest
