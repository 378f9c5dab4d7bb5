"""Printer of a graph as NumPy source: one function, with values named as in the model.

Kernels are judged by this text, and users read and edit it. It needs NumPy and `noyau.functions`; on float64 inputs
within `noyau.functions.widen_floats()` it computes the truth."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from noyau.codegen import index_maps
from noyau.codegen.index_maps import AxisStep
from noyau.codegen.numpy import maps
from noyau.codegen.numpy.terms import ATOM, NumpyTerm, SizeText, constant_term, number_text, shortest
from noyau.compiler.lowering.names import Names, identifier
from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.functions import OF_TABLE
from noyau.ir import graph as nodes
from noyau.ir.dims import Dim, Shape, index_name
from noyau.ir.graph import Gather, Lookup, Node
from noyau.ir.monoids import MONOIDS
from noyau.ir.sizes import plan
from noyau.text import collect


def slice_term(steps: Sequence[AxisStep], operand: NumpyTerm, source: Node, node: Node, extents: SizeText) -> NumpyTerm:
    """The term of a view by slices, then a transpose, new axes and reversed axes; identities are omitted."""
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
        pairs = [(AxisStep(axis, index_maps.ZERO), ":") for axis in sorted(outs)]
    text = _subscript(text, _with_new_axes(pairs, operand.shape, rank))
    text = _subscript(text, ["::-1" if axis in turned else ":" for axis in range(rank)])
    return NumpyTerm(text, ATOM, tuple(dim if axis in long else index_maps.ONE for axis, dim in enumerate(node.shape)))


def _cell(step: AxisStep, dim: Dim, shape: Shape, extents: SizeText) -> str:
    """The subscript of one axis; a negative step is sliced forwards, to be reversed later, except for a whole axis."""
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


def _with_new_axes(pairs: Sequence[tuple[AxisStep, str]], shape: Shape, rank: int) -> list[str]:
    """The subscripts of the operand's axes, with a new axis for each axis of the result that none of them becomes. An
    axis of extent 1 that is indexed where a new axis is needed serves as that."""
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
    """The text with subscripts, without whole axes at the end; an ellipsis replaces several at the front."""
    texts = list(cells)
    while texts and texts[-1] == ":":
        texts.pop()
    if not texts:
        return text
    front = next(at for at, cell in enumerate(cells) if cell != ":")
    if front > 1 and len(texts) == len(cells):
        texts = ["...", *texts[front:]]
    return f"{text}[{', '.join(texts)}]"


Terms = Sequence[NumpyTerm]
Grid = Callable[[Shape], Callable[[str], str]]  # names of open grids over a shape


def view_term(index: Shape, operand: NumpyTerm, source: Node, node: Node, extents: SizeText, grid: Grid) -> NumpyTerm:
    """The term of `node`, a view of `source`, whose term is `operand`."""
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
    # A constant index into an axis that may be empty is an error in NumPy, except if no cells are read.
    idle = " + ".join(names(index_name(axis)) for axis in range(len(node.shape)))
    for axis in unsure:
        texts[axis] = f"0 * ({idle}) + {texts[axis]}"
    return lookup_term(packed, texts, node.shape)


def full(term: NumpyTerm, node: Node, extents: SizeText) -> NumpyTerm:
    """The term broadcast to the full shape of the value."""
    if term.shape == node.shape and not term.number:
        return term
    shape = extents.shape(node.shape)
    if term.number:
        return NumpyTerm(f"np.full({shape}, {term.typed})", ATOM, node.shape)
    return NumpyTerm(f"np.broadcast_to({term.text}, {shape})", ATOM, node.shape)


def lookup_term(operand: NumpyTerm, texts: Sequence[str], shape: Shape) -> NumpyTerm:
    """The operand indexed by arrays."""
    return NumpyTerm(f"{operand.within(ATOM)}[{', '.join(texts)}]", ATOM, shape) if texts else operand


def read_shape(index: Sequence[Dim], shape: Shape) -> Shape:
    """The common shape of indices over open grids: 1 along an axis that none of them uses."""
    named = {name for dim in index for name in dim.names if name.startswith("#")}
    if not named:
        return ()
    return tuple(dim if index_name(axis) in named else index_maps.ONE for axis, dim in enumerate(shape))


def gather_term(node: Node, operands: Terms, sources: Sequence[Node], extents: SizeText, grid: Grid) -> NumpyTerm:
    """The term of a Gather: `table[ids]` if whole slices are looked up, else an index array for each axis."""
    assert isinstance(node.kind, Gather)
    packed = [full(term, source, extents) for term, source in zip(operands, sources, strict=True)]
    lookups = [(axis, entry) for axis, entry in enumerate(node.kind.index) if isinstance(entry, Lookup)]
    if len(lookups) == 1 and index_maps.is_whole_lookup(node.kind.index, lookups[0][0], node, sources):
        ((axis, entry),) = lookups
        return lookup_term(packed[0], [":"] * axis + [packed[entry.input].text], node.shape)
    dims = [dim for entry in node.kind.index for dim in (entry.at if isinstance(entry, Lookup) else (entry,))]
    cells = cell_texts(node.kind.index, node.shape, packed, extents, grid)
    return lookup_term(packed[0], cells, read_shape(dims, node.shape))


def cell_texts(index: Sequence[Dim | Lookup], shape: Shape, terms: Terms, extents: SizeText, grid: Grid) -> list[str]:
    """The index arrays of each axis as text, over open grids of a shape; `terms`: the operands of the node."""

    def text(entry: Dim | Lookup) -> str:
        if isinstance(entry, Lookup):
            return lookup_term(terms[entry.input], list(map(text, entry.at)), ()).text
        return extents.text(entry, grid(shape))

    return list(map(text, index))


FUNCTIONS = sorted(("cast", "reduce", "scan", *OF_TABLE))
_RESERVED = (*FUNCTIONS, *"np noyau out rng captured arrays Path abs all any bool max min sum path".split())
_SHORT, _LONG = 44, 96  # letters of an expression that needs no name; of a line
_PLAIN = 1 << 16
_ROOTS = tuple(map(nodes.Map, ("sqrt", "rsqrt", "power", "reciprocal")))


@dataclass(frozen=True, slots=True)
class NumpyFunction:
    """A graph as a function. `inputs`, `outputs`, `sizes`: their names in the text, by name in the graph; `constants`:
    the keyword-only parameters and their defaults; `named`: the constants' names in the text, by name in the graph;
    `imports`: the functions of `noyau.functions` that the text needs."""

    name: str
    text: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    sizes: Mapping[str, str]
    constants: Mapping[str, str]
    named: Mapping[str, str]
    imports: tuple[str, ...]


def write(graph: nodes.Graph, name: str, inputs: Sequence[str] = ()) -> NumpyFunction:
    """Print the function that computes a graph; `inputs`: the order of its parameters.

    UnsupportedError names a boundary, which has no text, or a size that no input's shape determines."""
    return _Printer(graph, name, inputs or [node.output for node in graph.inputs]).run()


class Readers:
    """The nodes of a graph that read each value."""

    def __init__(self, graph: nodes.Graph) -> None:
        self.graph = graph
        self.of = collect((name, node) for node in graph.nodes for name in node.inputs)

    def live(self) -> set[str]:
        """The values that the outputs need."""
        live = set(self.graph.outputs)
        for node in reversed(self.graph.nodes):
            live |= set(node.inputs) if node.output in live else set()
        return live

    def restore_axes(self, node: nodes.Node) -> bool:
        """Whether a node is a reduction whose readers all restore its axes, so that it may use keepdims."""
        readers = self.of.get(node.output, [])
        if not isinstance(node.kind, nodes.Reduce) or node.output in self.graph.outputs or not readers:
            return False
        rank = len(self.graph[node.inputs[0]].shape)
        left = [axis for axis in range(rank) if axis not in node.kind.axes]
        index = tuple(Dim.of(index_name(axis)) for axis in left)
        restored = all(each.kind == nodes.View(index) and len(each.shape) == rank for each in readers)
        return restored and all([each.shape[axis] for axis in left] == list(node.shape) for each in readers)


@dataclass
class _Printer:
    graph: nodes.Graph
    name: str
    order: Sequence[str]
    names: Names = field(default_factory=Names)
    lines: list[str] = field(default_factory=list)
    terms: dict[str, NumpyTerm] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    grids: dict[Shape, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for word in (*_RESERVED, identifier(self.name)):
            self.names.of(word)
        self.inputs = {name: self.names.fresh(friendly(name)) for name in self.order}
        self.uses = Counter(name for node in self.graph.nodes for name in node.inputs)
        self.readers = Readers(self.graph)
        self.sizes = {name: self.names.fresh(name) for name in self.size_order()}
        self.extents = SizeText(lambda name: self.sizes[name], set())

    def size_order(self) -> list[str]:
        """The sizes in the order of the inputs' shapes. UnsupportedError for a size that no shape determines."""
        shapes = [self.graph[name].shape for name in self.order]
        bound = {binding.size for binding in plan(shapes)}
        if loose := sorted(nodes.names_of(self.graph) - bound):
            unknown = f"the size {loose[0]} does not follow from what the path reads"
            raise UnsupportedError(f"{unknown}: add a value that has it")
        return [name for name in dict.fromkeys(n for s in shapes for d in s for n in sorted(d.names)) if name in bound]

    def run(self) -> NumpyFunction:
        live = self.readers.live()
        for node in self.graph.nodes:
            if node.output in live:
                self.terms[node.output] = self.bind(node, self.term(node))
        results = {name: self.result_name(name) for name in self.graph.outputs}
        self.lines.append(f"return {', '.join(results.values())}")
        body = [*self.size_lines(), *self.lines]
        defaults = [f"{name}={value}" for name, value in self.constants.items()]
        head = head_text(self.name, [*self.inputs.values(), *(["*", *defaults] if defaults else [])])
        text = "\n".join([head, *(f"    {line}" for line in body), ""])
        imports = tuple(word for word in FUNCTIONS if re.search(rf"(?<![\w.]){word}\(", text))
        outputs = {name: self.terms[name].text for name in self.graph.outputs}
        return NumpyFunction(self.name, text, self.inputs, outputs, self.sizes, self.constants, self.named, imports)

    def size_lines(self) -> Iterator[str]:
        """The lines that bind each size that the text uses."""
        bindings = list(plan([self.graph[name].shape for name in self.order]))
        for binding in reversed(bindings):
            if binding.size in self.extents.used:
                self.extents.text(binding.offset)
        for binding in bindings:
            if binding.size in self.extents.used:
                text = f"{self.inputs[self.order[binding.input]]}.shape[{binding.axis}]"
                if binding.offset != Dim.of(0):
                    text = f"{text} - ({self.extents.text(binding.offset)})"
                if binding.factor != 1:
                    text = f"({text}) // {binding.factor}"
                yield f"{self.sizes[binding.size]} = {text}"

    def result_name(self, name: str) -> str:
        """The name of an output, broadcast to its full shape."""
        term, node = self.terms[name], self.graph[name]
        is_number = term.number and node.shape == ()
        whole = NumpyTerm(term.typed, ATOM, ()) if is_number else full(term, node, self.extents)
        if whole.text in self.inputs.values() or not whole.text.isidentifier():
            whole = self.assign(node, whole)
        self.terms[name] = whole
        return whole.text

    def bind(self, node: nodes.Node, term: NumpyTerm) -> NumpyTerm:
        """The value under its name if the model names it, it is used twice, or it is long; else the expression."""
        plain = term.text.isidentifier() or term.number
        inner = "~" in node.output and (self.uses[node.output] == 1 or plain) and len(term.text) <= _SHORT
        if plain or inner or isinstance(node.kind, nodes.Input | nodes.Constant):
            return term
        return self.assign(node, term)

    def assign(self, node: nodes.Node, term: NumpyTerm) -> NumpyTerm:
        name = self.names.fresh(friendly(node.output))
        self.lines.append(f"{name} = {term.text}")
        return NumpyTerm(name, ATOM, term.shape)

    def grid(self, shape: Shape) -> Callable[[str], str]:
        """A function that returns the names of open grids over a shape; they are defined at their first use."""

        def name(index: str) -> str:
            if shape not in self.grids:
                self.grids[shape] = [self.names.fresh(f"at_{axis}") for axis in range(len(shape))]
                left = ", ".join(self.grids[shape])
                slices = ", ".join(f":{self.extents.text(dim)}" for dim in shape)
                comma = "," if len(shape) == 1 else ""
                self.lines.append(f"{left}{comma} = np.ogrid[{slices}{comma}]")
            return self.grids[shape][int(index[1:])]

        return name

    def whole(self, name: str) -> NumpyTerm:
        return full(self.terms[name], self.graph[name], self.extents)

    def term(self, node: nodes.Node) -> NumpyTerm:
        """The expression that computes a value."""
        sources = [self.graph[name] for name in node.inputs]
        match node.kind:
            case nodes.Input():
                return NumpyTerm(self.inputs[node.output], ATOM, node.shape)
            case nodes.Constant():
                return self.constant(node)
            case nodes.Iota(index):
                return self.iota(index, node)
            case nodes.Map(function):
                return maps.map_term(function, [self.terms[name] for name in node.inputs], node, sources[-1].dtype)
            case nodes.Reduce():
                keep = self.readers.restore_axes(node)
                return maps.reduce_term(node.kind, self.whole(node.inputs[0]), sources[0], node, keep=keep)
            case nodes.Scan():
                return maps.scan_term(node.kind, self.whole(node.inputs[0]), sources[0])
            case nodes.View() if self.readers.restore_axes(sources[0]):
                return self.terms[node.inputs[0]]
            case nodes.View(index):
                return view_term(index, self.terms[node.inputs[0]], sources[0], node, self.extents, self.grid)
            case nodes.Select(axis, _):
                pieces = ", ".join(self.whole(name).text for name in node.inputs)
                return NumpyTerm(f"np.concatenate([{pieces}], {axis})", ATOM, node.shape)
            case nodes.Gather():
                return gather_term(node, [self.terms[n] for n in node.inputs], sources, self.extents, self.grid)
            case nodes.Scatter():
                return self.scatter(node.kind, node)
            case nodes.Contract(equation):
                return maps.contract_term(equation, [self.whole(name) for name in node.inputs], node)
            case nodes.Opaque(name) | nodes.Part(name):
                unknown = f"{node.output} is made by {name}, which has no text in NumPy"
                raise UnsupportedError(f"{unknown}: end the path there")
            case _:
                assert_never(node.kind)

    def constant(self, node: nodes.Node) -> NumpyTerm:
        assert isinstance(node.kind, nodes.Constant)
        value = node.kind.value
        if value.size != 1:
            listed = _list_text(value.tolist())
            return self.assign(node, NumpyTerm(f'cast({listed}, "{node.dtype.value}")', ATOM, node.shape))
        number = value.reshape(()).item() if node.dtype is not DType.BF16 else float(value.reshape(()))
        power, name = nodes.Map("power"), node.output
        is_exponent = any(reader.kind == power and reader.inputs[1] == at for reader, at in self.readers_of(name))
        if not node.dtype.is_float or _is_plain(number) or is_exponent:
            return constant_term(number, node.dtype)
        name = self.names.fresh(self.role(node))
        self.constants[name], self.named[node.output] = shortest(number, node.dtype), name
        return constant_term(number, node.dtype, name)

    def readers_of(self, name: str) -> Iterator[tuple[nodes.Node, str]]:
        """The readers of a value, directly or through views, each with the name of its operand."""
        for reader in self.readers.of.get(name, ()):
            if isinstance(reader.kind, nodes.View):
                yield from self.readers_of(reader.output)
            else:
                yield reader, name

    def role(self, node: nodes.Node) -> str:
        """The name of a constant by its use: eps in a sum under a root, scale, fill of a choice; else the model's."""
        for reader, _ in self.readers_of(node.output):
            above = (each.kind for each, _ in self.readers_of(reader.output))
            match reader.kind:
                case nodes.Map("add" | "maximum") if any(kind in _ROOTS for kind in above):
                    return "eps"
                case nodes.Map("multiply" | "divide"):
                    return "scale"
                case nodes.Map("where"):
                    return "fill"
                case _:
                    pass
        return friendly(node.output)

    def iota(self, index: Dim, node: nodes.Node) -> NumpyTerm:
        """The term of an index or a size."""
        if not any(name.startswith("#") for name in index.names):
            return self.extents.term(index, node.dtype)
        if len(node.shape) == 1 and index == Dim.of(index_name(0)):
            counter = NumpyTerm(f"np.arange({self.extents.text(node.shape[0])})", ATOM, node.shape)
        else:
            counter = NumpyTerm(self.extents.text(index, self.grid(node.shape)), 0, read_shape([index], node.shape))
        return maps.cast_term(counter, DType.I64, node.dtype)

    def scatter(self, kind: nodes.Scatter, node: nodes.Node) -> NumpyTerm:
        """A copy of the table, into which statements merge the updates."""
        table, _, updates = operands = [self.whole(name) for name in node.inputs]
        copy = self.assign(node, NumpyTerm(f"{table.within(ATOM)}.copy()", ATOM, node.shape))
        cells = cell_texts(kind.index, self.graph[node.inputs[2]].shape, operands, self.extents, self.grid)
        if kind.monoid is None:
            self.lines.append(f"{copy.text}[{', '.join(cells)}] = {updates.text}")
        else:
            where = f"({', '.join(cells)}{',' if len(cells) == 1 else ''})"
            self.lines.append(f"np.{MONOIDS[kind.monoid].function}.at({copy.text}, {where}, {updates.text})")
        return copy


def friendly(name: str) -> str:
    """The last two parts of a model's name: `self_attn_Mul`, `input_layernorm_weight`, `layers_3_Add`."""
    stem, tilde, inner = name.partition("~")
    parts = [part for part in re.split(r"[/.:]+", stem.removesuffix("_output_0")) if part]
    first = len(parts) - 2
    while first > 0 and parts[first].isdigit():
        first -= 1
    return "_".join(parts[max(first, 0) :]) + tilde + inner


def head_text(name: str, parameters: Sequence[str]) -> str:
    """The header of a function, with one parameter a line if it would be too long."""
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= _LONG:
        return line
    return "\n".join([f"def {name}(", *(f"    {parameter}," for parameter in parameters), "):"])


def _list_text(values: object) -> str:
    """Nested lists of numbers as text."""
    if isinstance(values, list):
        return f"[{', '.join(map(_list_text, values))}]"
    return number_text(values)  # type: ignore[arg-type]


def _is_plain(value: float) -> bool:
    """Whether a number is part of a formula rather than a parameter: a small multiple of 1/2, infinite, or NaN."""
    return not math.isfinite(value) or (abs(value) <= _PLAIN and (2 * value).is_integer())
