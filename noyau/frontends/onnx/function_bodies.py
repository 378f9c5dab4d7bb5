"""Composite operators that have no body in ONNX's schema, or whose body is worse than what its text says.

Composite operators: the bodies that ONNX's own schemas carry, and the functions of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from noyau.dtypes import from_onnx
from noyau.errors import UnsupportedError
from noyau.frontends.onnx.reductions import mean
from noyau.frontends.onnx.sites import Importer, OnnxSite
from noyau.ir.dims import Dim
from noyau.ir.graph import Node


def _layer_normalization(site: OnnxSite) -> list[Node]:
    """As the text of the operator has it: the variance is the mean of squared deviations, over the axes from `axis` on.

    The schema's body takes E[x2] - E[x]2 of a flattened value, which loses half the digits."""
    value, rank = site.input(), site.rank()
    first = site.axis(site.attribute("axis", -1), rank)
    stash = from_onnx(site.attribute("stash_type", 1))
    if stash is None or not stash.is_float:
        raise UnsupportedError("LayerNormalization computes in a type that is no float")
    wide = site.cast(value, stash)
    result, centre, inverse = normalize_rows(site, wide, tuple(range(first, rank)), site.attribute("epsilon", 1e-5))
    result = site.call("multiply", site.cast(result, value.dtype), site.input(1))
    if site.has(2):
        result = site.call("add", result, site.input(2))
    return [result, centre, inverse]


def normalize_rows(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node, Node]:
    """Deviations from the mean over axes, divided by their spread; the mean; 1 over the spread."""
    centre = mean(site, value, axes)
    deviation = site.call("subtract", value, centre)
    variance = mean(site, site.call("multiply", deviation, deviation), axes)
    spread = site.call("sqrt", site.call("add", variance, site.like(epsilon, variance)))
    return site.call("divide", deviation, spread), centre, site.call("reciprocal", spread)


def root_mean_square(site: OnnxSite, value: Node, axes: tuple[int, ...], epsilon: float) -> tuple[Node, Node]:
    """The value divided by the root of its mean square over axes; and 1 over that root."""
    square = mean(site, site.call("multiply", value, value), axes)
    spread = site.call("sqrt", site.call("add", square, site.like(epsilon, square)))
    return site.call("divide", value, spread), site.call("reciprocal", spread)


def _batch_normalization(site: OnnxSite) -> Node:
    if site.attribute("training_mode", 0):
        raise UnsupportedError("BatchNormalization in training mode gives running statistics")
    value = site.input()
    scale, shift, centre, variance = (_by_channel(site, value, site.input(k)) for k in range(1, 5))
    return _normalize(site, value, centre, variance, scale, shift)


def _normalize(site: OnnxSite, value: Node, centre: Node, variance: Node, scale: Node, shift: Node) -> Node:
    spread = site.call("sqrt", site.call("add", variance, site.like(site.attribute("epsilon", 1e-5), variance)))
    deviation = site.call("subtract", value, site.cast(centre, value.dtype))
    result = site.call("divide", deviation, site.cast(spread, value.dtype))
    result = site.call("multiply", result, site.cast(scale, value.dtype))
    return site.call("add", result, site.cast(shift, value.dtype))


def _by_channel(site: OnnxSite, value: Node, channel: Node) -> Node:
    """A vector along axis 1, aligned for broadcasting."""
    if len(channel.shape) != 1 or len(value.shape) < 2:
        raise UnsupportedError(f"{site.op} needs vectors over axis 1 of a value of rank 2 or more")
    return site.restore_axes(channel, range(1, len(value.shape) - 1))


def _instance_normalization(site: OnnxSite) -> Node:
    value = site.input()
    scale, shift = (_by_channel(site, value, site.input(k)) for k in (1, 2))
    axes = tuple(range(2, len(value.shape)))
    centre = mean(site, value, axes)
    deviation = site.call("subtract", value, centre)
    variance = mean(site, site.call("multiply", deviation, deviation), axes)
    return _normalize(site, value, centre, variance, scale, shift)


def _lp_normalization(site: OnnxSite) -> Node:
    """x / norm along an axis, and 0 where the norm is 0."""
    value, order = site.input(), site.attribute("p", 2)
    axis = site.axis(site.attribute("axis", -1), len(value.shape))
    if order not in (1, 2):
        raise UnsupportedError(f"LpNormalization of order {order} has no meaning")
    each = site.call("multiply", value, value) if order == 2 else site.call("abs", value)
    norm = site.reduce("sum", each, [axis], keep=True)
    norm = site.call("sqrt", norm) if order == 2 else norm
    zero = site.like(0, value)
    return site.call("where", site.call("equal", norm, zero), zero, site.call("divide", value, norm))


def _global_pool(monoid: str) -> Importer:
    def pool(site: OnnxSite) -> Node:
        value = site.input()
        if len(value.shape) < 3:
            raise UnsupportedError(f"{site.op} needs a rank of 3 or more")
        axes = tuple(range(2, len(value.shape)))
        return mean(site, value, axes) if monoid == "mean" else site.reduce(monoid, value, axes, keep=True)

    return pool


def _hardmax(site: OnnxSite) -> Node:
    """1 at the first of the largest along an axis, 0 elsewhere."""
    value = site.input()
    axis = site.axis(site.attribute("axis", -1), len(value.shape))
    best = site.reduce("argmax", value, [axis], keep=True)
    same = site.call("equal", site.iota(Dim.of(f"#{axis}"), value.shape), best)
    return site.cast(same, value.dtype)


COMPOSITES: dict[str, Importer] = {
    "BatchNormalization": _batch_normalization,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "Hardmax": _hardmax,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
}


Attributes = Mapping[str, onnx.AttributeProto]


def canonical(domain: str) -> str:
    """The default domain has two names."""
    return "" if domain == "ai.onnx" else domain


def opsets_of(imports: list[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Versions by domain."""
    return {canonical(entry.domain): entry.version for entry in imports}


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """A function, and the attributes that its call binds."""

    function: onnx.FunctionProto
    attributes: Attributes

    @property
    def opsets(self) -> dict[str, int]:
        return opsets_of(list(self.function.opset_import))


NEWEST_OPSET = 28  # of the default domain; a later one may mean something else by a name


def conform(node: onnx.NodeProto, domain: str, opset: int) -> None:
    """UnsupportedError where a node of the default domain is not what its schema says."""
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
    """The body of a model-local function, where a call leaves out what has a default."""
    attributes = {attribute.name: attribute for attribute in call.attribute}
    return FunctionBody(function, {**{default.name: default for default in function.attribute_proto}, **attributes})


def schema_body(call: onnx.NodeProto, opset: int, inputs: list[Node | None]) -> FunctionBody | None:
    """The body that ONNX's schema gives an operator at an opset, or None."""
    try:
        schema = onnx.defs.get_schema(call.op_type, opset, canonical(call.domain))
    except onnx.defs.SchemaError:
        return None
    text = _context_body(schema, call, opset, inputs) or _plain_body(schema, opset)
    if text is None:
        return None
    attributes = {attribute.name: attribute for attribute in call.attribute}
    defaults = {name: entry.default_value for name, entry in schema.attributes.items() if entry.default_value.name}
    function = onnx.FunctionProto.FromString(text) if isinstance(text, bytes) else text
    return FunctionBody(function, {**defaults, **attributes})


def _plain_body(schema: onnx.defs.OpSchema, opset: int) -> bytes | onnx.FunctionProto | None:
    versions = [version for version in schema.function_opset_versions if version <= opset]
    if not schema.has_function or not versions:
        return None
    return schema.get_function_with_opset_version(max(versions))


def _context_body(
    schema: onnx.defs.OpSchema, call: onnx.NodeProto, opset: int, inputs: list[Node | None]
) -> bytes | None:
    """A body that depends on attributes and on the types of the inputs."""
    versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
    if not schema.has_context_dependent_function or not versions:
        return None
    types = [type_of(node).SerializeToString() if node else b"" for node in inputs]
    text = call.SerializeToString()
    return schema.get_context_dependent_function_with_opset_version(max(versions), text, types) or None


def type_of(node: Node) -> onnx.TypeProto:
    """The ONNX type of a value of noyau: names of sizes as dimension names, other Dims in words."""
    dims = [dim.constant if dim.constant is not None else str(dim) for dim in node.shape]
    return onnx.helper.make_tensor_type_proto(node.dtype.onnx, dims)


def resolve(node: onnx.NodeProto, bound: Attributes) -> onnx.NodeProto:
    """A node of a body whose references to the function's attributes are replaced by their values."""
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
        elif attribute.ref_attr_name in bound:
            value = copy.attribute.add()
            value.CopyFrom(bound[attribute.ref_attr_name])
            value.name = attribute.name
    return copy


def _has_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
