"""What flows through a model: the values that kernels read, captured in one run of the model as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.runtimes.onnxruntime import open_session, run

if TYPE_CHECKING:
    import onnx


def capture(
    model: onnx.ModelProto, folder: Path, inputs: Mapping[str, np.ndarray], wanted: Iterable[str]
) -> dict[str, np.ndarray]:
    """The arrays of some values of a model, by name, for these inputs; nothing in it is optimised.

    Values that no node of the model makes (its inputs, initializers) are left out. ModelError or InputError where
    onnxruntime does not run it."""
    made = {name for node in model.graph.node for name in node.output}
    names = [name for name in dict.fromkeys(wanted) if name in made]
    if not names:
        return {}
    watched = type(model)()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    for name in names:
        watched.graph.output.add(name=name)
    session = open_session(watched.SerializeToString(), folder=folder, optimized=False, prepacked=False)
    return run(session, {name: inputs[name] for name in (value.name for value in session.get_inputs())})
