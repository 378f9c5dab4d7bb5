"""Random Dims for hypothesis, each with its meaning in plain integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from noyau.ir.dims import Dim, maximum

NAMES = ("a", "b", "c")
Sizes = Mapping[str, int]


@dataclass(frozen=True, repr=False)
class Meant:
    """A Dim, and the function of the sizes that it stands for; ZeroDivisionError where that divides by 0."""

    dim: Dim
    value: Callable[[Sizes], int]

    def __repr__(self) -> str:
        return f"Meant({self.dim})"


def leaf(name: str) -> Meant:
    return Meant(Dim.of(name), lambda sizes: sizes[name])


def number(value: int) -> Meant:
    return Meant(Dim.of(value), lambda sizes: value)


def plus(a: Meant, b: Meant) -> Meant:
    return Meant(a.dim + b.dim, lambda sizes: a.value(sizes) + b.value(sizes))


def minus(a: Meant, b: Meant) -> Meant:
    return Meant(a.dim - b.dim, lambda sizes: a.value(sizes) - b.value(sizes))


def times(a: Meant, b: Meant) -> Meant:
    return Meant(a.dim * b.dim, lambda sizes: a.value(sizes) * b.value(sizes))


def divided(a: Meant, b: Meant) -> Meant:
    return Meant(a.dim // b.dim, lambda sizes: a.value(sizes) // b.value(sizes))


def left_over(a: Meant, b: Meant) -> Meant:
    return Meant(a.dim % b.dim, lambda sizes: a.value(sizes) % b.value(sizes))


def larger(a: Meant, b: Meant) -> Meant:
    return Meant(maximum(a.dim, b.dim), lambda sizes: max(a.value(sizes), b.value(sizes)))


LEAVES = st.one_of(st.sampled_from(NAMES).map(leaf), st.integers(-4, 6).map(number))
RING = (plus, plus, minus, times, times)
ALL = (*RING, divided, left_over, larger)


def over(
    operations: tuple[Callable[[Meant, Meant], Meant], ...], most: int, leaves: st.SearchStrategy[Meant] = LEAVES
) -> st.SearchStrategy[Meant]:
    """Dims of up to so many leaves."""

    def extend(inner: st.SearchStrategy[Meant]) -> st.SearchStrategy[Meant]:
        return st.builds(lambda make, a, b: make(a, b), st.sampled_from(operations), inner, inner)

    return st.recursive(leaves, extend, max_leaves=most)


polynomials = over(RING, 6)
dims = over(ALL, 8)
sizes = st.fixed_dictionaries({name: st.integers(0, 7) for name in NAMES})
