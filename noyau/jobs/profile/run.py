"""`noyau.profile`: where the time of an ONNX model goes, and what fusing could gain at most."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from noyau.codegen.plan import plan
from noyau.dtypes import from_onnx
from noyau.errors import InputError, ModelError
from noyau.frontends.onnx_messages import every_node
from noyau.hosts.onnxruntime.inputs import model_names, sizes_for, spell, unrunnable
from noyau.hosts.onnxruntime.path_ends import Between
from noyau.hosts.onnxruntime.sessions import load_onnxruntime
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators, open_model
from noyau.hosts.onnxruntime.subgraph import cut_of
from noyau.hosts.onnxruntime.write_back import installable
from noyau.jobs.command_line import Step
from noyau.jobs.profile.breakdown import break_down, by_operator, count_removed, largest_values
from noyau.jobs.profile.onnx_overheads import Overhead, measure_overhead
from noyau.jobs.profile.paths import ProfiledModel
from noyau.jobs.profile.record import NodeMemory, NodeTime, Profile, ProfiledSize
from noyau.jobs.profile.session_runs import SessionBench
from noyau.jobs.profile.timeline import model_events
from noyau.text import printable, several
from noyau.timing.conditions import conditions, unsteady
from noyau.timing.machine import this_machine
from noyau.timing.ranges import Event
from noyau.toolchain.c import compiler as c_compiler
from noyau.verify.input_files import first_sample
from noyau.verify.inputs import Inputs, make_inputs
from noyau.workers.resources import processors

Dims = Mapping[str, int | Sequence[int]]
log = logging.getLogger("noyau")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The options of `profile`. `dims` are sizes, each a number or several: the model then runs with the first of
    each, with the second of each, and so on; `inputs` an .npz file of arrays instead; `threads` of onnxruntime, 0:
    as many as it likes; `between` the ends of the only path to look at; `budget_s` for the clock, each of the sizes;
    `top` rows of a table are shown."""

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
    """InputError for a wish that means nothing; MissingExtraError without onnxruntime."""
    if wishes.threads < 0 or wishes.budget_s < 0:
        raise InputError(f"threads={wishes.threads} and budget_s={wishes.budget_s} must not be negative")
    if wishes.top < 1:
        raise InputError(f"top={wishes.top} is no number of rows: give 1 or more")
    load_onnxruntime()


def bindings(dims: Dims) -> list[dict[str, int]]:
    """The sizes of each run: of each size the first value, then the second... InputError where some have several
    values and others another number of them."""
    lists = {name: [value] if isinstance(value, int) else list(value) for name, value in dims.items()}
    counts = {name: len(values) for name, values in lists.items() if len(values) != 1}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        sizes = ", ".join(f"{printable(name)} has {count}" for name, count in counts.items())
        raise InputError(f"sizes need one value each, or as many as each other: {sizes}")
    runs = max(counts.values(), default=1)
    return [{name: values[k if len(values) > 1 else 0] for name, values in lists.items()} for k in range(runs)]


def inputs_for(original: SourceModel, dims: Mapping[str, int], wishes: ProfileOptions) -> Inputs:
    """Arrays for every input of the model. InputError where one cannot be made up, or does not fit."""
    imported, names = original.feed_model, frozenset(original.imported.initializers)
    if wishes.inputs is None:
        return make_inputs(imported.graph, sizes_for(imported, dims), np.random.default_rng(wishes.seed), without=names)
    return first_sample(Path(wishes.inputs), imported.graph, without=names, dims=dims)


_USUAL = ProfileOptions()


def profile(path: str | Path, wishes: ProfileOptions = _USUAL, say: Say = log.info) -> Profile:
    """Run a model in onnxruntime as it would run, and tell where its time and its memory go; nothing is compiled.

    `say` is told of each step. ModelError for a file that is no model, or that onnxruntime does not run; InputError for
    wishes or inputs that do not fit; OutputError where there is no room for what onnxruntime's profiler writes;
    CheckError where the model crashes onnxruntime; MissingExtraError without onnx or onnxruntime."""
    check(wishes)
    say(f"reading {Path(path).name}")
    original = open_model(Path(path), flat=True)
    for operator in foreign_operators(original.runnable).values():
        problem = f"{printable(operator)} is no operator of plain onnxruntime"
        raise ModelError(f"{original.name} cannot be profiled: {problem}")
    subject = subject_of(original, wishes.between)
    requests = [inputs_for(original, dims, wishes) for dims in bindings(wishes.dims)]
    machine = this_machine()
    with SessionBench(wishes.threads) as bench:
        say("measuring what onnxruntime's profiler adds to each node")
        overhead = measure_overhead(bench)
        profiles = []
        for done, inputs in enumerate(requests):
            sizes = spell(model_names(original.imported, inputs.sizes))
            say(Step(f"running the model{f' with {sizes}' if sizes else ''}", done, len(requests)))
            profiles.append(profile_size(subject, inputs, overhead, bench, wishes))
    facts = (machine, original.name, sum(map(bool, original.labels)), wishes.threads)
    events = tuple({**each, "pid": pid} for pid, (_, own) in enumerate(profiles, 1) for each in own)
    return Profile(*facts, tuple(size for size, _ in profiles), wishes.top, subject, events)


def subject_of(original: SourceModel, between: Between | None) -> ProfiledModel:
    """The model with its kernels, as `noyau optimize` would make them, by the names that it would give them."""
    cut = cut_of(original, between)
    kernels = plan(cut.groups, original.operators, c_compiler.resolve_target("native"))
    fitted = installable(kernels, original.model, original.folder)
    return ProfiledModel(original, fitted, original.imported.arithmetic, cut.cuts)


def profile_size(
    subject: ProfiledModel, inputs: Inputs, overhead: Overhead, bench: SessionBench, wishes: ProfileOptions
) -> tuple[ProfiledSize, list[Event]]:
    """The model with these inputs, and the timeline of some runs."""
    original, before, arrays = subject.original, conditions(), inputs.arrays
    how: dict[str, Any] = {each: getattr(original, each) for each in ("folder", "prepacked", "bodies")}
    try:
        # First the file itself, so that what onnxruntime may complain of has the names of the file.
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
    operators = by_operator(records, (node.op_type for node in every_node(nodes)))
    memory = NodeMemory(weights_bytes(original), **steps, largest=largest_values(ran))
    notes = (*inputs.notes, *remarks(original, records, unrun, doubt))
    sizes = model_names(original.imported, inputs.sizes)
    record = ProfiledSize(sizes, *run, records, operators, result.paths, memory, result.scaled, unrun, notes)
    return record, list(model_events(ran, result.labels, f"{original.name} {spell(sizes)}".strip(), 1))


def remarks(original: SourceModel, nodes: Sequence[NodeTime], unrun: int, doubt: str) -> Iterator[str]:
    """Notes for the reader of the profile."""
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
    """The bytes of the tensors of the model, those in other files too."""
    tensors = ((each, from_onnx(each.data_type)) for each in original.model.graph.initializer)
    return sum(len(e.raw_data) if dtype is None else math.prod(e.dims) * dtype.bytes for e, dtype in tensors)
