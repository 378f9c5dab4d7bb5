"""The tape of a NumPy trace: a graph builder that answers questions about sizes, and records answers as demands."""

import functools
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from noyau.compiler.passes.algebra import MOST_EXTENT, extents_of_product
from noyau.compiler.passes.rewrite import through_views
from noyau.dtypes import DType, from_numpy
from noyau.errors import UnsupportedError
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, DimLike, equal, never_negative, product
from noyau.ir.graph import Map, Node, Select
from noyau.ir.monoids import MONOIDS
from noyau.ir.operators import OPERATORS
from noyau.ir.sizes import Demand

NUMPY_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0b1"  # its result dtypes depend on numbers
FEW = 257  # an axis of fewer cells may have its extent in the key of a trace
MOST_NODES = 5_000  # a loop over cells, which a trace unrolls, would add more


class Retrace(BaseException):
    """Restart the trace with numbers, or with other names, for some names of sizes. It is no Exception, so that the
    function's own handlers do not catch it."""

    def __init__(self, numbers: Mapping[str, int | str]) -> None:
        super().__init__()
        self.known = numbers


class Tape(GraphBuilder):
    """The nodes of a traced function, and the demands on sizes under which they compute what NumPy computes.

    `sizes`: the numbers of sizes in the traced call, where they are known. `merging`: two names of one size become one
    name, instead of a demand. `most_nodes`: the limit of nodes."""

    most_nodes = MOST_NODES

    def __init__(self, sizes: Mapping[str, int] | None = None, *, merging: bool = False) -> None:
        super().__init__()
        self.sizes: Mapping[str, int] = sizes or {}
        self.merging = merging
        self.refused: UnsupportedError | None = None  # the first refusal, even if the function caught it

    def add(self, node: Node) -> Node:
        if len(self.nodes) >= self.most_nodes:
            loops = f"it takes more than {self.most_nodes} steps, as loops are unrolled"
            raise UnsupportedError(f"{loops}; write it without a loop over cells")
        return super().add(node)

    def reduce(self, monoid: str, value: Node, axes: Sequence[int], *, keep: bool = False) -> Node:
        """Reduce over axes; a reduction of a few stacked arrays is a chain of the monoid's function, without a loop."""
        kind, law, names, dtype = value.kind, MONOIDS[monoid], value.inputs, value.dtype
        few = isinstance(kind, Select) and (*axes,) == (kind.axis,) and value.shape[kind.axis] == Dim.of(len(names))
        # The passes need the Reduce to see that a product beside its own maximum has to be rounded.
        beside = law.chooses and any(isinstance(through_views(self.by_name, name).kind, Map) for name in names)
        kinds = OPERATORS[law.function].accepts & law.accepts if law.is_arithmetic or monoid in ("any", "all") else ()
        if not few or len(names) > 64 or beside or dtype.kind not in kinds or dtype.compute is not dtype:
            return super().reduce(monoid, value, axes, keep=keep)
        result = functools.reduce(functools.partial(self.call, law.function), map(self.by_name.__getitem__, names))
        return result if keep else self.drop_axes(result, axes)

    def contract(self, equation: str, operands: Sequence[Node]) -> Node:
        """An einsum; where it is small in this call, the extents that make it small become numbers: those of both sides
        in a batch, else of one, so that a product with few columns is one trace for any number of rows."""
        node = super().contract(equation, operands)
        summed, sides = extents_of_product(node, self.by_name)
        known = self.number_of(sum(sides, summed)) is not None and sides != (Dim.of(1), Dim.of(1))
        if known and self.at_most(summed, MOST_EXTENT):
            by_need = sorted(sides, key=lambda side: (side.constant is None, side is sides[0]))
            few = (side for side in by_need if self.at_most(side, MOST_EXTENT))
            if needs := [*islice(few, 1 if product(node.shape) == product(sides) else 2)]:
                self.settle(sum(needs, summed))
        return node

    def broadcast_dims(self, dims: Sequence[Dim]) -> Dim:
        """The broadcast extent of several; a size that only happens to be 1 in this call becomes a number."""
        large = [dim for dim in dims if dim != Dim.of(1)]
        for other in large[1:]:
            pair = self.number_of(large[0]), self.number_of(other)
            if equal(large[0], other) is not True and None not in pair and pair[0] != pair[1] and 1 in pair:
                self.settle(large[0] if pair[0] == 1 else other)
            self.demand_equal(large[0], other)
        return super().broadcast_dims(dims)

    def demand_equal(self, left: DimLike, right: DimLike) -> None:
        left, right = Dim.of(left), Dim.of(right)
        numbers = self.number_of(left), self.number_of(right)
        if equal(left, right) is None:
            if None not in numbers and numbers[0] != numbers[1]:
                self.at_most(left, right)  # records the relation that is wrong
                self.at_most(right, left)
                both = f"{left} and {right} at once, here {numbers[0]} and {numbers[1]}"
                raise UnsupportedError(f"shapes do not fit: an extent is {both}")
            self._merge(left, right)
        super().demand_equal(left, right)

    def _merge(self, left: Dim, right: Dim) -> None:
        """With `merging`, restart the trace with one name for two sizes, or with a number in the place of a name."""
        if not self.merging:
            return
        one, other = (min(dim.names, default="") for dim in (left, right))
        bare = [name for name, dim in ((one, left), (other, right)) if name and dim == Dim.of(name)]
        if len(bare) == 2:
            raise Retrace({max(bare): min(bare)})
        constant = left.constant if left.constant is not None else right.constant
        if bare and constant is not None:
            raise Retrace({bare[0]: constant})

    def demand_at_most(self, left: DimLike, right: DimLike) -> None:
        left, right = Dim.of(left), Dim.of(right)
        number = self.number_of(right - left)
        if number is not None and number < 0:
            self.demands[Demand(right + 1, left, "at most")] = None  # the relation that is wrong
            raise UnsupportedError(f"it needs {left} to be at most {right}")
        super().demand_at_most(left, right)

    def at_most(self, left: DimLike, right: DimLike, usual: bool | None = None) -> bool:
        """Whether `left` is at most `right`. If that depends on the sizes, the answer is that of the traced call, or
        `usual` if its sizes are unknown, and becomes a demand. TypeError without either."""
        left, right = Dim.of(left), Dim.of(right)
        room = right - left
        if room.constant is not None or never_negative(room) or never_negative(-room - 1):
            return never_negative(room)
        number = self.number_of(room)
        answer = usual if number is None else number >= 0
        if answer is None:
            raise TypeError(f"{left} is compared with {right}, and it has no number yet")
        self.demands[Demand(left, right, "at most") if answer else Demand(right + 1, left, "at most")] = None
        return answer

    def number_of(self, dim: Dim) -> int | None:
        """The number of a Dim in the traced call, if its sizes are known."""
        return int(dim.evaluate(self.sizes)) if dim.names <= self.sizes.keys() else None

    def settle_few(self, dim: Dim) -> None:
        """Settle a size that is small in the traced call, so that loops have a constant extent."""
        if (self.number_of(dim) or FEW) < FEW:
            self.settle(dim)

    def settle(self, dim: Dim) -> int:
        """The number of a size. A symbolic size restarts the trace with numbers for its names; TypeError where these
        are unknown."""
        if dim.constant is not None:
            return dim.constant
        if not dim.names <= self.sizes.keys():
            raise TypeError(f"{dim} is asked for its number, and it has none yet")
        raise Retrace({name: self.sizes[name] for name in sorted(dim.names)})


def dtype_from(dtype: Any) -> DType:
    """The DType for an argument that NumPy takes as a dtype. UnsupportedError where noyau has none."""
    try:
        equivalent = from_numpy(np.dtype(dtype))
    except TypeError:
        equivalent = None
    if equivalent is None or equivalent is DType.OTHER:
        known = "f16, bf16, f32, f64, four float8, integers and bool are"
        raise UnsupportedError(f"there is no dtype for {dtype!r} here: {known}")
    return equivalent
