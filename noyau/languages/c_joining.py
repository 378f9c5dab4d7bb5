"""Printed kernels of language `c` as one text: what they call stands there once, before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from noyau.languages import cmath
from noyau.languages.c_pairs import PAIRS
from noyau.languages.c_tables import INCLUDES, LANES, PREFETCH, comment_text, integer_function


@dataclass(frozen=True, slots=True)
class Printed:
    """The launches and the table of a kernel, and what they call: scalar functions, and those of integers."""

    bodies: tuple[str, ...]
    functions: frozenset[str]
    integers: frozenset[tuple[str, str]]


def text_of(parts: Sequence[Printed], comment: str = "") -> str:
    """One text of kernels that are printed."""
    bodies = [body for part in parts for body in part.bodies]
    functions = frozenset[str]().union(*(part.functions for part in parts))
    integers = frozenset[tuple[str, str]]().union(*(part.integers for part in parts))
    pieces = [
        comment_text(comment),
        _file("noyau.h"),
        INCLUDES,
        LANES if any("NOYAU_LANES" in body for body in bodies) else "",
        PREFETCH if any("NOYAU_PREFETCH" in body for body in bodies) else "",
        PAIRS if any("noyau_pair(" in body or "noyau_store_pair(" in body for body in bodies) else "",
        _file("taken.h") if any("noyau_take(" in body for body in bodies) else "",
        _file("around.h") if any("noyau_write_around" in body for body in bodies) else "",
        _file("turn.h") if any("noyau_turn(" in body for body in bodies) else "",
        cmath.text(functions),
        *(integer_function(*key) for key in sorted(integers)),
        *bodies,
    ]
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece) + "\n"


def _file(name: str) -> str:
    """C text that lies beside this file."""
    return files("noyau.languages").joinpath(name).read_text("ascii")
