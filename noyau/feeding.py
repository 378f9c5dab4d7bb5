"""Inputs for a model: loaded, or made up so that they obey its graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.checking.inputs import Inputs, load_inputs, make_inputs
from noyau.errors import InputError

if TYPE_CHECKING:
    import onnx

    from noyau.frontends.onnx import Imported

USUAL = 128  # what a size is where nobody says


def inputs_for(
    imported: Imported,
    model: onnx.ModelProto,
    dims: Mapping[str, int] | None,
    file: Path | None,
    rng: np.random.Generator,
) -> Inputs:
    """Arrays for the inputs of a model, from an .npz file or made up for the sizes `dims`, by the model's own names.

    A size that is not given is 1 where it is the leading one of an input, else 128. InputError for a name that the
    model does not have."""
    given = {node.output for node in imported.graph.inputs} - {value.name for value in model.graph.input}
    if file is not None:
        return load_inputs(file, imported.graph, given=given)
    return make_inputs(imported.graph, sizes_for(imported, dims or {}, given), rng, given=given)


def sizes_for(imported: Imported, dims: Mapping[str, int], given: set[str]) -> dict[str, int]:
    """A number for each size that the inputs of a model have."""
    called = {original: name for name, original in imported.sizes.items()}
    sizes: dict[str, int] = {}
    for node in imported.graph.inputs:
        if node.output not in given:
            for axis, dim in enumerate(node.shape):
                for name in dim.names:
                    sizes[name] = min(sizes.get(name, USUAL), 1 if axis == 0 and len(node.shape) > 1 else USUAL)
    for name, value in dims.items():
        if called.get(name, name) not in sizes:
            known = ", ".join(sorted(imported.sizes.get(size, size) for size in sizes)) or "none"
            raise InputError(f"the model has no size {name}; its sizes are: {known}")
        sizes[called.get(name, name)] = value
    return sizes
