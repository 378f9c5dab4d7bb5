"""Sizes of a model: their names as identifiers, the weight of formulas over them, the broadcasting of extents."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from operator import add, mul, sub

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim, DimOp, maximum
from noyau.text import free_name

_LONGEST_NAME = 40
_SIGNS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}
_HEAVIEST, _MOST_FACTORS = 400, 8


class SizeNames:
    """The sizes of one model: one name for each distinct dimension name, and fresh names for unknown extents."""

    def __init__(self) -> None:
        self._by_original: dict[str, Dim] = {}
        self._taken: set[str] = set()
        self._fresh = 0

    @property
    def originals(self) -> Mapping[str, str]:
        """The model's own name of each size."""
        return {str(size): original for original, size in self._by_original.items() if str(size) in self._taken}

    def dim_of(self, original: str) -> Dim:
        """The size of a dimension name. A sum, product or quotient of known names is that formula."""
        if original not in self._by_original:
            self._by_original[original] = self._expression(original) or Dim.of(self._claim(_clean(original)))
        return self._by_original[original]

    def fresh(self) -> Dim:
        """A new size for an unknown extent: d0, d1..."""
        while f"d{self._fresh}" in self._taken:
            self._fresh += 1
        return Dim.of(self._claim(f"d{self._fresh}"))

    def _claim(self, stem: str) -> str:
        name = free_name(stem, self._taken)
        self._taken.add(name)
        return name

    def _expression(self, original: str) -> Dim | None:
        """The Dim of a name like `past + 1` where `past` is known; None for a plain name or any other text."""
        if len(original) > 200 or not re.fullmatch(r"[A-Za-z0-9_ +*/()-]+", original):
            return None
        try:
            tree = ast.parse(original, mode="eval").body
            polynomial = None if isinstance(tree, ast.Name) else self._polynomial(tree)
        except (SyntaxError, UnsupportedError, RecursionError):
            return None
        return polynomial if polynomial is not None and polynomial.names else None

    def _polynomial(self, tree: ast.expr) -> Dim:
        match tree:
            case ast.Constant(int(value)):
                return Dim.of(value)
            case ast.Name(name) if name in self._by_original:
                return self._by_original[name]
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as sign, right):
                return _SIGNS[type(sign)](self._polynomial(left), self._polynomial(right))
            case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(value))) if value > 0:
                return self._polynomial(left) // value
            case _:
                raise UnsupportedError("this is no polynomial of known sizes")


def _clean(original: str) -> str:
    """Letters, digits and _ of a name; never empty, never starting with a digit."""
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", original)[:_LONGEST_NAME].strip("_")
    if not cleaned:
        return "size"
    return cleaned if cleaned[0].isalpha() else f"n{cleaned}"


def weight(dim: Dim) -> int:
    """The length of a formula, in names and operations; counting stops where it is too long for use."""
    total, waiting = 0, [dim]
    while waiting and total <= _HEAVIEST:
        for monomial, _ in waiting.pop().terms:
            total += 1 + len(monomial)
            waiting.extend(part for atom in monomial if isinstance(atom, DimOp) for part in (atom.left, atom.right))
    return total


def light(dims: Iterable[Dim]) -> bool:
    """Whether formulas are short enough to be of use: hostile models can double them with each node, and to reason
    about a product takes time exponential in its factors."""
    return all(weight(dim) <= _HEAVIEST and all(len(m) <= _MOST_FACTORS for m, _ in dim.terms) for dim in dims)


def broadcast_dim(left: Dim, right: Dim) -> tuple[Dim, bool]:
    """The broadcast extent of two, and whether it is certain that they fit."""
    one = Dim.of(1)
    if left == right or right == one:
        return left, True
    if left == one:
        return right, True
    if left.constant is not None and right.constant is not None:
        raise UnsupportedError(f"the extents {left} and {right} cannot be broadcast")
    if left.constant is not None or right.constant is not None:
        return (left if left.constant is not None else right), False
    for lesser, greater in ((left, right), (right, left)):
        if is_capped(lesser, greater):
            return greater, False
    return maximum(left, right), False


def is_capped(dim: Dim, whole: Dim) -> bool:
    """Whether `dim` is min(whole, c) for a constant c above 1, so that it is 1 only where `whole` is.

    A table of 512 rows cut to the length of a sequence has such an extent."""
    atoms = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, DimOp) and atom.kind == "max"]
    caps = (op.left if op.right == whole else op.right for op in atoms)
    return any((cap.constant or 0) > 1 and dim == whole + cap - maximum(cap, whole) for cap in caps)


def minimum(left: Dim, right: Dim) -> Dim:
    return left + right - maximum(left, right)
