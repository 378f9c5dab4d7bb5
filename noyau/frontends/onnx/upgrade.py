"""Upgrades of models of an old IR or opset, or with extents of -1, to the form that noyau reads."""

from collections.abc import Collection
from contextlib import suppress
from copy import deepcopy
from itertools import chain

import onnx
from onnx import inliner, version_converter
from onnx.helper import make_attribute
from onnx.numpy_helper import to_array

from noyau.errors import ModelError
from noyau.frontends.onnx.function_bodies import inlined_sizes, opsets_of
from noyau.frontends.onnx_messages import every_node
from noyau.text import free_name, printable

OLDEST_OPSET = 13
_OPSET_OF_POSITIONS = 11  # from here on, attributes of a Resize name its coordinates and its rounding
_MOST_NODES = 4096  # of a function that is inlined, including those of its callees
_IR_OF_CONSTANTS = 4  # from here on, an initializer that is listed as an input may be overridden; before, none may


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in IR 4 and opset 13 or later, with unset extents in the place of -1, names of their own for overloads
    of functions, and a Loop in the place of a SequenceMap, as onnxruntime runs it. The model itself where nothing
    changes.

    ModelError where onnx cannot convert it."""
    opset = opset_of(model)
    if any(node.op_type == "SequenceMap" for node in every_node(model.graph.node)):
        with suppress(TypeError):  # releases of onnx that cannot inline it
            model = inliner.inline_selected_functions(model, [("", "SequenceMap")], inline_schema_functions=True)
    is_overloaded = any(each.overload for each in model.functions)
    if model.ir_version >= _IR_OF_CONSTANTS and opset >= OLDEST_OPSET and not (is_overloaded or any(_unset(model))):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for dim in _unset(result):
        dim.ClearField("dim_value")
    if result.ir_version < _IR_OF_CONSTANTS:
        _drop_listed(result)
    if is_overloaded:
        _rename_overloads(result)
    return result if opset >= OLDEST_OPSET else _convert(result, opset)


def inline_functions(model: onnx.ModelProto, names: Collection[tuple[str, str]]) -> onnx.ModelProto:
    """Inline some of the model's own functions, by domain and name; the model itself where onnx cannot. Functions that
    are very large, or call each other in a circle, stay calls."""
    own = {(function.domain, function.name): function for function in model.functions}
    sizes = inlined_sizes(model.functions)
    small, result = [key for key in sizes if key in names and sizes[key] <= _MOST_NODES], deepcopy(model)
    with suppress(onnx.checker.ValidationError):
        for key in reversed(small):  # callers first: what they leave out is then known in the calls
            for call in every_node(chain(result.graph.node, *(each.node for each in result.functions))):
                if (call.domain, call.op_type) == key:  # onnx leaves the defaults out
                    present = {attribute.name for attribute in call.attribute}
                    call.attribute.extend(each for each in own[key].attribute_proto if each.name not in present)
            result = inliner.inline_selected_functions(result, [key])
        return result if small else model
    return model


def conversion(model: onnx.ModelProto) -> str:
    """A line about the conversion of the opset by `upgrade`, or an empty text without one."""
    opset = opset_of(model)
    return "" if opset >= OLDEST_OPSET else f"the model has opset {opset}: it is read as onnx converts it to opset 13"


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; OLDEST_OPSET for a model that imports none."""
    return int(opsets_of(list(model.opset_import)).get("", OLDEST_OPSET))


def _unset(model: onnx.ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    """The extents of -1, which some exporters write for unknown extents."""
    values = chain(model.graph.input, model.graph.output, model.graph.value_info)
    dims = (dim for value in values for dim in value.type.tensor_type.shape.dim)
    return [dim for dim in dims if dim.HasField("dim_value") and dim.dim_value == -1]


def _drop_listed(model: onnx.ModelProto) -> None:
    """Remove the initializers from the inputs, where old IRs list them, so that they stay constants."""
    stored = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in stored]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = _IR_OF_CONSTANTS


def _rename_overloads(model: onnx.ModelProto) -> None:
    """Give each overload of a function a name of its own, also in its calls."""
    names, taken = dict[tuple[str, str, str], str](), {function.name for function in model.functions}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if function.overload:
            function.name = free_name(f"{function.name}_{function.overload}", taken)
            taken.add(function.name)
        names[key], function.overload = function.name, ""
    for node in every_node(chain(model.graph.node, *(each.node for each in model.functions))):
        node.op_type, node.overload = names.get((node.domain, node.op_type, node.overload), node.op_type), ""


def _convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert the model to the oldest opset that noyau reads, by onnx, and Hardmax, which onnx leaves out: like a
    Softmax, it reads its operand as a matrix before opset 13."""
    nodes = list(every_node(model.graph.node))
    hardmax = free_name("hardmax", {node.name for node in nodes})
    turned = (each for each in nodes if each.op_type == "Transpose" and each.attribute)
    ranks = {each.output[0]: len(each.attribute[0].ints) for each in turned}
    may_shrink = "Resize" in {node.op_type for node in nodes}
    for node in nodes:
        if node.op_type == "Hardmax":
            node.op_type, node.name = "Softmax", hardmax
        for axis in (each for each in node.attribute if each.name == "axis" and "Softmax" in node.op_type):
            axis.i = -1 if axis.i + 1 == ranks.get(node.input[0]) else axis.i  # then onnx needs no matrix
    try:
        result = version_converter.convert_version(model, OLDEST_OPSET)
        if opset < _OPSET_OF_POSITIONS:
            _position(result, may_shrink)
    except Exception as error:  # of onnx, of protobuf or of C++
        reason = printable(" ".join(str(error).split())[:200])
        raise ModelError(
            f"the model has opset {opset}, and onnx does not convert it to {OLDEST_OPSET}, the oldest that noyau "
            f"reads: {reason}; export it with a newer opset"
        ) from error
    for node in every_node(result.graph.node):
        node.op_type = "Hardmax" if node.name == hardmax else node.op_type
    del result.graph.value_info[:]  # onnx adds inferred types, with which onnxruntime lays out memory by other rules
    result.graph.value_info.extend(model.graph.value_info)
    return result


def _position(model: onnx.ModelProto, may_shrink: bool) -> None:
    """Write into each Resize its meaning before opset 11: coordinates from the corner of an image, and rounding down
    to the nearest cell, or up where the image shrinks, which an Upsample never does."""
    nodes, tensors = list(every_node(model.graph.node)), {each.name: each for each in model.graph.initializer}
    tensors |= {node.output[0]: node.attribute[0].t for node in nodes if node.op_type == "Constant"}
    for node in (each for each in nodes if each.op_type == "Resize"):
        in_doubt = may_shrink and all(each.s != b"linear" for each in node.attribute)
        tensor = tensors.get(node.input[2]) if in_doubt else None
        least, largest = (1.0, 1.0) if tensor is None else (to_array(tensor).min(), to_array(tensor).max())
        if in_doubt and (tensor is None or least < 1 < largest):
            raise ValueError("a Resize that is not known to grow, or to shrink, has no spelling from opset 11 on")
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil" if least < 1 else "floor"}
        node.attribute.extend(make_attribute(key, value) for key, value in modes.items())
