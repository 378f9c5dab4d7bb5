"""Values of a graph as NumPy writes them: views, lookups, scalar functions, reductions, scans and products.

A view is slices, transpose or reshape; what is none of these looks up each index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from noyau.codegen.numpy.terms import ATOM, COMPARE, INFIX, POWER, TIMES, UNARY, NumpyTerm, SizeText, numpy_name
from noyau.dtypes import HALVES, DType
from noyau.functions import OF_TABLE
from noyau.ir.dims import Dim, Shape, index_name, indices, product, strides_of
from noyau.ir.graph import Gather, Lookup, Node, Reduce, Scan
from noyau.ir.graph import step_of as unit_step
from noyau.ir.operators import OPERATORS
from noyau.ir.ranges import simplify

ONE, ZERO = Dim.of(1), Dim.of(0)


@dataclass(frozen=True, slots=True)
class AxisStep:
    """The read of one axis of an operand: at `start + step * index` of the axis `out` of the result, or at `start`."""

    out: int | None
    start: Dim
    step: int = 1


Grid = Callable[[Shape], Callable[[str], str]]  # names of open grids over a shape


def view_term(index: Shape, operand: NumpyTerm, source: Node, node: Node, extents: SizeText, grid: Grid) -> NumpyTerm:
    """The value of a view: of `source`, which is `operand` in the text, as `node`."""
    if operand.number or is_broadcast(index, source.shape, node.shape):
        return operand
    steps = slices_of(index, operand.shape, source.shape, node.shape)
    if steps is not None:
        return _slice_term(steps, operand, source, node, extents)
    packed = full(operand, source, extents)
    if is_reshape(index, source.shape, node.shape):
        dims = ", ".join(map(extents.text, node.shape)) or "()"
        return NumpyTerm(f"{packed.within(ATOM)}.reshape({dims})", ATOM, node.shape)
    texts, names = [extents.text(dim, grid(node.shape)) for dim in index], grid(node.shape)
    unsure = [axis for axis, dim in enumerate(index) if not is_within(dim, source.shape[axis])]
    if not unsure:
        return lookup_term(packed, texts, read_shape(index, node.shape))
    # One cell of an axis that may be empty: an error to NumPy, unless there are no cells to be read.
    idle = " + ".join(names(index_name(axis)) for axis in range(len(node.shape)))
    for axis in unsure:
        texts[axis] = f"0 * ({idle}) + {texts[axis]}"
    return lookup_term(packed, texts, node.shape)


def is_within(at: Dim, dim: Dim) -> bool:
    """Whether an index depends on one of the result, or is surely one of the axis."""
    moves = any(name.startswith("#") for name in at.names)
    return moves or (at.constant is not None and 0 <= at.constant < (dim.constant or 0))


def is_broadcast(index: Shape, source: Shape, target: Shape) -> bool:
    """Whether NumPy's broadcasting makes the view: axes aligned at the end, those of extent 1 alike everywhere."""
    if len(source) > len(target):
        return False
    aligned, here = target[len(target) - len(source) :], indices(len(target))[len(target) - len(source) :]
    return all(
        (at == own and dim == goal) or (at == ZERO and dim == ONE) or (at == own * unit_step(dim) != own)
        for at, own, dim, goal in zip(index, here, source, aligned, strict=True)
    )


def full(term: NumpyTerm, node: Node, extents: SizeText) -> NumpyTerm:
    """The term with every axis as long as the value's."""
    if term.shape == node.shape and not term.number:
        return term
    shape = extents.shape(node.shape)
    if term.number:
        return NumpyTerm(f"np.full({shape}, {term.typed})", ATOM, node.shape)
    return NumpyTerm(f"np.broadcast_to({term.text}, {shape})", ATOM, node.shape)


def lookup_term(operand: NumpyTerm, texts: Sequence[str], shape: Shape) -> NumpyTerm:
    """A cell of the operand for each index."""
    if not texts:
        return operand
    return NumpyTerm(f"{operand.within(ATOM)}[{', '.join(texts)}]", ATOM, shape)


def read_shape(index: Sequence[Dim], shape: Shape) -> Shape:
    """The shape that indices over open grids have together: 1 along an axis that none of them names."""
    named = {name for dim in index for name in dim.names if name.startswith("#")}
    if not named:
        return ()
    return tuple(dim if index_name(axis) in named else ONE for axis, dim in enumerate(shape))


def step_of(dim: Dim, shape: Shape) -> AxisStep | None:
    """An index that is a multiple of one index of the result and a rest, or None for another one."""
    axes = [axis for axis in range(len(shape)) if index_name(axis) in dim.names]
    if not axes:
        return AxisStep(None, dim)
    name = index_name(axes[0])
    factor = dict(dim.terms).get((name,), 0)
    start = dim - Dim.of(name) * factor
    if len(axes) > 1 or not factor or any(each.startswith("#") for each in start.names):
        return None
    return AxisStep(axes[0], start, factor)


def slices_of(index: Shape, operand: Shape, source: Shape, target: Shape) -> list[AxisStep] | None:
    """The steps of a view along the operand's own axes, where slices can take them; where it broadcasts all cells are
    alike."""
    steps = [step for step in (step_of(dim, target) for dim in index) if step is not None]
    missing = len(source) - len(operand)
    outs = [step.out for step in steps[missing:] if step.out is not None]
    if len(steps) < len(index) or len(set(outs)) < len(outs):
        return None
    usable, grows = [], len(outs) < len(target)
    for step, dim, there in zip(steps[missing:], source[missing:], operand, strict=True):
        at, alike = step.start.constant, dim != there
        if alike and there != ONE:
            return None
        # A cell of an axis that may be empty is an error, unless the result is: a new axis may be what makes it so.
        risky = grows or (at is not None and at < 0)
        if step.out is None and not alike and risky and not is_within(step.start, dim):
            return None
        usable.append(AxisStep(step.out, ZERO) if alike else step)
    return usable


def _slice_term(
    steps: Sequence[AxisStep], operand: NumpyTerm, source: Node, node: Node, extents: SizeText
) -> NumpyTerm:
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


def is_reshape(index: Shape, source: Shape, target: Shape) -> bool:
    """Whether a view keeps every cell where it is in memory."""
    if product(source) != product(target):
        return False
    extents = {index_name(axis): dim for axis, dim in enumerate(target)}
    there = sum((at * stride for at, stride in zip(index, strides_of(source), strict=True)), ZERO)
    here = sum((at * stride for at, stride in zip(indices(len(target)), strides_of(target), strict=True)), ZERO)
    return simplify(there, extents) == simplify(here, extents)


def gather_term(
    node: Node, operands: Sequence[NumpyTerm], sources: Sequence[Node], extents: SizeText, grid: Grid
) -> NumpyTerm:
    """The cells of a table that integers name: `table[ids]` where every cell of an axis is looked up whole."""
    assert isinstance(node.kind, Gather)
    packed = [full(term, source, extents) for term, source in zip(operands, sources, strict=True)]
    places = [axis for axis, entry in enumerate(node.kind.index) if isinstance(entry, Lookup)]
    if len(places) == 1 and is_whole_lookup(node.kind.index, places[0], node, sources):
        entry = node.kind.index[places[0]]
        assert isinstance(entry, Lookup)
        return lookup_term(packed[0], [":"] * places[0] + [packed[entry.input].text], node.shape)
    dims = [dim for entry in node.kind.index for dim in (entry.at if isinstance(entry, Lookup) else (entry,))]
    cells = cell_texts(node.kind.index, node.shape, packed, extents, grid)
    return lookup_term(packed[0], cells, read_shape(dims, node.shape))


def is_whole_lookup(index: Sequence[Dim | Lookup], axis: int, node: Node, sources: Sequence[Node]) -> bool:
    """Whether the others are whole axes, in order, around those of the array that is looked up."""
    entry, here, table = index[axis], list(indices(len(node.shape))), sources[0].shape
    assert isinstance(entry, Lookup)
    rank = len(sources[entry.input].shape)
    around = [*here[:axis], *here[axis + rank :]]
    others = [each for each in index if not isinstance(each, Lookup)]
    lengths = [*node.shape[:axis], *node.shape[axis + rank :]]
    whole = list(entry.at) == here[axis : axis + rank] and sources[entry.input].shape == node.shape[axis : axis + rank]
    return whole and others == around and lengths == [*table[:axis], *table[axis + 1 :]]


def cell_texts(
    index: Sequence[Dim | Lookup], shape: Shape, operands: Sequence[NumpyTerm], extents: SizeText, grid: Grid
) -> list[str]:
    """The index of a cell in each axis, over open grids of a shape; `operands` are those of the node."""

    def text(dim: Dim) -> str:
        return extents.text(dim, grid(shape))

    return [
        lookup_term(operands[entry.input], list(map(text, entry.at)), ()).text
        if isinstance(entry, Lookup)
        else text(entry)
        for entry in index
    ]


CALLS = {
    **{name: f"np.{operator.names.numpy.split()[0]}" for name, operator in OPERATORS.items() if operator.names.numpy},
    **{function: name for name, function in OF_TABLE.items()},
}


def map_term(function: str, operands: Sequence[NumpyTerm], node: Node, source: DType) -> NumpyTerm:
    """A scalar function of operands that broadcast; `source` is the dtype of the last one."""
    if function == "cast":
        return cast_term(operands[0], source, node.dtype)
    if function in ("identity", "rounded"):
        return operands[0]
    terms, shape = (
        _with_typed_operand(list(operands), function == "where"),
        broadcast([term.shape for term in operands]),
    )
    if source is DType.BOOL and INFIX.get(function, ("", ""))[1] == COMPARE:  # x == True reads as a mistake
        terms = [NumpyTerm(term.typed or term.text, ATOM if term.number else term.level, term.shape) for term in terms]
    if function in ("divide", "power") and not source.is_float:
        return _call_term(CALLS[function], terms, shape)
    match function, [term.within(ATOM) for term in terms]:
        case "negative", _:
            return NumpyTerm(f"-{terms[0].within(UNARY)}", UNARY, shape)
        case "power", [base, exponent]:
            sign = "**" if re.fullmatch(r"\w+", base) and re.fullmatch(r"\w+", exponent) else " ** "  # as ruff has it
            return NumpyTerm(f"{base}{sign}{exponent}", POWER, shape)
        case "reciprocal", [x]:
            return NumpyTerm(f"1 / {x}", TIMES, shape)
        case "rsqrt", _ if node.dtype in HALVES:
            wide = f'1 / np.sqrt(cast({terms[0].text}, "f32"))'
            return NumpyTerm(f'cast({wide}, "{node.dtype.value}")', ATOM, shape)
        case "rsqrt", _:
            return NumpyTerm(f"1 / np.sqrt({terms[0].text})", TIMES, shape)
        case _ if function in INFIX:
            sign, level = INFIX[function]
            left, right = terms[0].within(level + (level == COMPARE)), terms[1].within(level + 1)
            return NumpyTerm(f"{left} {sign} {right}", level, shape)
        case _:
            return _call_term(CALLS[function], terms, shape)


def cast_term(operand: NumpyTerm, source: DType, target: DType) -> NumpyTerm:
    """A value in another dtype: floats stay as wide as they are where the truth is asked for, integers never."""
    text = operand.typed or operand.text
    if source is target:
        return operand
    if target is DType.BOOL:
        array = NumpyTerm(text, ATOM, ()) if operand.number else operand
        return NumpyTerm(f"{array.within(COMPARE + 1)} != 0", COMPARE, operand.shape)
    if operand.number and target in (DType.F32, DType.F64) and not source.is_float:
        return NumpyTerm(operand.text, operand.level, (), f'cast({operand.text}, "{target.value}")')
    if target.is_float:
        return NumpyTerm(f'cast({text}, "{target.value}")', ATOM, operand.shape)
    inner = text if operand.number else operand.within(ATOM)
    return NumpyTerm(f"{inner}.astype({numpy_name(target)})", ATOM, operand.shape)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape, where each axis is as long as the value's, or 1, or missing."""
    axes = zip_longest(*(shape[::-1] for shape in shapes), fillvalue=ONE)
    return tuple(next((dim for dim in axis if dim != ONE), ONE) for axis in axes)[::-1]


def _with_typed_operand(terms: list[NumpyTerm], chooses: bool) -> list[NumpyTerm]:
    """The operands, one of them of the dtype, which NumPy then gives to the numbers; a condition apart."""
    first = int(chooses)
    if all(term.number for term in terms[first:]):
        terms[first] = NumpyTerm(terms[first].typed, ATOM, ())
    if chooses and terms[0].number:
        terms[0] = NumpyTerm(terms[0].typed, ATOM, ())
    return terms


def _call_term(name: str, terms: Sequence[NumpyTerm], shape: Shape) -> NumpyTerm:
    return NumpyTerm(f"{name}({', '.join(term.text for term in terms)})", ATOM, shape)


def reduce_term(kind: Reduce, operand: NumpyTerm, source: Node, node: Node, *, keep: bool) -> NumpyTerm:
    """A reduction of a whole value; `keep`: its axes stay, of length 1."""
    whole = tuple(ONE if axis in kind.axes else dim for axis, dim in enumerate(source.shape))
    shape = whole if keep else node.shape
    where, flag = _axes(kind.axes, len(source.shape)), ", keepdims=True" if keep else ""
    filled = all((source.shape[axis].constant or 0) > 0 for axis in kind.axes)
    method = _method(kind.monoid, source.dtype, filled, len(kind.axes) == 1)
    if method is None:
        return NumpyTerm(f'reduce("{kind.monoid}", {operand.text}, {where}{flag})', ATOM, shape)
    name, extra = method
    if source.dtype in HALVES and name in ("sum", "prod"):
        wide = f'cast({operand.text}, "f32").{name}({where}{flag})'
        return NumpyTerm(f'cast({wide}, "{node.dtype.value}")', ATOM, shape)
    return NumpyTerm(f"{operand.within(ATOM)}.{name}({where}{flag}{extra})", ATOM, shape)


def _axes(axes: Sequence[int], rank: int) -> str:
    if len(axes) > 1:
        return f"({', '.join(map(str, axes))})"
    return "-1" if axes[0] == rank - 1 else str(axes[0])


def _method(monoid: str, dtype: DType, filled: bool, single: bool) -> tuple[str, str] | None:
    """The method of an array that is this monoid, and what else it is called with; None where NumPy has none."""
    match monoid:
        case "sum" | "prod":
            narrow = not dtype.is_float and dtype not in (DType.I64, DType.U64)
            return monoid, f", dtype={numpy_name(dtype)}" if narrow else ""
        case "max" | "min" if dtype.is_float:
            return monoid, "" if filled else f", initial={'-' if monoid == 'max' else ''}np.inf"
        case "max" | "min" if dtype is not DType.BOOL and filled:
            return monoid, ""
        case "any" | "all":
            return monoid, ""
        case "argmax" | "argmin" if single and filled:
            return monoid, ""
        case _:
            return None


def scan_term(kind: Scan, operand: NumpyTerm, source: Node) -> NumpyTerm:
    """A running result along an axis."""
    plain = kind.monoid == "sum" and source.dtype in (DType.F32, DType.F64, DType.I64)
    where = "-1" if kind.axis == len(source.shape) - 1 else str(kind.axis)
    if plain and not kind.exclusive and not kind.reverse:
        return NumpyTerm(f"{operand.within(ATOM)}.cumsum({where})", ATOM, source.shape)
    flags = "".join(f", {name}=True" for name in ("exclusive", "reverse") if getattr(kind, name))
    return NumpyTerm(f'scan("{kind.monoid}", {operand.text}, {where}{flags})', ATOM, source.shape)


def contract_term(equation: str, operands: Sequence[NumpyTerm], node: Node) -> NumpyTerm:
    """An einsum; short floats are summed in float32."""
    if node.dtype not in HALVES:
        return NumpyTerm(f'np.einsum("{equation}", {", ".join(term.text for term in operands)})', ATOM, node.shape)
    wide = ", ".join(f'cast({term.text}, "f32")' for term in operands)
    return NumpyTerm(f'cast(np.einsum("{equation}", {wide}), "{node.dtype.value}")', ATOM, node.shape)
