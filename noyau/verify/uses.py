"""The uses of each value of a graph, and the roles of inputs that follow: masks, positions, numbers under a root."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType
from noyau.ir.dims import Dim, index_name
from noyau.ir.graph import Constant, Contract, Graph, Iota, Map, Node, Opaque, Part, Select, View, names_of
from noyau.ir.graph_interpreter import evaluate
from noyau.ir.operators import OPERATORS, Fact, has
from noyau.ir.sizes import Sizes

_MOST_COMPARED = 1 << 16
WAVES = frozenset({"sin", "cos"})


@dataclass(frozen=True, slots=True)
class Use:
    """A value as an operand of a node."""

    node: Node
    position: int


class Uses:
    """The uses of each value of a graph. `without`: inputs whose values are known."""

    def __init__(self, graph: Graph, sizes: Sizes, without: frozenset[str]) -> None:
        self.graph, self.sizes, self.without = graph, sizes, without

    def is_positive(self, node: Node) -> bool:
        """Whether an input is the operand of a root or a logarithm, directly or shifted by known values."""
        return any(is_under_a_root(use) for use in self.reach(node, self._shifts_by_known))

    @cached_property
    def by_value(self) -> Mapping[str, Sequence[Use]]:
        uses: dict[str, list[Use]] = {node.output: [] for node in self.graph.nodes}
        for node in self.graph.nodes:
            for position, name in enumerate(node.inputs):
                uses[name].append(Use(node, position))
        return uses

    @cached_property
    def known(self) -> frozenset[str]:
        """The values that do not depend on inputs to be made."""
        names = set(self.without)
        for node in self.graph.nodes:
            if isinstance(node.kind, Constant | Iota) or (node.inputs and names.issuperset(node.inputs)):
                names.add(node.output)
        return frozenset(names)

    def is_mask(self, node: Node) -> bool:
        """Whether an input is compared, cast to bool, or the condition of a `where`."""
        return any(
            _is_comparison(use)
            or (_function(use) == "cast" and use.node.dtype is DType.BOOL)
            or (_function(use) == "where" and use.position == 0)
            for use in self.reach(node, keeps)
        )

    def comparison_integers(self, node: Node) -> np.ndarray:
        """The distinct integers that an input is compared with, i64[n]; none if all are 0 or 1, as for masks."""
        numbers = [self._constant_operands(use) for use in self.reach(node, self._wraps) if _is_comparison(use)]
        distinct = np.unique(np.concatenate(numbers)) if numbers else np.empty(0, np.int64)
        return distinct if distinct.size and not 0 <= distinct.min() <= distinct.max() <= 1 else distinct[:0]

    def _constant_operands(self, use: Use) -> np.ndarray:
        """The integer cells of the other operands of a comparison that do not depend on inputs."""
        cells = [np.empty(0, np.int64)]
        for name in set(use.node.inputs) - {use.node.inputs[use.position]}:
            node, part = self.graph[name], ancestry(self.graph, name)
            if isinstance(node.kind, Iota):
                names = node.kind.index.names  # axes that the Iota does not count need only one cell
                shape = (dim if index_name(axis) in names else Dim.of(1) for axis, dim in enumerate(node.shape))
                part = Graph((replace(node, shape=tuple(shape)),), (name,))
            if part is None or part.inputs or not names_of(part) <= self.sizes.keys():
                continue
            numbers = evaluate(part, {}, sizes=self.sizes)[name]
            if numbers.dtype.kind in "iu" and numbers.size <= _MOST_COMPARED:
                cells.append(numbers.ravel().astype(np.int64))
        return np.concatenate(cells)

    def is_position(self, node: Node) -> bool:
        """Whether an input, combined only with known values, is the operand of a sine or cosine."""
        return any(_function(use) in WAVES for use in self.reach(node, self._combines_with_known))

    def reach(self, node: Node, passes: Callable[[Use], bool]) -> Iterator[Use]:
        """The uses of a value and, transitively, of the result of each use that `passes` accepts."""
        pending, names = [node.output], {node.output}
        while pending:
            for use in self.by_value[pending.pop()]:
                yield use
                if passes(use) and use.node.output not in names:
                    names.add(use.node.output)
                    pending.append(use.node.output)

    def _alone(self, use: Use) -> bool:
        """Whether every other operand of the use is known, or is the same value."""
        own = use.node.inputs[use.position]
        return all(name == own or name in self.known for name in use.node.inputs)

    def _combines_with_known(self, use: Use) -> bool:
        return isinstance(use.node.kind, Map | View | Select | Contract | Opaque) and self._alone(use)

    def _wraps(self, use: Use) -> bool:
        """Whether a use keeps an integer up to a known shift or a `where`, which makes a negative index positive."""
        return self._shifts_by_known(use) or (_function(use) == "where" and use.position > 0)

    def _shifts_by_known(self, use: Use) -> bool:
        return keeps(use) or (_function(use) == "add" and self._alone(use))


def _function(use: Use) -> str | None:
    """The scalar function of a use, or None if its node is no Map."""
    return use.node.kind.function if isinstance(use.node.kind, Map) else None


def _is_comparison(use: Use) -> bool:
    return isinstance(use.node.kind, Map) and OPERATORS[use.node.kind.function].is_comparison


def ancestry(graph: Graph, name: str) -> Graph | None:
    """The subgraph that computes a value; None if it contains an Opaque, Part or Contract node."""
    part = drop_unused(Graph(graph.nodes, (name,)), inputs_too=True)
    return None if any(isinstance(node.kind, Opaque | Part | Contract) for node in part.nodes) else part


def is_under_a_root(use: Use) -> bool:
    """Whether a value is the operand of a root or a logarithm."""
    return isinstance(use.node.kind, Map) and has(use.node.kind.function, Fact.OF_POSITIVES)


def keeps(use: Use) -> bool:
    """Whether the result of a use contains the value's numbers unchanged."""
    return isinstance(use.node.kind, View | Select) or _function(use) in ("cast", "identity")
