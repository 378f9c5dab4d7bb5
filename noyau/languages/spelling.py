"""Dims and names as source text of the C family and of Python, which agree on integers >= 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from noyau.ir.dims import Atom, Dim, Monomial, Op

Divide = Callable[[str, str], str]


def dim_text(dim: Dim, names: Mapping[str, str], op: Callable[[Op, str, str], str]) -> str:
    """The Dim as an expression; `op` spells a division, modulo or max of two texts."""
    if dim.constant is not None:
        return str(dim.constant)
    text = ""
    ordered = sorted(dim.terms, key=lambda term: (not term[0], term[1] < 0))
    for monomial, factor in ordered:
        part = _term(monomial, abs(factor), names, op)
        sign = "-" if factor < 0 else "+"
        text += (f" {sign} " if text else ("-" if factor < 0 else "")) + part
    return text


def _term(monomial: Monomial, factor: int, names: Mapping[str, str], op: Callable[[Op, str, str], str]) -> str:
    parts = [_atom(atom, names, op) for atom in monomial]
    if factor != 1 or not parts:
        parts.append(str(factor))
    return " * ".join(parts)


def _atom(atom: Atom, names: Mapping[str, str], op: Callable[[Op, str, str], str]) -> str:
    if isinstance(atom, str):
        return names[atom]
    return op(atom, dim_text(atom.left, names, op), dim_text(atom.right, names, op))
