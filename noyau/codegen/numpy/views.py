"""Views and lookups as NumPy writes them: slices, a transpose or a reshape, or each index looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noyau.codegen import index_maps
from noyau.codegen.numpy.terms import ATOM, NumpyTerm, SizeText
from noyau.ir.dims import Dim, Shape, index_name
from noyau.ir.graph import Gather, Lookup, Node


def slice_term(
    steps: Sequence[index_maps.AxisStep], operand: NumpyTerm, source: Node, node: Node, extents: SizeText
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
        pairs = [(index_maps.AxisStep(axis, index_maps.ZERO), ":") for axis in sorted(outs)]
    text = _subscript(text, _with_new_axes(pairs, operand.shape, rank))
    text = _subscript(text, ["::-1" if axis in turned else ":" for axis in range(rank)])
    return NumpyTerm(text, ATOM, tuple(dim if axis in long else index_maps.ONE for axis, dim in enumerate(node.shape)))


def _cell(step: index_maps.AxisStep, dim: Dim, shape: Shape, extents: SizeText) -> str:
    """The subscript of one axis; one that runs backwards is sliced forwards, unless it is the whole axis."""
    if step.out is None:
        return extents.text(step.start)
    length, size = shape[step.out], abs(step.step)
    if step.step == -1 and step.start == dim - 1 and length == dim:
        return "::-1"
    start = step.start if step.step > 0 else step.start + step.step * (length - 1)
    stop = start + size * length if step.step > 0 else step.start + 1
    ends = (dim - start + (size - 1)) // size == length
    texts = ["" if start == index_maps.ZERO else extents.text(start), "" if ends else extents.text(stop)]
    return ":".join([*texts, *([str(size)] if size > 1 else [])])


def _with_new_axes(pairs: Sequence[tuple[index_maps.AxisStep, str]], shape: Shape, rank: int) -> list[str]:
    """The subscripts of the operand's axes, and a new axis for each of the result that none of them is. One of extent 1
    that goes where a new one comes, stays."""
    waiting = list(zip(pairs, shape if len(shape) == len(pairs) else [index_maps.ZERO] * len(pairs), strict=True))
    outs, texts = {step.out for step, _ in pairs}, list[str]()
    for axis in range(rank):
        while axis in outs and waiting[0][0][0].out is None:
            texts.append(waiting.pop(0)[0][1])
        if axis in outs:
            texts.append(waiting.pop(0)[0][1])
        elif waiting and waiting[0][0][0].out is None and waiting[0][1] == index_maps.ONE:
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


Grid = Callable[[Shape], Callable[[str], str]]  # names of open grids over a shape


def view_term(index: Shape, operand: NumpyTerm, source: Node, node: Node, extents: SizeText, grid: Grid) -> NumpyTerm:
    """The value of a view: of `source`, which is `operand` in the text, as `node`."""
    if operand.number or index_maps.is_broadcast(index, source.shape, node.shape):
        return operand
    steps = index_maps.slices_of(index, operand.shape, source.shape, node.shape)
    if steps is not None:
        return slice_term(steps, operand, source, node, extents)
    packed = full(operand, source, extents)
    if index_maps.is_reshape(index, source.shape, node.shape):
        dims = ", ".join(map(extents.text, node.shape)) or "()"
        return NumpyTerm(f"{packed.within(ATOM)}.reshape({dims})", ATOM, node.shape)
    texts, names = [extents.text(dim, grid(node.shape)) for dim in index], grid(node.shape)
    unsure = [axis for axis, dim in enumerate(index) if not index_maps.is_within(dim, source.shape[axis])]
    if not unsure:
        return lookup_term(packed, texts, read_shape(index, node.shape))
    # One cell of an axis that may be empty: an error to NumPy, unless there are no cells to be read.
    idle = " + ".join(names(index_name(axis)) for axis in range(len(node.shape)))
    for axis in unsure:
        texts[axis] = f"0 * ({idle}) + {texts[axis]}"
    return lookup_term(packed, texts, node.shape)


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
    return tuple(dim if index_name(axis) in named else index_maps.ONE for axis, dim in enumerate(shape))


def gather_term(
    node: Node, operands: Sequence[NumpyTerm], sources: Sequence[Node], extents: SizeText, grid: Grid
) -> NumpyTerm:
    """The cells of a table that integers name: `table[ids]` where every cell of an axis is looked up whole."""
    assert isinstance(node.kind, Gather)
    packed = [full(term, source, extents) for term, source in zip(operands, sources, strict=True)]
    places = [axis for axis, entry in enumerate(node.kind.index) if isinstance(entry, Lookup)]
    if len(places) == 1 and index_maps.is_whole_lookup(node.kind.index, places[0], node, sources):
        entry = node.kind.index[places[0]]
        assert isinstance(entry, Lookup)
        return lookup_term(packed[0], [":"] * places[0] + [packed[entry.input].text], node.shape)
    dims = [dim for entry in node.kind.index for dim in (entry.at if isinstance(entry, Lookup) else (entry,))]
    cells = cell_texts(node.kind.index, node.shape, packed, extents, grid)
    return lookup_term(packed[0], cells, read_shape(dims, node.shape))


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
