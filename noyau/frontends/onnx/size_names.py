"""Names of sizes: an ONNX model may call a dimension anything, a size is an identifier."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from noyau.errors import UnsupportedError
from noyau.ir.dims import Dim

_LONGEST_NAME = 40


class SizeNames:
    """The sizes of one model: one name for each distinct dimension name, and fresh names for what is unknown."""

    def __init__(self) -> None:
        self._by_original: dict[str, Dim] = {}
        self._taken: set[str] = set()
        self._fresh = 0

    @property
    def originals(self) -> Mapping[str, str]:
        """The model's own name of each size."""
        return {str(size): original for original, size in self._by_original.items() if str(size) in self._taken}

    def dim_of(self, original: str) -> Dim:
        """The size that the model calls so. A sum, product or quotient of known names is that polynomial."""
        if original not in self._by_original:
            self._by_original[original] = self._expression(original) or Dim.of(self._claim(_clean(original)))
        return self._by_original[original]

    def fresh(self) -> Dim:
        """A size that nothing says anything about: d0, d1..."""
        while f"d{self._fresh}" in self._taken:
            self._fresh += 1
        return Dim.of(self._claim(f"d{self._fresh}"))

    def _claim(self, stem: str) -> str:
        name, k = stem, 1
        while name in self._taken:
            k += 1
            name = f"{stem}_{k}"
        self._taken.add(name)
        return name

    def _expression(self, original: str) -> Dim | None:
        """`past + 1` where `past` is known; None for a plain name or anything else."""
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
            case ast.BinOp(left, ast.Add(), right):
                return self._polynomial(left) + self._polynomial(right)
            case ast.BinOp(left, ast.Sub(), right):
                return self._polynomial(left) - self._polynomial(right)
            case ast.BinOp(left, ast.Mult(), right):
                return self._polynomial(left) * self._polynomial(right)
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
