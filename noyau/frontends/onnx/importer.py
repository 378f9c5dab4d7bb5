"""Import of an ONNX model into a graph, node by node; a node without a meaning is a boundary with its reason."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from noyau.compiler.partition.cut import Model, ModelOperator
from noyau.dtypes import DType, from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.boundaries import CONTROL_FLOW, RANDOM, Boundary, Run, reason_for
from noyau.frontends.onnx.boundary_types import BoundaryTypes, Inference, Outcome, outcome_of
from noyau.frontends.onnx.calculations import CALCULATIONS
from noyau.frontends.onnx.composites import COMPOSITES, CONTRIBUTED, OF_COLUMNS, TABLE_OPERATORS
from noyau.frontends.onnx.conversions import CONVERSIONS
from noyau.frontends.onnx.creation import CREATION
from noyau.frontends.onnx.function_bodies import FunctionBody, ModelContext, conform, model_body, opsets_of, schema_body
from noyau.frontends.onnx.gathers import INDEXING
from noyau.frontends.onnx.model_values import Contents, ModelValues
from noyau.frontends.onnx.reader import Initializers
from noyau.frontends.onnx.reductions import REDUCTIONS
from noyau.frontends.onnx.shape_arithmetic import constant_contents, shape_arithmetic
from noyau.frontends.onnx.sites import OnnxSite
from noyau.frontends.onnx.tensors import array_of
from noyau.frontends.onnx.verifier import verify
from noyau.frontends.onnx.views import VIEWS
from noyau.frontends.onnx_messages import captures, core
from noyau.ir.dims import Dim, product, shape_of
from noyau.ir.graph import Graph, Input, Map, Node, Opaque, Part, constant
from noyau.ir.sizes import Demand

Scope = Mapping[str, str]  # names of values, by their names in a body
Opsets = Mapping[str, int]  # by domain
_FAMILIES = CALCULATIONS | CONVERSIONS | REDUCTIONS | VIEWS | INDEXING | CREATION | COMPOSITES
COLUMNS = "noyau_columns"  # the domain of operators of tables whose attributes of columns are inputs as well
_DOMAINS = {"": _FAMILIES, "ai.onnx.ml": TABLE_OPERATORS, COLUMNS: OF_COLUMNS, "com.microsoft": CONTRIBUTED}
FOLDED = "onnxruntime computes it once, when it loads the model: it reads nothing but tensors of the model"
# onnxruntime does not fold these, because it finds quantised operators by them.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})
_DEEPEST, _MOST_NODES = 16, 4096
_SMALL = 64
_FEW = 8  # most cells of a tensor of floats whose numbers importers read, such as the scales of Resize


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model as a graph.

    `places`: for each value of an ONNX node, the node's position. `arithmetic`: positions of shape arithmetic.
    `opaque`: the reason of a boundary, by position. `foldable`: the reason for which another node stays in the model.
    `initializers`: the inputs of the graph that are tensors of the model. `sizes`: the model's own names of sizes.
    `demands`: by position, conditions on extents that are not certain before the model runs."""

    graph: Graph
    places: Mapping[str, int]
    arithmetic: frozenset[int]
    opaque: Mapping[int, str]
    foldable: Mapping[int, str]
    initializers: Initializers
    sizes: Mapping[str, str]
    demands: Mapping[int, tuple[Demand, ...]]

    def load_initializer(self, name: str) -> np.ndarray:
        """The array of an initializer, read-only; external data is mapped."""
        return self.initializers.load(name)


def import_model(
    model: onnx.ModelProto, folder: Path | None = None, *, run: Run | None = None, inference: Inference | None = None
) -> ImportedModel:
    """Import a model as a graph; ModelError where it is not well formed. `folder` holds its external data; `inference`:
    an `Inference` whose process may be running already.

    `run(model, inputs)` runs a model of one node for the interpreter, or raises UnsupportedError; then, and without
    `run`, ONNX's reference evaluator runs it."""
    with nullcontext(inference) if inference else Inference() as process:
        return _ModelImporter(verify(model), folder, run, process).run()


def foldable_nodes(model: onnx.ModelProto) -> frozenset[int]:
    """The positions of the nodes that depend on tensors of the model alone, directly or through such nodes; Constants
    are not among them. A tensor that an input may override does not count."""
    inputs = {value.name for value in model.graph.input} if model.ir_version >= 4 else set()
    constants = {tensor.name for tensor in model.graph.initializer} - inputs
    places = set[int]()
    for place, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx") or node.op_type in _KEPT | RANDOM | CONTROL_FLOW:
            continue
        if all(name in constants for name in node.input if name):
            constants.update(node.output)
            if any(node.input):
                places.add(place)
    return frozenset(places)


class _ModelImporter:
    def __init__(self, model: onnx.ModelProto, folder: Path | None, run: Run | None, inference: Inference) -> None:
        self.model, self.folder, self.run_node = model, folder, run
        graph = model.graph
        taken = {value.name for value in (*graph.input, *graph.initializer)}
        self.values = ModelValues(taken.union(*(node.output for node in graph.node)))
        self.opsets = opsets_of(list(model.opset_import))
        self.functions = {(core(f.domain), f.name): f for f in model.functions}
        self.context = ModelContext(list(model.opset_import), list(model.functions), model.ir_version)
        declared = [*model.graph.value_info, *model.graph.output, *model.graph.input]
        self.defaults = {tensor.name: tensor for tensor in model.graph.initializer}
        make_type = onnx.helper.make_tensor_type_proto
        types = {name: make_type(tensor.data_type, tensor.dims) for name, tensor in self.defaults.items()}
        types.update((value.name, value.type) for value in declared)
        self.boundary_types = BoundaryTypes(self.values, types, self.context, inference)
        self.tensors: dict[str, onnx.TensorProto | onnx.SparseTensorProto] = {}
        self.arithmetic: set[int] = set()
        self.opaque: dict[int, str] = {}

    def run(self) -> ImportedModel:
        extents = [dim for value in self.model.graph.input for dim in value.type.tensor_type.shape.dim]
        for dim in extents:  # plain names come first: `past + sequence` may stand before an input that has `past`
            if dim.dim_param.isidentifier():
                self.values.sizes.dim_of(dim.dim_param)
        for value in self.model.graph.input:
            self._input(value)
        for tensor in self.model.graph.initializer:
            self._tensor(tensor.name, tensor, place=None, sources=())
        for sparse in self.model.graph.sparse_initializer:
            name, dtype = sparse.values.name, from_onnx(sparse.values.data_type) or DType.OTHER
            self.tensors[name] = sparse
            self.values.add(Node(name, Input(), (), dtype, () if dtype is DType.OTHER else shape_of(sparse.dims)))
        for place, node in enumerate(self.model.graph.node):
            self._node(place, node)
        outputs = tuple(value.name for value in self.model.graph.output)
        for name in outputs:
            self.values.node(name)
        return ImportedModel(
            Graph(tuple(self.values.nodes), outputs),
            self.values.places,
            frozenset(self.arithmetic),
            self.opaque,
            self._foldable_reasons(),
            Initializers(self.tensors, self.folder),
            self.values.sizes.originals,
            {place: tuple(demands) for place, demands in self.values.demands.items() if demands},
        )

    def _foldable_reasons(self) -> dict[int, str]:
        """The reasons of nodes that are computed once, except scalars, which are parts of formulas."""
        places = foldable_nodes(self.model) - self.arithmetic - self.opaque.keys()
        pairs = ((self.values.places.get(node.output, -1), node) for node in self.values.nodes)
        return {place: FOLDED for place, node in pairs if place in places and product(node.shape) != Dim.of(1)}

    def _input(self, value: onnx.ValueInfoProto) -> None:
        if value.name in self.defaults:
            if self.model.ir_version < 4:  # such models list every initializer as an input, which it is not
                return
            self.tensors[value.name] = self.defaults[value.name]
        tensor = value.type.tensor_type
        is_ranked = value.type.HasField("tensor_type") and tensor.HasField("shape")
        dtype = (from_onnx(tensor.elem_type) if is_ranked else None) or DType.OTHER
        dims = () if dtype is DType.OTHER else tensor.shape.dim
        self.values.add(Node(value.name, Input(), (), dtype, tuple(map(self._declare_dim, dims))))

    def _declare_dim(self, dim: onnx.TensorShapeProto.Dimension) -> Dim:
        if dim.HasField("dim_value"):
            return Dim.of(dim.dim_value)
        return self.values.sizes.dim_of(dim.dim_param) if dim.dim_param else self.values.sizes.fresh()

    def _tensor(self, name: str, tensor: onnx.TensorProto, place: int | None, sources: tuple[str, ...]) -> None:
        """Add a tensor of the model as a value. Scalars and small integers are constants; weights, however small, are
        inputs and stay in the file, so that two layers share their kernels."""
        if name in self.values.by_name:
            return
        dtype, count = from_onnx(tensor.data_type), int(np.prod(tensor.dims, dtype=np.int64))
        if place is not None:
            self.values.places[name] = place
        if dtype is None or dtype is DType.OTHER:
            self.tensors[name] = tensor
            self.values.add(Node(name, Input(), (), DType.OTHER, (), sources))
        elif count == 1 or (count <= _SMALL and not dtype.is_float):
            array = array_of(tensor, self.folder)
            assert array is not None
            node = self.values.add(constant(name, array, sources))
            if (contents := constant_contents(array, node.dtype)) is not None:
                self.values.contents[name] = contents
        else:
            self.tensors[name] = tensor
            self.values.add(Node(name, Input(), (), dtype, shape_of(tensor.dims), sources))
            if count <= _FEW and (array := array_of(tensor, self.folder)) is not None:
                self.values.few[name] = array

    def _node(self, place: int, proto: onnx.NodeProto) -> None:
        sources = (f"{proto.op_type}#{place}", *([proto.name] if proto.name else []))
        emitter = OnnxSite(self.values, next((name for name in proto.output if name), f"node{place}"), place, sources)
        try:
            if self._constant_node(place, proto, sources):
                return
            scope = {name: name for name in proto.input if name}
            self._finish(place, proto, self.convert(proto, scope, self.opsets, emitter, depth=0), emitter)
        except UnsupportedError as refusal:
            self.values.forget(emitter.first)
            emitter.demands.clear()
            self._opaque(place, proto, sources, str(refusal))

    def _constant_node(self, place: int, proto: onnx.NodeProto, sources: tuple[str, ...]) -> bool:
        """Add a Constant of a tensor, which may be large and stay in the file. False for any other node."""
        if proto.op_type != "Constant" or proto.domain not in ("", "ai.onnx"):
            return False
        tensor = next((a.t for a in proto.attribute if a.name == "value" and a.type == a.TENSOR), None)
        if tensor is None or from_onnx(tensor.data_type) in (None, DType.OTHER):
            return False
        self._tensor(proto.output[0], tensor, place, sources)
        if proto.output[0] in self.values.contents:
            self.arithmetic.add(place)
        return True

    def convert(self, proto: onnx.NodeProto, scope: Scope, opsets: Opsets, emitter: OnnxSite, depth: int) -> list[str]:
        """The names of the values, or known contents, of a node's outputs; UnsupportedError without a meaning."""
        domain, site = core(proto.domain), self._site(proto, scope, opsets, emitter)
        if domain == "" and (known := shape_arithmetic(site)) is not None:
            return [self._keep(contents, emitter) for contents in known]
        family = _DOMAINS.get(domain, {}).get(proto.op_type)
        if family is not None and (domain in ("", COLUMNS) or (domain, proto.op_type) not in self.functions):
            value = family(site)
            return [value.output] if isinstance(value, Node) else [node.output for node in value]
        body = self._body(proto, site, domain)
        if body is None:
            raise UnsupportedError(reason_for(proto))
        return self._inline(body, proto, site, depth)

    def _site(self, proto: onnx.NodeProto, scope: Scope, opsets: Opsets, emitter: OnnxSite) -> OnnxSite:
        """The site of a node for its importer; UnsupportedError where the node violates its schema."""
        opset = opsets.get(core(proto.domain), 0)
        conform(proto, core(proto.domain), opset)
        inputs = [scope.get(name, "") for name in proto.input]
        attributes = {a.name: _attribute(a, self.folder) for a in proto.attribute}
        return emitter.at(proto.op_type, opset, inputs, list(proto.output), attributes)

    def _keep(self, contents: Contents, emitter: OnnxSite) -> str:
        name = self.values.inner_name(emitter.stem)
        self.values.contents[name] = contents
        self.values.origins[name] = (emitter.place, emitter.sources)
        return name

    def _body(self, proto: onnx.NodeProto, site: OnnxSite, domain: str) -> FunctionBody | None:
        if (domain, proto.op_type) in self.functions:
            return model_body(self.functions[domain, proto.op_type], proto)
        if reason_for(proto) != f"no meaning for operator {proto.op_type} yet":
            return None
        return schema_body(proto, site.opset, [site.input(k) if site.has(k) else None for k in range(len(site.inputs))])

    def _inline(self, body: FunctionBody, proto: onnx.NodeProto, site: OnnxSite, depth: int) -> list[str]:
        """The outputs of a function's body, whose nodes must all have a meaning."""
        if depth >= _DEEPEST:
            raise UnsupportedError(f"the functions of {proto.op_type} are nested too deep")
        function, names = body.function, [*site.inputs, *[""] * len(body.function.input)]
        scope = {inner: outer for inner, outer in zip(function.input, names, strict=False) if outer}
        for node in function.node:
            site.steps[0] += 1
            if site.steps[0] > _MOST_NODES or len(self.values.nodes) - site.first > _MOST_NODES:
                raise UnsupportedError(f"the body of {proto.op_type} is too large")
            try:
                results = self.convert(body.resolve(node), scope, body.opsets, site, depth + 1)
            except UnsupportedError as refusal:
                raise UnsupportedError(f"in the body of {proto.op_type}: {refusal}") from refusal
            scope.update((name, value) for name, value in zip(node.output, results, strict=False) if name)
        missing = [name for name in function.output[: len(proto.output)] if name not in scope]
        if missing:
            raise UnsupportedError(f"the body of {proto.op_type} does not make {missing[0]}")
        return [scope[name] for name in function.output[: len(proto.output)]]

    def _finish(self, place: int, proto: onnx.NodeProto, results: list[str], emitter: OnnxSite) -> None:
        """Give the results the names of the outputs, and drop nodes that no output needs."""
        pairs = [(name, value) for name, value in zip(proto.output, results, strict=False) if name]
        if len(results) < len([name for name in proto.output if name]):
            raise UnsupportedError(f"only {len(results)} outputs of {proto.op_type} have a meaning")
        arithmetic = [(name, value) for name, value in pairs if value in self.values.contents]
        for name, value in arithmetic:
            self.values.contents[name] = self.values.contents[value]
            self.values.origins[name] = (place, emitter.sources)
        if len(arithmetic) == len(pairs):
            self.arithmetic.add(place)
        self._rename({name: value for name, value in pairs if value not in self.values.contents}, emitter)

    def _rename(self, targets: Mapping[str, str], emitter: OnnxSite) -> None:
        """Give each result its wanted name; a copy where its node is not this site's, or has a wanted name already."""
        own = {node.output for node in self.values.nodes[emitter.first :]}
        names = dict[str, str]()
        for name, source in targets.items():
            value = self.values.node(source)
            if source not in own or source in names:
                value = emitter.emit(Map("identity"), [value], value.dtype, value.shape)
            names[value.output] = name
        live = self._live_nodes(emitter.first, set(names))
        places = {names.get(value, value): self.values.places.get(value) for value in (node.output for node in live)}
        self.values.forget(emitter.first)
        for node in live:
            self.values.add(node.rename(names))
        self.values.places |= {value: place for value, place in places.items() if place is not None}

    def _live_nodes(self, first: int, results: set[str]) -> list[Node]:
        """The nodes from `first` on that the results, or later nodes, can need."""
        live, needed = list[Node](), set(results)
        for node in reversed(self.values.nodes[first:]):
            if node.output in needed or node.output in self.values.contents:
                needed.update(node.inputs)
                live.append(node)
        return live[::-1]

    def _opaque(self, place: int, proto: onnx.NodeProto, sources: tuple[str, ...], reason: str) -> None:
        """A boundary: one node, and a Part for each output where there are several."""
        self.opaque[place] = reason
        names = [*(name for name in proto.input if name), *captures(proto)]
        inputs = tuple(self.values.node(name).output for name in names)
        boundary = Boundary(proto, names, self.context, self.run_node)
        kind = Opaque(proto.op_type, boundary, boundary.texts(place))
        outcomes = self.boundary_types.of(proto, names, self._rule_outcomes(proto, place))
        outputs = [(name, outcome) for name, outcome in zip(proto.output, outcomes, strict=True) if name]
        if len(outputs) == 1:
            (name, (dtype, shape)), whole = outputs[0], ""
            self.values.add(Node(name, kind, inputs, dtype, shape, sources))
        else:
            whole = self.values.inner_name(outputs[0][0] if outputs else f"node{place}")
            self.values.add(Node(whole, kind, inputs, DType.OTHER, (), sources))
            for k, (name, (dtype, shape)) in enumerate(outputs):
                self.values.add(Node(name, Part(k), (whole,), dtype, shape, sources))
        for name in [*([whole] if whole else []), *(name for name, _ in outputs)]:
            self.values.places[name] = place

    def _rule_outcomes(self, proto: onnx.NodeProto, place: int) -> list[Outcome]:
        """The outcomes of a boundary by its rule; empty where it violates its schema."""
        scope = {name: name for name in proto.input if name}
        try:
            site = self._site(proto, scope, self.opsets, OnnxSite(self.values, "", place, ()))
        except UnsupportedError:
            return []
        return outcome_of(site, core(proto.domain))


def _attribute(attribute: onnx.AttributeProto, folder: Path | None) -> Any:
    """The value of an attribute: text for bytes, an array for a tensor."""
    value = onnx.helper.get_attribute_value(attribute)
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case onnx.TensorProto():
            array = array_of(value, folder)
            return value if array is None else array
        case _:
            return list(value) if hasattr(value, "__iter__") else value


def partition_model(model: onnx.ModelProto, imported: ImportedModel) -> Model:
    """A model and its graph in the form that the partition takes."""
    places = [
        ModelOperator(position, node.op_type, (*node.input, *captures(node)), tuple(filter(None, node.output)))
        for position, node in enumerate(model.graph.node)
    ]
    left = {**imported.opaque, **imported.foldable}
    return Model(imported.graph, places, imported.places, imported.arithmetic, left, imported.demands)
