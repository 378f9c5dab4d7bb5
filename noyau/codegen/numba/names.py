"""Identifiers of Python for Numba: none is a word of Python, a name that the text itself uses, or one variable of two
types, which Numba would make one type of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from noyau.codegen.identifiers import Scopes
from noyau.codegen.numba.spellings import NUMPY
from noyau.ir.loops import Kernel

# Beyond those that fitting() knows: what the text calls, and what it calls its own names.
RESERVED = frozenset(
    """numba np math types ir cgutils arrayobj intrinsic prange scalar status items parts part range min max abs round
    print exit match case type""".split()
) | frozenset(NUMPY)


class NumbaNames(Scopes):
    """Names of a kernel to Python identifiers.

    A Python function has one scope: what a block names is free again after it only for variables of its own type.
    `kind` is the type of what is bound next."""

    def __init__(self, kernel: Kernel) -> None:
        self.kind = ""
        self.kinds: dict[str, str] = {}
        launches = {f"{kernel.name}_{number}" for number in range(len(kernel.launches))}
        self.reserved = RESERVED | launches | {kernel.name}
        super().__init__(kernel)

    @contextmanager
    def of(self, kind: str) -> Iterator[NumbaNames]:
        """Give names that are bound within this type."""
        before, self.kind = self.kind, kind
        yield self
        self.kind = before

    def forget(self) -> None:
        """Nothing of what was bound but buffers and sizes is known any more, and nothing has been used."""
        self.used.clear()
        self.kinds = {}

    def fresh(self, stem: str) -> str:
        """An identifier that nothing in sight has, and no variable of another type had."""
        name = super().fresh(f"v_{stem}" if stem in self.reserved else stem)
        self.kinds[name] = self.kind
        return name

    def fits(self, name: str) -> bool:
        return self.kinds.get(name, self.kind) == self.kind
