"""Bounds of an index within its loops, and the simplifications that they allow."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from math import gcd

from noyau.ir import dims
from noyau.ir.dims import Atom, Dim, DimOp, exact_part, maximum, never_negative

Extents = Mapping[str, Dim]


def forget() -> None:
    """Clear the caches of index simplification and of Dim arithmetic."""
    _simplify.cache_clear()
    dims.forget()


def simplify(dim: Dim, extents: Extents) -> Dim:
    """`dim` without the divisions and modulos that the extents of its indices make redundant."""
    if dim.constant is not None:
        return dim
    return _simplify(dim, tuple((name, extents[name]) for name in sorted(dim.names) if name in extents))


@lru_cache(maxsize=65536)
def _simplify(dim: Dim, extents: tuple[tuple[str, Dim], ...]) -> Dim:
    bounds, total = dict(extents), Dim.of(0)
    for monomial, factor in dim.terms:
        part = Dim.of(factor)
        for atom in monomial:
            if isinstance(atom, str):  # the index of a loop that runs once is 0
                part = part * (0 if bounds.get(atom) == Dim.of(1) else atom)
            else:
                part = part * _simplify_op(atom, bounds)
        total = total + part
    return total


def _simplify_op(op: DimOp, extents: Extents) -> Dim:
    left, right = simplify(op.left, extents), simplify(op.right, extents)
    if op.kind == "max":
        return maximum(left, right)
    positive = _positive(left, extents) | at_least_one(right)
    for common in _common_factors(left, right):
        whole, part = exact_part(left, common)
        if within(part, common, extents, positive):
            share = exact_part(right, common)[0]
            return simplify(whole // share if op.kind == "floordiv" else (whole % share) * common + part, extents)
    quotient, rest = left // right, left % right
    match rest.terms:
        case (((DimOp(kind="mod") as inner,), 1),) if within(inner.left, inner.right, extents, positive):
            quotient, rest = quotient - Dim.of(DimOp("floordiv", inner.left, inner.right)), inner.left
        case _:
            pass
    return quotient if op.kind == "floordiv" else rest


def _common_factors(left: Dim, right: Dim) -> list[Dim]:
    """Factors that a one-term divisor shares with terms of the dividend, largest first."""
    if len(right.terms) != 1:
        return []
    divisor, count = right.terms[0]
    shared = [(Counter(divisor) & Counter(monomial), gcd(factor, count)) for monomial, factor in left.terms]
    factors = dict.fromkeys(Dim(((tuple(atoms.elements()), factor),)) for atoms, factor in shared)
    proper = (factor for factor in factors if factor not in (Dim.of(1), right))
    return sorted(proper, key=lambda common: -len(common.terms[0][0]))


def within(dim: Dim, end: Dim, extents: Extents, positive: frozenset[str] = frozenset()) -> bool:
    """Whether 0 <= dim < end is certain, where the names in `positive` are at least 1."""
    if any(extents.get(name) == end and dim == Dim.of(name) for name in dim.names):
        return True  # an index along the whole of an axis
    low, high = lowest(dim, extents), highest(dim, extents)
    if low is None or high is None:
        return False
    positive |= _positive(dim, extents)
    return never_negative(low, positive) and never_negative(end - 1 - high, positive)


def at_least_one(extent: Dim) -> frozenset[str]:
    """The sizes that are surely at least 1 if an extent is: those in every positive term. In n * m both are; in n + m
    one may be 0."""
    more = [monomial for monomial, factor in extent.terms if factor > 0]
    less = [monomial for monomial, factor in extent.terms if factor < 0]
    if not more or not all(never_negative(Dim(((monomial, 1),))) for monomial in less):
        return frozenset()
    return frozenset(set.intersection(*({atom for atom in monomial if isinstance(atom, str)} for monomial in more)))


def _positive(dim: Dim, extents: Extents) -> frozenset[str]:
    """The sizes that are surely at least 1 where an index is computed, since its loops run."""
    return frozenset[str]().union(*(at_least_one(extents[name]) for name in dim.names if name in extents))


def highest(dim: Dim, extents: Extents) -> Dim | None:
    """An upper bound of a Dim without indices, or None."""
    return _bound(dim, extents, upper=True)


def lowest(dim: Dim, extents: Extents) -> Dim | None:
    """A lower bound of a Dim without indices, or None."""
    return _bound(dim, extents, upper=False)


def _bound(dim: Dim, extents: Extents, *, upper: bool) -> Dim | None:
    total = Dim.of(0)
    for monomial, factor in dim.terms:
        part, running = Dim.of(1), _positive(Dim(((monomial, 1),)), extents)
        for atom in monomial:
            low, high = _interval(atom, extents)
            if low is None or high is None or not never_negative(low, running):
                return None
            part = part * (high if upper == (factor > 0) else low)
        total = total + part * factor
    return total


def _interval(atom: Atom, extents: Extents) -> tuple[Dim | None, Dim | None]:
    if isinstance(atom, str) and atom.startswith("#"):
        return (Dim.of(0), extents[atom] - 1) if atom in extents else (None, None)
    if isinstance(atom, str) or not any(name.startswith("#") for name in Dim.of(atom).names):
        return Dim.of(atom), Dim.of(atom)
    natural, high = _is_natural(atom.left, extents), highest(atom.left, extents)
    divisor = highest(atom.right, extents) if _is_natural(atom.right, extents) else None
    match atom.kind:
        case "mod" if divisor is not None:
            return Dim.of(0), divisor - 1
        case "floordiv" if divisor is not None and natural and high is not None:
            return Dim.of(0), _steps(high, atom.right) if divisor == atom.right else high
        case _:
            return None, None


def _is_natural(dim: Dim, extents: Extents) -> bool:
    """Whether a Dim is surely >= 0."""
    low = lowest(dim, extents)
    return low is not None and never_negative(low, _positive(dim, extents))


def _steps(high: Dim, step: Dim) -> Dim | None:
    """The highest of x // step for x <= high, where it is a polynomial."""
    if (high // step).constant is not None:
        return high // step
    return (high + 1) // step - 1 if (high + 1) % step == Dim.of(0) else None
