"""Sizes of a computation, derived from the shapes of its inputs, and the demands that they obey."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from noyau.errors import InputError
from noyau.ir.dims import Dim, Shape


@dataclass(frozen=True, slots=True)
class Binding:
    """size = (extent of `axis` of input `input` - offset) // factor, where `offset` names sizes bound before.

    An axis from the input's rank on stands for the stride, in elements, of the axis that is so much less: a kernel is
    bound by the extents of an input followed by its strides."""

    size: str
    input: int
    axis: int
    offset: Dim
    factor: int


@dataclass(frozen=True, slots=True)
class Demand:
    """Relation of two extents that a computation needs to mean anything, and that does not follow from its shapes.

    `relation`: "equal"; "broadcast", equal or one of them 1 and the other not 0; "at most", the left one not above the
    right one."""

    left: Dim
    right: Dim
    relation: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds where the sizes are known; where one is not, nothing speaks against it."""
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
    """InputError where sizes do not fit together."""
    for demand in demands:
        if not demand.holds(sizes):
            listing = ", ".join(f"{size}={value}" for size, value in sizes.items())
            raise InputError(f"the inputs do not fit together: {demand} does not hold where {listing}")


def plan(shapes: Sequence[Shape]) -> tuple[Binding, ...]:
    """One Binding for each size that the shapes determine, in an order in which they can be solved."""
    return _plan(tuple(shapes))


@lru_cache(maxsize=1024)
def _plan(shapes: tuple[Shape, ...]) -> tuple[Binding, ...]:
    bound: dict[str, Binding] = {}
    places = [(k, axis, dim) for k, shape in enumerate(shapes) for axis, dim in enumerate(shape)]
    progress = True
    while progress:
        progress = False
        for k, axis, dim in places:
            binding = _solve(k, axis, dim, bound)
            if binding is not None:
                bound[binding.size] = binding
                progress = True
    return tuple(bound.values())


def _solve(position: int, axis: int, dim: Dim, bound: Collection[str]) -> Binding | None:
    """The Binding of the one size of `dim` that is not bound yet, where it stands alone and linear."""
    unknown = [name for name in dim.names if name not in bound]
    if len(unknown) != 1:
        return None
    factor = dict(dim.terms).get((unknown[0],), 0)
    offset = dim - Dim.of(unknown[0]) * factor
    if factor <= 0 or unknown[0] in offset.names:
        return None
    return Binding(unknown[0], position, axis, offset, factor)


def bind(shapes: Sequence[Shape], actual: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, int]:
    """The sizes, from the actual shapes of the inputs. InputError where they do not fit; the message has `names`."""
    for shape, got, name in zip(shapes, actual, names, strict=True):
        if len(shape) != len(got):
            raise InputError(f"{name} has rank {len(got)} {tuple(got)}, but its shape is {_spell(shape)}")
    sizes: dict[str, int] = {}
    for binding in plan(shapes):
        extent = actual[binding.input][binding.axis]
        sizes[binding.size] = (extent - binding.offset.evaluate(sizes)) // binding.factor
    for shape, got, name in zip(shapes, actual, names, strict=True):
        _check(shape, got, name, sizes)
    return sizes


def extend(sizes: Mapping[str, int], shape: Shape, actual: Sequence[int], name: str) -> dict[str, int]:
    """The sizes, with those that the actual shape of one more value binds. InputError where it does not fit."""
    if len(shape) != len(actual):
        raise InputError(f"{name} has rank {len(actual)} {tuple(actual)}, but its shape is {_spell(shape)}")
    extended = dict(sizes)
    for _ in shape:
        for axis, dim in enumerate(shape):
            binding = _solve(0, axis, dim, extended)
            if binding is not None:
                extended[binding.size] = (actual[axis] - binding.offset.evaluate(extended)) // binding.factor
    _check(shape, actual, name, extended)
    return extended


def _check(shape: Shape, actual: Sequence[int], name: str, sizes: Mapping[str, int]) -> None:
    for dim, extent in zip(shape, actual, strict=True):
        bound = dim.names <= sizes.keys()
        if bound and (dim.evaluate(sizes) != extent or min((sizes[size] for size in dim.names), default=0) < 0):
            listing = ", ".join(f"{size}={value}" for size, value in sizes.items())
            raise InputError(f"{name} has shape {tuple(actual)}, which does not fit {_spell(shape)} where {listing}")


def _spell(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
