"""The original subgraph of a fused node, as the body of a model-local function."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noyau.dtypes import DType, from_onnx
from noyau.errors import GraphError
from noyau.frontends.onnx_messages import CORE_DOMAINS, core, every_node, reads, subgraphs
from noyau.text import free_name

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

DOMAIN = "noyau"  # or a domain that begins so: each model's library has its own, to be registered beside others

# A constant of at most this size is written into a body; a larger one becomes an input of the body.
_SMALL_BYTES = 4096
# A value that the body reads and the kernel does not is recomputed in the body if these operators alone lead to it.
_SHAPE_ARITHMETIC = frozenset(
    {"Constant", "ConstantOfShape", "Range", "Shape", "Size", "Identity", "Cast", "Where", "Equal", "ReduceProd"}
    | {"Add", "Sub", "Mul", "Div", "Mod", "Neg", "Max", "Min", "Ceil", "Floor"}
    | {"Gather", "Concat", "Slice", "Reshape", "Squeeze", "Unsqueeze"}
)
_MOST_COPIED = 64
_COMMUTATIVE = frozenset("Add And BitwiseAnd BitwiseOr BitwiseXor Equal Max Mean Min Mul Or Sum Xor".split())
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class ValueType:
    """Element type and shape of a value; a dimension is a number, a name, or None if it is unknown."""

    dtype: DType
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class FusedNode:
    """A part of a model that one operator computes.

    `nodes`: the positions of its nodes in `model.graph.node`; `inputs`, `outputs`: values of the model, in the order of
    the kernel's; `output_types`: if present, written for outputs whose types the model lacks; `stand_ins`: from inner
    values of which other nodes read the shape alone to outputs of the same shape."""

    operator: str
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_types: tuple[ValueType, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelValues:
    """Producers of a model's values: the node that computes each, and the initializers that nothing overrides.

    `fused`: the functions of nodes that are fused already; `folder`: where external data lies, None if unknown;
    `shapes`: the extents of values that the model declares, empty before the opset in which Split takes its lengths as
    an input."""

    nodes: tuple[NodeProto, ...]
    producers: dict[str, int]
    constants: dict[str, TensorProto]
    fused: dict[tuple[str, str], FunctionProto]
    folder: Path | None
    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(model: ModelProto, folder: Path | None = None) -> ModelValues:
        nodes = tuple(model.graph.node)
        producers = {name: position for position, node in enumerate(nodes) for name in node.output if name}
        inputs = {value.name for value in model.graph.input}
        constants = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in inputs}
        fused = {(each.domain, each.name): each for each in model.functions if is_own(each.domain)}
        modern = any(entry.version >= 13 for entry in model.opset_import if core(entry.domain) == "")
        typed = [value for value in model.graph.value_info if modern and value.type.HasField("tensor_type")]
        shapes = {value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in typed}
        return ModelValues(nodes, producers, constants, fused, folder, shapes)


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """The nodes of a function, as the model spells them. `extras` are inputs that the kernel itself does not read."""

    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    extras: tuple[str, ...]
    outputs: tuple[str, ...]


def value_names(graph: GraphProto) -> set[str]:
    """The names of all values of a graph and of its subgraphs."""
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    for node in graph.node:
        names.update(node.input, node.output, *map(value_names, subgraphs(node)))
    return names


def drop(messages: Any, is_dropped: Callable[[Any], bool]) -> None:
    """Remove the messages of a repeated field for which `is_dropped` holds."""
    for number in reversed(range(len(messages))):
        if is_dropped(messages[number]):
            del messages[number]


def is_own(domain: str) -> bool:
    """Whether fused nodes have this domain."""
    return f"{domain}.".startswith(f"{DOMAIN}.")


def domain_of(model: ModelProto) -> str:
    """The domain of the fused nodes of a model, by its hash: onnxruntime accepts a domain from one library only, and
    two models of one architecture have the same kernels."""
    return f"{DOMAIN}.m{hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()[:12]}"


def refusal(fused: FusedNode, values: ModelValues) -> str | None:
    """Why this part cannot become one node, or None where it can."""
    if not fused.nodes or any(not 0 <= position < len(values.nodes) for position in fused.nodes):
        return "it has no nodes, or positions that the model does not have"
    names = {name for position in fused.nodes for name in values.nodes[position].output if name}
    if any(True for position in fused.nodes for _ in subgraphs(values.nodes[position])):
        return "one of its nodes has a subgraph"
    if any(is_foreign(values.nodes[position], values) for position in fused.nodes):
        return f"one of its nodes is of the domain {DOMAIN!r}, and no body that noyau could have written is there"
    if not all(fused.inputs) or len(set(fused.inputs)) < len(fused.inputs):
        return "an input has no name or is there twice"
    if not fused.outputs or len(set(fused.outputs)) < len(fused.outputs):
        return "it has no outputs, or one twice"
    if not names.isdisjoint(fused.inputs):
        return f"its input {min(names.intersection(fused.inputs))!r} is made inside it"
    if not names.issuperset(fused.outputs):
        return f"its output {min(set(fused.outputs) - names)!r} is not made inside it"
    if fused.output_types and len(fused.output_types) != len(fused.outputs):
        return "it has not one type for each output"
    return None


def body_of(fused: FusedNode, values: ModelValues) -> FunctionBody:
    """The nodes of a part, and the constants and shape arithmetic that they need. Its other inputs are extras."""
    positions, extras, constants = set(fused.nodes), list[str](), list[str]()
    names = {name for position in fused.nodes for name in values.nodes[position].output} | set(fused.inputs)
    wanted = [name for position in sorted(positions) for name in values.nodes[position].input if name]
    for name in dict.fromkeys(name for name in wanted if name not in names):
        if (origin := recompute(name, values, names)) is None:
            extras.append(name)
            continue
        positions.update(origin[0])
        constants.extend(constant for constant in origin[1] if constant not in constants)
    occupied = {*names, *values.producers, *values.constants}
    nodes = [_constant_node(values, name) for name in constants]
    nodes += [each for position in sorted(positions) for each in unfuse(values.nodes[position], values, occupied)]
    return FunctionBody(tuple(_with_splits(nodes, values, occupied)), fused.inputs, tuple(extras), fused.outputs)


def _with_splits(nodes: Sequence[NodeProto], values: ModelValues, occupied: set[str]) -> list[NodeProto]:
    """The nodes of a body, with slices that partition a value replaced by one Split: onnxruntime does so itself where
    it knows the extent, which the model declares and a body cannot."""
    from noyau.frontends.onnx.tensors import array_of

    slices = [node for node in nodes if node.op_type == "Slice" and node.input and node.domain in CORE_DOMAINS]
    words = {name for node in slices for name in node.input[1:] if name in values.constants}
    arrays = {name: array_of(values.constants[name], values.folder) for name in words}
    integers = {name: array for name, array in arrays.items() if array is not None and array.dtype.kind == "i"}
    numbers = {"": None, **{name: int(array.item()) for name, array in integers.items() if array.size == 1}}
    slices, kept = [node for node in slices if numbers.keys() >= set(node.input[1:])], list(nodes)
    for name in dict.fromkeys(node.input[0] for node in slices if node.input[0] in values.shapes):
        those = [(node, [numbers[word] for word in node.input[1:]]) for node in slices if node.input[0] == name]
        if split := _split_of(those, values.shapes[name], free_name(f"{name}_pieces", occupied)):
            gone, place = [node for node, _ in those], kept.index(those[0][0])
            kept = [*kept[:place], *split, *(node for node in kept[place:] if node not in gone)]
    return kept


def _split_of(slices: list[tuple[NodeProto, list[int | None]]], shape: Sequence[int], lengths: str) -> list[NodeProto]:
    """The Split for the slices of a value, each with its start, end, axis and step, and the Constant of its `lengths`;
    empty where the slices leave cells out, or overlap."""
    axes, pieces = {each[2] if len(each) > 2 else 0 for _, each in slices}, dict[int, str]()
    axis, end = axes.pop() or 0, 0
    extent = shape[axis] if -len(shape) <= axis < len(shape) else 0
    for node, (start, stop, *more) in sorted(slices, key=lambda pair: pair[1][0] or 0):
        if axes or start != end or stop is None or not end < stop or more[1:] not in ([], [1]):
            return []
        pieces[end], end = node.output[0], min(stop, extent)
    if end != extent or len(pieces) < 2:
        return []
    from onnx import helper

    sizes = [after - before for before, after in pairwise([*pieces, extent])]
    split = helper.make_node("Split", [slices[0][0].input[0], lengths], [*pieces.values()], axis=axis)
    return [helper.make_node("Constant", [], [lengths], value_ints=sizes), split]


def recompute(
    name: str, values: ModelValues, names: Iterable[str] = (), most_bytes: float = _SMALL_BYTES
) -> tuple[set[int], list[str]] | None:
    """The nodes and small initializers that compute a value from `names` by shape arithmetic alone; else None.
    `most_bytes`: the limit of a Constant among the nodes."""
    names, nodes, constants, pending = set(names), set[int](), list[str](), [name]
    while pending:
        name = pending.pop()
        if name in names:
            continue
        names.add(name)
        position = values.producers.get(name)
        if name in values.constants and _is_small(values.constants[name], values.folder):
            constants.append(name)
        elif (
            position is None
            or len(nodes) == _MOST_COPIED
            or not _is_shape_arithmetic(values.nodes[position], most_bytes)
        ):
            return None
        else:
            nodes.add(position)
            names.update(values.nodes[position].output)
            pending.extend(sorted(reads(values.nodes[position])))
    return nodes, constants


def function_of(
    body: FunctionBody, operator: str, model: ModelProto, renamed: Callable[[str], str], domain: str = DOMAIN
) -> FunctionProto:
    """The body as a model-local function, with its values renamed."""
    function = type(model)().functions.add()
    function.domain, function.name = domain, operator
    function.input.extend(renamed(name) for name in (*body.inputs, *body.extras))
    function.output.extend(renamed(name) for name in body.outputs)
    for node in body.nodes:
        copy = function.node.add(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
        copy.input.extend(renamed(name) if name else "" for name in node.input)
        copy.output.extend(renamed(name) if name else "" for name in node.output)
        for attribute in copy.attribute:
            _clear(attribute)
    _import_domains(function, model)
    return function


def same_text(first: FunctionBody, second: FunctionBody) -> bool:
    """Whether two bodies are equal up to the names of their values and the order of commutative operands."""
    return _spelling(first) == _spelling(second)


def _spelling(body: FunctionBody) -> list[str]:
    """A digest of each output: of the nodes that lead to it, down to the numbers of the inputs and of the extras."""
    names = {name: f"extra {number}" for number, name in enumerate(body.extras)}
    names |= {name: f"input {number}" for number, name in enumerate(body.inputs)}
    for node in body.nodes:
        operands = [names.get(name, name) for name in node.input]
        operands = sorted(operands) if node.op_type in _COMMUTATIVE else operands
        attributes = sorted(_attribute(attribute) for attribute in node.attribute)
        node_digest = hashlib.sha256(repr((node.domain, node.op_type, operands, attributes)).encode()).hexdigest()
        names.update((name, f"{node_digest} {number}") for number, name in enumerate(node.output))
    return [names[name] for name in body.outputs]


def _attribute(attribute: AttributeProto) -> bytes:
    copy = deepcopy(attribute)
    _clear(copy)
    return bytes(copy.SerializeToString(deterministic=True))


def _clear(attribute: AttributeProto) -> None:
    """Remove the documentation of an attribute, and the name of its tensor."""
    attribute.ClearField("doc_string")
    if attribute.HasField("t"):
        attribute.t.ClearField("name")
        attribute.t.ClearField("doc_string")


def clean() -> Callable[[str], str]:
    """A renaming to identifiers: equal names get one identifier, different names different ones."""
    identifiers, occupied = dict[str, str](), set[str]()

    def renamed(name: str) -> str:
        if name not in identifiers:
            plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[-_LONGEST_NAME:].lstrip("_0123456789") or "value"
            identifiers[name] = free_name(plain, occupied)
            occupied.add(identifiers[name])
        return identifiers[name]

    return renamed


def _is_shape_arithmetic(node: NodeProto, most_bytes: float) -> bool:
    small = all(attribute.ByteSize() <= most_bytes for attribute in node.attribute)
    return node.domain in CORE_DOMAINS and node.op_type in _SHAPE_ARITHMETIC and small


def _is_small(tensor: TensorProto, folder: Path | None) -> bool:
    """Whether an initializer can be repeated in a body; one that is external has to be read for it."""
    if tensor.data_location != tensor.EXTERNAL:
        return bool(tensor.ByteSize() <= _SMALL_BYTES)
    dtype = from_onnx(tensor.data_type)
    if folder is None or dtype is None or dtype is DType.OTHER:
        return False
    return bool(math.prod(tensor.dims) * dtype.bytes <= _SMALL_BYTES)


def _constant_node(values: ModelValues, name: str) -> NodeProto:
    tensor = values.constants[name]
    node = type(values.nodes[0])(op_type="Constant", output=[name])
    attribute = node.attribute.add()
    attribute.name, attribute.type = "value", attribute.TENSOR
    if tensor.data_location != tensor.EXTERNAL:
        attribute.t.CopyFrom(tensor)
        return node
    from noyau.frontends.onnx.tensors import array_of

    if (array := array_of(tensor, values.folder)) is None:
        raise GraphError(f"the type of the constant {name!r} is none that noyau has")
    attribute.t.data_type, attribute.t.raw_data = tensor.data_type, array.tobytes()
    attribute.t.dims.extend(tensor.dims)
    return node


def is_foreign(node: NodeProto, values: ModelValues) -> bool:
    """Whether a node has noyau's domain, but not the plain body of a fused node."""
    if not is_own(node.domain):
        return False
    function = values.fused.get((node.domain, node.op_type))
    if function is None or function.attribute or function.attribute_proto or node.attribute:
        return True
    return any(is_own(each.domain) or any(subgraphs(each)) for each in function.node)


def unfuse(node: NodeProto, values: ModelValues, occupied: set[str]) -> list[NodeProto]:
    """The node itself; for a fused node, the nodes of its body under fresh names."""
    if not is_own(node.domain):
        return [node]
    function = values.fused[node.domain, node.op_type]
    names = {"": "", **dict.fromkeys(function.input, "")}
    names |= dict(zip(function.input, node.input, strict=False))
    names |= {formal: name for formal, name in zip(function.output, node.output, strict=False) if name}
    nodes = []
    for inner in function.node:
        copy = deepcopy(inner)
        for ends in (copy.input, copy.output):
            for number, name in enumerate(ends):
                if name not in names:
                    names[name] = free_name(name, occupied)
                    occupied.add(names[name])
                ends[number] = names[name]
        nodes.append(copy)
    return nodes


def _import_domains(function: FunctionProto, model: ModelProto) -> None:
    names = {core(node.domain) for node in function.node}
    for entry in model.opset_import:
        domain = core(entry.domain)
        if domain in names:
            names.discard(domain)
            function.opset_import.add(domain=domain, version=entry.version)
    if names:
        raise GraphError(f"the model imports no operator set of the domain {min(names)!r}, which its nodes use")


def used_functions(nodes: Sequence[NodeProto], model: ModelProto) -> list[FunctionProto]:
    """The model's own functions that some nodes call, directly or through one another, in the model's order."""
    by_name = {(function.domain, function.name): function for function in model.functions}
    pending, keys = list(every_node(nodes)), set[tuple[str, str]]()
    while pending:
        node = pending.pop()
        key = (node.domain, node.op_type)
        if key in by_name and key not in keys:
            keys.add(key)
            pending += every_node(by_name[key].node)
    return [function for key, function in by_name.items() if key in keys]
