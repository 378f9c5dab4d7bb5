"""A graph of ATen operators into the graph IR, node by node; what has no meaning here is a boundary with its reason."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.numpy.tape import Tape
from noyau.frontends.torch import contracting, elementwise, indexing, reductions, views  # noqa: F401  they fill ATEN
from noyau.frontends.torch.dtypes import dim_of, dtype_of, shape_from
from noyau.frontends.torch.opaque import evaluator
from noyau.frontends.torch.sites import ATEN, Made, Site
from noyau.ir.checking import check
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Constant, Graph, Input, Node, Opaque, Part, View


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph, its inputs named after torch's placeholders. `made_by`: torch's node of each value that it made;
    `opaque`: why a node is a boundary; `sizes`: the placeholders that are sizes, as Dims."""

    graph: Graph
    made_by: Mapping[str, str]
    opaque: Mapping[str, str]
    sizes: Mapping[str, Dim] = field(default_factory=dict)


def import_graph(program: fx.Graph) -> Imported:
    """A graph of torch's whose nodes carry fake tensors (`meta["val"]`).

    UnsupportedError where an input is no tensor that noyau knows: complex, sparse, quantised, of a meta device."""
    work = _Importing(Tape())
    for node in program.nodes:
        work.enter(node)
    return work.finished()


class _Importing:
    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.values: dict[fx.Node, Made] = {}
        self.names: dict[str, str] = {}  # of a value, the name of torch's node
        self.made_by: dict[str, str] = {}
        self.opaque: dict[str, str] = {}
        self.sizes: dict[str, Dim] = {}
        self.outputs: list[str] = []

    def enter(self, node: fx.Node) -> None:
        before = len(self.tape.nodes)
        match node.op:
            case "placeholder" | "get_attr":
                self.values[node] = self.placed(node)
            case "call_function" if "val" in node.meta:
                self.values[node] = self.called(node)
            case "call_function":
                pass  # it asserts what torch knows already
            case "output":
                self.outputs = [self.returned(each) for each in _flat(node.args[0])]
            case other:
                raise UnsupportedError(f"{node.name} is a {other}, which no graph of ATen operators has")
        made = self.values.get(node)
        self.made_by |= {value.output: node.name for value in self.tape.nodes[before:]}
        if isinstance(made, Node) and made in self.tape.nodes[before:]:
            self.names[made.output] = node.name

    def placed(self, node: fx.Node) -> Made:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
            self.sizes[node.name] = dim_of(value)
            return dim_of(value)
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            raise UnsupportedError(f"the input {node.name} is {_told(value)}, and noyau takes dense tensors")
        name = f"{node.name}_" if re.fullmatch(r"v\d+", node.name) else node.name  # as the tape names values
        return self.tape.input(name, dtype_of(value.dtype), shape_from(value))

    def called(self, node: fx.Node) -> Made:
        if node.target is operator.getitem:
            source, place = node.args
            assert isinstance(source, fx.Node) and isinstance(place, int)
            whole = self.values[source]
            assert isinstance(whole, tuple)
            return whole[place]
        if isinstance(node.meta.get("val"), torch.SymInt | int):
            return self.sized(node)
        name = str(node.target).removeprefix("aten.")
        marks = len(self.tape.nodes), dict(self.tape.demands)
        try:
            if name not in ATEN:
                raise UnsupportedError(f"noyau does not know {node.target}")
            return self.fitted(node, ATEN[name](Site(self.tape, node, self.values)))
        except UnsupportedError as reason:
            del self.tape.nodes[marks[0] :]
            self.tape.demands = marks[1]
            self.opaque[node.name] = str(reason)
            return self.boundary(node)

    def sized(self, node: fx.Node) -> Made:
        """A size that the graph computes; torch has its formula."""
        return dim_of(node.meta["val"])

    def fitted(self, node: fx.Node, made: Made) -> Made:
        """Results of the very dtypes and shapes that torch gives them."""
        if isinstance(made, Node):
            return self.fit(made, node.meta["val"])
        if isinstance(made, tuple):
            return tuple(self.fit(*pair) for pair in zip(made, node.meta["val"], strict=True))
        return made

    def fit(self, value: Node, meta: torch.Tensor) -> Node:
        return self.tape.shaped(self.tape.cast(value, dtype_of(meta.dtype)), shape_from(meta))

    def boundary(self, node: fx.Node) -> Made:
        """An operator that torch evaluates, over the tensors among its arguments."""
        found = [self.values[each] for each in node.all_input_nodes]
        operands = list({value.output: value for value in found if isinstance(value, Node)}.values())
        kind = Opaque(str(node.target), evaluator(node, operands, dict(self.values)), (repr(_plain(node)),))
        results = node.meta["val"]
        if isinstance(results, torch.Tensor):
            return self.tape.emit(kind, operands, dtype_of(results.dtype), shape_from(results))
        whole = self.tape.emit(kind, operands, DType.OTHER, shape_of([]))
        return tuple(
            self.tape.emit(Part(at), [whole], dtype_of(each.dtype), shape_from(each))
            for at, each in enumerate(results)
            if each is not None
        )

    def returned(self, given: Any) -> str:
        """The name of a result; a size, a number or an input is a value of its own."""
        made = self.values.get(given) if isinstance(given, fx.Node) else given
        match made:
            case Node() if not isinstance(made.kind, Input | Constant) and made.output not in self.outputs:
                return made.output
            case Node():
                return self.tape.emit(*_same(made)).output
            case Dim():
                return self.tape.size(made, DType.I64).output
            case _:
                raise UnsupportedError(f"the result {given} is no tensor and no size")

    def finished(self) -> Imported:
        """The graph, its values under torch's names."""
        names = self.names
        nodes = tuple(
            replace(
                node,
                output=names.get(node.output, node.output),
                inputs=tuple(names.get(name, name) for name in node.inputs),
            )
            for node in self.tape.nodes
        )
        outputs = tuple(names.get(name, name) for name in self.outputs)
        graph = check(Graph(nodes, outputs, tuple(self.tape.demands)))
        made_by = {names.get(value, value): name for value, name in self.made_by.items()}
        return Imported(graph, made_by, self.opaque, self.sizes)


def _same(node: Node) -> tuple[Any, list[Node], DType, Any]:
    return View(indices(len(node.shape))), [node], node.dtype, node.shape


def _plain(node: fx.Node) -> Any:
    """The arguments of an operator that are no tensors: what tells two of one name apart."""
    return fx.node.map_arg((node.args, node.kwargs), lambda each: "%")


def _flat(results: Any) -> list[Any]:
    return [each for each in (results if isinstance(results, tuple | list) else [results]) if each is not None]


def _told(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {'quantised ' if value.is_quantized else ''}tensor of the layout {value.layout}"
    return f"a {type(value).__name__}"
