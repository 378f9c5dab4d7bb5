"""The tables that an integer input indexes, and the range of indices that is valid for all of them."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError, OutsideError
from noyau.ir.dims import Dim
from noyau.ir.graph import Gather, Graph, Lookup, Map, Node, Scatter
from noyau.ir.graph_interpreter import evaluate
from noyau.verify.patterns import Array
from noyau.verify.uses import Use, Uses, ancestry, keeps

Arrays = Mapping[str, np.ndarray]
Tables = Sequence["LookupTable"]  # that one input indexes
SHIFTS = frozenset({"identity", "cast", "add", "subtract", "minimum", "maximum", "floor_mod", "where"})
INTEGERS = ("int", "uint")
ROUNDS = 4  # attempts to fit the range of an input to the tables that it indexes


@dataclass(frozen=True, slots=True)
class LookupTable:
    """An axis that a value indexes: the value named `index` must be in [0, extent); `name`: the indexed value."""

    index: str
    extent: int
    name: str


def tables_of(uses: Uses, node: Node) -> list[LookupTable]:
    """Every table that an integer input indexes, directly or after a shift, a wrap, a slice or a rearrangement."""
    if node.dtype.kind not in ("int", "uint"):
        return []
    return [table for use in uses.reach(node, _shifts) for table in _lookups(uses, use)]


def _lookups(uses: Uses, use: Use) -> Iterator[LookupTable]:
    if not isinstance(use.node.kind, Gather | Scatter):
        return
    target = uses.graph[use.node.inputs[0]]
    for dim, entry in zip(target.shape, use.node.kind.index, strict=True):
        if isinstance(entry, Lookup) and entry.input == use.position:
            extent = int(dim.evaluate(uses.sizes)) if dim.names <= uses.sizes.keys() else 1
            yield LookupTable(use.node.inputs[use.position], extent, target.output)


def lookups(graph: Graph) -> Iterator[tuple[str, Dim]]:
    """Each value that indexes an axis of another, with the extent of that axis."""
    for node in graph.nodes:
        for axis, place in enumerate(node.kind.index if isinstance(node.kind, Gather | Scatter) else ()):
            if isinstance(place, Lookup):
                yield node.inputs[place.input], graph[node.inputs[0]].shape[axis]


def require_inside(
    graph: Graph, sizes: Mapping[str, int], array: Callable[[str], Array], called: str, kinds: Container[str] = INTEGERS
) -> None:
    """OutsideError where an index that depends only on inputs of these kinds is outside its axis; `array` reads an
    input by name, and is called only for inputs of such indices."""
    for name, dim in lookups(graph):
        part = ancestry(graph, name)
        if part is None or not all(node.dtype.kind in kinds for node in part.inputs):
            continue
        index = evaluate(part, {node.output: array(node.output) for node in part.inputs}, sizes=sizes)[name]
        low, high, extent = index.min(initial=0), index.max(initial=-1), dim.evaluate(sizes)
        if low < 0 or high >= extent:
            at = f"an index is {low if low < 0 else high}, counted from the front"
            raise OutsideError(f"{called}: {at}, and the axis that it looks into has {extent}")


def is_searched(graph: Graph, table: Node) -> bool:
    """Whether comparisons with a table's cells select the next index, as in a binary search; it must then be sorted."""
    same, read, decided = {table.output}, set[str](), set[str]()
    for node in graph.nodes if len(table.shape) == 1 else ():
        if isinstance(node.kind, Gather) and node.inputs[0] in same:
            if decided.intersection(node.inputs):
                return True
            read.add(node.output)
        elif decided.intersection(node.inputs) or (node.dtype is DType.BOOL and read.intersection(node.inputs)):
            decided.add(node.output)
        elif keeps(Use(node, 0)) and node.inputs[0] in same | read:
            (same if node.inputs[0] in same else read).add(node.output)
    return False


def _shifts(use: Use) -> bool:
    """Whether the result of a use is still an index: the same integer up to an offset, a wrap or a bound."""
    if use.node.dtype.kind not in ("int", "uint"):
        return False
    match use.node.kind:
        case Map("where"):
            return use.position > 0
        case Map(function):
            return function in SHIFTS
        case Gather() | Scatter():
            return use.position == 0
        case _:
            return keeps(use)


def index_range(uses: Uses, node: Node, shape: Sequence[int], tables: Tables, others: Arrays) -> tuple[int, int]:
    """A range of input values whose ends become valid indices of each table; [0, 1) if none is found."""
    low, high = 0, min(np.iinfo(node.dtype.numpy).max + 1, *(table.extent for table in tables))
    for _ in range(ROUNDS):
        ends = [np.full(shape, end, node.dtype.numpy) for end in (low, high - 1)]
        raised, lowered = [_excess(uses, tables, {**others, node.output: end}) for end in ends]
        if raised == lowered == 0:
            return low, high
        low, high = low + raised, high - lowered
        if low >= high:
            break
    return 0, 1


def _excess(uses: Uses, tables: Tables, arrays: Arrays) -> int:
    """The largest distance of an index outside its table, over the indices that the arrays determine."""
    worst = 0
    for table in tables:
        part = ancestry(uses.graph, table.index)
        missing = () if part is None else [node for node in part.inputs if node.output not in arrays]
        if part is None or not all(node.dtype.kind in INTEGERS for node in missing):
            continue
        # Integers that are drawn later are fitted to those that are there, which leave them 0.
        later = {
            each.output: np.zeros([dim.evaluate(uses.sizes) for dim in each.shape], each.dtype.numpy)
            for each in missing
        }
        try:
            index = evaluate(part, {**arrays, **later}, sizes=uses.sizes)[table.index].astype(np.int64)
        except InputError:  # an intermediate index leaves its table
            continue
        if index.size:
            worst = max(worst, -int(index.min()), int(index.max()) - table.extent + 1)
    return worst
