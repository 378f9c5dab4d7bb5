"""A few signatures of an op that takes arrays of any rank: a check tries an op of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.signatures.types import Family

Result = Callable[[DType], DType]  # of the dtype of all inputs, that of the result
FAMILIES = ((Family.FLOAT, DType.F32, DType.F64), (Family.INT, DType.I64, DType.I32), (None, DType.BOOL, DType.BOOL))


def elements_of(result: Result) -> Iterator[tuple[str, str]]:
    """The element of the inputs and that of the result, as signatures have them: of the first family that it takes."""
    for family, usual, other in FAMILIES:
        try:
            element, same = result(usual), result(other)
        except UnsupportedError:
            continue
        if family is not None and (element, same) == (usual, other):
            yield family.value, family.value
        elif family is not None and element is same:
            yield family.value, element.value
        else:
            yield usual.value, element.value
        return


def map_signatures(element: str, result: str, names: Sequence[str]) -> list[str]:
    """Signatures of functions cell by cell: alike shapes, a row beside a matrix, a column beside a row."""
    batch, row, column, out = fresh(names, "batch", "n", "m", "out")
    same, rest = f"{element}[*{batch}, {row}]", ", ".join([f"{element}[{row}]"] * (len(names) - 1))
    texts = [", ".join([same] * len(names)) + f" -> {out}: {result}[*{batch}, {row}]"]
    if rest:
        texts.append(f"{same}, {rest} -> {out}: {result}[*{batch}, {row}]")
        texts.append(f"{element}[{column}, 1], {rest} -> {out}: {result}[{column}, {row}]")
    return texts


def reduce_signatures(element: str, result: str, name: str) -> dict[str, Mapping[str, Any]]:
    """Signatures of a reduction, with its arguments: along the last axis, the first one, all of them."""
    batch, row, column, out = fresh([name], "batch", "n", "m", "out")
    return {
        f"{element}[*{batch}, {row}] -> {out}: {result}[*{batch}]": {"axis": -1, "keepdims": False},
        f"{element}[{row}, *{batch}] -> {out}: {result}[1, *{batch}]": {"axis": 0, "keepdims": True},
        f"{element}[{column}, {row}] -> {out}: {result}": {"axis": None, "keepdims": False},
    }


def fresh(taken: Sequence[str], *wanted: str) -> list[str]:
    """The wanted names, each made longer where an input has it."""
    names = []
    for name in wanted:
        while name in taken:
            name += "_"
        names.append(name)
    return names
