"""The normal form of a group's graph: the same for every spelling of the same computation; its sizes are named anew.

Digests of how values are computed and used, whatever they are called, give operands their order. Products are rounded
by themselves, not contracted with a sum, from where one rounding more or less is seen."""

from __future__ import annotations

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

LARGEST = 1 << 16  # of the numbers that are taken for a part of a formula, and 1 / LARGEST the least


def normalise(graph: Graph) -> Graph:
    """All passes in order; inputs that nothing needs are gone, the others stand in the order of their first use."""
    simplifying = (fold_constants, compose_views, simplify_algebra, merge_equal, round_products)
    ordering = (lift_scalars, compose_views, merge_equal, order_operands, merge_equal, drop_unused)
    for change in (*simplifying, *ordering):
        graph = change(graph)
    return order_ends(graph)


def lift_scalars(graph: Graph) -> Graph:
    """Float scalars that stand in the model (eps, scale) become inputs, so that groups which differ in them are one
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
    """Commutative operands in the order of what they are made of, then of their uses, whatever they are called."""
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
    """For each value a digest of how it is computed, down to dtypes and extents of inputs, without names and views."""
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
    """For each size a digest of where inputs bear it: the same whatever it is called, and seldom that of another."""
    places: dict[str, list[str]] = {}
    for node in graph.inputs:
        rank = sum(dim != Dim.of(1) for dim in node.shape)
        for axis, dim in enumerate(dim for dim in node.shape if dim != Dim.of(1)):
            for name in dim.names:
                text = dim.replace({other: "this" if other == name else "another" for other in dim.names})
                places.setdefault(name, []).append(f"{node.dtype.value} {rank} {axis} {text}")
    return {name: _digest(sorted(where)) for name, where in places.items()}


def contexts(graph: Graph, keys: Mapping[str, str]) -> dict[str, str]:
    """For each value a digest of what is made of it, up to the outputs; `keys` are those of `structure`."""
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
    """Outputs in the order of their structure, nodes as a walk down from these meets them, whatever order they had."""
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


Swap = tuple[Monomial, Dim]


def own_sizes(graph: Graph, facts: Sequence[Demand] = ()) -> Graph:
    """The graph with each extent of an input that no shape of an input determines as one size, named by its formula;
    wherever else that stands, the size stands too. Sizes that must be equal are one. `facts`: demands met elsewhere."""
    for find in (_one_of_two, _extent):
        while (swap := find(graph, facts)) is not None:
            change = partial(_swap, unit=swap[0], value=swap[1])
            nodes = tuple(with_dims(node, change) for node in graph.nodes)
            facts, graph = _change(facts, change), replace(graph, nodes=nodes, demands=_change(graph.demands, change))
    return graph


def _change(demands: Iterable[Demand], change: Callable[[Dim], Dim]) -> tuple[Demand, ...]:
    """Demands after a swap, without those that are met for certain."""
    changed = [replace(demand, left=change(demand.left), right=change(demand.right)) for demand in demands]
    return tuple(demand for demand in changed if demand.left != demand.right)


def _one_of_two(graph: Graph, facts: Sequence[Demand]) -> Swap | None:
    """A size that must equal another one, or a number, and that other. Inputs bear both, so that their shapes will then
    be compared, or others have compared them: else they would be taken for equal and never looked at."""
    bound = bound_sizes(graph.inputs) if graph.demands else frozenset[str]()
    for demand in (*graph.demands, *facts):
        sizes = bound if demand in graph.demands else demand.left.names | demand.right.names
        for one, other in ((demand.left, demand.right), (demand.right, demand.left)):
            fits = str(other) in sizes or (other.constant or -1) >= 0
            if demand.relation == "equal" and str(one) in sizes and fits:
                return one.terms[0][0], other
    return None


def bound_sizes(inputs: Iterable[Node]) -> frozenset[str]:
    """The sizes that the shapes of some inputs tell."""
    shapes = [node.shape for node in inputs if node.dtype is not DType.OTHER]
    return frozenset(binding.size for binding in plan(shapes))


def _extent(graph: Graph, _: Sequence[Demand]) -> Swap | None:
    """The next product of sizes to be replaced, and what by: short formulas come first, for others may use them."""
    bound, typed = bound_sizes(graph.inputs), (node for node in graph.inputs if node.dtype is not DType.OTHER)
    extents = [dim for node in typed for dim in node.shape if not dim.names <= bound]
    extents.sort(key=lambda dim: (len(dim.terms), len(dim.terms[0][0]), str(dim)))
    swaps = (_single(dim) or next(_among(dim, bound), None) for dim in extents)
    return next(filter(None, swaps), None)


def _single(dim: Dim) -> Swap | None:
    """The product that an extent is a multiple of, as a size."""
    match dim.terms:
        case ((monomial, factor),) if factor > 0:
            return monomial, Dim.of(str(Dim(((monomial, 1),))))
        case _:
            return None


def _among(dim: Dim, bound: Collection[str]) -> Iterator[Swap]:
    """A product that is one of the terms of an extent: the extent as a size, less the other terms."""
    for monomial, factor in dim.terms:
        term = Dim(((monomial, factor),))
        rest = dim - term
        if abs(factor) == 1 and not term.names <= set(bound) and _swap(rest, monomial, Dim.of(0)) == rest:
            yield monomial, (Dim.of(str(dim)) - rest) * factor


def _swap(dim: Dim, unit: Monomial, value: Dim) -> Dim:
    """A Dim in which a Dim stands for a product of sizes, also within divisions."""
    total, change = Dim.of(0), partial(_swap, unit=unit, value=value)
    for monomial, factor in dim.terms:
        part, left = Dim.of(factor), list(monomial)
        while all(left.count(atom) >= unit.count(atom) for atom in unit):
            part = part * value
            for atom in unit:
                left.remove(atom)
        total = total + product((part, *(with_sides(atom, change) for atom in left)))
    return total


# Beside its own maximum or minimum a value has to be the same number. A kernel computes it anew rather than keep
# it, once for its maximum over a row, once for exp(value - maximum). In the second place a compiler may round a
# product in it otherwise than in the first: it fuses the product with the difference, and half an ulp of a huge
# value is a huge exponent, so that the greatest cell of a row is not exp(0); or it fuses the product with a sum in
# one place alone, because in the other one the product is wanted by itself as well, or a branch lies between the
# two, which a vector does not have: no cell of the row is its maximum then. Before a cast to integers, or another
# step, an ulp is a whole step: grey values would differ from NumPy's, which rounds each product.
_SUMS = (Map("add"), Map("subtract"))


def round_products(graph: Graph) -> Graph:
    """Let each value that is computed with products be rounded before its own maximum or minimum is taken off, and
    products that others want as well, or that a choice is added to, before they are parts of a sum that is set beside
    its own maximum or minimum; and all products in sums that a step follows."""
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
    """Find the operand of a difference whose own extreme is the other one, if it is a product or a sum of one."""
    place = _place_beside_extreme(node, nodes)
    if place is None:
        return None
    value = through_views(nodes, node.inputs[place])
    parts = [value.output, *(value.inputs if value.kind in _SUMS else ())]
    return place if any(_origin(part, nodes).kind == Map("multiply") for part in parts) else None


def _place_beside_extreme(node: Node, nodes: Mapping[str, Node]) -> int | None:
    """Find the operand, 0 or 1, of which the other one is the maximum or the minimum; None for neither."""
    if len(node.inputs) != 2 or not nodes[node.inputs[0]].dtype.is_float:
        return None
    one, other = (through_views(nodes, name) for name in node.inputs)
    return 0 if _is_extreme(other, one, nodes) else 1 if _is_extreme(one, other, nodes) else None


def _is_extreme(fold: Node, value: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether it is the value's maximum or minimum, or that of its magnitude, also guarded: where(isinf(m), 0, m)."""
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
    """A value, and what it is the opposite or the magnitude of."""
    values = [through_views(nodes, name)]
    while values[-1].kind in (Map("negative"), Map("abs")):
        values.append(through_views(nodes, values[-1].inputs[0]))
    return values


def _origin(name: str, nodes: Mapping[str, Node]) -> Node:
    """Look through views and changes of sign, which a compiler fuses as well."""
    node = through_views(nodes, name)
    while node.kind == Map("negative"):
        node = through_views(nodes, node.inputs[0])
    return node


def _operands_fused_once(graph: Graph) -> set[tuple[str, int]]:
    """The operands of sums, by the sum and the place, that are products, where a choice is the other operand or where
    the product is also wanted outside of what a value that stands beside its own extreme is computed from."""
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
    """The operands of sums, by the sum and the place, that are products, where a step follows, with nothing before it
    that is inexact by more than a rounding."""
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
    """Whether a value is a product that is rounded, as none by a power of two is."""
    factors = [through_views(nodes, name).kind for name in node.inputs] if node.kind == Map("multiply") else []
    numbers = [factor.value for factor in factors if isinstance(factor, Constant) and factor.value.size == 1]
    return bool(factors) and all(abs(np.frexp(number.item())[0]) != 0.5 for number in numbers)


def _steps(node: Node, nodes: Mapping[str, Node]) -> bool:
    """Whether a value of a float is constant between its jumps."""
    if not isinstance(node.kind, Map) or not nodes[node.inputs[0]].dtype.is_float:
        return False
    return has(node.kind.function, Fact.STEPS) or (node.kind == Map("cast") and not node.dtype.is_float)


def _recomputed_values(name: str, nodes: Mapping[str, Node]) -> set[str]:
    """The values that a kernel computes anew wherever it needs this one, with it."""
    values, waiting = set[str](), [name]
    while waiting:
        node = nodes[waiting.pop()]
        if node.output not in values and isinstance(node.kind, Map | View | Select | Gather):
            values.add(node.output)
            waiting += node.inputs
    return values


def _products_outside(graph: Graph, within: set[str]) -> set[str]:
    """The products among some values that something else needs too."""
    nodes = graph.by_name
    needed = [*graph.outputs, *(name for node in graph.nodes if node.output not in within for name in node.inputs)]
    origins = [_origin(name, nodes) for name in needed if name in within]
    return {node.output for node in origins if node.kind == Map("multiply")}


def _parts(node: Node) -> tuple[str, ...]:
    """The operands of a sum."""
    return node.inputs if node.kind in _SUMS and node.dtype.is_float else ()
