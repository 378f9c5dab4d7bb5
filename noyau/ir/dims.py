"""Dims: integer polynomials of named sizes and indices, with floor division, modulo and max.

A `Dim` is in normal form from the moment it is made, so `==` is equality of normal forms. Shapes are
tuples of Dims; so are index maps, whose names begin with `#` (`#0` is the index along axis 0), a sign
that no size may bear. Sizes are never negative."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import mul
from typing import Any, TypeAlias, Union

import numpy as np

Atom: TypeAlias = Union[str, "DimOp"]
Monomial: TypeAlias = tuple[Atom, ...]
_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DimOp:
    """Floor division, modulo or max of two Dims: an atom of a polynomial."""

    kind: str
    left: Dim
    right: Dim

    def __str__(self) -> str:
        if self.kind == "max":
            return f"max({self.left}, {self.right})"
        return f"({self.left}){'//' if self.kind == 'floordiv' else '%'}({self.right})"


@dataclass(frozen=True, slots=True)
class Dim:
    """A sum of integer multiples of monomials: `Dim.of("n") * 2 + 1`."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(value: DimLike | DimOp) -> Dim:
        """The Dim of an integer, a name, an operation or a Dim."""
        match value:
            case Dim():
                return value
            case str() | DimOp():
                return Dim((((value,), 1),))
            case _:
                return Dim((((), int(value)),) if int(value) else ())

    def __add__(self, other: DimLike) -> Dim:
        return _add(self, Dim.of(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return Dim(tuple((monomial, -factor) for monomial, factor in self.terms))

    def __sub__(self, other: DimLike) -> Dim:
        return _add(self, -Dim.of(other))

    def __rsub__(self, other: DimLike) -> Dim:
        return _add(Dim.of(other), -self)

    def __mul__(self, other: DimLike) -> Dim:
        return _multiply(self, Dim.of(other))

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> Dim:
        return _divide(self, Dim.of(other))[0]

    def __mod__(self, other: DimLike) -> Dim:
        return _divide(self, Dim.of(other))[1]

    @property
    def constant(self) -> int | None:
        """The integer that this Dim is, or None if it has a name in it."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def names(self) -> frozenset[str]:
        """Every name in it, also within divisions."""
        if not self.terms:
            return _NO_NAMES
        if len(self.terms) == 1:
            (monomial, _) = self.terms[0]
            if not monomial:
                return _NO_NAMES
            if len(monomial) == 1 and type(monomial[0]) is str:
                return frozenset(monomial)  # type: ignore[arg-type]
        return _names(self)

    def replace(self, values: Mapping[str, DimLike]) -> Dim:
        """This Dim with names replaced by Dims."""
        return _replace(self, {name: Dim.of(value) for name, value in values.items()})

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Its value where each name is an integer or an array of integers."""
        total: Any = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                factor = factor * (values[atom] if isinstance(atom, str) else _evaluate(atom, values))
            total = total + factor
        return total

    def __str__(self) -> str:
        return " + ".join(_spell(*term) for term in self.terms).replace("+ -", "- ") or "0"

    def __repr__(self) -> str:
        return f"Dim({self})"


DimLike: TypeAlias = int | str | Dim
Shape: TypeAlias = tuple[Dim, ...]
_MOST_SPLIT = 3  # maxima and quotients of a Dim that are replaced by their bounds: each doubles the work


def shape_of(dims: Iterable[DimLike]) -> Shape:
    return tuple(Dim.of(dim) for dim in dims)


def equal(left: DimLike, right: DimLike) -> bool | None:
    """Whether two Dims are equal: True or False if that holds for every binding of the names, else None."""
    difference = Dim.of(left) - right
    if difference.constant is not None:
        return difference.constant == 0
    return False if never_negative(difference - 1) or never_negative(-difference - 1) else None


def same_shape(left: Shape, right: Shape) -> bool:
    return len(left) == len(right) and all(equal(a, b) is True for a, b in zip(left, right, strict=True))


def never_negative(dim: Dim, positive: Iterable[str] = ()) -> bool:
    """Whether a Dim is surely >= 0 when every name is at least 0, and each name in `positive` at least 1."""
    dim = _replace(dim, {name: Dim.of(name) + 1 for name in positive})
    if all(factor > 0 and all(map(_is_natural, monomial)) for monomial, factor in dim.terms):
        return True
    parts = [(*term, atom) for term in dim.terms for atom in term[0] if isinstance(atom, DimOp)]
    bounds = next(filter(None, (_bounds(dim, *each) for each in parts if len(parts) <= _MOST_SPLIT)), ())
    return bool(bounds) and all(map(never_negative, bounds))


def _bounds(dim: Dim, monomial: Monomial, factor: int, atom: DimOp) -> tuple[Dim, ...]:
    """Dims without one atom of a term, such that a Dim is >= 0 where all of them are: with either side of a maximum, or
    with what a quotient by a number is at most, all times that number. None for other atoms."""
    at, others, count = monomial.index(atom), dim - Dim(((monomial, factor),)), atom.right.constant or 0
    rest = Dim(((monomial[:at] + monomial[at + 1 :], factor),))
    if atom.kind == "max":
        return others + rest * atom.left, others + rest * atom.right
    is_bound = atom.kind == "floordiv" and factor < 0 < count and never_negative(atom.left) and never_negative(-rest)
    return (others * count + rest * atom.left,) if is_bound else ()


def _is_natural(atom: Atom) -> bool:
    """Whether an atom is surely >= 0 when every name is."""
    if isinstance(atom, str):
        return True
    left, right = never_negative(atom.left), never_negative(atom.right)
    return {"floordiv": left and right, "mod": right, "max": left or right}[atom.kind]


def maximum(left: DimLike, right: DimLike) -> Dim:
    """The larger of two Dims."""
    left, right = Dim.of(left), Dim.of(right)
    if never_negative(left - right):
        return left
    if never_negative(right - left):
        return right
    left, right = sorted((left, right), key=str)
    return Dim.of(DimOp("max", left, right))


def product(dims: Iterable[DimLike]) -> Dim:
    """The product of Dims: 1 for none."""
    return reduce(mul, map(Dim.of, dims), Dim.of(1))


def strides_of(shape: Shape) -> Shape:
    """Elements between neighbours along each axis of a packed array in C order."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def index_name(axis: int) -> str:
    """The name of the index along an axis, in index maps."""
    return f"#{axis}"


def indices(rank: int) -> tuple[Dim, ...]:
    """The identity index map of that rank."""
    return tuple(Dim.of(index_name(axis)) for axis in range(rank))


def flat_index(shape: Shape, target: Shape) -> tuple[Dim, ...]:
    """For each axis of `shape`, the index of the cell that lies at `target`'s index in C order."""
    if Dim.of(0) in shape or Dim.of(0) in target:
        return (Dim.of(0),) * len(shape)
    places = zip(indices(len(target)), strides_of(target), strict=True)
    flat = sum((index * stride for index, stride in places), Dim.of(0))
    wholes = [flat // stride for stride in strides_of(shape)]
    return (*wholes[:1], *(whole % dim for whole, dim in zip(wholes[1:], shape[1:], strict=True)))


def _spell(monomial: Monomial, factor: int) -> str:
    alone = factor == 1 and len(monomial) == 1
    atoms = [str(atom) if alone or isinstance(atom, str) or atom.kind == "max" else f"({atom})" for atom in monomial]
    return "*".join([*([str(factor)] if factor != 1 or not atoms else []), *atoms])


def _collect(factors: dict[Monomial, int]) -> Dim:
    nonzero = [(monomial, factor) for monomial, factor in factors.items() if factor]
    return Dim(tuple(sorted(nonzero, key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))))


@lru_cache(maxsize=65536)
def _add(left: Dim, right: Dim) -> Dim:
    if not left.terms or not right.terms:
        return left if left.terms else right
    return _rejoin(_raw_add(left, right))


@lru_cache(maxsize=65536)
def _multiply(left: Dim, right: Dim) -> Dim:
    return _rejoin(_raw_multiply(left, right))


def _rejoin(dim: Dim) -> Dim:
    """Write c * (r // c) + r % c as r, wherever both are there."""
    factors = dict(dim.terms)
    for monomial, factor in dim.terms:
        for at, atom in enumerate(monomial):
            if isinstance(atom, DimOp) and atom.kind == "mod":
                whole = Dim(((monomial[:at] + monomial[at + 1 :], factor),))
                for quotient in _quotients(atom):
                    partner = _raw_multiply(whole, _raw_multiply(Dim.of(quotient), atom.right))
                    if all(factors.get(m) == f for m, f in partner.terms):
                        return dim - partner - Dim(((monomial, factor),)) + whole * atom.left
    return dim


def _quotients(op: DimOp) -> Iterator[DimOp]:
    """The floor divisions that belong to a modulo; (r // a) // b is also r // (a * b)."""
    yield DimOp("floordiv", op.left, op.right)
    if (inner := _division_of(op.left)) is not None and never_negative(inner.right) and never_negative(op.right):
        yield DimOp("floordiv", inner.left, inner.right * op.right)


def _raw_multiply(left: Dim, right: Dim) -> Dim:
    """Multiply two Dims without rejoining quotients and remainders."""
    factors: dict[Monomial, int] = {}
    for a, x in left.terms:
        for b, y in right.terms:
            monomial = tuple(sorted(a + b, key=str))
            factors[monomial] = factors.get(monomial, 0) + x * y
    return _collect(factors)


@lru_cache(maxsize=65536)
def _divide(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    """Floor division and modulo: terms that divide exactly leave the operation."""
    quotient, rest = exact_part(left, right)
    if rest.constant is not None and right.constant:  # (2 * n + 1) // 2 is n
        return quotient + rest.constant // right.constant, Dim.of(rest.constant % right.constant)
    if not rest.terms:
        return quotient, rest
    if right.constant is not None and (inner := _division_of(rest)) is not None and (inner.right.constant or 0) > 0:
        return quotient + inner.left // (inner.right * right), Dim.of(DimOp("mod", rest, right))
    return quotient + Dim.of(DimOp("floordiv", rest, right)), Dim.of(DimOp("mod", rest, right))


def _division_of(dim: Dim) -> DimOp | None:
    """The floor division that a Dim consists of, or None."""
    match dim.terms:
        case (((DimOp(kind="floordiv") as inner,), 1),):
            return inner
        case _:
            return None


def exact_part(left: Dim, right: Dim) -> tuple[Dim, Dim]:
    """Quotient and rest, by the polynomial division that needs no fractions."""
    if not right.terms:
        return Dim.of(0), left
    (lead, factor), quotient, rest, divided = right.terms[0], Dim.of(0), left, Dim.of(0)
    while rest.terms:
        monomial, count = rest.terms[0]
        piece = _monomial_quotient(monomial, lead)
        if piece is None or (count % factor and len(right.terms) > 1) or not count // factor:
            divided, rest = _raw_add(divided, Dim((rest.terms[0],))), Dim(rest.terms[1:])
            continue
        part = Dim(((piece, count // factor),))
        quotient = _raw_add(quotient, part)
        rest = _raw_add(rest, -_raw_multiply(part, right))
        if count % factor:  # a multiple left over below one whole divisor
            divided, rest = _raw_add(divided, Dim((rest.terms[0],))), Dim(rest.terms[1:])
    return quotient, divided


def _raw_add(left: Dim, right: Dim) -> Dim:
    factors = dict(left.terms)
    for monomial, factor in right.terms:
        factors[monomial] = factors.get(monomial, 0) + factor
    return _collect(factors)


def _monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


@lru_cache(maxsize=65536)
def _names(dim: Dim) -> frozenset[str]:
    names: set[str] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            names |= {atom} if isinstance(atom, str) else _names(atom.left) | _names(atom.right)
    return frozenset(names)


def forget() -> None:
    """Clear the caches of Dim arithmetic, which take megabytes after many graphs."""
    for remembered in (_add, _multiply, _divide, _names):
        remembered.cache_clear()


def _alone(dim: Dim) -> tuple[str, ...] | None:
    """The single name that a Dim consists of, as a tuple; empty for an integer, None for a formula."""
    match dim.terms:
        case () | (((), _),):
            return ()
        case (((str(name),), 1),):
            return (name,)
        case _:
            return None


def _replace(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    alone = _alone(dim)
    if alone is not None:
        return values.get(alone[0], dim) if alone else dim
    if not any(name in values for name in dim.names):
        return dim
    total = Dim.of(0)
    for monomial, factor in dim.terms:
        # few names of a long monomial are replaced: the others stay one monomial
        moved = [atom for atom in monomial if not isinstance(atom, str) or atom in values]
        others = tuple(atom for atom in monomial if isinstance(atom, str) and atom not in values)
        part = Dim(((others, factor),))
        for atom in moved:
            whole = values[atom] if isinstance(atom, str) else with_sides(atom, partial(_replace, values=values))
            part = part * whole
        total = total + part
    return total


def with_sides(atom: Atom, change: Callable[[Dim], Dim]) -> Dim:
    """Apply a function to both operands of an operation; a name stays as it is."""
    return Dim.of(atom) if isinstance(atom, str) else again(atom, change(atom.left), change(atom.right))


def again(op: DimOp, left: Any, right: Any, larger: Callable[[Any, Any], Any] = maximum) -> Any:
    """Apply an operation to other operands."""
    match op.kind:
        case "floordiv":
            return left // right
        case "mod":
            return left % right
        case _:
            return larger(left, right)


def _evaluate(op: DimOp, values: Mapping[str, Any]) -> Any:
    left, right = op.left.evaluate(values), op.right.evaluate(values)
    return again(op, left, right, max if isinstance(left, int) and isinstance(right, int) else np.maximum)
