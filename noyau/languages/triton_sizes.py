"""Sizes and indices as text in language `triton`, in launches and in the function that launches them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from noyau.ir.dims import Dim, Op
from noyau.languages.spelling import dim_text, opened
from noyau.languages.triton_names import Variables


class Sizes(ABC):
    """Dims as text: `words` has what stands for a name that has no variable; `CDIV` divides upwards."""

    CDIV: ClassVar[str]

    def __init__(self, names: Variables) -> None:
        self.names = names
        self.words: dict[str, str] = {}

    def dim(self, dim: Dim) -> str:
        """An index or an extent, without parentheses around it."""
        return opened(dim_text(self._with_ceilings(dim), self.word, self.operate))

    def _with_ceilings(self, dim: Dim) -> Dim:
        """The Dim with a word for each (n - 1) // step + 1."""
        for atoms, factor in dim.terms:
            match atoms:
                case (Op("floordiv", left, right),) if factor == 1 and _rounds_up(left):
                    name = f"#ceiling {left} / {right}"
                    self.words[name] = f"{self.CDIV}({self.dim(left + 1)}, {self.dim(right)})"
                    return dim - Dim(((atoms, factor),)) - 1 + Dim.of(name)
                case _:
                    pass
        return dim

    def word(self, name: str) -> str:
        return self.words[name] if name in self.words else self.names.atom(name)

    @abstractmethod
    def operate(self, op: Op, left: str, right: str) -> str:
        """The text of a floordiv, mod, max or min of two texts."""


def _rounds_up(left: Dim) -> bool:
    """Whether left // right is better told as how many steps cover left + 1, less 1."""
    return constant_in(left) in (-1, -2) and left.constant is None


def constant_in(dim: Dim) -> int:
    return dict(dim.terms).get((), 0)
