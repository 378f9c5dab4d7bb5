"""Reverse mode: gradients of values from the outputs back, as a graph cut into forward and backward.

The forward graph saves values for the backward one: fewest bytes, little recomputation. Inputs and outputs exist
anyway, so that they are nearly free. Maps, views and lookups are computed again from saved values, but for chains of
maps of more than 100 flops a cell; reductions, running results, merges, matrix products and opaque operators are not.
Between these it is a minimum cut, weighed in bytes: the cheapest values from which all reads of the backward graph can
be computed. Of cuts of equal weight it is the last one, which needs the least recomputation."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import assert_never

from noyau.compiler.autodiff.gradient_builder import GradientBuilder, map_back, zero_where_zero
from noyau.compiler.autodiff.reductions import reduce_back, scan_back
from noyau.compiler.autodiff.shift_invariance import invariant_values
from noyau.compiler.autodiff.simplification import simplify_gradient
from noyau.compiler.autodiff.views import gather_back, scatter_back, view_back
from noyau.compiler.partition.costs import cells
from noyau.compiler.passes.normal_form import bound_sizes
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import graph as dag
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Input, Map, Node, Reduce, Scatter, Select, View
from noyau.ir.graph_verifier import check
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS, Fact, has

SOURCE, SINK = "<source", "<sink"  # no value's names: those of vertices end in < or >


class Network:
    """A flow network with capacities: Edmonds and Karp, 1972."""

    def __init__(self) -> None:
        self.room: dict[str, dict[str, float]] = {}

    def join(self, start: str, end: str, room: float) -> None:
        self.room.setdefault(start, {}).setdefault(end, 0.0)
        self.room.setdefault(end, {}).setdefault(start, 0.0)
        self.room[start][end] += room

    def before_the_last_cut(self) -> set[str]:
        """The vertices on the source's side of the minimum cut; of several cuts, the one nearest to the sink."""
        while (path := self.path()) is not None:
            flow = min(self.room[a][b] for a, b in path)
            for a, b in path:
                self.room[a][b] -= flow
                self.room[b][a] += flow
        behind, waiting = {SINK}, [SINK]
        while waiting:
            end = waiting.pop()
            for start in self.room.get(end, {}):
                if start not in behind and self.room[start][end] > 0:
                    behind.add(start)
                    waiting.append(start)
        return self.room.keys() - behind

    def path(self) -> list[tuple[str, str]] | None:
        """A shortest augmenting path, or None."""
        parents: dict[str, str] = {SOURCE: SOURCE}
        waiting = deque([SOURCE])
        while waiting:
            start = waiting.popleft()
            for end, room in self.room.get(start, {}).items():
                if room > 0 and end not in parents:
                    parents[end] = start
                    waiting.append(end)
        if SINK not in parents:
            return None
        way, end = list[tuple[str, str]](), SINK
        while end != SOURCE:
            way.append((parents[end], end))
            end = parents[end]
        return way


READ = 1 / 16  # cost of reading an input or an output, relative to writing, holding and reading another value
EXPENSIVE = 100  # flops a cell, about as many as a core does while it writes and reads a float32


def split(graph: dag.Graph, gradient: dag.Graph) -> tuple[dag.Graph, tuple[str, ...], dag.Graph]:
    """Split into the graph that saves, the values that it saves, and the graph from these to the gradients.

    `gradient` computes gradients from the inputs of `graph`; a value with a name of `graph` is that value of
    `graph`."""
    gradients = {node.output for node in gradient.inputs} - {node.output for node in graph.inputs}
    back = dag.downstream(gradient, gradients)
    read = [name for node in gradient.nodes if node.output in back for name in node.inputs if name not in back]
    read += [name for name in gradient.outputs if name not in back]
    backward = _from(graph, gradient, _cut(graph, gradient, read), gradients)
    saved = tuple(node.output for node in backward.inputs if node.output not in gradients)
    ends = {*graph.outputs, *(node.output for node in graph.inputs)}
    return replace(graph, outputs=(*graph.outputs, *(name for name in saved if name not in ends))), saved, backward


def _cut(graph: dag.Graph, gradient: dag.Graph, read: Iterable[str]) -> set[str]:
    """The values to save, or to read again."""
    network, expensive = Network(), _expensive(graph, gradient)
    needed, visited = list(dict.fromkeys(read)), set[str]()
    for name in needed:
        network.join(f"{name}>", SINK, inf)
    while needed:
        name = needed.pop()
        if name in visited:
            continue
        visited.add(name)
        node = gradient[name]
        network.join(f"{name}<", f"{name}>", _price(graph, node))
        if name in expensive:
            network.join(SOURCE, f"{name}<", inf)
        for operand in node.inputs:
            network.join(f"{operand}>", f"{name}<", inf)
            needed.append(operand)
    before = network.before_the_last_cut()
    return {name for name in visited if f"{name}<" in before and f"{name}>" not in before}


def _price(graph: dag.Graph, node: dag.Node) -> float:
    """The cost of saving a value in bytes; infinite for values that are not of the graph."""
    size = max(cells(node), 1.0) * node.dtype.bytes
    if isinstance(node.kind, dag.Input) or node.output in graph.outputs:
        return size * READ
    can_be = node.output in graph.by_name and not isinstance(node.kind, dag.Constant | dag.Iota | dag.View)
    return size if can_be else inf


def _expensive(graph: dag.Graph, gradient: dag.Graph) -> set[str]:
    """The values of a graph that are not recomputed for its gradient."""
    expensive_values, flops = set[str](), dict[str, float]()
    for node in gradient.nodes:
        own = OPERATORS[node.kind.function].flops if isinstance(node.kind, dag.Map) else 0
        is_cheap = isinstance(node.kind, dag.Map | dag.View | dag.Select | dag.Gather | dag.Constant | dag.Iota)
        flops[node.output] = own + max((flops[name] for name in node.inputs), default=0.0)
        if node.output in graph.by_name and (not is_cheap or flops[node.output] > EXPENSIVE):
            expensive_values.add(node.output)
            flops[node.output] = 0.0
    return expensive_values


def _from(graph: dag.Graph, gradient: dag.Graph, saved: Collection[str], gradients: Collection[str]) -> dag.Graph:
    """The graph from the saved values, in the order in which `graph` computes them, and from the given gradients."""
    needed, nodes = set(gradient.outputs), list[dag.Node]()
    for node in reversed(gradient.nodes):
        if node.output in needed and node.output not in saved and node.output not in gradients:
            needed.update(node.inputs)
            nodes.append(node)
    read = [node for node in gradient.nodes if node.output in saved and node.output in needed]
    inputs = [node for node in read if isinstance(node.kind, dag.Input)]
    inputs += [replace(node, kind=dag.Input(), inputs=()) for node in read if node not in inputs]
    inputs += [node for node in gradient.inputs if node.output in gradients]
    return with_sizes(dag.Graph((*inputs, *reversed(nodes)), gradient.outputs, gradient.demands), graph)


def with_sizes(backward: dag.Graph, graph: dag.Graph) -> dag.Graph:
    """The graph with those inputs of `graph`, small ones first, whose shapes bind sizes that no other input binds."""
    names = {name for node in backward.nodes for dim in dag.dims_of(node) for name in dim.names if name[:1] != "#"}
    for node in sorted(graph.inputs, key=cells):
        bound = bound_sizes(backward.inputs)
        if node.output not in backward.by_name and (bound_sizes((*backward.inputs, node)) - bound) & names:
            backward = replace(backward, nodes=(node, *backward.nodes))
    return backward


def operand_gradient(
    builder: GradientBuilder, node: Node, operands: Sequence[Node], above: Node, position: int, *, masked: bool
) -> Node | None:
    """The gradient of the operand at a position, or None where it is 0. `masked`: it is 0 where the node's is 0."""
    operand = operands[position]
    match node.kind:
        case dag.Map(function):
            return map_back(builder, node, function, operands, above, position)
        case dag.Reduce(monoid, axes):
            below = reduce_back(builder, node, node.kind, operand, above)
            if not masked or MONOIDS[monoid].linear:
                return below
            wide = builder.expand_along(builder.cast(above, below.dtype), axes, below.shape)
            return zero_where_zero(builder, below, wide)
        case dag.Scan():
            return scan_back(builder, node, node.kind, operand, above)
        case dag.View(index):
            return view_back(builder, index, operand.shape, above)
        case dag.Select(axis, starts):
            return builder.slice(above, axis, starts[position], operand.shape[axis])
        case dag.Gather():
            return gather_back(builder, node.kind, operands, above)
        case dag.Scatter():
            return scatter_back(builder, node, node.kind, operands, above, position)
        case dag.Contract(equation):
            return contract_back(builder, node, equation, operands, above, position)
        case dag.Opaque(name):
            raise UnsupportedError(f"{node.output} is made by {name}, which has no derivative here")
        case dag.Part():
            raise UnsupportedError(f"{node.output} is a result of what has no derivative here")
        case dag.Input() | dag.Constant() | dag.Iota():
            return None
        case _:
            assert_never(node.kind)


def contract_back(
    builder: GradientBuilder, node: Node, equation: str, operands: Sequence[Node], gradient: Node, position: int
) -> Node:
    """The gradient of the operand at a position: another einsum, so that no operand is transposed. Along letters of
    this operand alone, which were summed, the gradient is broadcast."""
    terms, result = equation.replace(" ", "").split("->")
    letters, this, other = terms.split(","), operands[position], operands[1 - position]
    own, others = letters[position], letters[1 - position]
    if "." in equation or any(len(set(each)) < len(each) for each in (own, others, result)):
        raise UnsupportedError(f"{node.output}: the einsum {equation} names an axis twice, and has no derivative")
    rest_letters = "".join(letter for letter in own if letter in result or letter in others)
    shape = tuple(this.shape[own.index(letter)] for letter in rest_letters)
    dtype = gradient.dtype
    pair = [(result, gradient), (others, builder.cast(other, dtype))]
    pair = pair if position == 0 else pair[::-1]
    turned = f"{pair[0][0]},{pair[1][0]}->{rest_letters}"
    product = builder.emit(dag.Contract(turned), [each for _, each in pair], dtype, shape)
    places = [Dim.of(f"#{own.index(letter)}") for letter in rest_letters]
    return builder.cast(builder.view(product, this.shape, places), this.dtype)


@dataclass(frozen=True, slots=True)
class Gradient:
    """Gradient that one reader of a value gives back to it.

    `masked`: a 0 means that the value was not chosen, so that 0 is all that it passes on, even through a derivative
    that is infinite or NaN there. `doubt`: it went through such derivatives, and is 0 wherever the value `doubt` is."""

    value: Node
    masked: bool = False
    doubt: Node | None = None


def gradient_name(output: str) -> str:
    """Name the gradient of an output, an input of the backward graph."""
    return f"grad_{output}"


class Adjoints:
    """One derivation: the nodes so far, and for each value the gradients that its readers gave back."""

    def __init__(self, graph: Graph, inputs: Sequence[str]) -> None:
        self.graph, self.wanted, self.builder = graph, inputs, GradientBuilder(graph)
        self.gradients: dict[str, list[Gradient]] = {}
        self.reached = carriers(graph, inputs)

    def run(self) -> Graph:
        floats = (name for name in dict.fromkeys(self.graph.outputs) if self.graph[name].dtype.is_float)
        gradients = list(map(self.output_gradient, floats))
        for node in reversed(self.graph.nodes):
            if node.output in self.gradients and not isinstance(node.kind, Input):
                self.builder.stem = gradient_name(node.output)
                self.back(node, self.total(node))
        outputs = [self.result(name) for name in self.wanted]
        inputs = [*self.graph.inputs, *gradients]
        rest = (node for node in self.builder.nodes if not isinstance(node.kind, Input))
        return Graph((*inputs, *rest), tuple(outputs), self.graph.demands)

    def output_gradient(self, name: str) -> Node:
        """The gradient of an output, as an input."""
        node, label = self.graph[name], gradient_name(name)
        if self.builder.unused_name(label) != label:
            raise UnsupportedError(f"{label} is a value of the graph; the gradient of {name} must bear that name")
        node_in = self.builder.add_input(label, node.dtype, node.shape)
        if name in self.reached:
            self.gradients[name] = [Gradient(node_in)]
        return node_in

    def total(self, node: Node) -> Gradient:
        """The sum of the gradients that a value's readers gave back; half types are summed in float32."""
        parts = self.gradients[node.output]
        if len({part.doubt and part.doubt.output for part in parts}) > 1:
            parts = [self.without_doubt(part) for part in parts]
        exact = node.dtype if len(parts) == 1 else node.dtype.compute
        total = self.builder.cast(parts[0].value, exact)
        for part in parts[1:]:
            total = self.builder.call("add", total, self.builder.cast(part.value, exact))
        return Gradient(self.builder.cast(total, node.dtype), all(part.masked for part in parts), parts[0].doubt)

    def without_doubt(self, gradient: Gradient) -> Gradient:
        if gradient.doubt is None:
            return gradient
        return Gradient(zero_where_zero(self.builder, gradient.value, gradient.doubt), gradient.masked)

    def result(self, name: str) -> str:
        """The gradient of an input under a name of its own."""
        node, label = self.graph[name], self.builder.unused_name(gradient_name(name))
        self.builder.stem = label
        if name in self.gradients:
            total = self.without_doubt(self.total(node)).value
        else:
            total = self.builder.full(0.0, node.dtype, node.shape)
        return self.builder.add(Node(label, Map("identity"), (total.output,), node.dtype, node.shape)).output

    def back(self, node: Node, gradient: Gradient) -> None:
        """Give a value's gradient back to its operands."""
        function = node.kind.function if isinstance(node.kind, Map) else ""
        chooses = bool(function) and has(function, Fact.CHOOSES)
        if not function or chooses:
            gradient = self.without_doubt(gradient)
        # Whether a gradient of 0 means that no reader chose the operand
        keeps_mask = isinstance(node.kind, Map | View | Select | Reduce | Gather | Scatter)
        masked, doubt = keeps_mask and (gradient.masked or chooses), gradient.doubt
        if function and gradient.masked and not has(function, Fact.CHOOSES | Fact.LINEAR):
            doubt = doubt or gradient.value
        operands = [self.graph[name] for name in node.inputs]
        for position, operand in enumerate(operands):
            if operand.output in self.reached:
                share = operand_gradient(self.builder, node, operands, gradient.value, position, masked=gradient.masked)
                if share is not None:
                    self.gradients.setdefault(operand.output, []).append(Gradient(share, masked, doubt))


def carriers(graph: Graph, starts: Sequence[str]) -> frozenset[str]:
    """List the float values by which `starts` reach the outputs; integers, steps and invariant values carry none."""
    carriers, constant = set(starts), invariant_values(graph)
    for node in graph.nodes:
        flat = node.kind == Map("cast") and not node.dtype.is_float
        flat |= isinstance(node.kind, Map) and has(node.kind.function, Fact.STEPS)
        moves = node.dtype.is_float or node.dtype is DType.OTHER  # an Opaque of several results has dtype OTHER
        if moves and not flat and node.output not in constant and any(name in carriers for name in node.inputs):
            carriers.add(node.output)
    return frozenset(carriers)


@dataclass(frozen=True, slots=True)
class DerivedGradient:
    """Gradient of a graph by some of its inputs.

    `forward`: the graph, with the `saved` values that are no inputs or outputs of it as further outputs. `backward`:
    from the inputs, outputs and saved values that it reads, under their names, and `grad_<output>` for each float
    output, to the gradients of `wanted`, in order, of their dtypes and shapes. `saved`: its inputs other than
    gradients. `gradient`: the same gradients from the inputs and `grad_<output>` alone, for higher derivatives."""

    forward: Graph
    saved: tuple[str, ...]
    backward: Graph
    gradient: Graph
    wanted: tuple[str, ...]


def derive(graph: Graph, inputs: Sequence[str]) -> DerivedGradient:
    """Derive a graph's float outputs by some inputs in reverse mode.

    A gradient that nothing reaches is 0. UnsupportedError names a value without one, or an input of no floats."""
    graph = without_copies(graph)
    gradient = gradient_of(graph, inputs)
    forward, saved, backward = split(graph, gradient)
    return DerivedGradient(forward, saved, backward, gradient, tuple(inputs))


def gradient_of(graph: Graph, inputs: Sequence[str]) -> Graph:
    """Give the gradients of inputs as a function of all inputs and of `grad_<output>` for each float output."""
    for name in inputs:
        node = graph.by_name.get(name)
        if node is None or not isinstance(node.kind, Input):
            raise UnsupportedError(f"{name} is no input of the graph, so that it has no gradient")
        if not node.dtype.is_float:
            raise UnsupportedError(f"{name} is {node.dtype.value}: only floats have gradients")
    gradients = [gradient_name(name) for name in graph.outputs]
    return check(simplify_gradient(Adjoints(graph, inputs).run(), gradients, graph.outputs))


def with_free_gradients(graph: Graph) -> Graph:
    """The graph with outputs renamed so that the names of their gradients are free: another gradient may use them."""
    occupied, names = set(graph.by_name), dict[str, str]()
    for name in graph.outputs:
        if gradient_name(name) in occupied and not isinstance(graph[name].kind, Input):
            numbered = (f"{name}_{number}" for number in count(1))
            names[name] = next(each for each in numbered if not {each, gradient_name(each)} & occupied)
            occupied |= {names[name], gradient_name(names[name])}
    outputs = tuple(names.get(name, name) for name in graph.outputs)
    return replace(graph, nodes=tuple(node.rename(names) for node in graph.nodes), outputs=outputs)


def without_copies(graph: Graph) -> Graph:
    """The graph without copies: an output that is a copy takes the place of its source, which need not be saved."""
    renamed: dict[str, str] = {}
    for node in graph.nodes:
        source = graph[node.inputs[0]] if node.kind == Map("identity") and node.output in graph.outputs else None
        if source and not isinstance(source.kind, Input) and source.output not in {*renamed, *graph.outputs}:
            renamed[source.output] = node.output
    copies = set(renamed.values())
    return replace(graph, nodes=tuple(node.rename(renamed) for node in graph.nodes if node.output not in copies))
