"""Cells that integers name, as ONNX operators: gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noyau.codegen.index_maps import is_whole_lookup
from noyau.codegen.onnx.emitter import OnnxTerm, SizeWriter, unsqueeze
from noyau.codegen.onnx.maps import CellWriter
from noyau.codegen.onnx.views import LAST, view_term, whole
from noyau.dtypes import DType
from noyau.ir.dims import Dim, Shape, index_name
from noyau.ir.graph import Gather, Lookup, Node, Scatter

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
