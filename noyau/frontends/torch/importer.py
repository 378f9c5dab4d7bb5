"""Import of a graph of ATen operators, node by node; an operator without a meaning is a boundary with its reason."""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from noyau.dtypes import DType
from noyau.errors import UnsupportedError
from noyau.frontends.torch import calculations, gathers, pieces, views  # noqa: F401
from noyau.frontends.torch.sites import ATEN, AtenSite, Made
from noyau.frontends.torch.tensors import Array, as_array, as_tensor, cells_of, dim_of, dtype_of, shape_from
from noyau.ir.builder import GraphBuilder
from noyau.ir.dims import Dim, indices, shape_of
from noyau.ir.graph import Constant, Graph, Input, Node, Opaque, Part
from noyau.ir.graph_verifier import check
from noyau.ir.sizes import Demand

# Operators that a library runs better whole: products, convolutions, attention. Their bodies would be boundaries.
WHOLE = (
    *("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "_linalg", "linalg", "conv", "_conv", "cudnn", "mkldnn"),
    *("_scaled_dot_product", "scaled_dot_product", "_efficient_attention", "_flash_attention"),
)
# Operators that draw random numbers: a body would draw other numbers.
RANDOM = ("bernoulli", "native_dropout", "rand", "normal", "uniform", "exponential", "multinomial", "poisson")


@cache
def table(is_composite: bool) -> Any:
    """torch's decompositions by operator; the composites, which no traced graph has, take half a second to add."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()} if is_composite else decomposition_table


def body(node: fx.Node) -> fx.Graph | None:
    """The body of an operator: a graph of ATen operators over its tensors and sizes, in the order of `all_input_nodes`.
    None without one in torch, or where a library runs the operator better. UnsupportedError where tracing fails."""
    name = str(node.target).removeprefix("aten.").removeprefix("_")
    if not isinstance(node.target, torch._ops.OpOverload) or name.startswith((*WHOLE, *RANDOM)):
        return None
    decomposition = table(node.target._can_decompose()).get(node.target)
    if decomposition is None:
        return None
    arguments = node.all_input_nodes

    def call(*values: Any) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), dict(zip(arguments, values, strict=True)).__getitem__)
        results = decomposition(*args, **kwargs)
        return tuple(results) if isinstance(results, tuple) else results  # a named tuple would be a node of its own

    values = [each.meta["val"] for each in arguments]
    mode = getattr(next((each for each in values if isinstance(each, torch.Tensor)), None), "fake_mode", None)
    if mode is None:
        raise UnsupportedError(f"{node.target} is given no tensor, so it has no body")
    try:
        with mode:
            results = make_fx(call)(*values)
    except Exception as fault:
        raise UnsupportedError(f"the body of {node.target} cannot be traced: {type(fault).__name__}") from fault
    return results.graph


@dataclass(frozen=True, slots=True)
class ImportedGraph:
    """A graph, with inputs named after torch's placeholders. `made_by`: torch's node of each value; `opaque`: the
    reason of a boundary, by node; `sizes`: the placeholders that are sizes, as Dims; `results`: the values of each node
    of torch's, which no two nodes share; `demands`: the conditions of a node on sizes."""

    graph: Graph
    made_by: Mapping[str, str]
    opaque: Mapping[str, str]
    sizes: Mapping[str, Dim] = field(default_factory=dict)
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    demands: Mapping[str, tuple[Demand, ...]] = field(default_factory=dict)


def import_graph(program: fx.Graph) -> ImportedGraph:
    """Import a graph of torch's whose nodes carry fake tensors (`meta["val"]`). Operators that read complex, float8,
    sparse or quantised tensors are boundaries.

    UnsupportedError where an input is neither a tensor, a size nor a generator of random numbers."""
    work = _GraphImporter(GraphBuilder())
    for node in program.nodes:
        work.enter(node)
    return work.finish()


class _GraphImporter:
    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.values: dict[fx.Node, Made] = {}
        self.names: dict[str, str] = {}  # the name of torch's node, by value
        self.made_by: dict[str, str] = {}
        self.opaque: dict[str, str] = {}
        self.sizes: dict[str, Dim] = {}
        self.results: dict[str, tuple[str, ...]] = {}
        self.demands: dict[str, tuple[Demand, ...]] = {}
        self.outputs: list[str] = []

    def enter(self, node: fx.Node) -> None:
        before, demanded = len(self.builder.nodes), set(self.builder.demands)
        self.builder.unique.clear()  # two nodes share no values, even where they are equal
        match node.op:
            case "placeholder" | "get_attr":
                self.values[node] = self.placeholder(node)
            case "call_function" if "val" in node.meta:
                self.values[node] = self.convert(node)
            case "call_function":
                pass  # an assertion that torch knows to hold
            case "output":
                results = node.args[0] if isinstance(node.args[0], tuple | list) else node.args
                self.outputs = [self.output(each) for each in results if each is not None]
            case other:
                raise UnsupportedError(f"{node.name} is a {other}, which no graph of ATen operators has")
        self.note(node, before)
        self.demands[node.name] = tuple(demand for demand in self.builder.demands if demand not in demanded)

    def note(self, node: fx.Node, before: int) -> None:
        """Record the values of a node; a result that is another node's value gets a name of its own."""
        result = self.values.get(node)
        own = {value.output for value in self.builder.nodes[before:]}
        if node.target is not operator.getitem:
            if isinstance(result, Node) and result.output not in own:
                result = self.values[node] = self.copy(result)
            elif isinstance(result, tuple):
                result = self.values[node] = tuple(self.distinct(result, own))
        self.made_by |= {value.output: node.name for value in self.builder.nodes[before:]}
        if isinstance(result, Node):
            self.names.setdefault(result.output, node.name)
            self.results[node.name] = (result.output,)
        elif isinstance(result, tuple):
            self.results[node.name] = tuple(each.output for each in tree_leaves(result) if each is not None)

    def distinct(self, results: Sequence[Any], own: set[str]) -> Iterator[Any]:
        """The results of a node as distinct values: copies of values of other nodes, and of repeated results."""
        for each in results:
            if isinstance(each, Node) and each.output not in own:
                self.builder.unique.clear()
                each = self.copy(each)
            own -= {each.output if isinstance(each, Node) else ""}
            yield each

    def placeholder(self, node: fx.Node) -> Made:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | int) and not isinstance(value, bool):
            self.sizes[node.name] = dim_of(value)
            return dim_of(value)
        if isinstance(value, torch.Generator) or (node.op == "get_attr" and value is None):
            return None  # the state of a checkpoint's random numbers, or a graph, for an operator that takes one
        if not isinstance(value, torch.Tensor):
            raise UnsupportedError(f"the input {node.name} is a {type(value).__name__}, and noyau takes tensors")
        name = f"{node.name}_" if re.fullmatch(r"v\d+", node.name) else node.name  # a name of the builder's own form
        return self.builder.add_input(name, cells_of(value), shape_from(value))

    def convert(self, node: fx.Node) -> Made:
        if isinstance(node.meta.get("val"), torch.SymInt | int):  # attention returns sizes beside its tensors
            return dim_of(node.meta["val"])  # the graph computes it, and torch has its formula
        if node.target is operator.getitem:
            source, place = node.args
            assert isinstance(source, fx.Node)
            whole = self.values[source]
            if not isinstance(whole, tuple) or not isinstance(place, int):
                raise UnsupportedError(f"{node.name} takes {place!r} of {source.name}; noyau knows results by numbers")
            return whole[place]
        if isinstance(node.meta.get("val"), torch.SymFloat | torch.SymBool | float):
            return None
        marks = len(self.builder.nodes), dict(self.builder.demands)
        try:
            return self.lower(node)
        except UnsupportedError as reason:
            for value in self.builder.nodes[marks[0] :]:
                del self.builder.by_name[value.output]
            del self.builder.nodes[marks[0] :]
            self.builder.unique.clear()
            self.builder.demands = marks[1]
            self.opaque[node.name] = str(reason)
            return self.boundary(node)

    def lower(self, node: fx.Node) -> Made:
        """Import an operator by the table, or by its body in torch. UnsupportedError where there is neither."""
        name = str(node.target).removeprefix("aten.")
        if name in ATEN:
            return self.fit_results(node, ATEN[name](AtenSite(self.builder, node, self.values)))
        inner = body(node)
        if inner is None:
            is_own = str(node.target).startswith("noyau.")
            raise UnsupportedError("it is a kernel already" if is_own else f"noyau does not know {node.target}")
        return self.fit_results(node, self.inline(node, inner))

    def inline(self, node: fx.Node, inner: fx.Graph) -> Made:
        """Import a composite operator: its body, node by node."""
        arguments = iter(node.all_input_nodes)
        for each in inner.nodes:
            if each.op == "placeholder":
                self.values[each] = self.values[next(arguments)]
            elif each.op == "call_function" and "val" not in each.meta:
                raise UnsupportedError(f"the body of {node.target} has {each.target}, of unknown shape to torch")
            elif each.op == "call_function":
                gives_tensors = isinstance(each.meta["val"], torch.Tensor | tuple | list)  # as far as torch tells
                is_lowered = gives_tensors and each.target is not operator.getitem
                self.values[each] = (self.lower if is_lowered else self.convert)(each)
            elif each.op == "output":
                return self.body_results(each.args[0])
        raise UnsupportedError(f"{node.target} has a body without a result")

    def body_results(self, results: Any) -> Made:
        many = isinstance(results, tuple | list)
        listed = list(results) if many else [results]
        known = [None if each is None else self.values.get(each) for each in listed]
        values = tuple(each if isinstance(each, Node) else None for each in known)
        if values.count(None) > listed.count(None):
            raise UnsupportedError("a result of its body is no tensor")
        return values if many else values[0]

    def fit_results(self, node: fx.Node, results: Made) -> Made:
        """The results in exactly the dtypes and shapes that torch records."""
        if isinstance(results, Node):
            return self.fit(results, node.meta["val"])
        if isinstance(results, tuple):
            pairs = zip(results, node.meta["val"], strict=True)
            return tuple(None if each is None or meta is None else self.fit(each, meta) for each, meta in pairs)
        return results

    def fit(self, value: Node, meta: torch.Tensor) -> Node:
        return self.builder.assume_shape(self.builder.cast(value, dtype_of(meta.dtype)), shape_from(meta))

    def boundary(self, node: fx.Node) -> Made:
        """A boundary: an operator that torch runs on the tensors among its arguments; None if it has no results."""
        values = [self.values[each] for each in node.all_input_nodes]
        operands = list({value.output: value for value in values if isinstance(value, Node)}.values())
        plain = fx.node.map_arg((node.args, node.kwargs), lambda each: "%")  # distinguishes operators of one name
        kind = Opaque(str(node.target), evaluator(node, operands, dict(self.values)), (repr(plain),))
        results = node.meta["val"]
        if isinstance(results, torch.Tensor):
            return self.builder.emit(kind, operands, cells_of(results), shape_from(results))
        if results is None:
            return None
        whole, numbers = self.builder.emit(kind, operands, DType.OTHER, shape_of([])), count()

        def taken(part: Any) -> Any:
            if isinstance(part, tuple | list):  # an operator's own results, beside a state of random numbers
                return tuple(map(taken, part))
            at = Part(next(numbers))
            return self.builder.emit(at, [whole], cells_of(part), shape_from(part)) if torch.is_tensor(part) else None

        return taken(results)  # type: ignore[no-any-return]

    def copy(self, value: Node) -> Node:
        """The same cells as a new value."""
        return self.builder.view(value, value.shape, indices(len(value.shape)))

    def output(self, result: Any) -> str:
        """The name of an output; a size, a number, an input or a repeated output becomes a new value."""
        value = self.values.get(result) if isinstance(result, fx.Node) else result
        match value:
            case Node() if not isinstance(value.kind, Input | Constant) and value.output not in self.outputs:
                return value.output
            case Node():
                return self.copy(value).output
            case Dim():
                return self.builder.size(value, DType.I64).output
            case int():
                return self.builder.size(Dim.of(value), DType.I64).output
            case _:
                raise UnsupportedError(f"the result {result} is no tensor and no size")

    def finish(self) -> ImportedGraph:
        """The imported graph, with torch's names of values."""
        names, nodes = self.names, tuple(node.rename(self.names) for node in self.builder.nodes)
        graph = check(Graph(nodes, tuple(names.get(name, name) for name in self.outputs), tuple(self.builder.demands)))
        made_by = {names.get(value, value): name for value, name in self.made_by.items()}
        results = {name: tuple(names.get(each, each) for each in values) for name, values in self.results.items()}
        return ImportedGraph(graph, made_by, self.opaque, self.sizes, results, self.demands)


def evaluator(node: fx.Node, operands: Sequence[Node], values: dict[fx.Node, Made]) -> Callable[..., tuple[Array, ...]]:
    """The operator as a function of arrays; wider floats are cast to the operands' dtypes, for torch's kernels."""
    function: Any = node.target
    places = {name.output: at for at, name in enumerate(operands)}

    def evaluate(*arrays: Array) -> tuple[Array, ...]:
        pairs = zip(operands, map(np.shape, arrays), strict=True)
        extents = [pair for operand, shape in pairs for pair in zip(operand.shape, shape, strict=True)]
        sizes = {str(dim): extent for dim, extent in extents if dim == Dim.of(str(dim))}

        def tensor(argument: fx.Node) -> Any:
            value = values[argument]
            if isinstance(value, Node):
                return as_tensor(np.asarray(arrays[places[value.output]]), value.dtype)
            if argument.op == "get_attr":
                return attrgetter(argument.target)(argument.graph.owning_module)
            assert isinstance(value, Dim), argument
            return int(value.evaluate(sizes))

        result = function(*fx.node.map_arg(node.args, tensor), **fx.node.map_arg(node.kwargs, tensor))
        return tuple(map(as_array, tree_leaves(result)))

    return evaluate
