"""Activations of a model: the arrays that its kernels read in a run, captured for their checks and timings.

Operators that onnxruntime folds into the library call before them never run alone: the call is captured with them.
The inputs of bodies in a flat model come from a run of the nodes around them: of an If the branch that is taken, of
a Loop and of a Scan an iteration in the middle."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from noyau.codegen.plan import PlannedKernel
from noyau.compiler.partition.cut import Group
from noyau.dtypes import DType
from noyau.errors import GraphError, InputError, ModelError, UnsupportedError
from noyau.frontends.onnx.tensors import array_of
from noyau.frontends.onnx_messages import CORE_DOMAINS, reads
from noyau.hosts.onnxruntime.bodies import Body, integers
from noyau.hosts.onnxruntime.function_bodies import ValueType
from noyau.hosts.onnxruntime.inputs import ModelInputs, unrunnable
from noyau.hosts.onnxruntime.runs import ARRAYS, Arrays, run, try_apart
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators
from noyau.hosts.onnxruntime.submodel import extract, lost_values, part_for, types_of
from noyau.hosts.onnxruntime.write_back import value_info
from noyau.ir.graph import Constant, Graph, names_of
from noyau.text import printable
from noyau.verify.inputs import Inputs

if TYPE_CHECKING:
    import onnxruntime
    from onnx import ModelProto, NodeProto

Capture = Callable[[Iterable[str]], Arrays]
_ENDLESS = np.iinfo(np.int64).max
_LAST = "noyau/last iteration"


def entering(model: ModelProto, folder: Path, body: Body, capture: Capture) -> tuple[Arrays, str]:
    """The inputs of a body of a flat model by name, and under the body's name the number of its runs; or the reason why
    they are unknown. `capture` returns arrays that its node reads. InputError or ModelError where the node fails."""
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
        """An input by its number; `otherwise` where the node has none."""
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
        """The number of iterations of a Loop, and the inputs of its body in the middle one; no inputs without any."""
        trips, goes = self.value(0, _ENDLESS), self.value(1, True)
        if not goes or trips.item() < 1:
            return 0, []
        try:
            states = [self.value(number, 0) for number in range(2, len(self.proto.input))]
        except GraphError:
            if trips.item() == _ENDLESS:
                raise
            middle = trips.item() // 2
            return trips.item(), [np.asarray(middle), np.asarray(True)]  # states that are no tensors, of a SequenceMap
        (last,) = self.run([trips, goes, *states], [len(states)])
        middle = (int(last) + 1) // 2
        if last < 0:
            return 0, []
        if middle:
            states = self.run([np.full_like(trips, middle), goes, *states], range(len(states)))
        return int(last) + 1, [np.asarray(middle, np.int64), np.asarray(True), *states]

    def step(self) -> tuple[int, list[np.ndarray]]:
        """The number of steps of a Scan, and the inputs of its body in the middle one; no inputs without any."""
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
        """Run the node on these arrays: its results by number. Behind the states of a Loop stands the number of its
        last iteration, -1 where there is none."""
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


@dataclass(frozen=True, slots=True)
class Activations:
    """Values of one run: arrays by the model's names, its inputs and tensors among them.

    `made_up`: whether the model's inputs are synthetic. Values that could not be captured are absent; `fault`: why the
    model as a whole does not run with any inputs. `body_faults`: why the values of a body are unknown, by the prefix of
    their names. `others`: the activations with a user's other samples, at the kernels' first places."""

    arrays: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    made_up: bool
    fault: str = ""
    body_faults: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Activations, ...] = ()

    def fault_of(self, group: Group) -> str:
        """Why the inputs of a group are unknown, or an empty text."""
        if (fault := fault_at(group.outputs[0], self.body_faults)) or self.of(group.original) is not None:
            return fault
        return self.fault or "what it reads could not be captured"

    def repeats(self, group: Group, bodies: Iterable[Body]) -> int:
        """Count the runs of a group in one run of the model: one for each iteration of the loops around it."""
        around = (body.name for body in bodies if group.outputs[0].startswith(body.prefix))
        return math.prod(int(self.arrays.get(name, 1)) for name in around)

    def of(self, graph: Graph) -> tuple[np.ndarray, ...] | None:
        """The arrays of a graph's inputs, in order, or None where one is not known."""
        names = [node.output for node in graph.inputs]
        return tuple(self.arrays[name] for name in names) if self.arrays.keys() >= set(names) else None

    def sizes_of(self, graph: Graph) -> dict[str, int]:
        """The known sizes of a graph. InputError where an array does not have the shape of its value."""
        sizes, arrays = dict(self.sizes), self.of(graph)
        if arrays is not None:
            sizes |= graph.bind([array.shape for array in arrays])
        names = names_of(graph)
        return {name: size for name, size in sizes.items() if name in names}


def capture_twice(
    original: SourceModel,
    kernels: Sequence[PlannedKernel],
    feeds: ModelInputs,
    capturing: ActivationCapture | None = None,
    *,
    whole: bool = False,
) -> tuple[Activations, Activations]:
    """Capture the inputs of kernels: with small inputs of the model at first and last places, with full ones at first.

    A model that does not run with small inputs is captured once; `capturing` may hold a session of it. ModelError or
    InputError where the required part of the model does not run, or with `whole` all of it that can run at all."""
    capturing = capturing or capture_of(original)
    first, small = [kernel.groups[0] for kernel in kernels], None
    ends = [group for kernel in kernels for group in end_places(kernel)]
    if feeds.small.sizes != feeds.full.sizes:
        with suppress(InputError):
            small = look(original, _read(original, ends), feeds.small, capturing, feeds.made_up)
    try:
        if whole and kernels:
            ends_of_model = [end.name for end in original.runnable.graph.output if end.type.HasField("tensor_type")]
            capturing.capture(feeds.full.arrays, ends_of_model)
        full = look(original, _read(original, ends if small is None else first), feeds.full, capturing, feeds.made_up)
        return full if small is None else small, full
    except InputError as error:
        raise unrunnable(error, original.imported, feeds.full.sizes) from error


def capture_at(
    original: SourceModel,
    kernels: Sequence[PlannedKernel],
    inputs: Inputs,
    made_up: bool,
    capturing: ActivationCapture | None = None,
) -> Activations:
    """Capture the inputs of kernels at their first places, with other model inputs. Errors as in `capture_twice`."""
    first = [kernel.groups[0] for kernel in kernels]
    return look(original, _read(original, first), inputs, capturing or capture_of(original), made_up)


def capture_of(original: SourceModel) -> ActivationCapture:
    """The capture of a model's values, except those that need operators of a library of the user's own."""
    return ActivationCapture(original.model, original.folder, foreign_operators(original.model), original.bodies)


def end_places(kernel: PlannedKernel) -> tuple[Group, ...]:
    """The first and the last place of a kernel."""
    return kernel.groups if len(kernel.groups) < 2 else (kernel.groups[0], kernel.groups[-1])


def _read(original: SourceModel, groups: Sequence[Group]) -> set[str]:
    """The names of the values that groups read, and those of their nodes and of the calls that are timed with them."""
    nodes = original.model.graph.node
    names = {name for group in groups for name in group.inputs}
    read = [position for group in groups for position in group.positions]
    read += [call for group in groups for call in folding_calls(original.model, group)]
    return names | {name for position in read for name in nodes[position].input}


def look(
    original: SourceModel, names: Collection[str], inputs: Inputs, capturing: ActivationCapture, made_up: bool
) -> Activations:
    """Capture some values, in bodies too, by a run on these inputs; tensors of the model are loaded instead."""
    entering, faults = capturing.entering(inputs.arrays, names)
    known = {**inputs.arrays, **entering}
    captured = capturing.capture(known, sorted(name for name in names if not fault_at(name, faults)))
    tensors, nodes = original.imported.initializers, original.imported.graph.nodes
    stored = {node.output: node.kind.value for node in nodes if isinstance(node.kind, Constant)}
    stored |= {name: original.imported.load_initializer(name) for name in names if name in tensors}
    return Activations({**stored, **known, **captured}, inputs.sizes, made_up, body_faults=faults)


def fault_at(name: str, faults: Mapping[str, str]) -> str:
    """Why a value in a body is unknown, or an empty text."""
    return next((fault for prefix, fault in faults.items() if name.startswith(prefix)), "")


@dataclass(slots=True)
class ActivationCapture:
    """Captures of a model's values, without optimisation, by the nodes that they need alone. A session serves the next
    capture as well if it has the wanted values. Nodes at the positions `without` do not run. With an input without
    cells, a process of its own tries each run first, since some operators crash then."""

    model: ModelProto
    folder: Path
    without: Collection[int] = ()
    bodies: Sequence[Body] = ()
    _inputs: frozenset[str] = frozenset()
    _session: onnxruntime.InferenceSession | None = None

    def capture(self, inputs: Arrays, wanted: Iterable[str]) -> dict[str, np.ndarray]:
        """The arrays of some values by name, for these inputs of the model and of bodies. Absent are values that no
        node computes (inputs, initializers), values that are no arrays, and values that need a node that does not run
        or an absent input. ModelError or InputError if onnxruntime does not run the model."""
        stored = {tensor.name for tensor in self.model.graph.initializer}
        absent = {value.name for value in self.model.graph.input} - inputs.keys() - stored
        lost = lost_values(self.model, self.without, absent, inputs)
        outputs = {name for node in self.model.graph.node for name in node.output if name}
        names = [name for name in dict.fromkeys(wanted) if name not in lost and name in outputs - inputs.keys()]
        if not names:
            return {}
        session = self._open(names, inputs)
        tensors = {end.name for end in session.get_outputs() if ARRAYS.match(end.type)}
        feeds, names = {end.name: inputs[end.name] for end in session.get_inputs()}, [n for n in names if n in tensors]
        return run(session, feeds, names) if names else {}

    def entering(self, inputs: Arrays, wanted: Iterable[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The inputs of the bodies around wanted values, for these inputs of the model; and why the values of a body
        are unknown, by the prefix of their names. Errors as in `capture`."""
        wanted, known, arrays, faults = set(wanted), dict(inputs), dict[str, np.ndarray](), dict[str, str]()

        def capture(names: Iterable[str]) -> Arrays:
            return {**known, **self.capture(known, names)}

        for body in self.bodies:
            if fault_at(body.owner, faults) or not any(name.startswith(body.prefix) for name in wanted):
                continue
            values, fault = entering(self.model, self.folder, body, capture)
            known, arrays = {**known, **values}, {**arrays, **values}
            faults |= {body.prefix: fault} if fault else {}
        return arrays, faults

    def _open(self, names: Sequence[str], arrays: Arrays) -> onnxruntime.InferenceSession:
        session, inputs = self._session, frozenset(arrays)
        known = () if session is None or inputs != self._inputs else [output.name for output in session.get_outputs()]
        is_risky = not all(array.size for array in arrays.values())
        if session is None or is_risky or not set(names) <= set(known):
            self._session = None  # frees its memory first
            own = {value.name for value in self.model.graph.input}
            entries = types_of({name: array for name, array in arrays.items() if name not in own})
            content = part_for(self.model, names, entries).SerializeToString()
            if is_risky:
                try_apart(content, self.folder, arrays)
            session = open_session(content, folder=self.folder, optimized=False, prepacked=False)
            self._session, self._inputs = session, inputs
        return session


_ACTIVATIONS = frozenset({"Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Tanh"})
_ADDED = frozenset({"Add", "BatchNormalization"})
# By the operator of a call, the readers of its result that onnxruntime makes a part of the call.
FOLDED = {
    "Conv": _ACTIVATIONS | _ADDED | {"Mul", "Div", "Sub"},
    "ConvTranspose": _ADDED,
    "Gemm": _ACTIVATIONS | _ADDED,
    "MatMul": _ADDED,  # with its bias a Gemm
    "MatMulInteger": frozenset({"Cast"}),  # with scales and a bias a product that gives floats
}


def folding_calls(model: ModelProto, group: Group) -> tuple[int, ...]:
    """The positions of the calls into which onnxruntime may fold an operator of a group, which alone reads their
    results. A MatMul is such a call where its result is a matrix."""
    nodes, inside = model.graph.node, frozenset(group.positions)
    matrices = {node.output for node in group.graph.inputs if len(node.shape) == 2}
    read = set(group.inputs) - {value.name for value in model.graph.output}
    producers = {
        node.output[0]: position
        for position, node in enumerate(nodes)
        if node.op_type in FOLDED and node.domain in CORE_DOMAINS and position not in inside
        if node.output[0] in (read & matrices if node.op_type == "MatMul" else read)
    }
    readers: dict[str, set[int]] = defaultdict(set)
    for position, node in enumerate(nodes) if producers else ():
        for name in producers.keys() & set(reads(node)):
            readers[name].add(position)
    return tuple(
        position
        for name, position in producers.items()
        if inside >= readers[name]
        and any(nodes[reader].op_type in FOLDED[nodes[position].op_type] for reader in readers[name])
    )
