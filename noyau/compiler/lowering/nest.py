"""Choose the loops of a group, and lower its outputs into them: one nest, whatever views lie between.

The largest output gives the loops. Loops that reductions depend on come first, so that each reduction is done once a
row; the other outputs are stored in the same loops, or in the outer ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from noyau.compiler.lowering.input_layouts import with_strides
from noyau.compiler.lowering.loop_cuts import as_one, reorder, split_divided, with_cut, with_loop
from noyau.compiler.lowering.loop_nest import LoopNest, first_space
from noyau.compiler.lowering.names import Names
from noyau.compiler.lowering.values import LoopScope, Lowering, NeededCut, NeededLoop, asks_each_cell, guards
from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Graph, Input, Node, Scatter, dims_of
from noyau.ir.loops import Axis, Buffer, Kernel, Launch, Loop, Role, Statement, Store
from noyau.ir.ranges import simplify
from noyau.ir.sizes import plan

CUTS = 16  # the most cuts, of all loops together
Places = Mapping[int, Sequence[tuple[str, Shape]]]  # by the loops around its Store, each output with its index


def lower(graph: Graph, name: str, strided: Mapping[str, str] | None = None, names: Names | None = None) -> Kernel:
    """The kernel of a group, in serial loops; UnsupportedError says why there is none.

    `strided` gives Inputs by name another layout than "packed": "inner" or "strided", as `Buffer.layout` has them;
    `names`: those of a program, in which a value is the same buffer of each kernel, and others may bind its sizes."""
    for size, value in unbound(graph).items() if names is None else ():
        raise UnsupportedError(f"the size {size} of {value} does not follow from the shapes of the inputs")
    names, buffers = names or Names(), []
    for role, values in ((Role.INPUT, [node.output for node in graph.inputs]), (Role.OUTPUT, list(graph.outputs))):
        for value in values:
            node = graph[value]
            stem = f"{value}_out" if role is Role.OUTPUT and isinstance(node.kind, Input) else value
            buffers.append(Buffer(names.of(stem), node.dtype, node.shape, role, value))
    binding = plan([node.shape for node in graph.inputs])
    bodies = lower_scatter(graph, names, buffers) or (lower_outputs(graph, names, buffers),)
    kernel = Kernel(name, tuple(buffers), binding, tuple(map(Launch, bodies)), guards(graph))
    return with_strides(kernel, strided) if strided else kernel


def unbound(graph: Graph) -> dict[str, str]:
    """The sizes that the shapes of the inputs do not bind, each with the first value that needs it."""
    bound, missing = {binding.size for binding in plan([node.shape for node in graph.inputs])}, dict[str, str]()
    for node in graph.nodes:
        for size in sorted(name for dim in dims_of(node) for name in dim.names):
            if size not in bound and not size.startswith("#"):
                missing.setdefault(size, node.output)
    return missing


class Scattering(Lowering):
    """A nest over the updates of a Scatter, each of which is merged into the result at its place."""

    def __init__(self, node: Node, graph: Graph, names: Names, buffers: Mapping[str, str]) -> None:
        super().__init__(graph, names, buffers)
        assert isinstance(node.kind, Scatter)
        self.node, self.kind = node, node.kind

    def store_output(self, buffer: str, output: str, index: Shape) -> Store:
        place = self.places(self.node, self.kind.index, index, self.node.shape)
        return Store((buffer,), place, (self.value(output, index),), self.kind.monoid)


def lower_scatter(graph: Graph, names: Names, buffers: Sequence[Buffer]) -> tuple[tuple[Statement, ...], ...]:
    """The statements of a graph whose only output is a Scatter that merges in memory: a nest that copies the base, then
    one over the updates, in order. Empty for any other graph."""
    node = graph[graph.outputs[0]]
    if len(graph.outputs) > 1 or not isinstance(node.kind, Scatter) or asks_each_cell(graph, node):
        return ()
    data, _, updates = node.inputs
    *inputs, output = buffers
    copied = lower_outputs(replace(graph, outputs=(data,)), names, [*inputs, replace(output, source=data)])
    target = [*inputs, replace(output, source=updates)]
    return copied, lower_outputs(replace(graph, outputs=(updates,)), names, target, partial(Scattering, node))


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
        except (NeededCut, NeededLoop) as needed:
            space = with_cut(space, needed) if isinstance(needed, NeededCut) else with_loop(space, needed)
            continue
        better = split_divided(reorder(space, lowering), statements)
        if better == space:
            return statements
        space = better
    raise UnsupportedError(f"the loops of {space.main} would have to be cut in more than {CUTS} places")


def fill(lowering: Lowering, space: LoopNest, stores: Mapping[str, str]) -> tuple[Statement, ...]:
    """The statements of the nest: each output is stored at its depth."""
    places: dict[int, list[tuple[str, Shape]]] = {}
    for output in stores:
        main = (space.index, len(space.loops)) if output == space.main else None
        index, depth = main or space.index_of(lowering.graph[output])
        places.setdefault(depth, []).append((output, index))
    descend(lowering, space, stores, places, 0, {})
    return tuple(lowering.scopes[0].statements)


def descend(
    lowering: Lowering, space: LoopNest, stores: Mapping[str, str], places: Places, depth: int, outer: Mapping[str, Dim]
) -> None:
    """Fill the loops from `depth` inwards; `outer` maps each outer variable to its value in the current segment."""
    scope = lowering.scopes[-1]
    for output, index in places.get(depth, ()):
        here = tuple(simplify(dim.replace(outer), lowering.extents) for dim in index)
        scope.statements.append(lowering.store_output(stores[output], output, here))
    if depth == len(space.loops) or not any(place > depth for place in places):
        return
    variable, extent = space.loops[depth]
    if variable in space.written_out and extent.constant is not None:
        for at in range(extent.constant):
            descend(lowering, space, stores, places, depth + 1, {**outer, variable: Dim.of(at)})
        return
    for start, end in pairwise([Dim.of(0), *space.cuts.get(variable, ()), extent]):
        if end - start in lowering.empty:
            continue
        inner = LoopScope({variable})
        lowering.scopes.append(inner)
        lowering.extents[variable], lowering.offsets[variable] = end - start, start
        descend(lowering, space, stores, places, depth + 1, {**outer, variable: Dim.of(variable) + start})
        lowering.scopes.pop()
        loop = Loop(variable, end - start, Axis.SERIAL, tuple(inner.statements))
        if scope.statements and (joined := as_one(scope.statements[-1], loop)):
            scope.statements[-1] = joined
        else:
            scope.statements.append(loop)
