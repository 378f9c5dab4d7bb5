"""Random signatures, and arguments that fit them."""

from __future__ import annotations

from hypothesis import strategies as st

from noyau.ir.dims import Dim
from noyau.signatures.types import ELEMENTS, OUT, Family, Rest, Signature, Term

NAMES = ("n", "rows", "k2", "bins")
REST = st.sampled_from([Rest("..."), Rest("batch")])


@st.composite
def dims(draw, depth: int = 2) -> Dim:
    """Sums, products and quotients that are never negative where the names are not."""
    if depth == 0 or draw(st.booleans()):
        return Dim.of(draw(st.sampled_from([*NAMES, *NAMES, 0, 1, 3])))
    left, right = draw(dims(depth - 1)), draw(dims(depth - 1))
    match draw(st.sampled_from("+*/")):
        case "+":
            return left + right
        case "*":
            return left * right
        case _:
            return left // (right + 1)


@st.composite
def terms(draw, name: str, elements, shapes, rests=REST) -> Term:
    element = draw(st.sampled_from(elements))
    if draw(st.integers(0, 4)) == 0:
        return Term(name, element, None)
    made: list[Dim | Rest] = draw(st.lists(shapes, max_size=3))
    if draw(st.booleans()):
        made.insert(draw(st.integers(0, len(made))), draw(rests))
    return Term(name, element, tuple(made))


@st.composite
def signatures(draw, shapes=None) -> Signature:
    """Signatures that parse; the inputs are x0, x1..., of `shapes` where these are given."""
    count = draw(st.integers(1, 3))
    every, usual = tuple(ELEMENTS.values()), dims()
    inputs = tuple(draw(terms(f"x{k}", every, usual if shapes is None else shapes)) for k in range(count))
    given = [element for element in every if not isinstance(element, Family)]
    given += [term.element for term in inputs]
    rests = [term.rest for term in inputs if term.rest]
    names = draw(st.permutations([OUT, "low", "high"]))[: draw(st.integers(1, 3))]
    outputs = []
    for name in names:
        term = draw(terms(name, tuple(given), usual, rests=st.sampled_from(rests or [Rest("...")])))
        kept = term.dims if rests or term.rest is None else term.fixed
        outputs.append(Term(name, term.element, kept))
    return Signature(inputs, tuple(outputs))
