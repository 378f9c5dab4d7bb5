"""Sizes of a computation, from the shapes of its inputs, the demands that they obey, and sizes without a number."""

import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from noyau.errors import InputError
from noyau.ir.dims import Dim, DimLike, Shape

Sizes = Mapping[str, int]  # the numbers of named sizes
Operation = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """size = (extent of `axis` of input `input` - offset) // factor, where `offset` names sizes bound before.

    An `axis` of the input's rank or more stands for the stride, in elements, of axis - rank: a kernel is bound to the
    extents of an input followed by its strides."""

    size: str
    input: int
    axis: int
    offset: Dim
    factor: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Relation of two extents that a computation requires and that its shapes do not imply.

    `relation`: "equal"; "broadcast", equal or one of them 1 and the other not 0; "at most", left not above right."""

    left: Dim
    right: Dim
    relation: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether the relation holds at these sizes; True where a size is not known."""
        if not self.left.names | self.right.names <= sizes.keys():
            return True
        try:
            left, right = self.left.evaluate(sizes), self.right.evaluate(sizes)
        except ZeroDivisionError:
            return False
        match self.relation:
            case "equal":
                return bool(left == right)
            case "broadcast":
                return bool(left == right or (left == 1 and right != 0) or (right == 1 and left != 0))
            case _:
                return bool(left <= right)

    def __str__(self) -> str:
        words = {"equal": "{} = {}", "broadcast": "{} = {}, or one of them 1", "at most": "{} <= {}"}
        return words[self.relation].format(self.left, self.right)


def require(demands: Iterable[Demand], sizes: Mapping[str, int]) -> None:
    """Raise InputError where sizes violate a demand."""
    for demand in demands:
        if not demand.holds(sizes):
            raise InputError(f"the inputs do not fit together: {demand} does not hold where {listing_of(sizes)}")


def listing_of(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{size}={value}" for size, value in sizes.items())


def extents_at(sizes: Mapping[str, int], shape: Shape) -> tuple[int, ...]:
    """The extents of a shape as numbers."""
    return tuple(int(dim.evaluate(sizes)) for dim in shape)


def cells_at(sizes: Mapping[str, int], shape: Shape) -> int:
    """The number of cells of a shape; 0 where an extent divides by 0."""
    try:
        return math.prod(extents_at(sizes, shape))
    except ZeroDivisionError:
        return 0


def plan(shapes: Sequence[Shape]) -> tuple[Binding, ...]:
    """One Binding for each size that the shapes determine, in an order in which they can be solved."""
    return _plan(tuple(shapes))


@lru_cache(maxsize=1024)
def _plan(shapes: tuple[Shape, ...]) -> tuple[Binding, ...]:
    bound: dict[str, Binding] = {}
    places = [(k, axis, dim) for k, shape in enumerate(shapes) for axis, dim in enumerate(shape)]
    count = -1
    while len(bound) > count:
        count = len(bound)
        for k, axis, dim in places:
            if (binding := _solve(k, axis, dim, bound)) is not None:
                bound[binding.size] = binding
    return tuple(bound.values())


def _solve(position: int, axis: int, dim: Dim, bound: Collection[str]) -> Binding | None:
    """The Binding of the only unbound size of `dim`, if `dim` is linear in it; else None."""
    unknown = [name for name in dim.names if name not in bound]
    if len(unknown) != 1:
        return None
    factor = dict(dim.terms).get((unknown[0],), 0)
    offset = dim - Dim.of(unknown[0]) * factor
    is_linear = factor > 0 and unknown[0] not in offset.names
    return Binding(unknown[0], position, axis, offset, factor) if is_linear else None


def bind(shapes: Sequence[Shape], actual: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, int]:
    """The sizes, from the actual shapes of the inputs. InputError where they do not fit; the message has `names`."""
    for shape, got, name in zip(shapes, actual, names, strict=True):
        if len(shape) != len(got):
            raise InputError(f"{name} has rank {len(got)} {tuple(got)}, but its shape is {_spell(shape)}")
    sizes: dict[str, int] = {}
    for binding in plan(shapes):
        sizes[binding.size] = (actual[binding.input][binding.axis] - binding.offset.evaluate(sizes)) // binding.factor
    for shape, got, name in zip(shapes, actual, names, strict=True):
        _check(shape, got, name, sizes)
    return sizes


def extend(sizes: Mapping[str, int], shape: Shape, actual: Sequence[int], name: str) -> dict[str, int]:
    """The sizes, and those bound by the actual shape of one more value. InputError where it does not fit."""
    if len(shape) != len(actual):
        raise InputError(f"{name} has rank {len(actual)} {tuple(actual)}, but its shape is {_spell(shape)}")
    extended = dict(sizes)
    for _ in shape:
        for axis, dim in enumerate(shape):
            if (binding := _solve(0, axis, dim, extended)) is not None:
                extended[binding.size] = (actual[axis] - binding.offset.evaluate(extended)) // binding.factor
    _check(shape, actual, name, extended)
    return extended


def _check(shape: Shape, actual: Sequence[int], name: str, sizes: Mapping[str, int]) -> None:
    for dim, extent in zip(shape, actual, strict=True):
        bound = dim.names <= sizes.keys()
        if bound and (dim.evaluate(sizes) != extent or min((sizes[size] for size in dim.names), default=0) < 0):
            fault = f"{name} has shape {tuple(actual)}, which does not fit {_spell(shape)}"
            raise InputError(f"{fault} where {listing_of(sizes)}")


def _spell(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _operation(apply: Callable[[Dim, Dim], Dim]) -> tuple[Operation, Operation]:
    """The methods of a Size for an operation of Dims, with the size on the left and on the right."""

    def forwards(size: Any, other: Any) -> Any:
        return size.like(apply(size.dim, dim_of(other))) if is_whole(other) else NotImplemented

    def backwards(size: Any, other: Any) -> Any:
        return size.like(apply(dim_of(other), size.dim)) if is_whole(other) else NotImplemented

    return forwards, backwards


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """An integer of which only the Dim is known: it has +, -, *, // and %.

    Comparisons and conversions to a number raise TypeError: the answer would hold for one call alone. A subclass may
    override `like`, which wraps results of arithmetic."""

    dim: Dim

    def like(self, dim: Dim) -> Any:
        """Wrap a value that is calculated from this size."""
        return Size(dim)

    __add__, __radd__ = _operation(operator.add)
    __sub__, __rsub__ = _operation(operator.sub)
    __mul__, __rmul__ = _operation(operator.mul)
    __floordiv__, __rfloordiv__ = _operation(operator.floordiv)
    __mod__, __rmod__ = _operation(operator.mod)

    def __neg__(self) -> Any:
        return self.like(-self.dim)

    def __eq__(self, other: object) -> Any:
        raise TypeError(f"{self.dim} is compared, and it has no number yet")

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> Any:
        raise TypeError(f"it is asked whether {self.dim} is 0, and it has no number yet")

    def __index__(self) -> Any:
        raise TypeError(f"{self.dim} is asked for its number, and it has none yet")

    __int__ = __float__ = __index__

    def __truediv__(self, other: Any) -> Any:
        if not is_whole(other) and not isinstance(other, float):
            return NotImplemented
        raise TypeError(f"{self.dim} is divided with /; use //")

    __rtruediv__ = __truediv__


def is_whole(value: Any) -> bool:
    """Whether a value is an integer or a Size."""
    return isinstance(value, int | Size | np.integer) and not isinstance(value, bool)


def size_of(dim: DimLike) -> int | Size:
    """A Dim as its number, or as a Size where it has none."""
    size = Dim.of(dim)
    return Size(size) if size.constant is None else size.constant


def dim_of(value: Any) -> Dim:
    """The Dim of a value that a user's function calculated. TypeError for a value that is no integer."""
    if isinstance(value, Size):
        return value.dim
    if not is_whole(value):
        raise TypeError(f"{value!r} is no integer")
    return Dim.of(value)
