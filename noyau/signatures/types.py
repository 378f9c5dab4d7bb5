"""Types of signatures: terms of a dtype or a family of them, and dims; and instances, settled by a call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from noyau.codegen.tables import closed, dim_text, opened
from noyau.dtypes import DType
from noyau.ir.dims import Dim, DimOp, Shape

ELLIPSIS = "..."
OUT = "out"  # the name of a result that bears none
_MOST_LETTERS = 240  # of a signature in a message

_FLOATS = tuple(dtype for dtype in DType if dtype.is_float)
_INTEGERS = (DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64)


class Family(Enum):
    """Dtypes of which every term of the family has the same one in a call."""

    FLOAT = "float"
    INT = "int"
    ANY = "any"

    @property
    def members(self) -> tuple[DType, ...]:
        return _MEMBERS[self]


_MEMBERS = {Family.FLOAT: _FLOATS, Family.INT: _INTEGERS, Family.ANY: (DType.BOOL, *_INTEGERS, *_FLOATS)}
Element: TypeAlias = DType | Family

# Short names, long names, families.
ELEMENTS: dict[str, Element] = {
    **{dtype.value: dtype for dtype in Family.ANY.members},
    **{dtype.numpy.name: dtype for dtype in Family.ANY.members},
    **{name: dtype for dtype in DType if dtype.is_float8 for name in (dtype.value, dtype.numpy.name)},
    **{family.value: family for family in Family},
}


@dataclass(frozen=True, slots=True)
class Rest:
    """Any number of axes: `*batch`, or `...`; alike wherever the name stands."""

    name: str

    def __str__(self) -> str:
        return self.name if self.name == ELLIPSIS else f"*{self.name}"


@dataclass(frozen=True, slots=True)
class Term:
    """An input or a result. `dims` None: a run-time scalar."""

    name: str
    element: Element
    dims: tuple[Dim | Rest, ...] | None

    @property
    def rest(self) -> Rest | None:
        return next((dim for dim in self.dims or () if isinstance(dim, Rest)), None)

    @property
    def fixed(self) -> tuple[Dim, ...]:
        """The dims without the Rest."""
        return tuple(dim for dim in self.dims or () if isinstance(dim, Dim))

    def __str__(self) -> str:
        element: str = self.element.value
        return element if self.dims is None else f"{element}[{', '.join(map(spell_dim, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs by the names of the parameters, and results. `str` of it parses back."""

    inputs: tuple[Term, ...]
    outputs: tuple[Term, ...]

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of dims and of Rests, in the order in which `str` has them; `...` has no name."""
        return tuple(dict.fromkeys(_names((*self.inputs, *self.outputs))))

    @property
    def integers(self) -> tuple[str, ...]:
        """The integer scalars that are also the name of a dim."""
        return tuple(term.name for term in self.inputs if is_integer(term) and term.name in self.sizes)

    def __str__(self) -> str:
        results = [str(term) if term.name == OUT else f"{term.name}: {term}" for term in self.outputs]
        return f"{', '.join(map(str, self.inputs))} -> {', '.join(results)}".lstrip()


@dataclass(frozen=True, slots=True)
class Value:
    """An input or a result of which the dtype and the rank are known; `scalar`: a bare dtype."""

    name: str
    dtype: DType
    shape: Shape
    scalar: bool = False

    def __str__(self) -> str:
        return self.dtype.value if self.scalar else f"{self.dtype.value}[{', '.join(map(spell_dim, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Instance:
    """A signature with dtypes and ranks settled, and the sizes that no shape binds as numbers.

    `sizes`: what each name of the signature is, in the order of the text: a Rest is the product of its extents. What an
    integer parameter gives is not among them: that parameter is."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    sizes: tuple[tuple[str, Dim], ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """List the dtypes of the inputs."""
        return tuple(value.dtype for value in self.inputs)

    @property
    def ranks(self) -> tuple[int, ...]:
        """List the ranks of the inputs."""
        return tuple(len(value.shape) for value in self.inputs)

    def __str__(self) -> str:
        inputs, outputs = (", ".join(f"{v.name}: {v}" for v in part) for part in (self.inputs, self.outputs))
        return f"{inputs} -> {outputs}"


def brief(value: object) -> str:
    """Print a signature or a part of it for a message: of a very long one its beginning and its end."""
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS // 2]} ... {text[-_MOST_LETTERS // 4 :]}"


def is_integer(term: Term) -> bool:
    """Whether it is a run-time scalar of integers."""
    return term.dims is None and (term.element is Family.INT or term.element in _INTEGERS)


def spell_dim(dim: Dim | Rest) -> str:
    """A dim as a signature has it: `n - 2`, `2 * n`, `(n + 1) // 2`."""
    return str(dim) if isinstance(dim, Rest) else opened(dim_text(dim, str, _operate))


def _operate(op: DimOp, left: str, right: str) -> str:
    if op.kind == "max":
        return f"max({left}, {right})"
    return f"({closed(left)} {'//' if op.kind == 'floordiv' else '%'} {closed(right)})"


def _names(terms: Iterable[Term]) -> Iterator[str]:
    for term in terms:
        for dim in term.dims or ():
            if isinstance(dim, Rest):
                yield from () if dim.name == ELLIPSIS else (dim.name,)
            else:
                yield from re.findall(r"[A-Za-z_]\w*", spell_dim(dim), re.ASCII)
