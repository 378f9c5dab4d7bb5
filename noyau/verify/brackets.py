"""Chains of products in other brackets, which multiply other numbers by an infinity in each.

No bracketing is more right than another: each that is tried, three of a chain, is an unfused run like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from string import ascii_letters

from noyau.dtypes import DType
from noyau.ir.dims import Dim, product
from noyau.ir.graph import Contract, Graph, Node

BRACKETS = 3  # of a chain of products: as it is, from its other side, in pairs
CELLS = 1 << 22  # of all terms of a product; of more the order is left as it is
WORK = 1 << 28  # multiplications of a product that another bracketing makes: a tenth of a second
LONG = (DType.F32, DType.F64)  # which overflow seldom enough: in float16 a product of two usual ones is often infinite


def rebracket(graph: Graph, turn: int, sizes: Mapping[str, int]) -> Graph:
    """A graph in which chains of float32 or float64 products, ((a b) c) d, are as they are, a (b (c d)) or (a b) (c d),
    in turns, and those that begin from the right likewise from the left; the same graph where there are none, or where
    at these sizes the other bracketing needs a product of more than CELLS cells, or of more work than WORK."""
    if turn % BRACKETS == 0:
        return graph
    rewriter = _Bracketing(dict(graph.by_name), sizes, once=turn % BRACKETS == 2)
    nodes = [each for node in graph.nodes for each in rewriter.with_fresh(node)]
    return replace(graph, nodes=tuple(nodes)) if len(nodes) > len(graph.nodes) else graph


@dataclass(slots=True)
class _Bracketing:
    """The nodes by name, as they are by now, and those that the last one needs before it. `once`: a product changes
    places with its operand alone, not with what that has become."""

    nodes: dict[str, Node]
    sizes: Mapping[str, int]
    once: bool
    fresh: list[Node] = field(default_factory=list)

    def with_fresh(self, node: Node) -> list[Node]:
        """The node, after those that it needs."""
        self.fresh = []
        replacement = self.rebracket(node)
        if not self.once:
            self.nodes[node.output] = replacement
        return [*self.fresh, replacement]

    def rebracket(self, node: Node) -> Node:
        """The node, as a product whose left operand is none, or else whose right one is none."""
        if not isinstance(node.kind, Contract) or node.dtype not in LONG:
            return node
        return self.rightwards(node, lambda each: each) or self.rightwards(node, _mirror) or node

    def rightwards(self, node: Node, view: Callable[[Node], Node]) -> Node | None:
        """(a b) c as a (b c), or mirrored; None where the operand is no product, or the new inner one is too large."""
        outer = view(node)
        left = self.nodes[outer.inputs[0]]
        if not isinstance(left.kind, Contract) or left.dtype is not node.dtype:
            return None
        left = view(left)
        assert isinstance(left.kind, Contract) and isinstance(outer.kind, Contract)
        terms = three_terms(left.kind.equation, outer.kind.equation)
        if terms is None:
            return None
        first, second, third, output = terms
        shapes = (self.nodes[name].shape for name in (*left.inputs, outer.inputs[1]))
        extents = dict(zip(first + second + third, chain.from_iterable(shapes), strict=True))
        inner = "".join(dict.fromkeys(letter for letter in second + third if letter in first + output))
        if not self.is_small(extents, CELLS, inner) or not self.is_small(extents, WORK, second + third, first + inner):
            return None
        shape = tuple[Dim, ...](extents[letter] for letter in inner)
        name = f"{node.output}, in other brackets, {len(self.fresh)}"
        operands = (left.inputs[1], outer.inputs[1])
        later = view(Node(name, Contract(f"{second},{third}->{inner}"), operands, node.dtype, shape))
        later = later if self.once else self.rebracket(later)
        self.fresh.append(later)
        self.nodes[name] = later
        return view(replace(outer, kind=Contract(f"{first},{inner}->{output}"), inputs=(left.inputs[0], name)))

    def is_small(self, extents: Mapping[str, Dim], most: int, *terms: str) -> bool:
        """Whether the axes of each of some terms together have no more cells; sizes that no input tells are large."""
        cells = [product([extents[letter] for letter in dict.fromkeys(term)]) for term in terms]
        is_bound = all(self.sizes.keys() >= each.names for each in cells)
        return is_bound and all(int(each.evaluate(self.sizes)) <= most for each in cells)


def _mirror(node: Node) -> Node:
    """The same product with its operands in the other order."""
    assert isinstance(node.kind, Contract)
    terms, output = node.kind.equation.split("->")
    first, second = terms.split(",")
    return replace(node, kind=Contract(f"{second},{first}->{output}"), inputs=node.inputs[::-1])


def three_terms(inner: str, outer: str) -> tuple[str, str, str, str] | None:
    """The letters of a, b, c and the result of two einsums, of which the first is the left operand of the second, with
    one name for each axis. None where a term has an axis twice, or there are not enough letters."""
    (first, second), middle = inner.partition("->")[0].split(","), inner.partition("->")[2]
    (product, third), output = outer.partition("->")[0].split(","), outer.partition("->")[2]
    if any(len(set(term)) < len(term) for term in (first, second, middle, product, third, output)):
        return None
    free = iter([letter for letter in ascii_letters if letter not in outer])
    names: Mapping[str, str] = dict(zip(middle, product, strict=True))
    for letter in dict.fromkeys(first + second):
        if letter not in names:
            names = {**names, letter: next(free, "")}
    if not all(names.values()):
        return None
    renamed = ["".join(names[letter] for letter in term) for term in (first, second)]
    return renamed[0], renamed[1], third, output
