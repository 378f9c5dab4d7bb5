"""The operators of a model as the partition sees them."""

from __future__ import annotations

import onnx

from noyau.compiler.partition.cut import Model, ModelOperator
from noyau.frontends.onnx.importer import ImportedModel
from noyau.frontends.onnx.opaque import captures


def partition_model(model: onnx.ModelProto, imported: ImportedModel) -> Model:
    """A model and its graph, ready to be cut into groups."""
    places = [
        ModelOperator(position, node.op_type, (*node.input, *captures(node)), tuple(filter(None, node.output)))
        for position, node in enumerate(model.graph.node)
    ]
    left = {**imported.opaque, **imported.foldable}
    return Model(imported.graph, places, imported.places, imported.arithmetic, left, imported.demands)
