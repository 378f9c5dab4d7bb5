"""Choose the loops of a group, and lower its outputs into them: one nest, whatever views lie between.

The largest output gives the loops. Loops that reductions depend on come first, so that each reduction is done once
a row; the other outputs are stored in the same loops, or in the outer ones.

An output may lie in the loops of another with its axes merged, as a reshape does, or in another order.

Most views are within bounds by their shapes alone. Where two extents only should be alike (they have different names in
the model), the kernel must not trust them: its guards are checked when it gets its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from noyau.compiler.lowering.input_layouts import with_strides
from noyau.compiler.lowering.names import Names
from noyau.compiler.lowering.values import CutNeeded, LoopNeeded, LoopScope, Lowering, asks_each_cell
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, Shape, equal, maximum, never_negative, product
from noyau.ir.graph import Gather, Graph, Input, Lookup, Node, Scatter, View, dims_of
from noyau.ir.loops import Axis, Buffer, Guard, Kernel, Launch, Loop, Role, Statement, Store
from noyau.ir.ranges import simplify, within
from noyau.ir.sizes import Demand, plan
from noyau.ir.walk import dims_in

ONE = Dim.of(1)
NestAxis = tuple[Dim, Dim]  # of the nest: its index, and its extent


def merge_axes(shape: Shape, axes: Sequence[NestAxis]) -> Shape | None:
    """The index of a value in a nest of these axes, where each axis of it is one of them or several neighbours as one;
    None where that is not so, or where the nest's innermost axis is not the value's: its cells would be stored one far
    from the other."""
    left, index, innermost = list(axes), list[Dim](), False
    for extent in shape:
        run = [] if extent == ONE else _run(extent, left)
        if run is None:
            return None
        if run:
            innermost = run[-1] == axes[-1]
            left = [axis for axis in left if axis not in run]
        index.append(_flat(run))
    return tuple(index) if not left and innermost else None


def _run(extent: Dim, axes: Sequence[NestAxis]) -> list[NestAxis] | None:
    """The first neighbours that have as many cells together as an extent."""
    for start in range(len(axes)):
        for end in range(start + 1, len(axes) + 1):
            if equal(product(own for _, own in axes[start:end]), extent):
                return list(axes[start:end])
    return None


def _flat(run: Sequence[NestAxis]) -> Dim:
    """The index in the axis that several make, in C order."""
    flat = Dim.of(0)
    for index, extent in run:
        flat = flat * extent + index
    return flat


FEW = 4  # cells side by side that are alike, and are written out: a loop over so few is none to a vector
CELLS = 64  # that are each a value of their own, and are written out at most: what they share is computed once
CUTS = 16  # loops are cut at so many places at most


@dataclass(frozen=True, slots=True)
class LoopNest:
    """The loops of a nest, outermost first; the index of the main output over them; where loops are cut."""

    main: str
    loops: tuple[tuple[str, Dim], ...]
    index: Shape
    cuts: Mapping[str, tuple[Dim, ...]]
    turned: frozenset[str] = frozenset()  # loops that run backwards
    written_out: frozenset[str] = frozenset()  # loops of a few rounds, one after the other in the text

    def index_of(self, node: Node) -> tuple[Shape, int]:
        """The index of another output, and the number of loops around its Store; UnsupportedError if it fits none."""
        axes = [axis for axis, dim in enumerate(node.shape) if dim != ONE]
        own = [dim for dim in self.index if dim != Dim.of(0)]
        extents = self._extents()
        if len(axes) == len(own) and node.shape and all(map(equal, (node.shape[axis] for axis in axes), extents)):
            letters = iter(own)
            index = tuple(next(letters) if axis in axes else Dim.of(0) for axis in range(len(node.shape)))
            return index, len(self.loops)
        outer = self.loops[: len(axes)]
        if len(axes) <= len(self.loops) and all(
            equal(node.shape[axis], extent) for axis, (_, extent) in zip(axes, outer, strict=True)
        ):
            variables = iter(outer)
            index = tuple(Dim.of(next(variables)[0]) if axis in axes else Dim.of(0) for axis in range(len(node.shape)))
            return index, len(axes)
        elsewhere = merge_axes(node.shape, list(zip(own, extents, strict=True)))
        if elsewhere is not None:
            return elsewhere, len(self.loops)
        own_shape, loops = (", ".join(map(str, dims)) for dims in (node.shape, dict(self.loops).values()))
        raise UnsupportedError(
            f"{node.output} of shape [{own_shape}] does not fit the loops of {self.main}: {loops or 1}"
        )

    def _extents(self) -> list[Dim]:
        """The extents of the main output, without axes of 1."""
        extents = dict(self.loops)
        first, last = dict.fromkeys(extents, 0), {name: extent - 1 for name, extent in extents.items()}
        return [dim.replace(first) + dim.replace(last) + 1 for dim in self.index if dim != Dim.of(0)]


def lower(graph: Graph, name: str, strided: Mapping[str, str] | None = None) -> Kernel:
    """The kernel of a group, in serial loops; UnsupportedError says why there is none.

    `strided` gives Inputs by name another layout than "packed": "inner" or "strided", as `Buffer.layout` has them."""
    for size, value in unbound(graph).items():
        raise UnsupportedError(f"the size {size} of {value} does not follow from the shapes of the inputs")
    names, buffers = Names(), []
    for role, values in ((Role.INPUT, [node.output for node in graph.inputs]), (Role.OUTPUT, list(graph.outputs))):
        for value in values:
            node = graph[value]
            stem = f"{value}_out" if role is Role.OUTPUT and isinstance(node.kind, Input) else value
            buffers.append(Buffer(names.fresh(stem), node.dtype, node.shape, role, value))
    binding = plan([node.shape for node in graph.inputs])
    bodies = lower_scatter(graph, names, buffers) or (lower_outputs(graph, names, buffers),)
    kernel = Kernel(name, tuple(buffers), binding, tuple(map(Launch, bodies)), guards(graph))
    return with_strides(kernel, strided) if strided else kernel


def unbound(graph: Graph) -> dict[str, str]:
    """The sizes that do not follow from the shapes of the inputs, each with the first value that needs it."""
    bound, missing = {binding.size for binding in plan([node.shape for node in graph.inputs])}, dict[str, str]()
    for node in graph.nodes:
        for size in sorted(name for dim in dims_of(node) for name in dim.names):
            if size not in bound and not size.startswith("#"):
                missing.setdefault(size, node.output)
    return missing


class Scattering(Lowering):
    """A nest over the updates of a Scatter, each merged into the result at its place."""

    def __init__(self, node: Node, graph: Graph, names: Names, buffers: Mapping[str, str]) -> None:
        super().__init__(graph, names, buffers)
        assert isinstance(node.kind, Scatter)
        self.node, self.kind = node, node.kind

    def stored(self, buffer: str, output: str, index: Shape) -> Store:
        place = self.places(self.node, self.kind.index, index, self.node.shape)
        return Store((buffer,), place, (self.value(output, index),), self.kind.monoid)


def lower_scatter(graph: Graph, names: Names, buffers: Sequence[Buffer]) -> tuple[tuple[Statement, ...], ...]:
    """The statements of a graph whose one output is a Scatter that merges in memory: a nest that copies what is merged
    into, then one over the updates, in their order. Nothing of any other graph."""
    node = graph[graph.outputs[0]]
    if len(graph.outputs) > 1 or not isinstance(node.kind, Scatter) or asks_each_cell(graph, node):
        return ()
    data, _, updates = node.inputs
    *inputs, output = buffers
    copied = lower_outputs(replace(graph, outputs=(data,)), names, [*inputs, replace(output, source=data)])
    target = [*inputs, replace(output, source=updates)]
    merged = lower_outputs(replace(graph, outputs=(updates,)), names, target, partial(Scattering, node))
    return copied, merged


def lower_outputs(
    graph: Graph, names: Names, buffers: Sequence[Buffer], start: Callable[..., Lowering] = Lowering
) -> tuple[Statement, ...]:
    """The statements that store every output, in one nest."""
    space, stores = first_space(graph), {b.source: b.name for b in buffers if b.role is Role.OUTPUT}
    loads = {b.source: b.name for b in buffers if b.role is Role.INPUT}
    for _ in range(CUTS):
        lowering = start(graph, names.copy(), loads)
        try:
            statements = fill(lowering, space, stores)
        except CutNeeded as cut:
            space = with_cut(space, cut)
            continue
        except LoopNeeded as needed:
            space = with_loop(space, needed)
            continue
        better = split_divided(reorder(space, lowering), statements)
        if better == space:
            return statements
        space = better
    raise UnsupportedError(f"the loops of {space.main} would have to be cut in more than {CUTS} places")


def first_space(graph: Graph) -> LoopNest:
    """The loops of the largest output, in the order of its axes."""

    def extent(name: str) -> tuple[int, int]:
        dims = [dim for dim in graph[name].shape if dim != ONE]
        return len(dims), product(dims).constant or 0

    main = max(graph.outputs, key=extent)
    loops = [(f"#i{axis}", dim) for axis, dim in enumerate(graph[main].shape) if dim != ONE]
    index = tuple(Dim.of(f"#i{axis}") if dim != ONE else Dim.of(0) for axis, dim in enumerate(graph[main].shape))
    return LoopNest(main, tuple(loops), index, {})


def reorder(space: LoopNest, lowering: Lowering) -> LoopNest:
    """Loops that the reductions depend on first, so that a reduction is done once for all others."""
    inner = [names for names in lowering.folds if names < {name for name, _ in space.loops}]
    first = set[str]().union(*inner)
    return replace(space, loops=tuple(sorted(space.loops, key=lambda loop: loop[0] not in first)))


def with_cut(space: LoopNest, cut: CutNeeded) -> LoopNest:
    """The space with one more cut, in order; UnsupportedError where the order is not certain. Where a loop goes over
    some values of one cell each, it is written out, within all others."""
    count = dict(space.loops)[cut.variable].constant or 0
    if cut.by_cells and FEW <= count <= CELLS and cut.variable not in space.cuts:
        last = tuple(sorted(space.loops, key=lambda loop: loop[0] == cut.variable))
        return replace(space, loops=last, written_out=space.written_out | {cut.variable})
    points = [*space.cuts.get(cut.variable, ()), cut.point]
    ordered = sorted(points, key=lambda point: sum(1 for other in points if never_negative(point - other)))
    for low, high in pairwise(ordered):
        if not never_negative(high - low) or low == high:
            raise UnsupportedError(f"it is not certain which of {low} and {high} comes first")
    return replace(space, cuts={**space.cuts, cut.variable: tuple(ordered)})


def with_loop(space: LoopNest, needed: LoopNeeded) -> LoopNest:
    """The space with a loop that runs backwards, or within all others; UnsupportedError where it does so already."""
    variable, extents = needed.variable, dict(space.loops)
    if needed.backwards:
        back = {variable: extents[variable] - 1 - Dim.of(variable)}
        turned = replace(space, index=tuple(dim.replace(back) for dim in space.index))
        if turned.index == space.index or variable in space.turned:
            raise UnsupportedError(f"the scans in {space.main} run both ways")
        return replace(turned, turned=space.turned | {variable})
    last = tuple(sorted(space.loops, key=lambda loop: loop[0] == variable))
    if last == space.loops:
        raise UnsupportedError(f"the loops of {space.main} have no order in which its scans can run")
    return replace(space, loops=last)


def split_divided(space: LoopNest, statements: Sequence[Statement]) -> LoopNest:
    """The space with a loop in two where indices divide its variable: i = i_hi * c + i_lo."""
    extents = dict(space.loops)
    for op in divisions(statements):
        variable, step = str(op.left), op.right
        if variable not in extents or variable in space.cuts or step.names & extents.keys():
            continue
        if extents[variable] % step == Dim.of(0):
            high, low = f"{variable}a", f"{variable}b"
            parts = {variable: Dim.of(high) * step + Dim.of(low)}
            at = [name for name, _ in space.loops].index(variable)
            loops = (*space.loops[:at], (high, extents[variable] // step), (low, step), *space.loops[at + 1 :])
            inner = at == len(space.loops) - 1 and DimOp("mod", op.left, step) not in divisions(statements)
            few = {low} if inner and 0 < (step.constant or 0) <= FEW else set[str]()
            index = tuple(dim.replace(parts) for dim in space.index)
            return replace(space, loops=loops, index=index, written_out=space.written_out | few)
    return space


def divisions(statements: Sequence[Statement]) -> list[DimOp]:
    """Every division and modulo in the indices of statements."""
    divided: list[DimOp] = []
    waiting = list(dims_in(statements))
    while waiting:
        for monomial, _ in waiting.pop().terms:
            for atom in monomial:
                if isinstance(atom, DimOp):
                    divided.append(atom)
                    waiting += [atom.left, atom.right]
    return [op for op in divided if op.kind in ("floordiv", "mod")]


def fill(lowering: Lowering, space: LoopNest, stores: Mapping[str, str]) -> tuple[Statement, ...]:
    """The nest: each output stored at its depth."""
    places: dict[int, list[tuple[str, Shape]]] = {}
    for output in stores:
        is_main = output == space.main
        index, depth = (space.index, len(space.loops)) if is_main else space.index_of(lowering.graph[output])
        places.setdefault(depth, []).append((output, index))
    descend(lowering, space, stores, places, 0, {})
    return tuple(lowering.scopes[0].statements)


def descend(
    lowering: Lowering,
    space: LoopNest,
    stores: Mapping[str, str],
    places: Mapping[int, Sequence[tuple[str, Shape]]],
    depth: int,
    shifted: Mapping[str, Dim],
) -> None:
    """Fill the loops from `depth` inwards; `shifted` is what each outer variable stands for in its segment."""
    scope = lowering.scopes[-1]
    for output, index in places.get(depth, ()):
        here = tuple(simplify(dim.replace(shifted), lowering.extents) for dim in index)
        scope.statements.append(lowering.stored(stores[output], output, here))
    if depth == len(space.loops) or not any(place > depth for place in places):
        return
    variable, extent = space.loops[depth]
    if variable in space.written_out and extent.constant is not None:
        for at in range(extent.constant):
            descend(lowering, space, stores, places, depth + 1, {**shifted, variable: Dim.of(at)})
        return
    bounds = [Dim.of(0), *space.cuts.get(variable, ()), extent]
    for start, end in pairwise(bounds):
        inner = LoopScope({variable})
        lowering.scopes.append(inner)
        lowering.extents[variable], lowering.offsets[variable] = end - start, start
        descend(lowering, space, stores, places, depth + 1, {**shifted, variable: Dim.of(variable) + start})
        lowering.scopes.pop()
        scope.statements.append(Loop(variable, end - start, Axis.SERIAL, tuple(inner.statements)))


def guards(graph: Graph) -> tuple[Guard, ...]:
    """The guards of a graph, each once: what it demands of sizes that its inputs tell, and what its views need."""
    bound = {binding.size for binding in plan([node.shape for node in graph.inputs])}
    demanded = [demand for demand in graph.demands if demand.left.names | demand.right.names <= bound]
    conditions = [guard for demand in demanded for guard in _guards_of(demand)]
    return tuple(dict.fromkeys([*conditions, *(guard for node in graph.nodes for guard in _of(graph, node))]))


def _guards_of(demand: Demand) -> Iterator[Guard]:
    always, left, right = Dim.of(1), demand.left, demand.right
    match demand.relation:
        case "at most":
            yield Guard(always, left, right)
        case "equal":
            yield from (Guard(always, left, right), Guard(always, right, left))
        case _:
            apart = (left - right) * (left - 1) * (right - 1)
            yield from (Guard(always, apart, Dim.of(0)), Guard(always, Dim.of(0), apart))
            if not never_negative(left - 2) and not never_negative(right - 2):  # 0 and 1 are 0, which no larger one is
                empty_left, empty_right = maximum(1 - left, 0), maximum(1 - right, 0)
                yield from (Guard(always, empty_left, empty_right), Guard(always, empty_right, empty_left))


def _of(graph: Graph, node: Node) -> Iterator[Guard]:
    match node.kind:
        case View(index=index) | Gather(index=index):
            for at, extent in zip(index, graph[node.inputs[0]].shape, strict=True):
                if not isinstance(at, Lookup):
                    yield from _bounds(node, simplify(at, node.extents), extent)
        case _:
            pass


def _bounds(node: Node, at: Dim, extent: Dim) -> Iterator[Guard]:
    """That the highest index is below the extent, where that is neither certain nor beyond telling."""
    if within(at, extent, node.extents):
        return
    highest = _highest(node, at)
    if highest is not None and highest != extent - 1:
        yield Guard(product(node.shape), highest, extent - 1)


def _highest(node: Node, at: Dim) -> Dim | None:
    """The highest value of an index that is linear in the indices of its value; None where it is not."""
    rest, total = at, Dim.of(0)
    for name, extent in node.extents.items():
        slope = at.replace({name: Dim.of(name) + 1}) - at
        if any(other.startswith("#") for other in slope.names):
            return None
        total = total + maximum(slope * (extent - 1), 0)
        rest = rest.replace({name: 0})
    return total + rest
