"""Text common to the C family and Python: operators, and Dims, on which they agree for integers >= 0."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from noyau.ir.dims import Atom, Dim, DimOp, Monomial
from noyau.ir.operators import OPERATORS

Term = tuple[Monomial, int]
Name = Callable[[str], str]
Operate = Callable[[DimOp, str, str], str]  # the text of a floordiv, mod, max or min of two texts

# Scalar functions that are infix operators in the C family and Python.
INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/",
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "!=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
FLAT = {"is_nan": "({0} != {0})", "identity": "{0}"}  # the same text in both
_TEXTS = {*INFIX, *FLAT, "negative", "is_inf", "where", "cast"}  # functions of floats that are not printed as calls
_OTHER_NAMES = {"power": "pow", "truncate": "trunc"}

# functions of the operator table -> names in codegen/cmath, for floats
SCALARS = {
    name: _OTHER_NAMES.get(name, name)
    for name, operator in OPERATORS.items()
    if "float" in operator.accepts and name not in _TEXTS
}


@cache
def snippets(path: Path, opening: str = r"^def (\w+)") -> Mapping[str, str]:
    """The functions of a text, separated by two empty lines, by the names that `opening` finds in them."""
    texts = path.read_text("ascii").rstrip("\n").split("\n\n\n")
    return {re.findall(opening, each, re.MULTILINE)[0]: each for each in texts}


def by_sign(texts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Integer functions by name, from `abs_int` and `abs_uint`: pairs for signed and unsigned integers, which are the
    same if there is no function for unsigned ones."""
    names = {name.removesuffix("_int"): name.removesuffix("_int") for name in texts if name.endswith("_int")}
    names |= {"fmax": "maximum", "fmin": "minimum"}
    return {name: (own := texts[f"{like}_int"], texts.get(f"{like}_uint", own)) for name, like in names.items()}


def parameters_of(function: str) -> str:
    """The parameter letters of a scalar function: one or two."""
    return "ab"[: OPERATORS[function].arity]


def short_float32(value: float) -> float:
    """A number with the fewest digits that denote the same float32; infinite beyond its range."""
    with np.errstate(over="ignore"):
        return float(str(np.float32(float(value))))


def dim_text(dim: Dim, name: Name, operate: Operate) -> str:
    """The Dim as an expression in Horner form: ((i * n) + j) * m + k. `name`: the text of a size or an index.

    Terms are sorted by their texts, so that Dims that are equal up to names have texts equal up to names."""
    return _sum(dim.terms, name, operate) if dim.constant is None else str(dim.constant)


def as_operand(text: str) -> str:
    """A text that can be any operand: a word, a call, or an expression in parentheses."""
    called = re.match(r"\w*", text)
    bare = text.isidentifier() or text.isdigit() or is_closed(text[called.end() :] if called else text)
    return text if bare else f"({text})"


def is_closed(text: str) -> bool:
    """Whether a text begins with a parenthesis that closes at its end."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at == len(text) - 1 and at > 0
    return False


def unwrap(text: str) -> str:
    """A text without enclosing parentheses."""
    return text[1:-1] if is_closed(text) else text


def _sum(terms: Sequence[Term], name: Name, operate: Operate) -> str:
    parts: list[tuple[bool, str]] = []  # for each part whether it is subtracted, and its text
    left = list(terms)
    while (size := _common_size(left, name)) is not None:
        inside = [(_without(monomial, size), factor) for monomial, factor in left if size in monomial]
        left = [term for term in left if size not in term[0]]
        sign = -1 if all(factor < 0 for _, factor in inside) else 1
        inner = _sum([(monomial, sign * factor) for monomial, factor in inside], name, operate)
        parts.append((sign < 0, f"({inner}) * {name(size)}"))
    spelled = [(*_term(*term, name, operate), -len(term[0]), -abs(term[1])) for term in left]
    spelled.sort(key=lambda term: (term[2], term[3], term[1]))
    parts += [(subtracted, text) for subtracted, text, _, _ in spelled]
    parts.sort(key=lambda part: part[0])
    (subtracted, text), *rest = parts
    first = f"-{text}" if subtracted else text
    return first + "".join(f" {'-' if subtracted else '+'} {text}" for subtracted, text in rest)


def _common_size(terms: Sequence[Term], name: Name) -> str | None:
    """The size that most terms share, if at least two do."""
    atoms = [atom for monomial, _ in terms for atom in set(monomial) if isinstance(atom, str) and atom[:1] != "#"]
    shared = [(-count, name(atom), atom) for atom in set(atoms) if (count := atoms.count(atom)) > 1]
    return min(shared)[2] if shared else None


def _without(monomial: Monomial, atom: Atom) -> Monomial:
    at = monomial.index(atom)
    return monomial[:at] + monomial[at + 1 :]


def _term(monomial: Monomial, factor: int, name: Name, operate: Operate) -> tuple[bool, str]:
    """Whether a term is subtracted, and the text of its magnitude; -max(-a, -b) is added as min(a, b)."""
    match monomial:
        case (DimOp(kind="max") as op,) if factor < 0:
            monomial, factor = (DimOp("min", -op.left, -op.right),), -factor
        case _:
            pass
    parts = sorted((_atom(atom, name, operate) for atom in monomial), key=lambda text: (text[0] == "(", text))
    if abs(factor) != 1 or not parts:
        parts.append(str(abs(factor)))
    return factor < 0, " * ".join(parts)


def _atom(atom: Atom, name: Name, operate: Operate) -> str:
    if isinstance(atom, str):
        return name(atom)
    texts = [dim_text(side, name, operate) for side in (atom.left, atom.right)]
    return operate(atom, *(sorted(texts) if atom.kind in ("max", "min") else texts))
