"""The bodies of composite operators, from ONNX's schemas and from the functions of a model; and models of a single
node, with these functions."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import onnx

from noyau.errors import UnsupportedError
from noyau.frontends.onnx_messages import core, every_node
from noyau.ir.graph import Node

Attributes = Mapping[str, onnx.AttributeProto]
Infos = Sequence[onnx.ValueInfoProto]
NEWEST_OPSET = 28  # of the default domain; a later one may change an operator's meaning


def opsets_of(imports: list[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The opset versions by domain."""
    return {core(entry.domain): entry.version for entry in imports}


def inlined_sizes(functions: Sequence[onnx.FunctionProto]) -> dict[tuple[str, str], int]:
    """The number of nodes of each function by domain and name, those of its callees included; callees come first.
    Empty where functions call each other in a circle."""
    nodes = {(e.domain, e.name): [(node.domain, node.op_type) for node in every_node(e.node)] for e in functions}
    sizes = dict[tuple[str, str], int]()
    with suppress(CycleError):
        for key in TopologicalSorter({key: nodes.keys() & calls for key, calls in nodes.items()}).static_order():
            sizes[key] = sum(sizes.get(each, 1) for each in nodes[key])
    return sizes


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """A function, and the attributes that its call binds."""

    function: onnx.FunctionProto
    attributes: Attributes

    @property
    def opsets(self) -> dict[str, int]:
        return opsets_of(list(self.function.opset_import))

    def resolve(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A node of the body whose references to the function's attributes are replaced by their values."""
        if not any(attribute.ref_attr_name or _has_graph(attribute) for attribute in node.attribute):
            return node
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.attribute[:]
        for attribute in node.attribute:
            if _has_graph(attribute):
                raise UnsupportedError(f"{node.op_type} is control flow")
            if not attribute.ref_attr_name:
                copy.attribute.append(attribute)
            elif attribute.ref_attr_name in self.attributes:
                value = copy.attribute.add()
                value.CopyFrom(self.attributes[attribute.ref_attr_name])
                value.name = attribute.name
        return copy


@dataclass(frozen=True, slots=True)
class ModelContext:
    """The opsets, functions and IR version of a model, which a model of a single node needs."""

    opsets: Sequence[onnx.OperatorSetIdProto]
    functions: Sequence[onnx.FunctionProto]
    ir_version: int

    def model(
        self, node: onnx.NodeProto, inputs: Infos, outputs: Infos, initializers: Sequence[onnx.TensorProto] = ()
    ) -> onnx.ModelProto:
        graph = onnx.helper.make_graph([node], "one_node", list(inputs), list(outputs), list(initializers))
        model = onnx.helper.make_model(graph, opset_imports=list(self.opsets), functions=list(self.functions))
        model.ir_version = self.ir_version
        return model

    def has_schema(self, node: onnx.NodeProto) -> bool:
        """Whether ONNX or a function of the model defines the node's operator."""
        if any(f.domain == node.domain and f.name == node.op_type for f in self.functions):
            return True
        version = next((entry.version for entry in self.opsets if entry.domain == node.domain), 0)
        return bool(onnx.defs.has(node.op_type, version, node.domain))


def conform(node: onnx.NodeProto, domain: str, opset: int) -> None:
    """Raise UnsupportedError if a node of the default domain violates its schema."""
    if domain != "":
        return
    if opset > NEWEST_OPSET:
        raise UnsupportedError(f"opset {opset} is newer than what noyau knows, {NEWEST_OPSET}")
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return
    if not schema.min_input <= len(node.input) <= schema.max_input or len(node.output) > schema.max_output:
        raise UnsupportedError(f"{node.op_type} has {len(node.input)} inputs and {len(node.output)} outputs")
    for attribute in node.attribute:
        entry = schema.attributes.get(attribute.name)
        if entry is None or int(entry.type.value) != attribute.type:
            raise UnsupportedError(f"{node.op_type} has an attribute {attribute.name!r} that its schema has not")
    present = {attribute.name for attribute in node.attribute}
    missing = [name for name, entry in schema.attributes.items() if entry.required and name not in present]
    if missing:
        raise UnsupportedError(f"{node.op_type} lacks its attribute {missing[0]}")


def model_body(function: onnx.FunctionProto, call: onnx.NodeProto) -> FunctionBody:
    """The body of a model-local function, with the defaults of attributes that a call omits."""
    attributes = {attribute.name: attribute for attribute in call.attribute}
    return FunctionBody(function, {**{default.name: default for default in function.attribute_proto}, **attributes})


def schema_body(call: onnx.NodeProto, opset: int, inputs: list[Node | None]) -> FunctionBody | None:
    """The body of an operator in ONNX's schema at an opset, or None."""
    try:
        schema = onnx.defs.get_schema(call.op_type, opset, core(call.domain))
    except onnx.defs.SchemaError:
        return None
    text: bytes | onnx.FunctionProto | None = None
    versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
    if schema.has_context_dependent_function and versions:  # on attributes, and on the types of the inputs
        types = [_type_of(node).SerializeToString() if node else b"" for node in inputs]
        text = schema.get_context_dependent_function_with_opset_version(max(versions), call.SerializeToString(), types)
    if not text and schema.has_function:  # if the opset has none yet, that of a later one, for it means the same
        versions = schema.function_opset_versions
        text = schema.get_function_with_opset_version(max(filter(opset.__ge__, versions), default=min(versions)))
    if not text:
        return None
    attributes = {attribute.name: attribute for attribute in call.attribute}
    defaults = {name: entry.default_value for name, entry in schema.attributes.items() if entry.default_value.name}
    function = onnx.FunctionProto.FromString(text) if isinstance(text, bytes) else text
    return FunctionBody(function, {**defaults, **attributes})


def _type_of(node: Node) -> onnx.TypeProto:
    """The ONNX type of a value of noyau: names of sizes as dimension names, other Dims as text."""
    dims = [dim.constant if dim.constant is not None else str(dim) for dim in node.shape]
    return onnx.helper.make_tensor_type_proto(node.dtype.onnx, dims)


def _has_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
