"""Slices as NumPy writes them, with the transpose and the new axes that come after."""

from __future__ import annotations

from collections.abc import Sequence

from noyau.codegen.index_maps import ONE, ZERO, AxisStep
from noyau.codegen.numpy.terms import ATOM, NumpyTerm, SizeText
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Node


def slice_term(steps: Sequence[AxisStep], operand: NumpyTerm, source: Node, node: Node, extents: SizeText) -> NumpyTerm:
    """Slices, then a transpose, then new axes, then what runs backwards; what is idle is left out."""
    dims, rank = source.shape[len(source.shape) - len(steps) :], len(node.shape)
    alike = [dim != there for dim, there in zip(dims, operand.shape, strict=True)]
    cells = [
        (":" if step.out is not None else "0") if same else _cell(step, dim, node.shape, extents)
        for step, dim, same in zip(steps, dims, alike, strict=True)
    ]
    pairs, outs = list(zip(steps, cells, strict=True)), [step.out for step in steps if step.out is not None]
    turned = {step.out for step, cell in pairs if step.step < 0 and cell != "::-1"}
    long = {step.out for step, same in zip(steps, alike, strict=True) if not same}
    text = operand.within(ATOM)
    if outs != sorted(outs):
        order = sorted(range(len(outs)), key=lambda k: outs[k])
        text = f"{_subscript(text, cells)}.transpose({', '.join(map(str, order))})"
        pairs = [(AxisStep(axis, ZERO), ":") for axis in sorted(outs)]
    text = _subscript(text, _with_new_axes(pairs, operand.shape, rank))
    text = _subscript(text, ["::-1" if axis in turned else ":" for axis in range(rank)])
    return NumpyTerm(text, ATOM, tuple(dim if axis in long else ONE for axis, dim in enumerate(node.shape)))


def _cell(step: AxisStep, dim: Dim, shape: Shape, extents: SizeText) -> str:
    """The subscript of one axis; one that runs backwards is sliced forwards, unless it is the whole axis."""
    if step.out is None:
        return extents.text(step.start)
    length, size = shape[step.out], abs(step.step)
    if step.step == -1 and step.start == dim - 1 and length == dim:
        return "::-1"
    start = step.start if step.step > 0 else step.start + step.step * (length - 1)
    stop = start + size * length if step.step > 0 else step.start + 1
    ends = (dim - start + (size - 1)) // size == length
    texts = ["" if start == ZERO else extents.text(start), "" if ends else extents.text(stop)]
    return ":".join([*texts, *([str(size)] if size > 1 else [])])


def _with_new_axes(pairs: Sequence[tuple[AxisStep, str]], shape: Shape, rank: int) -> list[str]:
    """The subscripts of the operand's axes, and a new axis for each of the result that none of them is. One of extent 1
    that goes where a new one comes, stays."""
    waiting = list(zip(pairs, shape if len(shape) == len(pairs) else [ZERO] * len(pairs), strict=True))
    outs, texts = {step.out for step, _ in pairs}, list[str]()
    for axis in range(rank):
        while axis in outs and waiting[0][0][0].out is None:
            texts.append(waiting.pop(0)[0][1])
        if axis in outs:
            texts.append(waiting.pop(0)[0][1])
        elif waiting and waiting[0][0][0].out is None and waiting[0][1] == ONE:
            waiting.pop(0)
            texts.append(":")
        else:
            texts.append("None")
    return [*texts, *(cell for (_, cell), _ in waiting)]


def _subscript(text: str, cells: Sequence[str]) -> str:
    """The text with these subscripts, but for whole axes at the end; three dots stand for many at the front."""
    texts = list(cells)
    while texts and texts[-1] == ":":
        texts.pop()
    if not texts:
        return text
    front = next(at for at, cell in enumerate(cells) if cell != ":")
    if front > 1 and len(texts) == len(cells):
        texts = ["...", *texts[front:]]
    return f"{text}[{', '.join(texts)}]"
