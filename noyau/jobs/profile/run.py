"""`noyau.profile`: the time of an ONNX model by node and operator, and the most that fusion could gain."""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from noyau.codegen.plan import Plan, plan
from noyau.compiler.partition.cut import Cut, Group
from noyau.compiler.partition.traffic import Traffic, traffic
from noyau.dtypes import DType, from_onnx
from noyau.errors import InputError, ModelError
from noyau.frontends.onnx_messages import every_node
from noyau.hosts.onnxruntime import inputs as onnx_inputs
from noyau.hosts.onnxruntime.inputs import ModelInputs, model_names, spell, unrunnable
from noyau.hosts.onnxruntime.path_ends import Between
from noyau.hosts.onnxruntime.sessions import load_onnxruntime
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators, open_model
from noyau.hosts.onnxruntime.subgraph import cut_of
from noyau.hosts.onnxruntime.write_back import installable
from noyau.ir.graph import names_of
from noyau.ir.sizes import bind
from noyau.jobs.command_line import Step, require_amounts
from noyau.jobs.profile.attribution import Attribution, Positions, attributions_of
from noyau.jobs.profile.onnx_overheads import Overhead, measure_overhead
from noyau.jobs.profile.record import LargeValue, NodeMemory, NodeTime, OperatorTime, PathTime, Profile, ProfiledSize
from noyau.jobs.profile.session_runs import SessionBench, TimedSession
from noyau.jobs.profile.timeline import model_events
from noyau.jobs.profile.traces import NodeRuns
from noyau.text import printable, several
from noyau.timing.conditions import conditions, unsteady
from noyau.timing.machine import this_machine
from noyau.timing.ranges import Event
from noyau.timing.rates import floor_s, gain_s
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.input_files import first_sample
from noyau.verify.inputs import Inputs
from noyau.workers.resources import processors

Dims = Mapping[str, int | Sequence[int]]
log = logging.getLogger("noyau")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The options of `profile`. `dims`: sizes, each a number or several, of which the model runs with the first of each
    size, then with the second of each, and so on; `inputs`: an .npz file of arrays instead; `threads`: of onnxruntime,
    0 for its own choice; `between`: the ends of the only path to consider; `budget_s`: of timing, for each set of
    sizes; `top`: rows of a table to show."""

    dims: Dims = field(default_factory=dict)
    inputs: str | Path | None = None
    threads: int = 1
    between: Between | None = None
    budget_s: float = 1.5
    seed: int = 0
    top: int = 12


class ProfileKeywords(TypedDict, total=False):
    """The fields of ProfileOptions, as keyword arguments of `noyau.profile`."""

    dims: Dims
    inputs: str | Path | None
    threads: int
    between: Between | None
    budget_s: float
    seed: int
    top: int


def check(wishes: ProfileOptions) -> None:
    """InputError for invalid options; MissingExtraError without onnxruntime."""
    require_amounts(wishes, "threads", "seed", "top", "budget_s")
    if wishes.top < 1:
        raise InputError(f"top={wishes.top} is no number of rows: give 1 or more")
    load_onnxruntime()


def bindings(dims: Dims) -> list[dict[str, int]]:
    """The sizes of each run: the first value of each size, then the second... InputError where sizes with several
    values have different numbers of them."""
    lists = {name: [value] if isinstance(value, int) else list(value) for name, value in dims.items()}
    counts = {name: len(values) for name, values in lists.items() if len(values) != 1}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        sizes = ", ".join(f"{printable(name)} has {count}" for name, count in counts.items())
        raise InputError(f"sizes need one value each, or as many as each other: {sizes}")
    runs = max(counts.values(), default=1)
    return [{name: values[k if len(values) > 1 else 0] for name, values in lists.items()} for k in range(runs)]


def inputs_for(original: SourceModel, dims: Mapping[str, int], wishes: ProfileOptions) -> ModelInputs:
    """Arrays for every input of the model. InputError where one cannot be synthesised, or does not fit."""
    imported, names = original.feed_model, frozenset(original.imported.initializers)
    if wishes.inputs is not None:
        inputs = first_sample(Path(wishes.inputs), imported.graph, without=names, dims=dims)
    else:
        sizes, fixed = onnx_inputs.sizes_for(imported, dims), onnx_inputs.graph_names(imported, dims)
        inputs = onnx_inputs.inputs_at(imported, onnx_inputs.fit_sizes(sizes, imported, fixed), (), wishes.seed)
    return ModelInputs(inputs, inputs, made_up=wishes.inputs is None)


_USUAL = ProfileOptions()


def profile(path: str | Path, wishes: ProfileOptions = _USUAL, say: Say = log.info) -> Profile:
    """Profile the time and memory of a model in onnxruntime, as it runs for its user; nothing is compiled.

    `say` receives a line for each step. ModelError for a file that is no model, or that onnxruntime does not run;
    InputError for unfit options or inputs; OutputError where onnxruntime's profiler has no room for its files;
    CheckError where the model crashes onnxruntime; MissingExtraError without onnx or onnxruntime."""
    check(wishes)
    say(f"reading {Path(path).name}")
    original = open_model(Path(path), flat=True)
    for operator in foreign_operators(original.runnable).values():
        problem = f"{printable(operator)} is no operator of plain onnxruntime"
        raise ModelError(f"{original.name} cannot be profiled: {problem}")
    subject = subject_of(original, wishes.between)
    requests = [(dims, inputs_for(original, dims, wishes)) for dims in bindings(wishes.dims)]
    machine = this_machine()
    with SessionBench(wishes.threads) as bench:
        say("measuring what onnxruntime's profiler adds to each node")
        overhead = measure_overhead(bench)
        profiles = []
        make = partial(inputs_for, original, wishes=wishes)
        run = partial(profile_size, subject, overhead, bench, wishes)
        for done, (dims, feeds) in enumerate(requests):
            sizes = spell(model_names(original.imported, feeds.full.sizes))
            say(Step(f"running the model{f' with {sizes}' if sizes else ''}", done, len(requests)))
            profiles.append(onnx_inputs.first_that_runs(original.feed_model, feeds, make, run, dims)[1])
    facts = (machine, original.name, sum(map(bool, original.labels)), wishes.threads)
    events = tuple({**each, "pid": pid} for pid, (_, own) in enumerate(profiles, 1) for each in own)
    return Profile(*facts, tuple(size for size, _ in profiles), wishes.top, subject, events)


def subject_of(original: SourceModel, between: Between | None) -> ProfiledModel:
    """The model with the kernels that `noyau optimize` would plan, under the same names."""
    cut = cut_of(original, between)
    kernels = plan(cut.groups, original.operators, c_compiler.resolve_target("native"))
    fitted = installable(kernels, original.model, original.folder)
    return ProfiledModel(original, fitted, original.imported.arithmetic, cut.cuts)


def profile_size(
    subject: ProfiledModel, overhead: Overhead, bench: SessionBench, wishes: ProfileOptions, feeds: ModelInputs
) -> tuple[ProfiledSize, list[Event]]:
    """The profile of the model with these inputs, and the timeline of some runs."""
    original, before, inputs, arrays = subject.original, conditions(), feeds.full, feeds.full.arrays
    how: dict[str, Any] = {each: getattr(original, each) for each in ("folder", "prepacked", "bodies")}
    try:
        # Run the file itself first, so that errors of onnxruntime contain the file's names.
        steps = bench.weigh(original.path, arrays, original.prepacked)
        ran = bench.run(original.runnable, arrays, wishes.budget_s, **how)
    except InputError as error:
        raise unrunnable(error, original.imported, inputs.sizes) from error
    doubt, times = unsteady(before, conditions(), processors()), ran.comparison
    result = break_down(subject, inputs, ran, overhead, wishes.threads)
    records, unrun = tuple(node.record for node in result.nodes), count_removed(result.nodes, original)
    low_s, high_s = times.quantiles_s(0.1, 0.9)[0]
    run = (times.before_median_s, low_s, high_s, times.after_median_s, result.between_s, len(ran.runs))
    nodes = chain(original.runnable.graph.node, *(each.node for each in original.model.functions))
    operators = OperatorTime.rows(records, (node.op_type for node in every_node(nodes)))
    memory = NodeMemory(weights_bytes(original), **steps, largest=largest_values(ran))
    notes = (*inputs.notes, *remarks(original, records, unrun, doubt))
    sizes = model_names(original.imported, inputs.sizes)
    record = ProfiledSize(sizes, *run, records, operators, result.paths, memory, result.scaled, unrun, notes)
    return record, list(model_events(ran, result.labels, f"{original.name} {spell(sizes)}".strip(), 1))


def remarks(original: SourceModel, nodes: Sequence[NodeTime], unrun: int, doubt: str) -> Iterator[str]:
    if original.written is not None:
        yield "noyau has fused this model: it is profiled as it was before, and as it runs without its library"
    if lost := [printable(node.operator) for node in nodes if not node.stands_for]:
        kinds = ", ".join(dict.fromkeys(lost))
        yield f"{several(len(lost), 'node')} of onnxruntime's optimizer cannot be traced to nodes of the file: {kinds}"
    if unrun:
        yield f"{several(unrun, 'node')} of the file did not run: computed beforehand by onnxruntime, or left out"
    if doubt:
        yield f"the times are doubtful: {doubt}"


def weights_bytes(original: SourceModel) -> int:
    """The bytes of the model's tensors, including external ones."""
    tensors = ((each, from_onnx(each.data_type)) for each in original.model.graph.initializer)
    return sum(len(e.raw_data) if dtype is None else math.prod(e.dims) * dtype.bytes for e, dtype in tensors)


Shapes = Mapping[str, Sequence[int]]
Spot = tuple[int, int]  # the number of a kernel in a plan, and of one of its places


@dataclass(frozen=True, slots=True)
class TimedNodes:
    """A node that ran: its record, and the positions of the file's nodes that it stands for."""

    record: NodeTime
    positions: Positions


@dataclass(frozen=True)
class ProfiledModel:
    """A model to profile, with the kernels that `noyau optimize` would plan."""

    original: SourceModel
    plan: Plan
    free: Positions  # shape arithmetic
    cuts: tuple[Cut, ...] = ()

    @cached_property
    def spots(self) -> dict[int, Spot]:
        """The spot of each node position that a kernel would cover."""
        groups = (((n, k), group) for n, each in enumerate(self.plan.kernels) for k, group in enumerate(each.groups))
        return {position: spot for spot, group in groups for position in group.positions}

    def spot_of(self, positions: Positions) -> Spot | None:
        """The spot that contains most of some nodes; None if one of them is in no path, since a node that onnxruntime
        runs for it too cannot be replaced."""
        places = [self.spots.get(position) for position in sorted(positions - self.free)]
        return Counter(places).most_common(1)[0][0] if places and None not in places else None


def paths(
    subject: ProfiledModel, nodes: Sequence[TimedNodes], inputs: Inputs, shapes: Shapes, threads: int
) -> Iterator[PathTime]:
    """The fusable paths of the planned kernels, by descending gain."""
    at = defaultdict[Spot | None, list[NodeTime]](list)
    for node in nodes:
        at[subject.spot_of(node.positions)].append(node.record)
    gains = []
    for number, kernel in enumerate(subject.plan.kernels):
        places = [at[number, place] for place in range(len(kernel.groups))]
        times_s = [sum(node.time_s for node in place) for place in places]
        moved = [traffic_of(group, inputs.sizes, shapes) for group in kernel.groups]
        calls = [max((node.calls for node in place), default=1) for place in places]  # of a Loop, its iterations
        known = [(n, each, time_s) for n, each, time_s in zip(calls, moved, times_s, strict=True) if each is not None]
        floors_s = [n * floor_s(each.read_bytes, each.written_bytes, threads) for n, each, _ in known]
        whole, runs_as = None not in moved, tuple(node.operator for node in max(places, key=len))
        gain = sum(gain_s(time_s, floor) for (_, _, time_s), floor in zip(known, floors_s, strict=True))
        ends = (kernel.operator, len(places), kernel.replaces, runs_as, sum(map(len, places)), sum(times_s))
        bytes_moved = sum(n * each.bytes for n, each, _ in known) if whole else None
        gains.append(PathTime(*ends, bytes_moved, sum(floors_s) if whole else None, gain))
    yield from sorted(gains, key=lambda path: (-path.gain_s, -path.time_s))


def traffic_of(group: Group, sizes: Mapping[str, int], shapes: Shapes) -> Traffic | None:
    """The bytes that a group must move; None if a size is unknown."""
    read = [node for node in group.original.inputs if node.output in shapes]
    names, actual = [node.output for node in read], [shapes[node.output] for node in read]
    try:
        numbers = {**sizes, **bind([node.shape for node in read], actual, names)}
        return traffic(group.graph, numbers) if names_of(group.graph) <= numbers.keys() else None
    except (InputError, ZeroDivisionError):
        return None


# Bytes by onnxruntime's names of element types, which are NumPy's except for two.
_ELEMENTS = {dtype.numpy.name: dtype.bytes for dtype in DType} | {"float": 4, "double": 8}
_MOST_VALUES = 5

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokenDown:
    """The nodes that ran, the fusable paths, the seconds of a run outside all nodes, and the factor of the nodes' times
    by which all adds up to a run. `labels`: the file's nodes by the name of the node that ran for them."""

    nodes: tuple[TimedNodes, ...]
    paths: tuple[PathTime, ...]
    between_s: float
    scaled: float
    labels: Mapping[str, tuple[str, ...]]


def break_down(
    subject: ProfiledModel, inputs: Inputs, ran: TimedSession, overhead: Overhead, threads: int
) -> BrokenDown:
    """Break the time of a run down into nodes and paths; the parts add up to a run."""
    standing, runs = attributions_of(ran.numbered, ran.optimized, subject.original.bodies), ran.nodes()
    own_s, between_s, scaled = share_out(ran, runs, overhead)
    labels, nodes = subject.original.labels, []
    for node, time_s in zip(runs, own_s, strict=True):
        place = node.name if node.name in standing or node.within is None else node.within
        attribution = standing.get(place, Attribution(frozenset(), (), is_new=True))
        spot = subject.spot_of(attribution.positions)
        kernel = "" if spot is None else subject.plan.kernels[spot[0]].operator
        stands_for = tuple(labels[k] for k in sorted(attribution.positions))
        is_new = attribution.is_new and place == node.name
        record = NodeTime(node.operator, stands_for, is_new, node.calls, time_s * scaled, kernel)
        nodes.append(TimedNodes(record, attribution.positions))
    shapes = source_shapes(subject.original, inputs)
    shapes |= {name: shape for name, _, shape in run_values(runs, standing)}
    names = {run.name: node.record.stands_for for run, node in zip(runs, nodes, strict=True)}
    return BrokenDown(tuple(nodes), tuple(paths(subject, nodes, inputs, shapes, threads)), between_s, scaled, names)


def share_out(ran: TimedSession, runs: Sequence[NodeRuns], overhead: Overhead) -> tuple[list[float], float, float]:
    """The seconds of each node, the seconds outside all nodes, and the factor of the former by which all adds up.

    The time outside all nodes is the lesser of two estimates: a run without the profiler minus its nodes, in which
    drift of the machine distorts long runs; and a run with it minus its nodes, in which it distorts short ones."""
    comparison, overhead = ran.comparison, overhead.fit_to(ran.comparison, runs)
    if not runs:
        return [], comparison.before_median_s, 1.0
    own_s = list(map(overhead.own_s, runs))
    profiled_s = np.sum([node.own_us for node in runs], axis=0) * 1e-6
    if len(profiled_s) == comparison.pairs * comparison.calls:
        profiled_s = profiled_s.reshape(comparison.pairs, -1).mean(1)
    else:  # the profiler's buffer was full before the end
        profiled_s = np.full(comparison.pairs, np.median(profiled_s))
    traced_s = float(np.median(np.asarray(comparison.after_s) - profiled_s)) - overhead.outside_s(runs)
    run_s, nodes_s = comparison.before_median_s, sum(own_s)
    between_s = max(min(run_s - nodes_s, traced_s), 0.0)
    return own_s, between_s if nodes_s > 0 else run_s, (run_s - between_s) / nodes_s if nodes_s > 0 else 1.0


def source_shapes(original: SourceModel, inputs: Inputs) -> dict[str, Sequence[int]]:
    """The shapes of the values that the sizes of the inputs determine."""
    shapes: dict[str, Sequence[int]] = {}
    for node in original.imported.graph.nodes:
        if all(dim.names <= inputs.sizes.keys() for dim in node.shape):
            with suppress(ZeroDivisionError):  # the value has no shape at this size
                shapes[node.output] = [int(dim.evaluate(inputs.sizes)) for dim in node.shape]
    return shapes


def run_values(runs: Iterable[NodeRuns], standing: Mapping[str, Attribution]) -> Iterator[tuple[str, str, Shape]]:
    """The name, element type and shape of each tensor of a node whose values are known."""
    for node in runs:
        names = [name for name in standing[node.name].outputs if name] if node.name in standing else []
        if len(names) == len(node.outputs):
            yield from ((name, *tensor) for name, tensor in zip(names, node.outputs, strict=True))


def largest_values(ran: TimedSession) -> tuple[LargeValue, ...]:
    """The largest tensors that onnxruntime computed, with the model's names for them, if any."""
    names = {name for node in ran.numbered.graph.node for name in node.output}
    standing = attributions_of(ran.numbered, ran.optimized)
    known = (value for value in run_values(ran.nodes(), standing) if value[1] in _ELEMENTS)
    values = (LargeValue(n if n in names else "", e, shape, math.prod(shape) * _ELEMENTS[e]) for n, e, shape in known)
    return tuple(sorted(values, key=lambda value: -value.bytes)[:_MOST_VALUES])


def count_removed(nodes: Iterable[TimedNodes], original: SourceModel) -> int:
    """The number of nodes of the file that no executed node stands for."""
    known = {position for position, label in enumerate(original.labels) if label}
    return len(known.difference(*(node.positions for node in nodes)))
