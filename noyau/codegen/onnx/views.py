"""Views, gathers and scatters as ONNX operators; what is no slice, transpose or reshape looks up each cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from noyau.codegen.index_maps import AxisStep, is_broadcast, is_reshape, is_whole_lookup, is_within, slices_of
from noyau.codegen.onnx.emitter import ONE, ZERO, OnnxTerm, SizeWriter, unsqueeze
from noyau.codegen.onnx.maps import CellWriter
from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape, index_name, strides_of
from noyau.ir.graph import Gather, Lookup, Node, Scatter

LAST = np.iinfo(np.int64).max


def whole(term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """The value with every axis as long as it is."""
    if term.shape == shape:
        return term
    writer = sizes.writer
    plain = writer.cast(term, DType.F32) if term.dtype is DType.BF16 else term  # Expand has no bfloat16
    value = replace(plain, name=writer.emit("Expand", plain.name, sizes.shape(shape)), shape=shape)
    return writer.cast(value, term.dtype)


def view_term(index: Shape, operand: OnnxTerm, source: Shape, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """out[i] = operand[index(i)], where the operand has the shape `source` and the result `shape`."""
    if is_broadcast(index, source, shape):
        return operand
    packed = whole(operand, source, sizes)
    steps = slices_of(index, source, source, shape)
    if steps is not None:
        return _slice(steps, packed, shape, sizes)
    if is_reshape(index, source, shape):
        return _reshape(packed, shape, sizes)
    return _lookup(index, packed, shape, sizes)


def _slice(steps: Sequence[AxisStep], term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """Slices, those that run backwards once more; then single cells, a transpose, new axes."""
    writer = sizes.writer
    name = _cut(steps, term, shape, sizes)
    for axis in reversed(range(len(steps))):
        if steps[axis].out is None:
            name = writer.emit("Gather", name, _place(steps[axis].start, term.shape[axis], sizes), axis=axis)
    outs = [step.out for step in steps if step.out is not None]
    order = sorted(range(len(outs)), key=lambda k: outs[k])
    if order != list(range(len(outs))):
        name = writer.emit("Transpose", name, perm=order)
    name = unsqueeze(writer, name, [axis for axis in range(len(shape)) if axis not in outs])
    return replace(term, name=name, shape=tuple(dim if axis in outs else ONE for axis, dim in enumerate(shape)))


def _place(start: Dim, dim: Dim, sizes: SizeWriter) -> str:
    """The place of one cell, from the end where that is a number."""
    behind = (start - dim).constant
    return sizes.writer.constant(np.int64(behind)) if behind is not None and behind < 0 else sizes.scalar(start)


def _cut(steps: Sequence[AxisStep], term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> str:
    """The operand's own axes, each from its start to its end by its step."""
    writer, name = sizes.writer, term.name
    starts, ends, axes, strides, turned = list[Dim](), list[Dim](), list[int](), list[int](), list[int]()
    for axis, (step, dim) in enumerate(zip(steps, term.shape, strict=True)):
        if step.out is None:
            continue
        length, stride = shape[step.out], abs(step.step)
        start = step.start if step.step > 0 else step.start + step.step * (length - 1)
        stop = start + stride * length
        turned += [axis] if step.step < 0 else []
        if (start, stride, length) != (ZERO, 1, dim):
            reaches = (dim - start + (stride - 1)) // stride == length
            starts, ends = [*starts, start], [*ends, Dim.of(LAST) if reaches else stop]
            axes, strides = [*axes, axis], [*strides, stride]
    if axes:
        texts = [
            sizes.shape(starts),
            sizes.shape(ends),
            *(writer.constant(np.array(x, np.int64)) for x in (axes, strides)),
        ]
        name = writer.emit("Slice", name, *texts)
    if turned:
        ends_ = [[-1] * len(turned), [-LAST] * len(turned), turned, [-1] * len(turned)]
        name = writer.emit("Slice", name, *(writer.constant(np.array(x, np.int64)) for x in ends_))
    return name


def _reshape(term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """The same cells under another shape; one size may be left to the runtime where no other extent can be 0."""
    writer = sizes.writer
    numbers = [dim.constant for dim in shape]
    if numbers.count(None) == 1 and all(number != 0 for number in numbers):
        target = writer.constant(np.array([-1 if number is None else number for number in numbers], np.int64))
        return replace(term, name=writer.emit("Reshape", term.name, target), shape=shape)
    zero = {} if all(numbers) else {"allowzero": 1}
    return replace(term, name=writer.emit("Reshape", term.name, sizes.shape(shape), **zero), shape=shape)


def _lookup(index: Shape, term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """A cell for each index, counted in the flat operand."""
    writer = sizes.writer
    flat = sum((at * stride for at, stride in zip(index, strides_of(term.shape), strict=True)), ZERO)
    where = sizes.indexed(flat, shape)
    if not all(is_within(at, dim) for at, dim in zip(index, term.shape, strict=True)):
        where = whole(where, shape, sizes)  # no cell may be read where there are none to be made
    line = writer.emit("Reshape", term.name, writer.constant(np.array([-1], np.int64)))
    return replace(term, name=writer.emit("Gather", line, where.name, axis=0), shape=where.shape)


_MERGES = {None: "none", "sum": "add", "prod": "mul", "max": "max", "min": "min"}


def gather_term(node: Node, operands: Sequence[OnnxTerm], sources: Sequence[Node], sizes: SizeWriter) -> OnnxTerm:
    """The cells of a table that integers name; one outside of it is an error, also a negative one."""
    assert isinstance(node.kind, Gather)
    writer, index, table = sizes.writer, node.kind.index, whole(operands[0], sources[0].shape, sizes)
    places = [axis for axis, entry in enumerate(index) if isinstance(entry, Lookup)]
    if len(places) == 1 and is_whole_lookup(index, places[0], node, sources):
        entry = index[places[0]]
        assert isinstance(entry, Lookup)
        ids = _inside(whole(operands[entry.input], sources[entry.input].shape, sizes), sizes)
        return replace(table, name=writer.emit("Gather", table.name, ids.name, axis=places[0]), shape=node.shape)
    cells = _cells(index, node.shape, operands, sources, sizes)
    return replace(table, name=writer.emit("GatherND", table.name, cells), shape=node.shape)


def _inside(ids: OnnxTerm, sizes: SizeWriter) -> OnnxTerm:
    """Indices in which a negative one is too large, for ONNX counts those from the end."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    unsigned = ids.dtype.kind == "uint" and ids.dtype is not DType.U64
    ids = writer.cast(ids, DType.I64)
    if unsigned:
        return ids
    return cells.where(cells("Less", ids, cells.number(0, ids)), cells.number(LAST, ids), ids)


def _cells(
    index: Sequence[Dim | Lookup],
    shape: Shape,
    operands: Sequence[OnnxTerm],
    sources: Sequence[Node],
    sizes: SizeWriter,
) -> str:
    """The coordinates of a cell for each index of a shape: int64[*shape, len(index)]."""
    writer, columns = sizes.writer, list[str]()
    for entry in index:
        if isinstance(entry, Lookup):
            looked = view_term(entry.at, operands[entry.input], sources[entry.input].shape, shape, sizes)
            places = _inside(looked, sizes)
        else:
            places = sizes.indexed(entry, shape)
        columns.append(unsqueeze(writer, whole(places, shape, sizes).name, [len(shape)]))
    return writer.emit("Concat", *columns, axis=len(shape)) if len(columns) > 1 else columns[0]


def scatter_term(node: Node, operands: Sequence[OnnxTerm], sources: Sequence[Node], sizes: SizeWriter) -> OnnxTerm:
    """A copy of a table in which updates are merged; where none merges them, the last one stays."""
    assert isinstance(node.kind, Scatter)
    writer, index = sizes.writer, node.kind.index
    table, _, updates = (whole(t, s.shape, sizes) for t, s in zip(operands, sources, strict=True))
    places = [axis for axis, entry in enumerate(index) if isinstance(entry, Lookup)]
    others = all(entry == Dim.of(index_name(axis)) for axis, entry in enumerate(index) if axis not in places)
    if node.kind.monoid is None and len(places) == 1 and others and len(updates.shape) == len(table.shape):
        entry = index[places[0]]
        assert isinstance(entry, Lookup)
        looked = view_term(entry.at, operands[entry.input], sources[entry.input].shape, updates.shape, sizes)
        ids = whole(_inside(looked, sizes), updates.shape, sizes)
        name = writer.emit("ScatterElements", table.name, ids.name, updates.name, axis=places[0])
    else:
        cells = _cells(index, updates.shape, operands, sources, sizes)
        merge = {} if node.kind.monoid is None else {"reduction": _MERGES[node.kind.monoid]}
        name = writer.emit("ScatterND", table.name, cells, updates.name, **merge)
    return replace(table, name=name, shape=node.shape)
