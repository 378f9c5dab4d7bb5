"""Values that enter the bodies of a flat model, from a run of the nodes around them: of an If the branch that is
taken, of a Loop and of a Scan an iteration in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.dtypes import DType
from noyau.errors import GraphError, InputError, ModelError, UnsupportedError
from noyau.frontends.onnx.tensors import array_of
from noyau.frontends.onnx_messages import reads
from noyau.hosts.onnxruntime.bodies import Body, integers
from noyau.hosts.onnxruntime.function_bodies import ValueType
from noyau.hosts.onnxruntime.runs import Arrays, run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.submodel import extract, types_of
from noyau.hosts.onnxruntime.write_back import value_info
from noyau.text import printable

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Capture = Callable[[Iterable[str]], Arrays]
_ENDLESS = np.iinfo(np.int64).max
_LAST = "noyau/last iteration"


def entering(model: ModelProto, folder: Path, body: Body, capture: Capture) -> tuple[Arrays, str]:
    """Values that enter a body of a flat model, by their names, and under its own how often it runs; or why these are
    not known. `capture` gives arrays that its node reads. InputError or ModelError where the node does not run."""
    proto, values = model.graph.node[body.place], list[np.ndarray]()
    try:
        node = _Node(model, folder, body.place, capture(proto.input if proto.op_type == "If" else reads(proto)))
        match proto.op_type:
            case "If":
                count = int(bool(node.value(0, False)) is (body.attribute == "then_branch"))
            case "Loop":
                count, values = node.iteration()
            case _:
                count, values = node.step()
    except (InputError, ModelError):
        raise
    except (GraphError, UnsupportedError, IndexError, ValueError) as error:  # it is no tensor, or the node is malformed
        return {}, f"what enters {printable(body.name)} could not be captured: {error}"
    names = (model.graph.node[position].output[0] for position in body.entries)
    entered = {body.name: np.asarray(count), **dict(zip(names, values, strict=False))}
    return entered, "" if count else f"{printable(body.name)} does not run with these inputs"


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of a flat model with the arrays that it reads."""

    model: ModelProto
    folder: Path
    place: int
    known: Arrays

    @property
    def proto(self) -> NodeProto:
        return self.model.graph.node[self.place]

    def value(self, number: int, otherwise: object) -> np.ndarray:
        """One of its inputs; what stands for it where it has none."""
        name = self.proto.input[number] if number < len(self.proto.input) else ""
        if not name:
            return np.asarray(otherwise)
        if name in self.known:
            return self.known[name]
        tensor = next((each for each in self.model.graph.initializer if each.name == name), None)
        array = None if tensor is None else array_of(tensor, self.folder)
        if array is None:
            raise GraphError(f"{printable(name)} is not known")
        return array

    def iteration(self) -> tuple[int, list[np.ndarray]]:
        """The iterations of a Loop, and the values that one in the middle begins with; nothing where there is none."""
        trips, goes = self.value(0, _ENDLESS), self.value(1, True)
        if not goes or trips.item() < 1:
            return 0, []
        try:
            states = [self.value(number, 0) for number in range(2, len(self.proto.input))]
        except GraphError:
            if trips.item() == _ENDLESS:
                raise
            middle = trips.item() // 2
            return trips.item(), [np.asarray(middle), np.asarray(True)]  # it carries no tensor, as a SequenceMap's does
        (last,) = self.run([trips, goes, *states], [len(states)])
        middle = (int(last) + 1) // 2
        if last < 0:
            return 0, []
        if middle:
            states = self.run([np.full_like(trips, middle), goes, *states], range(len(states)))
        return int(last) + 1, [np.asarray(middle, np.int64), np.asarray(True), *states]

    def step(self) -> tuple[int, list[np.ndarray]]:
        """The steps of a Scan, and the values that one in the middle begins with; nothing where there is none."""
        arrays = [self.value(number, 0) for number in range(len(self.proto.input))]
        count = integers(self.proto, "num_scan_inputs")[0]
        states, sequences = arrays[:-count], arrays[-count:]
        axes = integers(self.proto, "scan_input_axes") or [0] * count
        backwards = integers(self.proto, "scan_input_directions") or [0] * count
        if not (length := sequences[0].shape[axes[0]]):
            return 0, []
        middle, ways = length // 2, list(zip(sequences, axes, backwards, strict=True))
        if middle:
            parts = (range(middle), range(length - middle, length))  # the first steps forwards, and backwards
            before = [np.take(array, parts[back], axis) for array, axis, back in ways]
            states = self.run([*states, *before], range(len(states)))
        now = (np.take(array, length - 1 - middle if back else middle, axis) for array, axis, back in ways)
        return length, [*states, *now]

    def run(self, arrays: Sequence[np.ndarray], results: Sequence[int]) -> list[np.ndarray]:
        """Results of the node by number where it reads these arrays. Behind the states of a Loop comes the number
        of its last iteration, -1 where there is none."""
        names = [name for name in sorted(reads(self.proto)) if name in self.known]
        owner = next(filter(None, self.proto.output))
        part = extract(self.model, [self.place], names, [owner], types_of({name: self.known[name] for name in names}))
        node = next(each for each in part.graph.node if owner in each.output)
        body = next(attribute.g for attribute in node.attribute if attribute.HasField("g"))
        if node.op_type == "Loop":
            # A state, not an output of each iteration: that would take all memory where a Loop never ends.
            number, states = ValueType(DType.I64, ()), len(arrays) - 1
            body.node.add(op_type="Identity", input=[body.input[0].name], output=[_LAST])
            body.input.append(value_info(part.graph, f"{_LAST} before", number))
            outputs = [*body.output[:states], value_info(part.graph, _LAST, number), *body.output[states:]]
            del body.output[:]
            body.output.extend(outputs)
            arrays = [*arrays, np.asarray(-1, np.int64)]
        count = len(body.output) - (node.op_type == "Loop")
        feeds = {f"noyau/{number}": array for number, array in enumerate(arrays)}
        node.input[:], node.output[:] = feeds, [f"noyau/result_{number}" for number in range(count)]
        part.graph.input.extend(value_info(part.graph, name, kind) for name, kind in types_of(feeds).items())
        wanted = [node.output[number] for number in results]
        del part.graph.output[:]
        for name in wanted:
            part.graph.output.add(name=name)
        session = open_session(part.SerializeToString(), folder=self.folder, optimized=False, prepacked=False)
        outcome = run(session, {**{name: self.known[name] for name in names}, **feeds}, wanted)
        return [outcome[name] for name in wanted]
