"""The smoke certificate of a program that was just built: a few small cases, in a fraction of a second."""

from __future__ import annotations

import contextlib
import inspect
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, permutations
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.compiler.lowering.input_layouts import lie
from noyau.ir.graph import Graph
from noyau.ir.sizes import Sizes
from noyau.kernels.programs.generate import BuiltProgram, GeneratedProgram, Specialization
from noyau.kernels.reference import Description, graph_of
from noyau.signatures.binding import bind
from noyau.signatures.instances import Maker, draw_inputs, in_dtypes, sizes_of
from noyau.verify.adversarial import NORMAL, covering, schedule, spell
from noyau.verify.awkward_sizes import cells, fits, shrunk, usual_sizes
from noyau.verify.case_arrays import CaseMaker, Pattern
from noyau.verify.certificate import Certificate
from noyau.verify.failures import Case
from noyau.verify.trial import certify_native

Array = np.ndarray
Inputs = tuple[str, list[Array]]  # and what they are
Plan = Iterable[tuple[Sizes, Pattern]]
Program: TypeAlias = "GeneratedProgram | None"
ENOUGH_S = 0.1  # after which no further case is begun
MOST = 8
CELLS = 1 << 13  # of the largest array
RENAMED = 24  # ways in which sizes may be those of other names
MADE = 1 << 20  # of what a maker of inputs is asked for beyond its usual sizes
NO_SIZES: Sizes = MappingProxyType({})
EDGES = (33, 1, 16, 5)  # of all sizes: beyond a block of lanes, one, a whole block, a few


def smoke(description: Description, program: BuiltProgram, seed: int = 0) -> Certificate:
    """The certificate of a built program against the op's reference in float64, on a few small inputs that lie in
    memory as it takes them; first on those of sizes at which launches run that do not run at the first ones."""
    generated, wanted = program.generated, program.generated.wanted
    judged_by = graph_of(description.reference, wanted.instance, wanted.constants)
    with np.errstate(all="ignore"):
        small = _small_inputs(description, generated, seed)
        first = list(islice(small, 1))
        tried = [generated.graph.bind([array.shape for array in arrays]) for _, arrays in first]
        longer = _of_launches(description, generated, seed, sizes_missed(generated, tried))
        inputs = chain(longer, first, islice(_until(ENOUGH_S, small), MOST - 1))
        cases = (Case(label, tuple(map(lie, arrays, wanted.layouts))) for label, arrays in inputs)
        how = partial(certify_native, traced=lambda: generated.graph, is_deterministic=generated.is_deterministic)
        return how(judged_by, program, cases, name=generated.title)


def _until(limit_s: float, inputs: Iterator[Inputs]) -> Iterator[Inputs]:
    """The inputs that are asked for within a time; the first ones in any case."""
    end_s = time.monotonic() + limit_s
    for each in inputs:
        yield each
        if time.monotonic() > end_s:
            return


def _small_inputs(description: Description, generated: GeneratedProgram, seed: int) -> Iterator[Inputs]:
    """Small inputs of the key: by the op's maker where the program holds for them, else such as the graph takes."""
    own = maker_inputs(description, generated.wanted, seed, generated)
    first = next(own, None)
    return _draw_inputs(generated, seed) if first is None else chain([first], own)


def sizes_missed(generated: GeneratedProgram, tried: Sequence[Sizes]) -> list[dict[str, int]]:
    """Sizes at which launches run that do not at those that are tried: on a GPU, those that the call has."""
    graph, kernels = generated.graph, generated.program.kernels
    if LANGUAGES[generated.language].on_gpu:
        return covering(kernels, graph, tried, generated.wanted.sizes)
    return covering(kernels, graph, tried, most=CELLS)


def _of_launches(
    description: Description, generated: GeneratedProgram, seed: int, missed: Iterable[Sizes]
) -> Iterator[Inputs]:
    """Inputs of sizes at which launches run that do not run otherwise; of an op's own maker, where it takes such."""
    for sizes in missed:
        inputs = _draw_inputs(generated, seed, [(sizes, NORMAL)])
        if description.inputs is not None:
            inputs = maker_inputs_at(description, generated.wanted, generated.graph, sizes, seed, generated)
        yield from inputs


def maker_inputs_at(
    description: Description, wanted: Specialization, graph: Graph, sizes: Sizes, seed: int = 0, of: Program = None
) -> Iterator[Inputs]:
    """Inputs by the op's maker for some sizes, also where it has other names for them; of as many of these as it knows
    by name where it makes none of all; nothing where it does not take them."""
    takes = sizes_of(description.inputs) if description.inputs is not None else []
    others, free = [size for name, size in sizes.items() if name not in takes], [n for n in takes if n not in sizes]
    renamed = (dict(zip(names, others, strict=False)) for names in permutations(free, min(len(others), len(free))))
    for more in [*(islice(renamed, RENAMED) if others else ()), None]:
        with contextlib.suppress(Exception):  # of a user's function
            for label, arrays in islice(maker_inputs(description, wanted, seed, of, {**sizes, **(more or {})}), 1):
                if more is None or sizes.items() <= graph.bind([array.shape for array in arrays]).items():
                    yield label, arrays
                    return


def _draw_inputs(generated: GeneratedProgram, seed: int, plan: Plan | None = None) -> Iterator[Inputs]:
    graph, integers = generated.graph, generated.wanted.integers
    maker = CaseMaker(graph, np.random.default_rng(seed))
    for sizes, pattern in _plan(graph, maker, generated.wanted.sizes) if plan is None else plan:
        inputs = maker.inputs(sizes, pattern)
        if inputs is not None:
            arrays = {**inputs, **{n: np.array(value).astype(inputs[n].dtype) for n, value in integers.items()}}
            yield spell(pattern, sizes), [arrays[node.output] for node in graph.inputs]


def _plan(graph: Graph, maker: CaseMaker, called: Mapping[str, int]) -> Iterator[tuple[Mapping[str, int], Pattern]]:
    """Usual sizes, all sizes at an edge as far as the arrays stay small, then other numbers."""
    patterns = schedule(graph, hint(graph, called), False, maker.has_floats)
    yield from islice(patterns, 1)
    yield from ((sizes, NORMAL) for sizes in sizes_at_edges(graph, usual_sizes(graph, {}), CELLS))
    yield from patterns


def hint(graph: Graph, called: Mapping[str, int]) -> Mapping[str, int]:
    """The sizes that a graph is called with, where it does not hold for usual ones and these are small; else none."""
    return {} if fits(graph, usual_sizes(graph, {})) or not called or cells(graph, called) > MADE else called


def sizes_at_edges(graph: Graph, usual: Mapping[str, int], cells: int) -> list[dict[str, int]]:
    """All sizes at an edge as far as no array has more cells, where the graph can have that."""
    last = next(iter(list(usual)[-1:]), None)
    edges = [shrunk(graph, dict.fromkeys(usual, edge), cells, last) for edge in EDGES]
    return [sizes for sizes in edges if fits(graph, sizes)]


def maker_inputs(
    description: Description, wanted: Specialization, seed: int, of: Program = None, sizes: Sizes = NO_SIZES
) -> Iterator[Inputs]:
    """Inputs by the op's maker for these dtypes and ranks, each with its seed; nothing without a maker.
    `of`: of sizes that this holds for, those that it was specialised to asked for by name; nothing where these are
    large. `sizes`: those that are asked for besides."""
    maker, signature = description.inputs, description.signature
    if maker is None or signature is None:
        return
    known = {**description.sizes, **wanted.integers}
    demand = {} if of is None else maker_sizes(maker, of.specialised)
    if math.prod(demand.values()) > MADE:
        return
    demand |= {name: size for name, size in sizes.items() if name in sizes_of(maker)}
    for number in range(MOST):
        rng = np.random.default_rng([seed, number])
        arguments = draw_inputs(maker, rng, demand, description.reference.parameters, description.name)
        arguments = in_dtypes(arguments, signature, wanted.instance.dtypes)
        bound = bind(signature, arguments, known, f"inputs= of {description.name}")
        if bound.instance == wanted.instance and (of is None or of.holds(bound.sizes)):
            yield f"inputs(rng), seed {number}", list(bound.arrays)


def maker_sizes(maker: Maker, specialised: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a maker is asked for: those that a program is for, and where an array of all sizes had more cells
    than MADE, the others too, halved from what they usually are."""
    result = {name: specialised[name] for name in sizes_of(maker) if name in specialised}
    defaults = {name: each.default for name, each in inspect.signature(maker).parameters.items()}
    others = {name: size for name, size in defaults.items() if isinstance(size, int) and name not in result}
    smaller: dict[str, int] = {}
    while result and math.prod((result | others).values()) > MADE and max(others.values(), default=1) > 1:
        largest = max(others, key=others.__getitem__)
        others[largest] //= 2
        smaller[largest] = others[largest]
    return result | smaller
