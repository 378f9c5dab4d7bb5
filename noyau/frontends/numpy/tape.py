"""The tape of a NumPy trace: a graph builder that answers questions about sizes, or demands the answers."""

from __future__ import annotations

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

NUMPY_1 = np.lib.NumpyVersion(np.__version__) < "2.0.0b1"  # its dtypes hang on numbers
FEW = 257  # cells of an axis, with fewer of which its length may be a part of the key
MOST_NODES = 5_000  # a loop over cells that is traced step by step would make more


class Retrace(BaseException):
    """The trace begins again with some sizes as numbers, or with one name for two of them. It passes through whatever
    the function catches, so it is no Exception."""

    def __init__(self, numbers: Mapping[str, int | str]) -> None:
        super().__init__()
        self.known = numbers


class Tape(GraphBuilder):
    """The nodes of a traced function, and what sizes must obey for them to mean what NumPy means.

    `sizes`: what they are in the call that is traced for, where that is known. `merging`: two names of one size become
    one name, instead of a demand. `most_nodes`: how many steps it takes."""

    most_nodes = MOST_NODES

    def __init__(self, sizes: Mapping[str, int] | None = None, *, merging: bool = False) -> None:
        super().__init__()
        self.sizes: Mapping[str, int] = sizes or {}
        self.merging = merging
        self.refused: UnsupportedError | None = None  # the first, also where the function caught it

    def add(self, node: Node) -> Node:
        if len(self.nodes) >= self.most_nodes:
            loops = f"it takes more than {self.most_nodes} steps, as loops are unrolled"
            raise UnsupportedError(f"{loops}; write it without a loop over cells")
        return super().add(node)

    def reduce(self, monoid: str, value: Node, axes: Sequence[int], *, keep: bool = False) -> Node:
        """A monoid over axes; of a few arrays that are stacked, its function one by one, which needs no loop."""
        kind, law, names = value.kind, MONOIDS[monoid], value.inputs
        few = isinstance(kind, Select) and (*axes,) == (kind.axis,) and value.shape[kind.axis] == Dim.of(len(names))
        # The passes know by the Reduce that a product which stands beside its own maximum has to be rounded.
        beside = law.chooses and any(isinstance(through_views(self.by_name, name).kind, Map) for name in names)
        fits = law.is_arithmetic and value.dtype.kind in OPERATORS[law.function].accepts & law.accepts
        if not few or len(names) > 64 or beside or not fits or value.dtype.compute is not value.dtype:
            return super().reduce(monoid, value, axes, keep=keep)
        result = functools.reduce(functools.partial(self.call, law.function), map(self.by_name.__getitem__, names))
        return result if keep else self.drop_axes(result, axes)

    def contract(self, equation: str, operands: Sequence[Node]) -> Node:
        """An einsum; where it is small in this call, the extents that make it so are asked for. Without an axis of both
        and of the result, one side is enough: what has few columns is traced for any number of rows."""
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
        """The extent that NumPy gives several; one that only happens to be 1 in this call becomes a number."""
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
                self.at_most(left, right)  # what it fails by
                self.at_most(right, left)
                both = f"{left} and {right} at once, here {numbers[0]} and {numbers[1]}"
                raise UnsupportedError(f"shapes do not fit: an extent is {both}")
            self._merge(left, right)
        super().demand_equal(left, right)

    def _merge(self, left: Dim, right: Dim) -> None:
        """Begin again, where names may be merged, with one name for both, or with the number that a size must be."""
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
            self.demands[Demand(right + 1, left, "at most")] = None  # what it fails by
            raise UnsupportedError(f"it needs {left} to be at most {right}")
        super().demand_at_most(left, right)

    def at_most(self, left: DimLike, right: DimLike, usual: bool | None = None) -> bool:
        """Whether `left` is at most `right`. Where that depends on the sizes, it is as in the call that is traced for,
        or `usual` without one, and becomes a demand. TypeError where nothing tells."""
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
        """Its number in the call that is traced for, where that is known."""
        return int(dim.evaluate(self.sizes)) if dim.names <= self.sizes.keys() else None

    def settle_few(self, dim: Dim) -> None:
        """Ask for the number of a size where it is small in the call that is traced for: loops then know it."""
        if (self.number_of(dim) or FEW) < FEW:
            self.settle(dim)

    def settle(self, dim: Dim) -> int:
        """The number that a size is; where it only has a name, the trace begins again with numbers for its names.
        TypeError where they are not known."""
        if dim.constant is not None:
            return dim.constant
        if not dim.names <= self.sizes.keys():
            raise TypeError(f"{dim} is asked for its number, and it has none yet")
        raise Retrace({name: self.sizes[name] for name in sorted(dim.names)})


def dtype_from(dtype: Any) -> DType:
    """The DType of what NumPy takes for one. UnsupportedError where noyau has none."""
    try:
        equivalent = from_numpy(np.dtype(dtype))
    except TypeError:
        equivalent = None
    if equivalent is None or equivalent is DType.OTHER:
        known = "f16, bf16, f32, f64, four float8, integers and bool are"
        raise UnsupportedError(f"there is no dtype for {dtype!r} here: {known}")
    return equivalent
