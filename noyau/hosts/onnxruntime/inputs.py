"""Inputs of a model: loaded, or synthetic ones that are valid for its graph.

A model is timed at the requested sizes, else with each open size small, usual and large in turn; where it does not run
at the usual ones, at other sizes, which are found by trials."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, permutations, product
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from noyau.compiler.lowering.values import guards
from noyau.dtypes import DType
from noyau.errors import InputError
from noyau.ir.dims import Dim, Shape
from noyau.ir.graph import Graph
from noyau.ir.sizes import cells_at
from noyau.text import few, printable
from noyau.verify.input_files import MOST, load_samples, note_of
from noyau.verify.inputs import Inputs, make_inputs

if TYPE_CHECKING:
    from noyau.frontends.onnx import ImportedModel

Bound = tuple[Dim, Dim]  # the first is at most the second
Sizes = Mapping[str, int]
Dims = Mapping[str, int | Sequence[int]]
Images = tuple[frozenset[str], frozenset[str]]  # sizes of batches and of edges
NO_IMAGES: Images = (frozenset(), frozenset())
USUAL = 128  # a size without a requested number
SMALLEST, MANY, LARGE = 1, 128, 1024
IMAGES = 4, 16  # sizes of batches of images
SMALLEST_EDGE, LARGE_EDGE = 32, 256  # of images: nets halve them five times over
MOST_INPUT_BYTES = 1 << 24  # of all inputs together, without requested sizes
MOST_OPEN, MOST_ASKED = 6, 16
_MOST_MOVES = 64


def sizes_for(imported: ImportedModel, dims: Mapping[str, int]) -> dict[str, int]:
    """A number for each size of a model's inputs; without `dims`, smaller than usual where inputs are large."""
    lead, shapes = leading(imported), _shapes(imported)
    sizes = {name: 1 if name in lead else USUAL for shape in shapes for dim in shape for name in dim.names}
    for (name, value), size in zip(dims.items(), graph_names(imported, dims), strict=True):
        if size not in sizes:
            known = ", ".join(sorted(map(printable, model_names(imported, sizes)))) or "none"
            raise InputError(f"the model has no size {printable(name)}; its sizes are: {known}")
        if value < 0:
            raise InputError(f"the size {printable(name)} cannot be {value}: sizes are 0 or more")
        sizes[size] = value
    return sizes if dims else _bound(sizes, shapes)


def graph_names(imported: ImportedModel, names: Iterable[str]) -> list[str]:
    """The graph's names of the sizes that the model calls `names`."""
    by_original = {original: name for name, original in imported.sizes.items()}
    return [by_original.get(name, name) for name in names]


def fit_sizes(sizes: Mapping[str, int], imported: ImportedModel, fixed: Collection[str] = ()) -> dict[str, int]:
    """Change sizes that are not `fixed` until no view of the model reads beyond its operand and extents that must be
    equal are equal, as far as that is possible."""
    result, bounds = dict(sizes), _bounds_of(sizes, imported)
    for _ in range(_MOST_MOVES):
        if (broken := next((bound for bound in bounds if _excess(bound, result) > 0), None)) is None:
            return result
        if (move := next(_moves(broken, result, fixed), None)) is None:
            bounds.remove(broken)
        else:
            result.update([move])
    return result


def fits(sizes: Sizes, imported: ImportedModel) -> bool:
    """Whether sizes meet all bounds that `fit_sizes` moves sizes for."""
    return all(_excess(bound, sizes) <= 0 for bound in _bounds_of(sizes, imported))


def _bounds_of(sizes: Sizes, imported: ImportedModel) -> list[Bound]:
    bounds = list[Bound]()
    for demand in chain.from_iterable(imported.demands.values()):
        bounds.append((demand.left, demand.right))
        if demand.relation != "at most":
            bounds.append((demand.right, demand.left))
    bounds += [(guard.left, guard.right) for guard in guards(replace(imported.graph, demands=()))]
    return [bound for bound in bounds if bound[0].names | bound[1].names <= sizes.keys()]


def _excess(bound: Bound, sizes: Mapping[str, int]) -> int:
    """The amount by which a bound is violated; 0 where it divides by zero."""
    try:
        return int(bound[0].evaluate(sizes) - bound[1].evaluate(sizes))
    except ZeroDivisionError:
        return 0


def _moves(bound: Bound, sizes: Mapping[str, int], fixed: Collection[str]) -> Iterator[tuple[str, int]]:
    """Candidates for one size with which a bound holds, or nearly: increases first, and large sizes first."""
    excess, names = _excess(bound, sizes), (bound[0] - bound[1]).names - set(fixed)
    for step in (1, -1):
        for name in sorted(names, key=lambda name: (-sizes[name], name)):
            gain = excess - _excess(bound, {**sizes, name: sizes[name] + step})
            moved = max(sizes[name] + step * -(-excess // max(gain, 1)), 1)
            if gain > 0 and moved != sizes[name]:
                yield name, moved


def bindings(imported: ImportedModel, dims: Dims) -> list[dict[str, int]]:
    """Assignments of numbers to the sizes of a model, by the graph's names; all other work uses the first of them.

    With `dims`, all combinations of the requested numbers; a size without a request has its usual number. Without:
    the usual ones, then those of `vary`, halved while the inputs would be larger than 16 MiB; at most 6. Sizes move
    where they would not fit together. InputError for a size that the model lacks, or for more than 16 assignments."""
    combinations = [dict(zip(dims, values, strict=True)) for values in product(*map(_numbers, dims.values()))]
    if not combinations:
        raise InputError("a size is given without a number: give one or more")
    if (count := len(combinations)) > MOST_ASKED:
        raise InputError(f"{count} bindings of sizes are asked for, and {MOST_ASKED} are the most: give fewer")
    results = [fit_sizes(sizes_for(imported, one), imported, graph_names(imported, dims)) for one in combinations]
    if not dims:
        others = (_bound(sizes, _shapes(imported)) for sizes in vary(results[0], leading(imported), images(imported)))
        results += [fit_sizes(sizes, imported) for sizes in others]
    distinct = [sizes for place, sizes in enumerate(results) if sizes not in results[:place]]
    return distinct[: MOST_ASKED if dims else MOST_OPEN]


def first_of(dims: Dims) -> dict[str, int]:
    """The first requested number of each size."""
    return {name: next(iter(_numbers(value)), 0) for name, value in dims.items()}


def vary(usual: Sizes, lead: Collection[str], pictures: Images = NO_IMAGES) -> Iterator[dict[str, int]]:
    """All sizes at 1, then each at 1024 in turn while the others are 1; the leading ones last, at 128 where there are
    others; a lone size at 128 too. Batches of images are 4 and 16, and their edges go together: 32 and 256."""
    batches, edges = pictures
    small = {name: SMALLEST_EDGE if name in edges else SMALLEST for name in usual}
    yield small
    if edges:
        yield {**small, **dict.fromkeys(edges, LARGE_EDGE)}
    for name in sorted((name for name in usual if name not in edges), key=lambda name: name in lead):
        numbers = (MANY, LARGE) if len(usual) == 1 else (MANY,) if name in lead else (LARGE,)
        yield from ({**small, name: number} for number in (IMAGES if name in batches else numbers))


def _bound(sizes: dict[str, int], shapes: Sequence[Shape]) -> dict[str, int]:
    """Halve the largest size until arrays of these shapes, of four bytes a cell, are small enough."""
    sizes = dict(sizes)
    while max(sizes.values(), default=1) > 1 and 4 * sum(map(partial(cells_at, sizes), shapes)) > MOST_INPUT_BYTES:
        sizes[max(sizes, key=sizes.__getitem__)] //= 2
    return sizes


def images(imported: ImportedModel) -> Images:
    """The sizes of batches, which lead inputs of four axes or more, and of edges, where such an input has several
    open axes behind the first. A size that an input of fewer axes has too is one of sequences or caches."""
    shapes = _shapes(imported)
    flat = {name for shape in shapes if len(shape) < 4 for dim in shape for name in dim.names}
    thick = [[dim.names for dim in shape] for shape in shapes if len(shape) >= 4]
    batches = {name for first, *_ in thick for name in first}
    behind = [[name for names in rest for name in names if name not in batches] for _, *rest in thick]
    return frozenset(batches - flat), frozenset(name for names in behind if len(names) > 1 for name in names) - flat


def leading(imported: ImportedModel) -> set[str]:
    """The sizes of the first axes of inputs of two axes or more, such as a batch."""
    return {name for shape in _shapes(imported) if len(shape) > 1 for name in shape[0].names}


def _shapes(imported: ImportedModel) -> list[Shape]:
    """The shapes of a model's inputs, without those of initializers."""
    return [node.shape for node in imported.graph.inputs if node.output not in imported.initializers]


def model_names(imported: ImportedModel, sizes: Sizes) -> dict[str, int]:
    """The sizes by the model's own names."""
    return {imported.sizes.get(name, name): size for name, size in sizes.items()}


def spell(sizes: Sizes) -> str:
    """`batch=1, sequence=128`."""
    return ", ".join(f"{printable(name)}={size}" for name, size in sizes.items())


def unrunnable(error: InputError, imported: ImportedModel, sizes: Sizes) -> InputError:
    """The error that names the sizes at which a model does not run, the reason, and a remedy."""
    at = f" of {spell(model_names(imported, sizes))}" if sizes else ""
    advice = "other sizes (--dim NAME=N) or arrays of your own (--inputs F.npz) may do"
    return InputError(f"the model does not run with its inputs{at}: {error}; {advice}")


def _numbers(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


MOST_BYTES = 1 << 30  # of the largest value: a model is timed beyond it only at requested sizes
SMALL = 64  # the largest number of a size where kernels are checked on synthetic inputs
CELLS = 1 << 20  # of the largest value of a kernel that is checked on them, if its fixed sizes leave room for that


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """Inputs of a model: `small` to check its kernels, `full` to time them. A user's arrays are both: the first of
    several samples; `others`: the other samples, and `notes` remarks about them.

    `missing`: inputs of types without synthetic arrays. `searched`: found by trials, as the usual sizes do not run."""

    small: Inputs
    full: Inputs
    made_up: bool
    missing: tuple[str, ...] = ()
    searched: bool = False
    others: tuple[Inputs, ...] = ()
    notes: tuple[str, ...] = ()


def model_inputs(
    imported: ImportedModel, graphs: Sequence[Graph], dims: Mapping[str, int], file: str | Path | None, seed: int
) -> ModelInputs:
    """Arrays for a model's inputs, from a user's file or synthetic for the sizes `dims`, by the model's own names.

    A size without a number is 1 if it leads an input, else 128, or a number that fits the others. The small inputs have
    sizes of at most 64: less where a value of one of `graphs`, those of the kernels, would be large; the full ones
    where no smaller ones fit together.
    Initializers keep their values; without kernels no arrays are needed. InputError for a size that the model does not
    have, for arrays that do not fit, or where both sizes and arrays are given."""
    names = frozenset(imported.initializers)
    if file is not None:
        samples = load_samples(Path(file), imported.graph, without=names, dims=dims)
        first, *others = samples[:MOST]
        notes = (*first.notes, *note_of(samples, Path(file)))
        return ModelInputs(first, first, made_up=False, others=tuple(others), notes=notes)
    full = fit_sizes(sizes_for(imported, dims), imported, graph_names(imported, dims))
    inputs = [node for node in imported.graph.inputs if node.output not in names]
    missing = tuple(node.output for node in inputs if node.dtype is DType.OTHER) if graphs else ()
    left_out = missing if graphs else tuple(node.output for node in inputs)
    less = fit_sizes(small_sizes(full, graphs), imported)
    less = less if fits(less, imported) or not fits(full, imported) else full
    small, large = (inputs_at(imported, sizes, left_out, seed) for sizes in (less, full))
    return ModelInputs(small, large, True, missing, notes=large.notes)


def small_sizes(sizes: Mapping[str, int], graphs: Iterable[Graph]) -> dict[str, int]:
    """The sizes, none above 64, or above a smaller power of 2 with which no value of a graph has more than 2^20 cells,
    if that is known. A value of fixed shape does not count: a table of weights is as large with small sizes."""
    known = [graph for graph in graphs if all(dim.names <= sizes.keys() for node in graph.nodes for dim in node.shape)]
    shapes = {node.shape for graph in known for node in graph.nodes if any(dim.names for dim in node.shape)}
    most = SMALL
    while most > 1 and any(cells_at(_cap_sizes(sizes, most), shape) > CELLS for shape in shapes):
        most //= 2
    return _cap_sizes(sizes, most)


def _cap_sizes(sizes: Mapping[str, int], most: int) -> dict[str, int]:
    return {name: min(size, most) for name, size in sizes.items()}


def inputs_at(imported: ImportedModel, sizes: Sizes, missing: Iterable[str], seed: int) -> Inputs:
    """Synthetic inputs for these sizes, without the `missing` ones. InputError as in `make_inputs`."""
    return make_inputs(imported.graph, sizes, np.random.default_rng(seed), without={*imported.initializers, *missing})


def largest_bytes(graph: Graph, sizes: Sizes) -> int:
    """Bytes of the largest value of a graph, among values whose shapes follow from the sizes."""
    known = (node for node in graph.nodes if all(dim.names <= sizes.keys() for dim in node.shape))
    shapes = ((node.dtype.bytes, [max(int(dim.evaluate(sizes)), 0) for dim in node.shape]) for node in known)
    return max((cell_bytes * math.prod(extents) for cell_bytes, extents in shapes), default=0)


# Lengths of windows of sound, edges of images and heights of lines that models are made for; then small ones.
NUMBERS = (64, 32, 48, 256, 512, 224, 640, 96, 160, 1024, 1536, 16, 8, 4, 2, 1)
MOST_TRIES, MOST_S, SHOWN, MOST_SUMMED = 80, 20.0, 6, 4
Run = TypeVar("Run")


def first_that_runs(
    imported: ImportedModel,
    feeds: ModelInputs,
    make: Callable[[Mapping[str, int]], ModelInputs],
    run: Callable[[ModelInputs], Run],
    fixed: Collection[str] = (),
) -> tuple[ModelInputs, Run]:
    """The first inputs that `run` accepts, and its result: `feeds`, or those of `make` for other sizes by the model's
    names; sizes in `fixed` stay. InputError, which lists the tried sizes, where it accepts none, or not the user's."""
    try:
        return feeds, run(feeds)
    except InputError as error:
        if not feeds.made_up:
            raise
        fault = error
    tried, end_s = list[str](), time.monotonic() + MOST_S
    for sizes in islice(other_sizes(imported, feeds.full.sizes, fixed), MOST_TRIES):
        if time.monotonic() > end_s:
            break
        named = model_names(imported, sizes)
        tried.append(spell(named))
        with suppress(InputError):
            others = make(named)
            return others, run(others)
    names = sorted(map(printable, model_names(imported, feeds.full.sizes)))
    listed = f"; its open sizes are {', '.join(names)}" if names else ""
    listed += f", of which these were tried in vain: {few(tried, SHOWN, '; ')}" if tried else ""
    raise InputError(f"{fault}{listed}") from fault


def other_sizes(imported: ImportedModel, usual: Sizes, fixed: Collection[str] = ()) -> Iterator[dict[str, int]]:
    """Sizes to try: of a few free ones, one as the sum of two others, as a mask has for a cache and new tokens; all at
    one number, the leading ones unchanged; one at a number, the others at 1 or unchanged; then all with the leading."""
    kept = set(graph_names(imported, fixed))
    lead = leading(imported) - kept
    free = [name for name in usual if name not in kept | lead]
    triples = permutations(free, 3) if len(free) <= MOST_SUMMED else ()
    sums = ({**usual, name: usual[one] + usual[other]} for name, one, other in triples if one < other)
    together = ({**usual, **dict.fromkeys(free, number)} for number in NUMBERS)
    least = {**usual, **dict.fromkeys(free, 1)}
    alone = ({**rest, name: k} for rest in (least, usual) for name in free if len(free) > 1 for k in NUMBERS)
    everything = ({**usual, **dict.fromkeys([*free, *lead], number)} for number in NUMBERS)
    distinct = [dict(usual)]
    for sizes in chain(sums, together, alone, everything):
        fitted = fit_sizes(sizes, imported, fixed)
        if fitted not in distinct:
            distinct.append(fitted)
            yield fitted
