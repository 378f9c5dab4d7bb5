"""Values that are functions of their index: an arange, a row number, a flat position, as Dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noyau.dtypes import DType
from noyau.frontends.onnx.emitter import light
from noyau.ir.dims import Dim
from noyau.ir.graph import Constant, Iota, Map, Node, Select, View

_MOST_STEPS = 256


def position_at(values: Mapping[str, Node], name: str, index: Sequence[Dim]) -> Dim | None:
    """The integer value `name` at an index, as a Dim of the names in the index; None where it is no such function."""
    position = _at(values, name, tuple(index), [_MOST_STEPS])
    return position if position is not None and light([position]) else None


def _at(values: Mapping[str, Node], name: str, index: tuple[Dim, ...], steps: list[int]) -> Dim | None:
    """`steps` is how many more values may be looked into."""
    node = values[name]
    steps[0] -= 1
    if steps[0] < 0 or not light(index) or node.dtype not in (DType.I32, DType.I64):
        return None
    match node.kind:
        case Iota(at):
            return at.replace(_names(index))
        case Constant(value):
            cell = value.flat[0] if value.size == 1 else _cell(value.shape, index, value)
            return None if cell is None else Dim.of(int(cell))
        case View(at):
            names = _names(index)
            return _at(values, node.inputs[0], tuple(dim.replace(names) for dim in at), steps)
        case Select(axis, starts):
            return _piece_at(values, node, axis, starts, index, steps)
        case Map(function):
            return _call(function, [_at(values, operand, index, steps) for operand in node.inputs])
        case _:
            return None


def _names(index: Sequence[Dim]) -> dict[str, Dim]:
    return {f"#{axis}": dim for axis, dim in enumerate(index)}


def _cell(shape: Sequence[int], index: Sequence[Dim], value: object) -> int | None:
    at = tuple(dim.constant for dim in index)
    inside = all(k is not None and 0 <= k < extent for k, extent in zip(at, shape, strict=True))
    return int(value[at]) if inside else None  # type: ignore[index]


def _piece_at(
    values: Mapping[str, Node], node: Node, axis: int, starts: Sequence[Dim], index: tuple[Dim, ...], steps: list[int]
) -> Dim | None:
    """The value within the piece that a constant index falls into."""
    at, firsts = index[axis].constant, [start.constant for start in starts]
    if at is None or None in firsts:
        return None
    piece = max((k for k, first in enumerate(firsts) if first is not None and first <= at), default=0)
    inside = (*index[:axis], index[axis] - starts[piece], *index[axis + 1 :])
    return _at(values, node.inputs[piece], inside, steps)


def _call(function: str, operands: Sequence[Dim | None]) -> Dim | None:
    match function, operands:
        case ("add", [Dim() as left, Dim() as right]):
            return left + right
        case ("subtract", [Dim() as left, Dim() as right]):
            return left - right
        case ("multiply", [Dim() as left, Dim() as right]):
            return left * right
        case ("negative", [Dim() as value]):
            return -value
        case ("cast" | "identity", [Dim() as value]):
            return value
        case _:
            return None
