"""A model in the form that is compared: nodes with their parameters, independent of names, and constants by digest."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from noyau.errors import ModelError, reason_of
from noyau.frontends import onnx as frontend
from noyau.frontends.onnx_messages import reads, subgraphs

COMMUTATIVE = frozenset("Add Mul And Or Xor Equal Max Min Sum Mean".split())
_IMPLIED = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}  # defaults that the schemas lack
FEW = 64  # most cells of a constant that counts as a parameter of its node rather than a weight


@dataclass(frozen=True, slots=True)
class ConstantValue:
    """A constant: its element type and shape as text (`kind`), a digest of these and its cells, and the tensor."""

    kind: str
    digest: str
    tensor: onnx.TensorProto

    def array(self, folder: Path) -> np.ndarray:
        return np.asarray(numpy_helper.to_array(self.tensor, str(folder)))


@dataclass(frozen=True, slots=True)
class ComparedNode:
    """A node. `parameters`: its attributes, including defaults, and its small constant operands by their formal names,
    so that an attribute that became an operand is no difference; `operands`: the other values that it reads."""

    position: int
    operator: str
    parameters: Mapping[str, str]
    operands: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""

    @property
    def label(self) -> str:
        return f"{self.operator}#{self.position}"


@dataclass(frozen=True, slots=True)
class ModelSide:
    """A model to compare. `inputs` and `outputs`: types as text by name, with symbolic sizes numbered in order."""

    path: Path
    model: onnx.ModelProto
    constants: Mapping[str, ConstantValue]
    nodes: tuple[ComparedNode, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    opsets: Mapping[str, int] = field(default_factory=dict)


def read_side(path: Path, like: ModelSide | None = None) -> ModelSide:
    """Read a model, its ends in the order of those of `like` of the same names. ModelError where it cannot be read."""
    model, constants, sizes = frontend.parse(path), dict[str, ConstantValue](), dict[str, str]()
    graph, opsets = model.graph, {each.domain or "ai.onnx": each.version for each in model.opset_import}
    try:
        constants |= {tensor.name: _constant(tensor, path.parent) for tensor in graph.initializer}
        for node in graph.node:
            value = next((each.t for each in node.attribute if each.name == "value"), None)
            if node.op_type == "Constant" and value is not None:
                constants[node.output[0]] = _constant(value, path.parent)
    except (ValueError, TypeError, OSError) as error:
        raise ModelError(f"{path} holds a tensor that cannot be read: {reason_of(error)}") from error
    others = ((k, e) for k, e in enumerate(graph.node) if e.op_type != "Constant" or e.output[0] not in constants)
    nodes = tuple(_comparison_of(position, node, constants, opsets, path.parent) for position, node in others)
    inputs, outputs = [each for each in graph.input if each.name not in constants], list(graph.output)
    for ends, names in ((inputs, like.inputs), (outputs, like.outputs)) if like else ():
        if set(names) == set(by_name := {each.name: each for each in ends}):
            ends[:] = map(by_name.__getitem__, names)
    types = [{each.name: _type_of(each, sizes) for each in ends} for ends in (inputs, outputs)]
    return ModelSide(path, model, constants, nodes, types[0], types[1], opsets)


def _constant(tensor: onnx.TensorProto, folder: Path) -> ConstantValue:
    array = numpy_helper.to_array(tensor, str(folder))
    kind = f"{onnx.TensorProto.DataType.Name(tensor.data_type).lower()}{list(array.shape)}"
    data = repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return ConstantValue(kind, hashlib.blake2b(kind.encode() + data, digest_size=16).hexdigest(), tensor)


def _comparison_of(
    position: int, node: onnx.NodeProto, constants: Mapping[str, ConstantValue], opsets: Mapping[str, int], folder: Path
) -> ComparedNode:
    schema, parameters, operands = None, dict[str, str](), list[str]()
    with suppress(onnx.defs.SchemaError):
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = onnx.defs.get_schema(node.op_type, opsets.get(domain or "ai.onnx", 1), domain)
        parameters = {n.lower(): _text(e.default_value) for n, e in schema.attributes.items() if e.default_value.name}
    said = (each for each in node.attribute if set(each.ints) != {_IMPLIED.get(each.name)})
    parameters |= {each.name.lower(): _text(each) for each in said}
    formals = [] if schema is None or node.op_type in COMMUTATIVE else list(schema.inputs)
    for slot, name in enumerate(node.input):
        known, formal = constants.get(name), formals[slot] if slot < len(formals) else None
        is_one = formal is not None and formal.option != onnx.defs.OpSchema.FormalParameterOption.Variadic
        if known and formal and is_one and "float" not in known.kind and math.prod(known.tensor.dims) <= FEW:
            parameters[formal.name.lower()] = str(known.array(folder).tolist())
        elif name:
            operands.append(name)
    captured = reads(node) - set(node.input)
    for graph in subgraphs(node):  # each value once, in the order in which it is read
        read = dict.fromkeys(name for each in graph.node for name in sorted(reads(each)))
        operands += [name for name in read if name in captured]
    operator = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    return ComparedNode(position, operator, parameters, tuple(operands), tuple(filter(None, node.output)), node.name)


def _text(attribute: onnx.AttributeProto) -> str:
    """An attribute as text; of a graph its nodes, with numbers instead of names."""
    value: Any = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.GraphProto):
        numbers: dict[str, int] = {}

        def names(every: Iterable[str]) -> list[int]:
            return [numbers.setdefault(name, len(numbers)) for name in every]

        nodes = [(n.op_type, names(n.input), names(n.output), sorted(map(_text, n.attribute))) for n in value.node]
        stored = [(names([each.name]), _constant(each, Path()).digest) for each in value.initializer]
        return str((nodes, stored, names(each.name for each in value.output)))
    if isinstance(value, onnx.TensorProto):
        return str(numpy_helper.to_array(value).tolist())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return f"{value:g}" if isinstance(value, float) else str(value if isinstance(value, int) else list(value))


def _type_of(value: onnx.ValueInfoProto, sizes: dict[str, str]) -> str:
    """A type as text; `sizes`: numbers for symbolic sizes, so that renaming them is no difference."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return str(value.type.WhichOneof("value"))
    extents = tensor.shape.dim
    dims = [sizes.setdefault(e.dim_param, f"n{len(sizes)}") if e.dim_param else str(e.dim_value) for e in extents]
    return f"{onnx.TensorProto.DataType.Name(tensor.elem_type).lower()}[{', '.join(dims)}]"
