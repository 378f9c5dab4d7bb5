"""Activations of a model: the values that kernels read, captured in one run of the model as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.hosts.onnxruntime.custom_ops import open_session, run
from noyau.hosts.onnxruntime.function_bodies import reads

if TYPE_CHECKING:
    import onnx
    import onnxruntime


def capture(
    model: onnx.ModelProto,
    folder: Path,
    inputs: Mapping[str, np.ndarray],
    names: Iterable[str],
    without: Collection[int] = (),
) -> dict[str, np.ndarray]:
    """The arrays of some values of a model, by name, for these inputs; nothing in it is optimised, and what they do not
    need does not run.

    Values that no node of the model makes (its inputs, initializers) are left out, and those that need a node at one of
    the positions `without`, or an input that is not given. ModelError or InputError if onnxruntime does not run it."""
    return ActivationCapture(model, folder, without).capture(inputs, names)


@dataclass(slots=True)
class ActivationCapture:
    """As `capture`, again and again: the session of one capture is that of the next, if it has what is wanted there."""

    model: onnx.ModelProto
    folder: Path
    without: Collection[int] = ()
    _given: frozenset[str] = frozenset()
    _session: onnxruntime.InferenceSession | None = None

    def capture(self, inputs: Mapping[str, np.ndarray], wanted: Iterable[str]) -> dict[str, np.ndarray]:
        """The arrays of some values, by name, for these inputs."""
        stored = {tensor.name for tensor in self.model.graph.initializer}
        absent = {value.name for value in self.model.graph.input} - inputs.keys() - stored
        lost = lost_values(self.model, self.without, absent)
        made = {name for node in self.model.graph.node for name in node.output if name}
        names = [name for name in dict.fromkeys(wanted) if name not in lost and name in made]
        if not names:
            return {}
        session = self._opened(names, frozenset(inputs))
        return run(session, {value.name: inputs[value.name] for value in session.get_inputs()}, names)

    def _opened(self, names: Sequence[str], given: frozenset[str]) -> onnxruntime.InferenceSession:
        session = self._session
        known = () if session is None or given != self._given else [output.name for output in session.get_outputs()]
        if session is None or not set(names) <= set(known):
            self._session = None  # its memory goes first
            content = part_for(self.model, names).SerializeToString()
            session = open_session(content, folder=self.folder, optimized=False, prepacked=False)
            self._session, self._given = session, given
        return session


def part_for(model: onnx.ModelProto, wanted: Iterable[str]) -> onnx.ModelProto:
    """The nodes that make some values, as a model with these outputs and the inputs that are needed for them."""
    graph = model.graph
    makers = {name: position for position, node in enumerate(graph.node) for name in node.output if name}
    names = [name for name in dict.fromkeys(wanted) if name in makers]
    needed, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += reads(graph.node[makers[name]]) if name in makers else ()
    part = type(model)()
    part.ir_version = model.ir_version
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = "captured"
    part.graph.node.extend(node for node in graph.node if not needed.isdisjoint(node.output))
    part.graph.input.extend(value for value in graph.input if value.name in needed)
    part.graph.initializer.extend(each for each in graph.initializer if each.name in needed)
    part.graph.sparse_initializer.extend(each for each in graph.sparse_initializer if each.values.name in needed)
    part.graph.value_info.extend(value for value in graph.value_info if value.name in needed)
    for name in names:
        part.graph.output.add(name=name)
    return part


def lost_values(model: onnx.ModelProto, without: Collection[int], absent: Iterable[str]) -> set[str]:
    """The values that need a node at one of some positions, or one of some values."""
    lost = set(absent)
    for position, node in enumerate(model.graph.node):
        if position in without or not lost.isdisjoint(reads(node)):
            lost.update(filter(None, node.output))
    return lost
