"""Two models, value by value: at every common value, in the order of the first model, and where they first differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from noyau.compiler.passes.cleanup import drop_unused
from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, FindingKind, InputError
from noyau.frontends import onnx as frontend
from noyau.frontends.onnx.tensors import array_of
from noyau.hosts.onnxruntime import inputs as onnx_inputs
from noyau.hosts.onnxruntime.activations import capture_of, fault_at
from noyau.hosts.onnxruntime.bodies import Body, align_names, laid_flat
from noyau.hosts.onnxruntime.function_bodies import ValueType, is_own
from noyau.hosts.onnxruntime.inputs import Dims, ModelInputs, bindings, first_that_runs, inputs_at, model_names
from noyau.hosts.onnxruntime.model_files import library_path
from noyau.hosts.onnxruntime.runs import run
from noyau.hosts.onnxruntime.sessions import open_session
from noyau.hosts.onnxruntime.source_model import SourceModel, foreign_operators, open_model
from noyau.hosts.onnxruntime.submodel import lost_values, part_for, types_of
from noyau.ir.graph import Constant, Graph, Input, Opaque
from noyau.ir.graph_interpreter import evaluate
from noyau.jobs.page import document
from noyau.jobs.page.document import Page
from noyau.jobs.report.text import PagedRecord, hanging
from noyau.text import few, printable, several
from noyau.verify.certificate import SHARE, Outcome
from noyau.verify.failures import Case, Failure, spell
from noyau.verify.input_files import load_samples
from noyau.verify.inputs import Inputs
from noyau.verify.judges import MOVED_RUNS
from noyau.verify.rounding import move_runs
from noyau.verify.trial import KernelTrial

if TYPE_CHECKING:
    import onnx

    from noyau.frontends.onnx import ImportedModel

Arrays = Mapping[str, np.ndarray]
Run = TypeVar("Run")
SMALL = {True: 2, False: 7}  # the default of a size, by whether it leads an input of two axes or more
SHOWN = 8  # the most differing values that are named after the first


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A common value of two models: its operator in the first, and the judgement of the second's value by the truth."""

    name: str
    operator: str
    is_output: bool
    outcome: Outcome

    @property
    def ok(self) -> bool:
        """Whether every cell is within its allowance, except that one in 100,000 may exceed it by at most 4 times."""
        return not self.outcome.broken and self.outcome.beyond <= self.outcome.cells // SHARE

    def to_json(self) -> dict[str, Any]:
        own = {"name": self.name, "operator": self.operator, "output": self.is_output, "ok": self.ok}
        return own | self.outcome.to_json() | {"failures": [each.to_json() for each in self.outcome.failures]}

    def __str__(self) -> str:
        difference = str(self.outcome.failures[0]) if self.outcome.failures else "differs"
        return f"{printable(self.name)}, made by {self.operator}, is {difference}"


@dataclass(frozen=True, slots=True)
class DifferenceRun:
    """The models on one set of inputs: `sizes` as text, and the common values in the order of the first model."""

    sizes: str
    values: tuple[ValueDifference, ...]

    @property
    def first(self) -> ValueDifference | None:
        """The first value that differs."""
        return next((value for value in self.values if not value.ok), None)

    def to_json(self) -> dict[str, Any]:
        first, values = self.first and self.first.name, [value.to_json() for value in self.values]
        return {"sizes": self.sizes, "first": first, "values": values}


@dataclass(frozen=True, slots=True, repr=False)
class ModelDifference(PagedRecord):
    """The difference of two models; prints itself. `notes`: sources of inputs, and values that were not compared."""

    PLAIN: ClassVar[str] = "model against ok runs notes"
    model: str
    against: str
    runs: tuple[DifferenceRun, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(run.first is None for run in self.runs)

    def raise_if_bad(self) -> None:
        """CheckError that names the first value that differs."""
        if not self.ok:
            raise CheckError(self.headline())

    def headline(self) -> str:
        """The first value that differs, if there is one."""
        faults = (f"differs from {self.model} at {each.sizes}: {each.first}" for each in self.runs if each.first)
        return f"{self.against} {next(faults, f'is like {self.model}')}"

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        for each in self.runs:
            outputs = sum(value.is_output for value in each.values)
            count = f"{several(len(each.values), 'common value')}, {several(outputs, 'output')} among them"
            yield from hanging(f"{self.against} against {self.model} at {each.sizes}: {count}", width)
            if each.first is None:
                worst = max((value.outcome.worst_ratio for value in each.values), default=0.0)
                yield Text(f"  alike: at most {worst:.2f} of what is allowed")
                continue
            yield from hanging(f"the first that differs: {each.first}", width, "  ", "    ")
            others = [value for value in each.values if not value.ok and value is not each.first]
            if others:
                names = few([printable(value.name) for value in others], SHOWN)
                yield from hanging(f"after it: {names}", width, "  ", "    ")
            if outputs and all(value.ok for value in each.values if value.is_output):
                yield Text("  its outputs are alike")
        for note in self.notes:
            yield from hanging(note, width, "  ", "    ")

    def _page(self) -> Page:
        runs = sorted(self.runs, key=lambda at: at.first is None)  # differing runs come first
        heads = [f"At {at.sizes}: {f'the first that differs: {at.first}' if at.first else 'alike'}" for at in runs]
        sections = [document.summary(heads[0], "good" if self.ok else "bad", heads[1:])]
        for at in self.runs:
            rows = (
                {
                    "value": each.name,
                    "verdict": "alike" if each.ok else "differs",
                    "output": "yes" if each.is_output else "",
                    "allowed_share": each.outcome.worst_ratio,
                    "cells_beyond": each.outcome.beyond,
                    "made_by": each.operator,
                    "what": "; ".join(map(str, each.outcome.failures[:1])),
                }
                for each in at.values
            )
            sections.append(document.table(f"Values at {at.sizes}", rows))
        sections.append(document.lines("Notes", self.notes))
        return Page(f"{self.against} against {self.model}", "check", sections)


def model_difference(
    model: str | Path, against: str | Path, *, dims: Dims | None = None, inputs: str | Path | None = None, seed: int = 0
) -> ModelDifference:
    """Compare a second model's values with the truth of the first: every output, and every common value.

    The truth is the first model's graph in float64. The allowance of each cell comes from nine runs of it with other
    rounding, and from its values in onnxruntime. `dims`: sizes to run at, one number each or several; others
    are tried where the model does not run. `inputs`: an .npz file instead. ModelError if a file is no model or does
    not run; InputError if the models' inputs differ, or they have no value in common."""
    one = open_side(Path(model))
    other = open_side(Path(against), one.original.bodies)
    names = common(one, other)
    ends = [_ends(each.original.imported) for each in (one, other)]
    if ends[0] != ends[1]:
        texts = [", ".join(f"{printable(name)} {kind}" for name, kind in each.items()) or "nothing" for each in ends]
        both = f"{one.name} takes {texts[0]}, and {other.name} takes {texts[1]}"
        raise InputError(f"{both}: only models of one kind compare")
    imported, capturing = one.original.feed_model, capture_of(one.original)
    runs, notes = list[DifferenceRun](), list[str]()

    def compare(arrays: Arrays) -> tuple[tuple[ValueDifference, ...], Mapping[str, str]]:
        entering, faults = capturing.entering(arrays, names)
        those = [name for name in names if not fault_at(name, faults)]
        return compare_values(one, other, those, arrays, entering, seed), faults

    for feeds, (values, faults) in runs_of(imported, dims or {}, inputs, seed, compare):
        sizes = onnx_inputs.spell(model_names(imported, feeds.sizes))
        runs.append(DifferenceRun(sizes or "its only sizes", values))
        notes += [*feeds.notes, *(f"not compared: {fault}" for fault in faults.values())]
    for side in (one, other):
        if has_kernels(side.model) and library_of(side.model, side.original.path) is None:
            notes.append(f"{printable(side.name)} has kernels, and no library beside it: what they replaced runs")
    return ModelDifference(printable(one.name), printable(other.name), tuple(runs), tuple(dict.fromkeys(notes)))


@dataclass(frozen=True, slots=True)
class ModelSide:
    """A model as its file has it, its bodies behind its main graph, and as a source model, without noyau's kernels."""

    model: onnx.ModelProto
    bodies: Sequence[Body]
    original: SourceModel

    @property
    def name(self) -> str:
        return self.original.name

    @property
    def values(self) -> list[str]:
        """The values of its operators, in order, except those that onnxruntime cannot compute; then other outputs."""
        graph = self.model.graph
        entries = {graph.node[place].output[0] for body in self.bodies for place in body.entries}
        lost = lost_values(self.model, foreign_operators(self.model), (), entries) | entries
        nodes = sorted(enumerate(graph.node), key=lambda pair: self._place(pair[0]))
        names = [name for _, node in nodes for name in node.output if name]
        ends, stored = ({e.name for e in part} for part in (graph.output, (*graph.input, *graph.initializer)))
        return [name for name in (*names, *sorted(ends & stored)) if name not in lost]

    def _place(self, position: int) -> tuple[float, ...]:
        """Place of a node in the order of values: values in a body come before the results of the body's node."""
        body = next((body for body in self.bodies if position in body.operators), None)
        return (*(self._place(body.place)[:-1] if body else ()), position, math.inf)

    @property
    def makers(self) -> dict[str, str]:
        """The label of the node that makes each value."""
        labels = replace(self.original, model=self.model, bodies=tuple(self.bodies)).labels
        own = {name: at for at, node in zip(labels, self.model.graph.node, strict=True) for name in node.output}
        return dict.fromkeys(self.values, "no operator") | own


def open_side(path: Path, bodies: Sequence[Body] | None = None) -> ModelSide:
    """A side of a comparison; `bodies` of the other side give the names of its values here."""
    original = open_model(path, flat=True)
    alike = align_names(frontend.read(path), original.bodies if bodies is None else bodies)
    return ModelSide(*laid_flat(alike, ()), original)


def common(one: ModelSide, other: ModelSide) -> list[str]:
    """The values that both models compute, in the order of the first. InputError if there is none."""
    theirs, graph = set(other.values), one.original.imported.graph.by_name
    names = [name for name in one.values if name in theirs and name in graph and graph[name].dtype is not DType.OTHER]
    if not names:
        raise InputError(f"{one.name} and {other.name} have no value in common")
    return names


def _ends(imported: ImportedModel) -> dict[str, str]:
    nodes = [node for node in imported.graph.inputs if node.output not in imported.initializers]
    return {node.output: f"{node.dtype.value} of rank {len(node.shape)}" for node in nodes}


def runs_of(
    imported: ImportedModel, dims: Dims, file: str | Path | None, seed: int, run: Callable[[Arrays], Run]
) -> Iterator[tuple[Inputs, Run]]:
    """Inputs of a model and the result of `run` with their arrays: of a file, at each requested size, or at small ones
    and all at 1; where it does not run at these, at sizes that are found by trials."""

    def make(sizes: Mapping[str, int]) -> ModelInputs:
        if not dims and (largest := onnx_inputs.largest_bytes(imported.graph, sizes)) > onnx_inputs.MOST_BYTES:
            at = onnx_inputs.spell(model_names(imported, sizes)) or "the model's only sizes"
            text = "at {} a value takes {:.1f} GiB, and many copies of it are compared: give --inputs F.npz, or --dim"
            raise InputError(text.format(at, largest / 2**30))
        inputs = inputs_at(imported, sizes, (), seed)
        return ModelInputs(inputs, inputs, made_up=True)

    if file is not None:
        for sample in load_samples(Path(file), imported.graph, without=frozenset(imported.initializers), dims=dims):
            yield sample, run(sample.arrays)
        return
    done = list[Mapping[str, int]]()
    for sizes in bindings(imported, dims) if dims else [_small(imported), dict.fromkeys(_small(imported), 1)]:
        if sizes not in done:
            feeds, result = first_that_runs(imported, make(sizes), make, lambda feeds: run(feeds.full.arrays), dims)
            if feeds.full.sizes not in done:
                yield feeds.full, result
            done += [sizes, feeds.full.sizes]


def _small(imported: ImportedModel) -> dict[str, int]:
    return {name: SMALL[name in onnx_inputs.leading(imported)] for name in onnx_inputs.sizes_for(imported, {})}


def compare_values(
    one: ModelSide, other: ModelSide, names: Sequence[str], arrays: Arrays, entering: Arrays, seed: int
) -> tuple[ValueDifference, ...]:
    """Each common value of the second model, judged by the first; `entering`: values that enter the bodies of both."""
    feeds, types = {**arrays, **entering}, types_of(entering)
    theirs, ours = (values_of(each.model, each.original.path, names, feeds, types) for each in (other, one))
    imported, makers = one.original.imported, one.makers
    nodes = [replace(n, kind=Input(), inputs=()) if n.output in entering else n for n in imported.graph.nodes]
    resizes = [node for node in nodes if isinstance(node.kind, Opaque) and node.kind.name in ("Resize", "Upsample")]
    scales = {name for node in resizes for name in node.inputs[1:]} & imported.initializers.keys()
    fixed = {name: Constant(imported.load_initializer(name)) for name in scales}  # moved, they would change shapes
    nodes = [replace(node, kind=fixed.get(node.output, node.kind)) for node in nodes]
    graph = drop_unused(Graph(tuple(nodes), tuple(names), imported.graph.demands))
    read = {name for node in graph.nodes for name in node.inputs}
    numbers = [node for node in graph.nodes if node.inputs or node.output in read or node.dtype is not DType.OTHER]
    graph = replace(graph, nodes=tuple(numbers))
    stored = [node.output for node in graph.inputs if node.output in imported.initializers]
    values = {**feeds, **{name: imported.load_initializer(name) for name in stored}}
    with np.errstate(all="ignore"):
        truth, as_it_is = evaluate(graph, values, wide=True), evaluate(graph, values)
        case = Case("both models", tuple(values[node.output] for node in graph.inputs))
        kinds = [{name: (each[name].dtype, each[name].shape) for name in names} for each in (theirs, as_it_is)]
        fits = [name for name in names if kinds[0][name] == kinds[1][name]]
        common = Graph(graph.nodes, tuple(fits), graph.demands)
        judges = KernelTrial(common, lambda _: []).judges(values, [theirs[name] for name in fits], truth)
        for unfused in chain([as_it_is, ours], move_runs(common, values, seed, MOVED_RUNS)):
            for judge, name in zip(judges, fits, strict=True):
                judge.see(unfused[name])
        description = ", ".join(f"{printable(name)}: {_dtype_and_shape(array)}" for name, array in arrays.items())
        outcomes = {name: judge.outcome(case, description) for judge, name in zip(judges, fits, strict=True)}
    ends = {end.name for end in one.original.runnable.graph.output}
    for name in names:
        if name not in outcomes:
            note = f"is {_dtype_and_shape(theirs[name])}, not {_dtype_and_shape(as_it_is[name])}"
            failure = Failure(FindingKind.WRONG_VALUE, case.label, description, note)
            outcomes[name] = Outcome(case.label, case.captured, failures=(failure,))
    return tuple(ValueDifference(name, printable(makers[name]), name in ends, outcomes[name]) for name in names)


def values_of(
    model: onnx.ModelProto, path: Path, names: Sequence[str], arrays: Arrays, types: Mapping[str, ValueType]
) -> dict[str, np.ndarray]:
    """Some values of the model of a file in one run; `types`: of arrays that enter its bodies. Values that no operator
    computes are inputs, or tensors of the model."""
    part, library = part_for(model, names, types), library_of(model, path)
    stored = ((each.name, array_of(each, path.parent)) for each in model.graph.initializer if each.name in names)
    known = {**dict(stored), **{name: arrays[name] for name in names if name in arrays}}
    if not part.graph.output:
        return known
    session = open_session(part.SerializeToString(), library, folder=path.parent, optimized=False, prepacked=False)
    return known | run(session, {e.name: arrays[e.name] for e in session.get_inputs() if e.name in arrays})


def library_of(model: onnx.ModelProto, path: Path) -> Path | None:
    """The library that noyau has written beside a model, if it is there."""
    library = library_path(path)
    return library if has_kernels(model) and library.exists() else None


def has_kernels(model: onnx.ModelProto) -> bool:
    """Whether noyau has put kernels into a model."""
    return any(is_own(node.domain) for node in model.graph.node)


def _dtype_and_shape(array: np.ndarray) -> str:
    dtype = from_numpy(array.dtype)
    return spell(dtype, array.shape) if dtype else f"{array.dtype}{list(array.shape)}"
