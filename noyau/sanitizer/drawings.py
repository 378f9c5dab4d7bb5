"""Drawings of who touches a cell and when, for a report, and lines as they would be once they are mended."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

_ATOMICS = {ast.Add: "add", ast.Sub: "sub"}
_ORDERS = {"numba_cuda": "no barrier in between", "cuda": "no barrier in between"}  # within a block
_UPDATE = re.compile(r"^(?P<target>[^=;{}]+?)\s*(?P<sign>[+-])=\s*(?P<value>[^;{}]+);")
_INCREMENT = re.compile(r"^(?:(?P<target>[^=;{}+]+)\+\+|\+\+(?P<other>[^=;{}+]+));")


def race(
    cell: str, language: str, owners: Sequence[str], touches: Sequence[tuple[int, str]], between: str = ""
) -> tuple[str, ...]:
    """Two owners side by side, and below each other what they do to a cell, the earlier first: `touches` has the line
    and the verb of the second one's access, then those of the first one's; `between`: what there is between the two,
    where that is not nothing."""
    (line, verb), (other_line, other_verb) = touches
    one, two = owners
    width = max(len(str(line)), len(str(other_line)))
    columns = [max(len(two), len(other_verb) + len(cell) + 1), max(len(one), len(verb) + len(cell) + 1)]
    head = f"{' ' * width}  {two:<{columns[0]}}  {one}"
    is_between_blocks = len({each.partition(" of block ")[2] for each in owners}) > 1
    nothing = "nothing orders the two"
    missing = between or (nothing if is_between_blocks else _ORDERS.get(language, nothing))
    first = f"{other_line:>{width}}  {f'{other_verb} {cell}':<{columns[0]}}"
    if line == other_line:
        return head, f"{first}  {verb} {cell}   <- {missing}"
    gap = f"{' ' * width}  {f' {missing} ':-^{sum(columns) + 2}}"
    return head, first.rstrip(), gap, f"{line:>{width}}  {' ' * columns[0]}  {verb} {cell}"


def outside(name: str, extent: int, index: int, owner: str, verb: str) -> tuple[str, ...]:
    """The cells along an axis, and beside them the one that is not there."""
    cells = f"[{' '.join(['0', '1', '...', str(extent - 1)] if extent > 3 else map(str, range(extent)))}]"
    before = f"{name}  " if index >= 0 else f"{name}  {index} "
    line = f"{before}{cells} {index}" if index >= 0 else f"{before}{cells}"
    at = len(line) - len(str(index)) if index >= 0 else len(name) + 2
    return line, f"{' ' * at}^ {owner} {verb} here"


def _in_cuda(text: str) -> str:
    update, increment = _UPDATE.match(text), _INCREMENT.match(text)
    if update is not None and "[" in update["target"]:
        value = update["value"] if update["sign"] == "+" else f"-({update['value']})"
        return f"atomicAdd(&{update['target']}, {value});"
    target = increment and (increment["target"] or increment["other"])
    return f"atomicAdd(&{target}, 1);" if target and "[" in target else ""


def _in_numba_cuda(text: str) -> str:
    with suppress(SyntaxError):
        match ast.parse(text).body:
            case [ast.AugAssign(target=ast.Subscript(value=array, slice=index), op=op, value=value)]:
                name = _ATOMICS.get(type(op))
            case [
                ast.Assign(
                    targets=[ast.Subscript(value=array, slice=index) as cell],
                    value=ast.Call(func=ast.Name("max" | "min" as name), args=[first, value]),
                )
            ] if ast.unparse(first) == ast.unparse(cell):
                pass
            case _:
                return ""
        return f"cuda.atomic.{name}({', '.join(map(ast.unparse, (array, index, value)))})" if name else ""
    return ""


_CHANGES: Mapping[str, Callable[[str], str]] = {"cuda": _in_cuda, "numba_cuda": _in_numba_cuda}


def changed(text: str, language: str) -> str:
    """A line that updates a cell, as one atomic; nothing where it is no such line, or the language has no word for
    it."""
    change = _CHANGES.get(language)
    return "" if change is None else change(text)
