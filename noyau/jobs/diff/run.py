"""`noyau diff`: two models matched node by node, and run on the same inputs."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from noyau.errors import CheckError, InputError, NoyauError
from noyau.hosts.onnxruntime.function_bodies import is_own
from noyau.hosts.onnxruntime.inputs import Dims
from noyau.hosts.onnxruntime.source_model import open_model
from noyau.jobs.check.model_difference import runs_of, values_of
from noyau.jobs.diff.matching import match, meanings_of, unlike
from noyau.jobs.diff.onnx_sides import ConstantValue, ModelSide, read_side
from noyau.jobs.diff.render import ChangedNode, ModelsDiff, ValueGap
from noyau.text import printable, several

ROUNDINGS = 4096  # units of rounding at the largest value; smaller differences count as rounding


def diff(
    model: str | Path, against: str | Path, *, dims: Dims | None = None, inputs: str | Path | None = None, seed: int = 0
) -> ModelsDiff:
    """Compare two models from any source: nodes and weights by their computation and position, never by names, and
    their values in onnxruntime on the same inputs, synthetic or of a file. ModelError where a file is no model."""
    one = read_side(Path(model))
    other = read_side(Path(against), one)
    pairs, notes = match(one, other), list[str]()
    for word, names in ("input", list(other.inputs)), ("output", list(other.outputs)):
        if names != [each.name for each in getattr(other.model.graph, word) if each.name in names]:
            notes.append(f"their {word}s stand in another order, and are compared by name")
    changes, taken = _differences(one, other, pairs), set(pairs.values())
    values: tuple[ValueGap, ...] = ()
    try:
        values = tuple(_values(one, other, pairs, dims or {}, inputs, seed))
    except NoyauError as error:
        if isinstance(error, InputError) and (dims or inputs is not None):
            raise  # it is the caller's inputs that do not fit
        notes.append(f"their values are not compared: {error}")
    every, others = (sorted([node.name, *node.outputs] for node in side.nodes) for side in (one, other))
    changed = ((one.nodes[at], other.nodes[pairs[at]], texts) for at, texts in sorted(changes.items()))
    return ModelsDiff(
        printable(one.path.name),
        printable(other.path.name),
        nodes=(len(one.nodes), len(other.nodes)),
        facts=tuple(_facts(one, other)),
        added=tuple(node.label for place, node in enumerate(other.nodes) if place not in taken),
        removed=tuple(node.label for place, node in enumerate(one.nodes) if place not in pairs),
        changed=tuple(ChangedNode(node.label, twin.label, tuple(texts)) for node, twin, texts in changed),
        values=values,
        is_renamed=every != others or list(one.inputs) != list(other.inputs),
        notes=tuple(notes),
        sides=(one, other),
        pairs=tuple(pairs.items()),
    )


def _differences(one: ModelSide, other: ModelSide, pairs: Mapping[int, int]) -> dict[int, list[str]]:
    """The differences of each pair as texts, by the place of the first node: parameters, weights and operands. An
    operand of a node without a partner is no difference, since that node is reported itself."""
    meanings, result = meanings_of(one, other, pairs), {}
    names = {meaning: name for name, meaning in meanings[0].items() if meaning}  # of the first model, for both
    for place, partner in pairs.items():
        node, twin = one.nodes[place], other.nodes[partner]
        counts = len(node.operands), len(twin.operands)
        texts = [f"{several(counts[0], 'operand')} -> {counts[1]}"] if counts[0] != counts[1] else []
        for first, second in unlike(node, twin, meanings):
            ours, theirs = one.constants.get(first), other.constants.get(second)
            if ours and theirs:
                texts.append(f"weight {printable(first)}: {_weight_text(ours, theirs, (one, other))}")
            else:
                texts.append(f"reads {printable(first)}, there {printable(names.get(meanings[1][second], second))}")
        for name in {**node.parameters, **twin.parameters}:
            before, after = (each.parameters.get(name, "none") for each in (node, twin))
            texts += [f"{name}: {before} -> {after}"] if before != after else []
        if texts:
            result[place] = texts
    return result


def _weight_text(one: ConstantValue, other: ConstantValue, sides: tuple[ModelSide, ModelSide]) -> str:
    """The difference of two constants as text."""
    if one.kind != other.kind:
        return f"{one.kind} -> {other.kind}"
    before, after = (each.array(side.path.parent) for each, side in zip((one, other), sides, strict=True))
    if before.dtype.kind not in "fiub":
        return "other values"
    apart = np.abs(before.astype(np.float64) - after.astype(np.float64))
    return f"{np.count_nonzero(before != after)} of {before.size} cells differ, by at most {np.nanmax(apart):.3g}"


def _facts(one: ModelSide, other: ModelSide) -> Iterator[str]:
    for word, ours, theirs in (("input", one.inputs, other.inputs), ("output", one.outputs, other.outputs)):
        if len(ours) != len(theirs):
            yield f"{several(len(ours), word)} -> {len(theirs)}"
        for (name, before), after in zip(ours.items(), theirs.values(), strict=False):
            if before != after:
                yield f"{word} {printable(name)}: {before} -> {after}"
    for domain in (each for each in one.opsets if each in other.opsets):  # others have nodes in one model only
        old, new = one.opsets[domain], other.opsets[domain]
        if old != new and not is_own(domain):
            yield f"opset of {printable(domain)}: {old} -> {new}"


def _values(
    one: ModelSide, other: ModelSide, pairs: Mapping[int, int], dims: Dims, inputs: str | Path | None, seed: int
) -> Iterator[ValueGap]:
    """The gaps of values of paired nodes and of outputs. CheckError where inputs or outputs differ in number."""
    if len(one.inputs) != len(other.inputs) or len(one.outputs) != len(other.outputs):
        raise CheckError("they take other inputs or give other outputs")
    names = dict(zip(one.inputs, other.inputs, strict=True))
    nodes = ((one.nodes[place].outputs, other.nodes[partner].outputs) for place, partner in sorted(pairs.items()))
    twins = {name: twin for outputs in nodes for name, twin in zip(*outputs, strict=False)}
    makers = {name: node.label for node in one.nodes for name in node.outputs}
    ends = dict(zip(one.outputs, other.outputs, strict=True))
    imported, wanted = open_model(one.path).feed_model, [*twins, *ends]
    run = partial(values_of, one.model, one.path, wanted, types={})
    feeds, ours = next(runs_of(imported, dims, inputs, seed, run))
    renamed = {names[name]: array for name, array in feeds.arrays.items() if name in names}
    theirs = values_of(other.model, other.path, [*twins.values(), *ends.values()], renamed, {})
    for name, twin in ({name: twin for name, twin in twins.items() if name not in ends} | ends).items():
        if name in ours and twin in theirs:
            yield _gap(printable(name), makers.get(name, "an input"), name in ends, ours[name], theirs[twin])


def _gap(name: str, maker: str, is_output: bool, ours: Any, theirs: Any) -> ValueGap:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        note = f"{ours.dtype}{list(ours.shape)} -> {theirs.dtype}{list(theirs.shape)}"
        return ValueGap(name, maker, is_output, None, differs=True, note=note)
    if ours.tobytes() == theirs.tobytes() or ours.dtype == object or not ours.size:
        return ValueGap(name, maker, is_output, 0.0, differs=bool(ours.dtype == object and (ours != theirs).any()))
    before, after = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((before == after) | (np.isnan(before) & np.isnan(after)), 0.0, np.abs(before - after))
    error = float(apart.max() / (np.abs(before[np.isfinite(before)]).max(initial=0.0) or 1.0))
    allowed = ROUNDINGS * float(ml_dtypes.finfo(ours.dtype).eps) if ours.dtype.kind in "fV" else 0.0
    return ValueGap(name, maker, is_output, error, differs=not error <= allowed)
