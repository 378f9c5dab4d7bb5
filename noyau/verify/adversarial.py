"""Adversarial inputs, which expose wrong kernels: awkward sizes, extreme numbers, sizes that reach each launch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest

import numpy as np

from noyau.ir.graph import Graph
from noyau.ir.loops import Call, Expr, Index, Kernel, conditions_of, runs
from noyau.ir.sizes import Sizes
from noyau.text import printable
from noyau.verify import patterns
from noyau.verify.awkward_sizes import awkward_sizes, cells, fits, fitting, usual_sizes
from noyau.verify.case_arrays import BEYOND, CaseMaker, Pattern
from noyau.verify.failures import Case


@dataclass(frozen=True, slots=True)
class Effort:
    """The bounds of a search: at most `most` cases, and no further case after `fewest` of them with `total` cells in
    all. `few`: the bounds where a few rows stand for many independent ones (FewRows in noyau.verify.trial)."""

    fewest: int = 3
    most: int = 30
    total: int = 1 << 20
    few: Effort | None = None


FULL = Effort()
SMOKE = Effort(1, total=1 << 17, few=Effort(2, total=1 << 14))  # while a user waits for a result
NORMAL = Pattern("normal numbers", patterns.normal)
PATTERNS = (
    Pattern("infinities mixed in", patterns.infinities, "extremes"),
    Pattern("NaN mixed in", patterns.nans),
    Pattern("one large number a row", patterns.outlier, "highest"),
    Pattern("denormals", patterns.denormals, "lowest"),
    Pattern("far from zero", patterns.offset),
    Pattern("all equal", patterns.equal, "equal", 1.0),
    Pattern("masked rows", patterns.mask_rows, true=0.2),
    Pattern("zeros", patterns.zeros, "zeros", 0.0),
    Pattern("huge numbers", patterns.huge, "extremes"),
    Pattern("many magnitudes", patterns.magnitudes),
    Pattern("where functions turn", patterns.turning),
    Pattern("alternating signs", patterns.alternating),
)
SIZED = (NORMAL, Pattern("many magnitudes", patterns.magnitudes), Pattern("alternating signs", patterns.alternating))


def cases(graph: Graph, sizes_hint: Sizes, rng: np.random.Generator, effort: Effort = FULL) -> Iterator[Case]:
    """Adversarial inputs for a graph: with full `effort` at most 30 cases, fewer if they are large.

    Sizes that the inputs bind take 0, 1, primes, and block sizes with their neighbours; `sizes_hint`: usual values.
    Indices stay inside their tables, except in one case whose label says so. Inputs that the graph refuses, or that
    divide an integer by zero, are skipped. The same `rng` gives the same cases."""
    maker = CaseMaker(graph, rng)
    count = spent = 0
    for sizes, pattern in schedule(graph, sizes_hint, maker.indexes, maker.has_floats):
        if count >= effort.most or (count >= effort.fewest and spent >= effort.total):
            return
        with np.errstate(all="ignore"):
            inputs = maker.inputs(sizes, pattern)
        if inputs is not None:
            count, spent = count + 1, spent + cells(graph, sizes)
            yield Case(spell(pattern, sizes), tuple(inputs[node.output] for node in graph.inputs))


def spell(pattern: Pattern, sizes: Sizes) -> str:
    """The label of a case: `denormals, rows = 5`."""
    return ", ".join([pattern.label, *(f"{printable(name)} = {size}" for name, size in sizes.items())])


def schedule(graph: Graph, hint: Sizes, indexes: bool, has_floats: bool) -> Iterator[tuple[Sizes, Pattern]]:
    """Alternate between all patterns at usual sizes and all sizes with patterns that hide no error."""
    usual = usual_sizes(graph, hint)
    plain = [NORMAL, *([BEYOND] if indexes else []), *distinct(has_floats)]
    for at, (pattern, sizes) in enumerate(zip_longest(plain, fitting(graph, awkward_sizes(graph, usual)))):
        if pattern is not None and fits(graph, usual):
            yield usual, pattern
        if sizes is not None:
            yield sizes, SIZED[at % len(SIZED)]


def distinct(has_floats: bool) -> tuple[Pattern, ...]:
    """The patterns; without float inputs only one for each style of integers and share of true bools."""
    if has_floats:
        return PATTERNS
    return tuple({(pattern.integers, pattern.true): pattern for pattern in reversed(PATTERNS)}.values())


MOST_CELLS = 1 << 21  # of the largest value of a case
_MOST = 4096  # assignments of sizes that are tried
_FEW = (2, 1)  # extents of short axes; two rows show where the second begins


def covering(
    kernels: Iterable[Kernel],
    graph: Graph,
    earlier: Sequence[Sizes],
    sizes_of_call: Sizes | None = None,
    most: int = MOST_CELLS,
) -> list[dict[str, int]]:
    """Sizes that make each launch run that runs at none of the `earlier` sizes; with `sizes_of_call`, only launches
    that run at these. For a launch the sizes of fewest cells are chosen: in its condition 2, a constant that it is
    compared with, the next number or the next multiple of 16; 1 only if `most` cells do not suffice otherwise."""
    usual, covered = usual_sizes(graph, {}), list[dict[str, int]]()
    for when in chain.from_iterable(map(conditions_of, kernels)):
        is_wanted = sizes_of_call is None or runs(when, sizes_of_call)
        if is_wanted and not any(runs(when, sizes) for sizes in (*earlier, *covered)):
            covered += islice(_running(when, usual, graph, most), 1)
    return covered


def _running(when: Expr, usual: Sizes, graph: Graph, most: int) -> Iterator[dict[str, int]]:
    """Sizes at which a launch runs, sorted by the number of sizes that are 1, then by cells."""
    limits = sorted({side.dim.constant for side in _indices(when) if side.dim.constant})
    names = {name for side in _indices(when) for name in side.dim.names} & usual.keys()
    # The last choice is the next multiple of 16, at which rows of any dtype are aligned to 16 bytes.
    some = [*_FEW, *(n for limit in limits for n in (limit, limit + 1)), *(n - n % 16 + 16 for n in limits[-1:])]
    choices = [some if n in names else [usual[n]] for n in usual]
    assignments = (dict(zip(usual, each, strict=True)) for each in islice(product(*choices), _MOST))
    fitting_sizes = [sizes for sizes in assignments if runs(when, sizes)]
    fitting_sizes.sort(key=lambda sizes: (sum(n == 1 for n in sizes.values()), cells(graph, sizes)))
    yield from (sizes for sizes in fitting_sizes if cells(graph, sizes) <= most and fits(graph, sizes))


def _indices(expr: Expr) -> Iterator[Index]:
    if isinstance(expr, Index):
        yield expr
    for operand in expr.operands if isinstance(expr, Call) else ():
        yield from _indices(operand)
