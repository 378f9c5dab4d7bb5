"""Printer of a graph as ONNX nodes, for the function body of an op and for other runtimes.

A view that is no slice, transpose or reshape is a Gather of each cell."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import assert_never

import numpy as np
import onnx

from noyau.codegen.index_maps import AxisStep, is_broadcast, is_reshape, is_whole_lookup, is_within, slices_of
from noyau.codegen.numpy.printer import Readers
from noyau.codegen.onnx.emitter import ONE, ZERO, NodeWriter, OnnxTerm, SizeWriter, unsqueeze
from noyau.codegen.onnx.maps import CellWriter, cast, map_term
from noyau.compiler.lowering.names import identifier
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.ir import graph as dag
from noyau.ir.dims import Dim, Shape, index_name, product, strides_of
from noyau.ir.graph import Gather, Lookup, Node, Reduce, Scan, Scatter
from noyau.ir.monoids import MONOIDS
from noyau.ir.sizes import Demand


def spell(graph: dag.Graph, writer: NodeWriter, names: Mapping[str, str], measured: Iterable[dag.Node] = ()) -> range:
    """Write the nodes that compute the outputs of a graph; returns their positions. `names`: the model's names of its
    inputs and outputs, and of `measured`, further inputs of the model that determine sizes.

    UnsupportedError, with the value, where something has no ONNX operator."""
    start = len(writer.nodes)
    writer.values.clear()  # graphs that are written separately share no nodes
    _Speller(graph, writer, names, tuple(measured)).write()
    return range(start, len(writer.nodes))


@dataclass
class _Speller:
    graph: dag.Graph
    writer: NodeWriter
    called: Mapping[str, str]
    measured: tuple[dag.Node, ...]

    def __post_init__(self) -> None:
        self.sizes = SizeWriter(self.writer, (*self.graph.inputs, *self.measured), self.called)
        self.readers = Readers(self.graph)
        self.terms = {n.output: OnnxTerm(self.called[n.output], n.dtype, n.shape) for n in self.graph.inputs}
        self.fixed = {term.name for term in self.terms.values()}  # names that must not change

    def write(self) -> None:
        live = self.readers.live()
        guarded = self.least(live) if self.graph.demands else None
        for node in self.graph.nodes:
            if node.output in live and node.output not in self.terms:
                self.writer.stem = identifier(node.output)
                try:
                    value = self.term(node)
                except UnsupportedError as error:
                    raise UnsupportedError(f"{node.output}: {error}") from error
                self.terms[node.output] = self.demand(value) if node is guarded else value
        for name in self.graph.outputs:
            self.finish(name)

    def least(self, live: Collection[str]) -> dag.Node | None:
        """The computed node with the fewest symbolic axes: the demands are checked there, at the cost of a pass."""
        able = (dag.Map, dag.Reduce, dag.Scan, dag.Select, dag.Gather, dag.Scatter, dag.Contract)
        nodes = [node for node in self.graph.nodes if node.output in live]
        computed = [node for node in nodes if isinstance(node.kind, able)] or nodes[-1:]
        return min(computed, key=lambda node: sum(dim.constant is None for dim in node.shape), default=None)

    def finish(self, name: str) -> None:
        """Bind an output, broadcast to its full shape, to its name."""
        self.writer.stem = identifier(name)
        value = whole(self.terms[name], self.graph[name].shape, self.sizes)
        target = self.called[name]
        if value.name == target:
            return
        if value.name in self.fixed or not self.writer.rename(value.name, target):
            self.writer.nodes.append(onnx.helper.make_node("Identity", [value.name], [target]))
        self.fixed.add(target)
        self.terms = {key: replace(t, name=target) if t.name == value.name else t for key, t in self.terms.items()}

    def whole(self, name: str) -> OnnxTerm:
        return whole(self.terms[name], self.graph[name].shape, self.sizes)

    def term(self, node: dag.Node) -> OnnxTerm:
        sources = [self.graph[name] for name in node.inputs]
        operands = [self.terms[name] for name in node.inputs]
        if ZERO in node.shape:  # it has no cells
            return self.writer.number(0, node.dtype)
        match node.kind:
            case dag.Input():
                return self.terms[node.output]
            case dag.Constant(value):
                return OnnxTerm(self.writer.constant(value), node.dtype, node.shape)
            case dag.Iota(index):
                return cast(CellWriter(self.writer), self.sizes.index_value(index, node.shape), node.dtype)
            case dag.Map(function):
                return map_term(CellWriter(self.writer), function, operands, node.dtype)
            case dag.Reduce():
                keep = self.keeps_axes(node)
                return reduce_term(node.kind, self.whole(node.inputs[0]), node.dtype, self.sizes, keep=keep)
            case dag.Scan():
                return scan_term(node.kind, self.whole(node.inputs[0]), node.dtype, self.writer)
            case dag.View() if self.keeps_axes(sources[0]):
                return operands[0]
            case dag.View(index):
                return view_term(index, operands[0], sources[0].shape, node.shape, self.sizes)
            case dag.Select(axis, _):
                pieces = [self.whole(name).name for name in node.inputs]
                return OnnxTerm(self.writer.emit("Concat", *pieces, axis=axis), node.dtype, node.shape)
            case dag.Gather():
                return gather_term(node, operands, sources, self.sizes)
            case dag.Scatter():
                return scatter_term(node, operands, sources, self.sizes)
            case dag.Contract(equation):
                return contract_term(equation, [self.whole(name) for name in node.inputs], node, self.writer)
            case dag.Opaque(name):
                raise UnsupportedError(f"{name} has no ONNX operator that is known here")
            case dag.Part(position):
                raise UnsupportedError(f"result {position} of what has no ONNX operator")
            case _:
                assert_never(node.kind)

    def keeps_axes(self, node: dag.Node) -> bool:
        """Whether a node is a reduction that keeps its axes with extent 1."""
        is_place = isinstance(node.kind, dag.Reduce) and node.kind.monoid.startswith("arg")
        return not is_place and self.readers.restore_axes(node)

    def demand(self, term: OnnxTerm) -> OnnxTerm:
        """The value if all demands on sizes hold; else an out-of-bounds Gather makes the call fail."""
        cells = CellWriter(self.writer)
        sure = reduce(partial(cells, "And"), map(self.holds, self.graph.demands))
        place = self.writer.cast(cells("Not", sure), DType.I64)
        sure = OnnxTerm(self.writer.emit("Gather", self.writer.constant(np.array([True])), place.name), DType.BOOL, ())
        return map_term(cells, "where", [sure, term, term], term.dtype)

    def holds(self, demand: Demand) -> OnnxTerm:
        cells = CellWriter(self.writer)
        left, right = (OnnxTerm(self.sizes.scalar(dim), DType.I64, ()) for dim in (demand.left, demand.right))
        match demand.relation:
            case "equal":
                return cells("Equal", left, right)
            case "broadcast":
                one, zero = (self.writer.number(value, DType.I64) for value in (1, 0))
                pairs = (left, right), (right, left)
                ones = [cells("And", cells("Equal", a, one), cells("Greater", b, zero)) for a, b in pairs]
                return cells("Or", cells("Equal", left, right), cells("Or", *ones))
            case _:
                return cells("LessOrEqual", left, right)


LAST = np.iinfo(np.int64).max


def whole(term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """The value broadcast to its full shape."""
    if term.shape == shape:
        return term
    writer = sizes.writer
    plain = writer.cast(term, DType.F32) if term.dtype is DType.BF16 else term  # Expand has no bfloat16
    value = replace(plain, name=writer.emit("Expand", plain.name, sizes.shape(shape)), shape=shape)
    return writer.cast(value, term.dtype)


def view_term(index: Shape, operand: OnnxTerm, source: Shape, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """The term of out[i] = operand[index(i)], with an operand of shape `source` and a result of `shape`."""
    if is_broadcast(index, source, shape):
        return operand
    packed = whole(operand, source, sizes)
    steps = slices_of(index, source, source, shape)
    if steps is not None:
        return _slice(steps, packed, shape, sizes)
    return _reshape(packed, shape, sizes) if is_reshape(index, source, shape) else _lookup(index, packed, shape, sizes)


def _slice(steps: Sequence[AxisStep], term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """A view by slices, a second slice for reversed axes, then single cells, a transpose and new axes."""
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
    """The index of one cell, counted from the end if that is a constant."""
    behind = (start - dim).constant
    return sizes.writer.constant(np.int64(behind)) if behind is not None and behind < 0 else sizes.scalar(start)


def _cut(steps: Sequence[AxisStep], term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> str:
    """The operand sliced along its own axes by the start, end and step of each."""
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
        ends_and_starts = sizes.shape(starts), sizes.shape(ends)
        name = writer.emit("Slice", name, *ends_and_starts, writer.integers(*axes), writer.integers(*strides))
    if turned:
        ones = writer.integers(*[-1] * len(turned))
        name = writer.emit("Slice", name, ones, writer.integers(*[-LAST] * len(turned)), writer.integers(*turned), ones)
    return name


def _reshape(term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """The value reshaped; one symbolic extent is left to the runtime (-1) if no other extent can be 0."""
    writer = sizes.writer
    numbers = [dim.constant for dim in shape]
    if numbers.count(None) == 1 and all(number != 0 for number in numbers):
        target = writer.integers(*(-1 if number is None else number for number in numbers))
        return replace(term, name=writer.emit("Reshape", term.name, target), shape=shape)
    zero = {} if all(numbers) else {"allowzero": 1}
    return replace(term, name=writer.emit("Reshape", term.name, sizes.shape(shape), **zero), shape=shape)


def _lookup(index: Shape, term: OnnxTerm, shape: Shape, sizes: SizeWriter) -> OnnxTerm:
    """A Gather of each cell from the flattened operand."""
    writer = sizes.writer
    flat = sum((at * stride for at, stride in zip(index, strides_of(term.shape), strict=True)), ZERO)
    where = sizes.index_value(flat, shape)
    if not all(is_within(at, dim) for at, dim in zip(index, term.shape, strict=True)):
        where = whole(where, shape, sizes)  # with an empty result no cell may be read
    line = writer.emit("Reshape", term.name, writer.integers(-1))
    return replace(term, name=writer.emit("Gather", line, where.name, axis=0), shape=where.shape)


_MERGES = {None: "none", "sum": "add", "prod": "mul", "max": "max", "min": "min"}


def gather_term(node: Node, operands: Sequence[OnnxTerm], sources: Sequence[Node], sizes: SizeWriter) -> OnnxTerm:
    """The term of a Gather; an index out of bounds is an error, also a negative one."""
    assert isinstance(node.kind, Gather)
    writer, index, table = sizes.writer, node.kind.index, whole(operands[0], sources[0].shape, sizes)
    lookups = [(axis, entry) for axis, entry in enumerate(index) if isinstance(entry, Lookup)]
    if len(lookups) == 1 and is_whole_lookup(index, lookups[0][0], node, sources):
        ((axis, entry),) = lookups
        ids = _inside(whole(operands[entry.input], sources[entry.input].shape, sizes), sizes)
        return replace(table, name=writer.emit("Gather", table.name, ids.name, axis=axis), shape=node.shape)
    cells = _cells(index, node.shape, operands, sources, sizes)
    return replace(table, name=writer.emit("GatherND", table.name, cells), shape=node.shape)


def _inside(ids: OnnxTerm, sizes: SizeWriter) -> OnnxTerm:
    """The indices with negative ones made too large, since ONNX counts these from the end."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    unsigned = ids.dtype.kind == "uint" and ids.dtype is not DType.U64
    ids = writer.cast(ids, DType.I64)
    return ids if unsigned else cells.where(cells("Less", ids, cells.number(0, ids)), cells.number(LAST, ids), ids)


def _cells(
    index: Sequence[Dim | Lookup], shape: Shape, terms: Sequence[OnnxTerm], sources: Sequence[Node], sizes: SizeWriter
) -> str:
    """The coordinates of the cell for each index of a shape: int64[*shape, len(index)]."""
    writer, columns = sizes.writer, list[str]()
    for entry in index:
        if isinstance(entry, Lookup):
            places = _inside(view_term(entry.at, terms[entry.input], sources[entry.input].shape, shape, sizes), sizes)
        else:
            places = sizes.index_value(entry, shape)
        columns.append(unsqueeze(writer, whole(places, shape, sizes).name, [len(shape)]))
    return writer.emit("Concat", *columns, axis=len(shape)) if len(columns) > 1 else columns[0]


def scatter_term(node: Node, operands: Sequence[OnnxTerm], sources: Sequence[Node], sizes: SizeWriter) -> OnnxTerm:
    """The term of a Scatter: a copy of the table with the updates merged; without a monoid the last update wins."""
    assert isinstance(node.kind, Scatter)
    writer, index = sizes.writer, node.kind.index
    table, _, updates = (whole(t, s.shape, sizes) for t, s in zip(operands, sources, strict=True))
    lookups = {axis: entry for axis, entry in enumerate(index) if isinstance(entry, Lookup)}
    others = all(entry == Dim.of(index_name(axis)) for axis, entry in enumerate(index) if axis not in lookups)
    if node.kind.monoid is None and len(lookups) == 1 and others and len(updates.shape) == len(table.shape):
        ((axis, entry),) = lookups.items()
        looked = view_term(entry.at, operands[entry.input], sources[entry.input].shape, updates.shape, sizes)
        ids = whole(_inside(looked, sizes), updates.shape, sizes)
        name = writer.emit("ScatterElements", table.name, ids.name, updates.name, axis=axis)
    else:
        cells = _cells(index, updates.shape, operands, sources, sizes)
        merge = {} if node.kind.monoid is None else {"reduction": _MERGES[node.kind.monoid]}
        name = writer.emit("ScatterND", table.name, cells, updates.name, **merge)
    return replace(table, name=name, shape=node.shape)


def reduce_term(kind: Reduce, operand: OnnxTerm, dtype: DType, sizes: SizeWriter, *, keep: bool = False) -> OnnxTerm:
    """The term of a reduction of a value with its full shape; `keep`: its axes stay, with extent 1 (not for argmax and
    argmin). UnsupportedError where ONNX cannot express it."""
    writer = sizes.writer
    match kind.monoid:
        case "any" | "max" if operand.dtype is DType.BOOL:
            return _any_true(writer, operand, kind.axes, keep=keep)
        case "all" | "min" if operand.dtype is DType.BOOL:
            return _negate(writer, _any_true(writer, _negate(writer, operand), kind.axes, keep=keep))
        case "prod" if not operand.dtype.is_float:
            raise UnsupportedError("the product of integers has no ONNX operator that keeps its bits in onnxruntime")
        case "max" | "min" | "max_apart" | "min_apart" | "sum" | "prod":
            return writer.cast(_plain_reduce(writer, kind, writer.widen(operand), keep=keep), dtype)
        case "argmax" | "argmin":
            return _arg_reduce(kind, writer.widen(operand), sizes)
        case "logsumexp":
            return writer.cast(_logsumexp(writer, writer.widen(operand), kind.axes, keep=keep), dtype)
        case "variance":
            return writer.cast(_variance(writer.widen(operand), kind.axes, sizes, keep=keep), dtype)
        case _:
            raise UnsupportedError(f"the reduction {kind.monoid} of {operand.dtype.value} has no ONNX operator")


def _reduce(writer: NodeWriter, operator: str, term: OnnxTerm, axes: Sequence[int], *, keep: bool = False) -> OnnxTerm:
    name = writer.emit(operator, term.name, writer.integers(*axes), keepdims=int(keep))
    shape = tuple(ONE if axis in axes else dim for axis, dim in enumerate(term.shape) if keep or axis not in axes)
    return replace(term, name=name, shape=shape)


def _plain_reduce(writer: NodeWriter, kind: Reduce, term: OnnxTerm, *, keep: bool) -> OnnxTerm:
    """A reduction by one operator; onnxruntime's ReduceMax and ReduceMin lose NaN, so that is restored."""
    reduced = _reduce(writer, MONOIDS[kind.monoid].onnx, term, kind.axes, keep=keep)
    if not term.dtype.is_float or kind.monoid in ("sum", "prod"):
        return reduced
    has_nan = _any_true(writer, CellWriter(writer)("IsNaN", term), kind.axes, keep=keep)
    return CellWriter(writer).where(has_nan, writer.number(np.nan, term.dtype), reduced)


def _any_true(writer: NodeWriter, truths: OnnxTerm, axes: Sequence[int], *, keep: bool = False) -> OnnxTerm:
    """Whether any is true; False without cells."""
    return writer.cast(_reduce(writer, "ReduceSum", writer.cast(truths, DType.I32), axes, keep=keep), DType.BOOL)


def _negate(writer: NodeWriter, truths: OnnxTerm) -> OnnxTerm:
    return replace(truths, name=writer.emit("Not", truths.name))


def _arg_reduce(kind: Reduce, term: OnnxTerm, sizes: SizeWriter) -> OnnxTerm:
    """The position of the first extreme value, or of the first NaN; several axes are merged into one."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    flat, axis = _merge_axes(kind.axes, term, sizes)
    shape = flat.shape[:axis] + flat.shape[axis + 1 :]

    def place(operator: str, term: OnnxTerm) -> OnnxTerm:
        return OnnxTerm(writer.emit(operator, term.name, axis=axis, keepdims=0), DType.I64, shape)

    place_ = place(MONOIDS[kind.monoid].onnx, flat)
    if not term.dtype.is_float:
        return place_
    odd = cells("IsNaN", flat)
    return cells.where(_any_true(writer, odd, [axis]), place("ArgMax", writer.cast(odd, DType.I32)), place_)


def _merge_axes(axes: Sequence[int], term: OnnxTerm, sizes: SizeWriter) -> tuple[OnnxTerm, int]:
    """The value with these axes merged, and the position of the merged axis."""
    if len(axes) == 1:
        return term, axes[0]
    writer = sizes.writer
    left = [axis for axis in range(len(term.shape)) if axis not in axes]
    turned = writer.emit("Transpose", term.name, perm=[*left, *axes])
    shape: Shape = (*(term.shape[axis] for axis in left), product(term.shape[axis] for axis in axes))
    return replace(term, name=writer.emit("Reshape", turned, sizes.shape(shape), allowzero=1), shape=shape), len(left)


def _logsumexp(writer: NodeWriter, term: OnnxTerm, axes: Sequence[int], *, keep: bool) -> OnnxTerm:
    """log(sum(exp(x - m))) + m, with the maximum m, or 0 if that is infinite."""
    cells = CellWriter(writer)
    top = _reduce(writer, "ReduceMax", term, axes, keep=True)
    top = cells.where(cells("IsInf", top), writer.number(0, term.dtype), top)
    scaled = _reduce(writer, "ReduceSum", cells("Exp", cells("Sub", term, top)), axes, keep=True)
    total = cells("Add", cells("Log", scaled), top)
    left = tuple(dim for axis, dim in enumerate(total.shape) if axis not in axes)
    squeezed = writer.integers(*axes)
    return total if keep else replace(total, name=writer.emit("Squeeze", total.name, squeezed), shape=left)


def _variance(term: OnnxTerm, axes: Sequence[int], sizes: SizeWriter, *, keep: bool) -> OnnxTerm:
    """The mean of the squared distances from the mean, after subtracting the minimum, so that equal values give 0."""
    writer, cells = sizes.writer, CellWriter(sizes.writer)
    number = writer.cast(OnnxTerm(sizes.scalar(product(term.shape[axis] for axis in axes)), DType.I64, ()), term.dtype)

    def mean(of: OnnxTerm, *, keep: bool) -> OnnxTerm:  # onnxruntime's ReduceMean of no cells is 0
        return cells("Div", _reduce(writer, "ReduceSum", of, axes, keep=keep), number)

    above = cells("Sub", term, _reduce(writer, "ReduceMin", term, axes, keep=True))
    apart = cells("Sub", above, mean(above, keep=True))
    return mean(cells("Mul", apart, apart), keep=keep)


def scan_term(kind: Scan, operand: OnnxTerm, dtype: DType, writer: NodeWriter) -> OnnxTerm:
    """The term of a scan along an axis. UnsupportedError for all monoids but a sum."""
    if kind.monoid != "sum":
        raise UnsupportedError(f"the running {kind.monoid} has no ONNX operator in onnxruntime")
    wide = writer.widen(operand)
    flags = {"exclusive": int(kind.exclusive), "reverse": int(kind.reverse)}
    name = writer.emit("CumSum", wide.name, writer.constant(np.int64(kind.axis)), **flags)
    return writer.cast(replace(wide, name=name), dtype)


def contract_term(equation: str, operands: Sequence[OnnxTerm], node: Node, writer: NodeWriter) -> OnnxTerm:
    """The term of an einsum of two values; a MatMul if it is one after transposing them."""
    if node.dtype is DType.BOOL:
        raise UnsupportedError(f"the product {equation} of bool has no ONNX operator")
    inputs, _, result = equation.replace(" ", "").partition("->")
    first, second = inputs.split(",")
    ordered, wide = _in_order(first, second, result), [writer.widen(term) for term in operands]
    names = [_transpose(writer, *each) for each in zip(wide, (first, second), ordered, strict=True)]
    einsum = {} if _is_product(*ordered, result) else {"equation": f"{','.join(ordered)}->{result}"}
    name = writer.emit("Einsum" if einsum else "MatMul", *names, **einsum)
    return writer.cast(OnnxTerm(name, wide[0].dtype, node.shape), node.dtype)


def _in_order(first: str, second: str, result: str) -> tuple[str, str]:
    """The axes of two operands in the order of stacks of matrices: batch, rows, summed; and batch, summed, columns.
    onnxruntime's Einsum ends the process (by a division by 0) if it has to transpose a second operand without
    cells."""
    stack = "".join(axis for axis in first if axis in second and axis in result)
    summed = "".join(axis for axis in first if axis in second and axis not in result)
    rows, columns = ("".join(a for a in one if a not in other) for one, other in ((first, second), (second, first)))
    return f"{stack}{rows}{summed}", f"{stack}{summed}{columns}"


def _transpose(writer: NodeWriter, term: OnnxTerm, axes: str, target: str) -> str:
    return term.name if axes == target else writer.emit("Transpose", term.name, perm=[axes.index(a) for a in target])


def _is_product(first: str, second: str, result: str) -> bool:
    """Whether an einsum is a MatMul: of matrices, of equal stacks of them, or of a stack and one matrix."""
    if min(len(first), len(second)) < 2 or len({*first, *second}) != len({*first[:-2]}) + 3:
        return False
    stack, row, column = first[:-2], first[-2], second[-1]
    return second[:-2] in (stack, "") and first[-1] == second[-2] and result == f"{stack}{row}{column}"
