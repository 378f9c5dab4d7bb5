"""Output cells that depend on undefined results: those that change when undefined results are replaced."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.graph import Graph, Map, Node
from noyau.ir.graph_interpreter import Evaluator, Numeric
from noyau.ir.operators import Fact, has
from noyau.verify.floats import equal_cells

Arrays = Mapping[str, np.ndarray]


def divides_integers(graph: Graph) -> bool:
    kinds = (node.kind for node in graph.nodes if not node.dtype.is_float)
    return any(isinstance(kind, Map) and has(kind.function, Fact.ZERO_DIVISOR) for kind in kinds)


def shifts_integers(graph: Graph) -> bool:
    """Whether integers are shifted; users' kernels shift by counts below the width only, as C demands."""
    return any(node.kind in (Map("shift_left"), Map("shift_right")) for node in graph.nodes)


def may_be_undefined(graph: Graph) -> bool:
    """Whether integers are divided, or floats are cast to integers."""
    casts = (node for node in graph.nodes if node.kind == Map("cast") and _is_integer(node.dtype))
    return divides_integers(graph) or any(graph[node.inputs[0]].dtype.is_float for node in casts)


def undefined_cells(graph: Graph, inputs: Arrays) -> dict[str, np.ndarray]:
    """For each output, a mask of the cells that depend on an undefined result; {} where the graph has none.

    A cell depends on one if it changes when undefined results get other numbers, at either float width."""
    if not may_be_undefined(graph):
        return {}
    undefined: dict[str, np.ndarray] = {}
    for wide in (False, True):
        first, other = (_replace_undefined(graph, inputs, wide=wide, share=share) for share in (0.0, 0.3))
        for name in graph.outputs:
            one, two = first[name], other[name]  # where either is None, every cell differs
            differs = np.array(True) if one is None or two is None else ~equal_cells(one, two)
            undefined[name] = undefined[name] | differs if name in undefined else differs
    return undefined


def traps(graph: Graph, inputs: Arrays) -> bool:
    """Whether an integer is divided by zero, or the least integer by -1, at which some processors trap."""
    if not divides_integers(graph):
        return False
    replacing = _Replacing(False, _sizes(graph, inputs), 0.0)
    with suppress(InputError), np.errstate(all="ignore"):
        replacing.run(graph, inputs)
    return replacing.algebra.trapped


class _ReplacingNumeric(Numeric):
    """The operator table, with undefined results replaced by a share of the dtype's largest number."""

    def __init__(self, share: float) -> None:
        self.share, self.trapped = share, False

    def call(self, name: str, *operands: Any) -> Any:
        result = super().call(name, *operands)
        if result.dtype.kind not in "iu" or not has(name, Fact.ZERO_DIVISOR):
            return result
        left, right = operands
        trapped = right == 0
        if result.dtype.kind == "i":
            trapped |= (right == -1) & (left == np.iinfo(result.dtype).min)
        self.trapped |= bool(np.any(trapped))
        return self.replace(result, trapped)

    def replace(self, result: np.ndarray, undefined: np.ndarray) -> np.ndarray:
        return np.where(undefined, np.array(int(np.iinfo(result.dtype).max * self.share), result.dtype), result)


class _Replacing(Evaluator):
    """An evaluation in which undefined results are replaced."""

    algebra: _ReplacingNumeric

    def __init__(self, wide: bool, sizes: Mapping[str, int], share: float) -> None:
        super().__init__(wide, sizes)
        self.algebra = _ReplacingNumeric(share)

    def cast(self, value: np.ndarray, node: Node) -> Any:
        result = super().cast(value, node)
        if not _is_integer(node.dtype) or value.dtype.kind in "biu":
            return result
        limits, whole = np.iinfo(node.dtype.numpy), np.trunc(value.astype(np.float64))
        # The limits plus one are exact in float64; the greatest int64 is not.
        return self.algebra.replace(result, ~((whole >= limits.min) & (whole < float(limits.max + 1))))


def _replace_undefined(graph: Graph, inputs: Arrays, *, wide: bool, share: float) -> Mapping[str, np.ndarray | None]:
    """The outputs with undefined results replaced; None for all if an index then leaves its table."""
    try:
        with np.errstate(all="ignore"):
            return _Replacing(wide, _sizes(graph, inputs), share).run(graph, inputs)
    except InputError:
        return dict.fromkeys(graph.outputs)


def _sizes(graph: Graph, inputs: Arrays) -> dict[str, int]:
    return graph.bind([np.shape(inputs[node.output]) for node in graph.inputs])


def _is_integer(dtype: DType) -> bool:
    return dtype.kind in ("int", "uint")
