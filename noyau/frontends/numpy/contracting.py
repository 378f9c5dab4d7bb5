"""Products of matrices and einsum of two operands, as Contract nodes."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.arrays import FUNCTIONS, UFUNCS, Traced
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.numpy.ufuncs import as_node, loop_dtypes, tape_of, traced
from noyau.ir.dims import Dim
from noyau.ir.graph import Contract, Node


def matmul(a: Any, b: Any, **said: Any) -> Traced:
    """a @ b: matrices of the last two axes; the others are broadcast. A vector is a row on the left, else a column."""
    if any(value is not None for value in said.values()):
        raise UnsupportedError("np.matmul is traced without out= and its kin")
    tape = tape_of([a, b])
    left, right = traced(tape, a), traced(tape, b)
    if not left.ndim or not right.ndim:
        raise UnsupportedError("a matrix product takes no scalars; use *")
    dtypes = loop_dtypes(np.matmul, [left, right])
    nodes = [as_node(tape, *pair) for pair in zip((left, right), dtypes, strict=True)]
    batch = ascii_letters[3 : 3 + max(left.ndim, right.ndim)]
    first = "k" if left.ndim == 1 else f"{batch[len(batch) - (left.ndim - 2) :] if left.ndim > 2 else ''}ik"
    second = "k" if right.ndim == 1 else f"{batch[len(batch) - (right.ndim - 2) :] if right.ndim > 2 else ''}kj"
    first, second = first.replace("i", "A").replace("k", "B"), second.replace("k", "B").replace("j", "C")
    lead = max((first[:-2], second[:-2]), key=len)
    result = lead + ("A" if left.ndim > 1 else "") + ("C" if right.ndim > 1 else "")
    return Traced(tape, contracted(tape, f"{first},{second}->{result}", nodes))


def contracted(tape: Tape, equation: str, nodes: list[Node]) -> Node:
    """A Contract; extents under one letter are equal, those of 1 are broadcast before."""
    terms, result = equation.split("->", maxsplit=1)[0].split(","), equation.split("->")[1]
    extents: dict[str, Dim] = {}
    for term, node in zip(terms, nodes, strict=True):
        for letter, dim in zip(term, node.shape, strict=True):
            known = extents.get(letter, Dim.of(1))
            if known != Dim.of(1) and dim != Dim.of(1):
                tape.demand_equal(known, dim)
            extents[letter] = known if known != Dim.of(1) else dim
    given = [tape.expand(node, tuple(extents[x] for x in term)) for term, node in zip(terms, nodes, strict=True)]
    shape = tuple(extents[letter] for letter in result)
    return tape.emit(Contract(equation), given, nodes[0].dtype, shape)


def dot(a: Any, b: Any, **said: Any) -> Traced:
    tape = tape_of([a, b])
    left, right = traced(tape, a), traced(tape, b)
    if not left.ndim or not right.ndim:
        product: Traced = UFUNCS["multiply"](left, right)
        return product
    if right.ndim > 2:
        raise UnsupportedError("np.dot of an array of more than two axes is not traced; use @")
    return matmul(left, right, **said)


def einsum(equation: Any, *operands: Any, **said: Any) -> Traced:
    """np.einsum of two operands, no letter twice in one of them, with its result spelt."""
    text = str(equation).replace(" ", "")
    terms = text.partition("->")[0].split(",")
    if said or len(operands) != 2 or "->" not in text or "." in text or any(len(set(t)) < len(t) for t in terms):
        raise UnsupportedError(f"np.einsum({equation!r}) is traced for two operands, no letter twice, with ->")
    tape = tape_of(operands)
    pair = [traced(tape, each) for each in operands]
    if [len(term) for term in terms] != [each.ndim for each in pair]:
        raise UnsupportedError(f"np.einsum({equation!r}) does not fit the axes of its operands")
    dtypes = loop_dtypes(np.multiply, pair)
    nodes = [as_node(tape, *each) for each in zip(pair, dtypes, strict=True)]
    return Traced(tape, contracted(tape, text, nodes))


FUNCTIONS.update({"dot": dot, "einsum": einsum, "matmul": matmul})
