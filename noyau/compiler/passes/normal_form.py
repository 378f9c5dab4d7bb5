"""The normal form of a group's graph: the same for every spelling of a computation, with new names of sizes.

Digests of how values are computed and used, independent of names, order operands. Products are rounded by themselves,
not contracted with a sum, where one rounding more or less would show."""

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from noyau.compiler.passes.algebra import simplify_algebra
from noyau.compiler.passes.cleanup import compose_views, drop_unused, fold_constants, merge_equal
from noyau.compiler.passes.rewrite import Change, Rebuilder, rebuild, through_views, with_dims
from noyau.dtypes import DType
from noyau.ir.dims import Dim, Monomial, product, with_sides
from noyau.ir.graph import Constant, Gather, Graph, Input, Map, Node, Reduce, Select, View
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.ir.sizes import Demand, plan

LARGEST = 1 << 16  # of the numbers that count as part of a formula; 1 / LARGEST is the least
Swap = tuple[Monomial, Dim]


def normalise(graph: Graph) -> Graph:
    """All passes in order; unused inputs are dropped, the others stand in the order of their first use."""
    simplifying = (fold_constants, compose_views, simplify_algebra, merge_equal, round_products)
    ordering = (lift_scalars, compose_views, merge_equal, order_operands, merge_equal, drop_unused)
    for change in (*simplifying, *ordering):
        graph = change(graph)
    return order_ends(graph)


def lift_scalars(graph: Graph) -> Graph:
    """Turn float scalars of the model (eps, scale) into inputs, so that groups which differ only in them are one
    kernel; whole numbers, halves and powers of two (counts, factors of a formula), and exponents, stay."""
    powers = (node for node in graph.nodes if node.kind == Map("power"))
    exponents = {through_views(graph.by_name, node.inputs[1]).output for node in powers}

    def lifted(node: Node) -> Node:
        match node.kind:
            case Constant(value) if node.dtype.is_float and value.size == 1 and "~" not in node.output:
                stays = _is_plain(float(value.reshape(()))) or node.output in exponents or node.output in graph.outputs
                return node if stays else replace(node, kind=Input())
            case _:
                return node

    return replace(graph, nodes=tuple(map(lifted, graph.nodes)))


def _is_plain(value: float) -> bool:
    if math.isnan(value) or math.isinf(value):
        return math.isinf(value)
    whole = abs(value) <= LARGEST and (2 * value).is_integer()
    return whole or (1 / LARGEST <= abs(value) <= LARGEST and abs(math.frexp(value)[0]) == 0.5)


def order_operands(graph: Graph) -> Graph:
    """Order commutative operands by the structure of their computation, then by their uses, independent of names."""
    keys = structure(graph)
    uses, roles = contexts(graph, keys), roles_of_sizes(graph)

    def order(name: str) -> tuple[str, str, list[str]]:
        kind = graph[name].kind
        index = kind.index if isinstance(kind, View) else ()
        return keys[name], uses[name], [str(dim.replace(roles)) for dim in index]

    def change(node: Node, rebuilder: Rebuilder) -> Change:
        if isinstance(node.kind, Map) and has(node.kind.function, Fact.COMMUTATIVE):
            return (replace(node, inputs=tuple(sorted(node.inputs, key=order))),)
        return (node,)

    return rebuild(graph, change)


def structure(graph: Graph) -> dict[str, str]:
    """For each value a digest of its computation, down to dtypes and extents of inputs, without names and views."""
    keys, roles = dict[str, str](), roles_of_sizes(graph)
    for node in graph.nodes:
        operands = [keys[name] for name in node.inputs]
        match node.kind:
            case View():
                keys[node.output] = operands[0]
                continue
            case Map(function) if has(function, Fact.COMMUTATIVE):
                what: object = (function, sorted(operands))
            case Map(function):
                what = (function, operands)
            case Reduce(monoid, _):
                what = (monoid, operands)
            case Constant(value):
                what = ("constant", value.tobytes())
            case Input():
                what = [str(dim.replace(roles)) for dim in node.shape if dim != Dim.of(1)]
            case _:
                what = (type(node.kind).__name__, operands)
        keys[node.output] = _digest((what, node.dtype.value))
    return keys


def roles_of_sizes(graph: Graph) -> dict[str, str]:
    """For each size a digest of where inputs bear it: independent of its name, and seldom that of another size."""
    places: dict[str, list[str]] = {}
    for node in graph.inputs:
        rank = sum(dim != Dim.of(1) for dim in node.shape)
        for axis, dim in enumerate(dim for dim in node.shape if dim != Dim.of(1)):
            for name in dim.names:
                text = dim.replace({other: "this" if other == name else "another" for other in dim.names})
                places.setdefault(name, []).append(f"{node.dtype.value} {rank} {axis} {text}")
    return {name: _digest(sorted(where)) for name, where in places.items()}


def contexts(graph: Graph, keys: Mapping[str, str]) -> dict[str, str]:
    """For each value a digest of its uses, up to the outputs; `keys` are the result of `structure`."""
    uses: dict[str, list[str]] = {node.output: [] for node in graph.nodes}
    for name in graph.outputs:
        uses[name].append("output")
    digests: dict[str, str] = {}
    for node in reversed(graph.nodes):
        above = digests[node.output] = _digest(sorted(uses[node.output]))
        for place, name in enumerate(node.inputs):
            match node.kind:
                case View():
                    uses[name] += uses[node.output]
                case Map(function) if has(function, Fact.COMMUTATIVE):
                    uses[name].append(f"{keys[node.output]} {above}")
                case _:
                    uses[name].append(f"{keys[node.output]} {above} {place}")
    return digests


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def order_ends(graph: Graph) -> Graph:
    """Sort outputs by structure, and nodes in the order of a walk down from the outputs."""
    keys, nodes = structure(graph), dict[str, Node]()
    outputs = tuple(sorted(graph.outputs, key=lambda name: (keys[name], graph.outputs.index(name))))
    waiting = [(name, False) for name in reversed(outputs)]
    while waiting:
        name, is_complete = waiting.pop()
        if name in nodes:
            continue
        node = graph[name]
        if is_complete:
            nodes[name] = node
        else:
            waiting.append((name, True))
            waiting += [(operand, False) for operand in reversed(node.inputs)]
    return replace(graph, nodes=tuple(nodes.values()), outputs=outputs)


def own_sizes(graph: Graph, facts: Sequence[Demand] = ()) -> Graph:
    """The graph with each extent of an input that no shape of an input determines as one size, named by its formula;
    the size replaces the formula everywhere. Sizes that must be equal are one. `facts`: demands that hold otherwise."""
    for find in (_one_of_two, _extent):
        while (swap := find(graph, facts)) is not None:
            change = partial(_swap, unit=swap[0], value=swap[1])
            nodes = tuple(with_dims(node, change) for node in graph.nodes)
            facts, graph = _change(facts, change), replace(graph, nodes=nodes, demands=_change(graph.demands, change))
    return graph


def _change(demands: Iterable[Demand], change: Callable[[Dim], Dim]) -> tuple[Demand, ...]:
    """Demands after a swap, without those that surely hold."""
    changed = [replace(demand, left=change(demand.left), right=change(demand.right)) for demand in demands]
    return tuple(demand for demand in changed if demand.left != demand.right)


def _one_of_two(graph: Graph, facts: Sequence[Demand]) -> Swap | None:
    """A size that must equal another one, or a number, and that other. Both are bound by inputs, so that their shapes
    will be compared, or are compared elsewhere: else the equality would be assumed and never checked."""
    bound = bound_sizes(graph.inputs) if graph.demands else frozenset[str]()
    for demand in (*graph.demands, *facts):
        sizes = bound if demand in graph.demands else demand.left.names | demand.right.names
        for one, other in ((demand.left, demand.right), (demand.right, demand.left)):
            fits = str(other) in sizes or (other.constant or -1) >= 0
            if demand.relation == "equal" and str(one) in sizes and fits:
                return one.terms[0][0], other
    return None


def bound_sizes(inputs: Iterable[Node]) -> frozenset[str]:
    """The sizes that the shapes of some inputs bind."""
    shapes = [node.shape for node in inputs if node.dtype is not DType.OTHER]
    return frozenset(binding.size for binding in plan(shapes))


def _extent(graph: Graph, _: Sequence[Demand]) -> Swap | None:
    """The next product of sizes to replace, and its replacement: short formulas first, since others may use them."""
    bound, typed = bound_sizes(graph.inputs), (node for node in graph.inputs if node.dtype is not DType.OTHER)
    extents = [dim for node in typed for dim in node.shape if not dim.names <= bound]
    extents.sort(key=lambda dim: (len(dim.terms), len(dim.terms[0][0]), str(dim)))
    return next((swap for dim in extents for swap in _among(dim, bound)), None)


def _among(dim: Dim, bound: Collection[str]) -> Iterator[Swap]:
    """A product that an extent is a multiple of, as a size; or one of its terms: the extent minus the other terms."""
    for monomial, factor in dim.terms:
        if len(dim.terms) == 1 and factor > 0:
            yield monomial, Dim.of(str(Dim(((monomial, 1),))))
        term = Dim(((monomial, factor),))
        rest = dim - term
        if abs(factor) == 1 and not term.names <= set(bound) and _swap(rest, monomial, Dim.of(0)) == rest:
            yield monomial, (Dim.of(str(dim)) - rest) * factor


def _swap(dim: Dim, unit: Monomial, value: Dim) -> Dim:
    """Replace a product of sizes by a Dim, also within divisions."""
    total, change = Dim.of(0), partial(_swap, unit=unit, value=value)
    for monomial, factor in dim.terms:
        part, left = Dim.of(factor), list(monomial)
        while all(left.count(atom) >= unit.count(atom) for atom in unit):
            part = part * value
            for atom in unit:
                left.remove(atom)
        total = total + product((part, *(with_sides(atom, change) for atom in left)))
    return total


# A value that is compared with its own maximum or minimum must be computed to the same bits in both places. A
# kernel recomputes it rather than keep it, once for its maximum over a row, once for exp(value - maximum). In the
# second place a compiler may round a product in it otherwise: it contracts the product with the difference, and
# half an ulp of a huge value is a huge exponent, so that the greatest cell of a row is not exp(0); or it contracts
# the product with a sum in one place only, because in the other the product is also used by itself, or a branch
# lies between the two, which vector code lacks: then no cell of the row is its maximum. Before a cast to integers,
# or another step function, an ulp is a whole step: grey values would differ from NumPy's, which rounds each product.
_SUMS = (Map("add"), Map("subtract"))


def round_products(graph: Graph) -> Graph:
    """Round each value that is computed with products before its own maximum or minimum is subtracted; products with
    other uses, or beside a choice, before a sum that is compared with its own maximum or minimum; and all products in
    sums before a step function."""
    shared = _operands_fused_once(graph) | _operands_before_steps(graph)

    def change(node: Node, rebuilder: Rebuilder) -> tuple[Node, ...]:
        places = {at for at, _ in enumerate(node.inputs) if (node.output, at) in shared}
        if node.kind == Map("subtract") and (at := _place_of_a_product(node, rebuilder.nodes)) is not None:
            places.add(at)
        before, inputs = list[Node](), list(node.inputs)
        for at in sorted(places):
            rounded = replace(rebuilder.nodes[inputs[at]], kind=Map("rounded"), inputs=(inputs[at],))
            before.append(replace(rounded, output=rebuilder.fresh(node.output)))
            inputs[at] = before[-1].output
        return (*before, replace(node, inputs=tuple(inputs)))

    return rebuild(graph, change)


def _place_of_a_product(node: Node, nodes: Mapping[str, Node]) -> int | None:
    """The place of a difference's operand whose own extreme is the other one, if it has a product; or None."""
    place = _place_beside_extreme(node, nodes)
    if place is None:
        return None
    value = through_views(nodes, node.inputs[place])
    parts = [value.output, *(value.inputs if value.kind in _SUMS else ())]
    return place if any(_origin(part, nodes).kind == Map("multiply") for part in parts) else None


def _place_beside_extreme(node: Node, nodes: Mapping[str, Node]) -> int | None:
    """The place, 0 or 1, of the operand whose maximum or minimum is the other operand; None for neither."""
    if len(node.inputs) != 2 or not nodes[node.inputs[0]].dtype.is_float:
        return None
    one, other = (through_views(nodes, name) for name in node.inputs)
    return 0 if _is_extreme(other, one, nodes) else 1 if _is_extreme(one, other, nodes) else None


def _is_extreme(fold: Node, value: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a value is another's maximum or minimum, or its magnitude's, also guarded: where(isinf(m), 0, m)."""
    visited, waiting = set[str](), [fold]
    while waiting:
        node = waiting.pop()
        if node.output in visited:
            continue
        visited.add(node.output)
        match node.kind:
            case Reduce("max" | "min", _) if any(each is value for each in _strip_sign(node.inputs[0], nodes)):
                return True
            case Map("where" | "maximum" | "minimum" | "negative" | "abs"):
                waiting += (through_views(nodes, name) for name in node.inputs)
            case _:
                pass
    return False


def _strip_sign(name: str, nodes: Mapping[str, Node]) -> list[Node]:
    """A value, and the values of which it is the negative or the magnitude."""
    values = [through_views(nodes, name)]
    while values[-1].kind in (Map("negative"), Map("abs")):
        values.append(through_views(nodes, values[-1].inputs[0]))
    return values


def _origin(name: str, nodes: Mapping[str, Node]) -> Node:
    """The node beneath views and changes of sign, through which a compiler contracts too."""
    node = through_views(nodes, name)
    while node.kind == Map("negative"):
        node = through_views(nodes, node.inputs[0])
    return node


def _operands_fused_once(graph: Graph) -> set[tuple[str, int]]:
    """The operands of sums, by sum and place, that are products, where the other operand is a choice or where the
    product has uses outside the computation of a value that is compared with its own extreme."""
    nodes, places = graph.by_name, set[tuple[str, int]]()
    for node in graph.nodes:
        compares = isinstance(node.kind, Map) and OPERATORS[node.kind.function].is_comparison
        place = _place_beside_extreme(node, nodes) if compares or node.kind == Map("subtract") else None
        if place is not None:
            within = _recomputed_values(node.inputs[place], nodes)
            outside = _products_outside(graph, within)
            for name in within:
                parts = [_origin(part, nodes) for part in _parts(nodes[name])]
                chosen = any(part.kind == Map("where") or isinstance(part.kind, Select) for part in parts)
                products = [part.kind == Map("multiply") and (chosen or part.output in outside) for part in parts]
                places |= {(name, at) for at, is_shared in enumerate(products) if is_shared}
    return places


def _operands_before_steps(graph: Graph) -> set[tuple[str, int]]:
    """The operands of sums, by sum and place, that are products, where a step function follows and every operation
    between them is exact or correctly rounded."""
    nodes, places, visited = graph.by_name, set[tuple[str, int]](), set[str]()
    waiting = [node.inputs[0] for node in graph.nodes if _steps(node, nodes)]
    while waiting:
        node = nodes[waiting.pop()]
        is_rounded = isinstance(node.kind, Map) and not OPERATORS[node.kind.function].ulp
        if node.output not in visited and (is_rounded or isinstance(node.kind, View | Select | Gather)):
            visited.add(node.output)
            waiting += node.inputs
            parts = (_origin(part, nodes) for part in _parts(node))
            places |= {(node.output, at) for at, part in enumerate(parts) if _is_inexact(part, nodes)}
    return places


def _is_inexact(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a value is a product that is rounded; a product with a power of two is not."""
    factors = [through_views(nodes, name).kind for name in node.inputs] if node.kind == Map("multiply") else []
    numbers = [factor.value for factor in factors if isinstance(factor, Constant) and factor.value.size == 1]
    return bool(factors) and all(abs(np.frexp(number.item())[0]) != 0.5 for number in numbers)


def _steps(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a node is a step function of a float."""
    if not isinstance(node.kind, Map) or not nodes[node.inputs[0]].dtype.is_float:
        return False
    return has(node.kind.function, Fact.STEPS) or (node.kind == Map("cast") and not node.dtype.is_float)


def _recomputed_values(name: str, nodes: Mapping[str, Node]) -> set[str]:
    """The values that a kernel recomputes wherever it needs this one, itself among them."""
    values, waiting = set[str](), [name]
    while waiting:
        node = nodes[waiting.pop()]
        if node.output not in values and isinstance(node.kind, Map | View | Select | Gather):
            values.add(node.output)
            waiting += node.inputs
    return values


def _products_outside(graph: Graph, within: set[str]) -> set[str]:
    """The products among some values that others use too."""
    nodes = graph.by_name
    needed = [*graph.outputs, *(name for node in graph.nodes if node.output not in within for name in node.inputs)]
    origins = [_origin(name, nodes) for name in needed if name in within]
    return {node.output for node in origins if node.kind == Map("multiply")}


def _parts(node: Node) -> tuple[str, ...]:
    """The operands of a float sum; empty for other nodes."""
    return node.inputs if node.kind in _SUMS and node.dtype.is_float else ()
