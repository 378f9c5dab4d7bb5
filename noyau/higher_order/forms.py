"""What a check tries of an op that takes arrays of any rank: a few signatures, each an op of its own."""

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
            made, same = result(usual), result(other)
        except UnsupportedError:
            continue
        if family is not None and (made, same) == (usual, other):
            yield family.value, family.value
        elif family is not None and made is same:
            yield family.value, made.value
        else:
            yield usual.value, made.value
        return


def mapped(element: str, made: str, names: Sequence[str]) -> list[str]:
    """Signatures of functions cell by cell: alike shapes, a row beside a matrix, a column beside a row."""
    batch, row, column, out = fresh(names, "batch", "n", "m", "out")
    same, rest = f"{element}[*{batch}, {row}]", ", ".join([f"{element}[{row}]"] * (len(names) - 1))
    texts = [", ".join([same] * len(names)) + f" -> {out}: {made}[*{batch}, {row}]"]
    if rest:
        texts.append(f"{same}, {rest} -> {out}: {made}[*{batch}, {row}]")
        texts.append(f"{element}[{column}, 1], {rest} -> {out}: {made}[{column}, {row}]")
    return texts


def reduced(element: str, made: str, name: str) -> dict[str, Mapping[str, Any]]:
    """Signatures of a reduction, with its arguments: along the last axis, the first one, all of them."""
    batch, row, column, out = fresh([name], "batch", "n", "m", "out")
    return {
        f"{element}[*{batch}, {row}] -> {out}: {made}[*{batch}]": {"axis": -1, "keepdims": False},
        f"{element}[{row}, *{batch}] -> {out}: {made}[1, *{batch}]": {"axis": 0, "keepdims": True},
        f"{element}[{column}, {row}] -> {out}: {made}": {"axis": None, "keepdims": False},
    }


def fresh(taken: Sequence[str], *wanted: str) -> list[str]:
    """The wanted names, each made longer where an input has it."""
    made = []
    for name in wanted:
        while name in taken:
            name += "_"
        made.append(name)
    return made
