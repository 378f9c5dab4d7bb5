"""A model of an old IR or opset, or with extents of -1, as the IR, the opset and the spelling that noyau reads."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain

import onnx
from onnx import inliner, version_converter

from noyau.errors import ModelError
from noyau.frontends.onnx.boundaries import subgraphs
from noyau.frontends.onnx.function_bodies import opsets_of
from noyau.text import printable

OLDEST_OPSET = 13
_IR_OF_CONSTANTS = 4  # from here on, an initializer that is listed as an input may be overridden; before, none may


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model in IR 4 and opset 13 or later, with open extents where it says -1, and with a Loop, which is what
    onnxruntime runs, in place of a SequenceMap; itself where it is so already.

    ModelError where onnx cannot convert it."""
    opset = opset_of(model)
    if _has_sequence_map(model.graph):
        with suppress(TypeError):  # releases of onnx that cannot write it out
            model = inliner.inline_selected_functions(model, [("", "SequenceMap")], inline_schema_functions=True)
    if model.ir_version >= _IR_OF_CONSTANTS and opset >= OLDEST_OPSET and not any(_unset(model)):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for dim in _unset(result):
        dim.ClearField("dim_value")
    if result.ir_version < _IR_OF_CONSTANTS:
        _drop_listed(result)
    return result if opset >= OLDEST_OPSET else _converted(result, opset)


def conversion(model: onnx.ModelProto) -> str:
    """A line on what `upgrade` does to a model, or nothing where that says nothing to a reader."""
    opset = opset_of(model)
    return "" if opset >= OLDEST_OPSET else f"the model has opset {opset}: it is read as onnx converts it to opset 13"


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators; that of a model which has none of them is new enough."""
    return int(opsets_of(list(model.opset_import)).get("", OLDEST_OPSET))


def _has_sequence_map(graph: onnx.GraphProto) -> bool:
    """Whether a graph has such a node, or a graph inside it."""
    return any(node.op_type == "SequenceMap" or any(map(_has_sequence_map, subgraphs(node))) for node in graph.node)


def _unset(model: onnx.ModelProto) -> list[onnx.TensorShapeProto.Dimension]:
    """The extents of -1, which is how some exporters spell one that is not known."""
    values = chain(model.graph.input, model.graph.output, model.graph.value_info)
    dims = (dim for value in values for dim in value.type.tensor_type.shape.dim)
    return [dim for dim in dims if dim.HasField("dim_value") and dim.dim_value == -1]


def _drop_listed(model: onnx.ModelProto) -> None:
    """Take the initializers, which old IRs list among the inputs, from there: so they stay constants."""
    stored = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in stored]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = _IR_OF_CONSTANTS


def _converted(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # of its own, of protobuf and of C++
        reason = printable(" ".join(str(error).split())[:200])
        raise ModelError(
            f"the model has opset {opset}, and onnx does not convert it to {OLDEST_OPSET}, the oldest that noyau "
            f"reads: {reason}; export it with a newer opset"
        ) from error
