"""The inputs that kernels of an op are tried on: dtypes, ranks, sizes and numbers; and the time budget of trials."""

import inspect
import math
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, cycle, islice, zip_longest
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid
from noyau.dtypes import HALVES, DType
from noyau.errors import InputError, SignatureError
from noyau.ir.graph import Graph
from noyau.kernels.programs.generate import Specialization, lazy_graph
from noyau.kernels.reference import graph_of
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.op import Op
from noyau.sanitizer.lint.arithmetic import situation_or_none
from noyau.signatures import instances
from noyau.signatures.types import Family, Instance, Signature
from noyau.text import sizes_text
from noyau.timing.sides import is_float
from noyau.verify.adversarial import NORMAL, schedule
from noyau.verify.awkward_sizes import cells, fits, fitting
from noyau.verify.case_arrays import CaseMaker, Pattern
from noyau.verify.trial import LazyGraph
from noyau.workers.worker import spent_s

Array = np.ndarray
Sizes = Mapping[str, int]
Make = Callable[[Sizes], tuple[Array, ...] | None]
Edges = Callable[[Sizes], Iterator[Sizes]]  # edge sizes around usual ones
Accepts = Callable[[Instance], bool]
Work = Callable[[Instance, Sizes], int]  # the work of a run, for comparison with other sizes
Plans = Iterator[tuple[Sizes, Pattern]]

MOST, FEW = 50, 12  # the most cases of the first instance, and of each other instance
TOTAL = 1 << 20  # the most cells over all cases of an instance
AXES = (1, 0, 2, 3)  # numbers of axes of a Rest, in the order in which they are tried
INTEGERS = (10, 1, 7, 0)  # values of a parameter that gives a dim
EDGES = (1, 33, 31, 0, 32, 65, 64, 129, 257)  # the first ones are tried on every instance
TOGETHER = 65  # the largest edge at which all sizes are put at once; just past a kernel's own numbers they always are
POINTS, PAST = 8, 6  # the most numbers of a kernel that count; the edges that come before any pattern
AWKWARD = (0, 1, 2, 5, 31, 32, 33, 97)  # further sizes for a maker of inputs, beside its usual ones
SEEDS = 3
_SMALLEST = 30  # the fewest cells of the largest array of a usual case
_DTYPES = {
    Family.FLOAT: (DType.F32, DType.F64, *HALVES),
    Family.INT: (DType.I64, DType.I32, DType.U8),
    Family.ANY: (DType.F32, DType.I32, DType.BOOL),
}
PATIENCE = 3  # seconds on the clock per second of the processor
PROGRAM = 1 << 10  # the work of a Triton program, in threads


@dataclass(frozen=True, slots=True)
class Attempt:
    """One set of inputs; `made_of` describes it, `make` gives inputs at other sizes too, None if there are none.
    `graph` is the reference as one Opaque, `traced` the traced reference. `needed`: the first of its ranks, which is
    tried even beyond the budget, for a checked kernel runs on arrays of these ranks. `is_named`: at sizes that a user
    names. `layout` of the arrays in memory; `number`: its place in the order of trials."""

    instance: Instance
    graph: Graph
    traced: LazyGraph
    made_of: str
    sizes: Sizes
    make: Make
    needed: bool = False
    is_named: bool = False
    layout: str = "contiguous"
    number: int = 0

    @property
    def label(self) -> str:
        """A description: `denormals, rows = 5`."""
        return ", ".join(filter(None, [self.made_of, sizes_text(self.sizes)]))


def attempts(
    op: Op[..., Any],
    sizes: Sizes,
    seed: int,
    accepts: Accepts,
    *,
    points: Collection[int] = (),
    work: Work = lambda instance, sizes: volume(sizes),
    ranks_first: bool = True,
    left_out: Container[Instance] = (),
) -> Iterator[Attempt]:
    """The attempts for a kernel: `accepts` says which instances it takes; `sizes`: sizes that a user names, which are
    tried first. `points`: numbers at which the kernel may begin to behave differently; `work`: the work of a run, for
    quick attempts come first. `ranks_first`: the first attempt of each ranks, which is then `needed`, comes before
    others. `left_out`, which may grow meanwhile: instances that are not tried further; other dtypes are tried with the
    number of axes of an instance that is not left out."""
    if op.signature is None:
        raise SignatureError(f"{op.name} has no signature, so its kernels cannot be checked; give it one")
    if op.inputs is not None:
        by_maker = _by_maker(op, op.signature, sizes, seed, accepts, points)
        yield from (each for each in by_maker if each.instance not in left_out)
        return
    begun, waiting = dict[Instance, None](), list[Iterator[Attempt]]()

    def continued(*parts: Iterator[Attempt]) -> Iterator[Attempt]:
        return (each for each in chain(*parts) if each.instance not in left_out)

    for instance, integers in _instances(op, op.signature, sizes, accepts, left_out):
        edges = partial(edges_of, points=points, work=partial(work, instance))
        most = FEW if any(each not in left_out for each in begun) else MOST
        some = islice(_by_signature(op, instance, integers, sizes, seed, edges), most)
        if ranks_first and all(instance.ranks != each.ranks for each in begun):
            waiting.append(some)
            yield from (replace(each, needed=True) for each in continued(islice(some, 1)))
        else:
            yield from continued(*waiting, some)
            waiting = []
        begun[instance] = None
    yield from continued(*waiting)


def usual_case(op: Op[..., Any]) -> tuple[Instance, list[Array], str]:
    """Inputs of the first sizes that are no edge, with the sizes as text. InputError if there are none."""
    for attempt in attempts(op, {}, 0, lambda instance: True):
        arrays = attempt.make(attempt.sizes)
        if arrays is not None and max((array.size for array in arrays), default=_SMALLEST) >= _SMALLEST:
            return attempt.instance, list(arrays), sizes_text(attempt.sizes)
    raise InputError(f"{op.name} has no inputs to launch it on")


def size_names(op: Op[..., Any]) -> tuple[str, ...]:
    """The names of an op's sizes: of `inputs=`, or else of the signature, where `*rows` has `rows_0` and `rows_1`."""
    if op.inputs is not None:
        return tuple(instances.sizes_of(op.inputs))
    if op.signature is None:
        return ()
    rests = {term.rest.name for term in op.signature.inputs if term.rest and term.rest.name in op.signature.sizes}
    plain = [name for name in op.signature.sizes if name not in rests]
    return (*plain, *(f"{name}_{axis}" for name in sorted(rests) for axis in range(max(AXES))))


def require_sizes(op: Op[..., Any], sizes: Sizes) -> None:
    """SignatureError for a size that the op does not have, or that is invalid."""
    names = size_names(op)
    if not isinstance(sizes, Mapping):
        raise SignatureError(f"{op.name}: sizes={sizes!r} names no size; its sizes are: {', '.join(names) or 'none'}")
    require_among(names, sizes, op.name, "; its sizes are")


def require_among(names: Collection[str], sizes: Mapping[str, Any], op: str, choice: str) -> None:
    """SignatureError for a size that is not among the names, or that is invalid; `choice` introduces the names."""
    for name, size in sizes.items():
        if name not in names:
            raise SignatureError(f"{op} has no size {name}{choice}: {', '.join(names) or 'none'}")
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise SignatureError(f"{op}: {name} is {size!r}, and a size is an integer from 0")


def grown(attempt: Attempt) -> Iterator[Iterator[Attempt]]:
    """The attempt at larger and larger sizes, never multiples of 2: all sizes, then the last and the first alone.
    Normal numbers are made positive for the latter: long sums of these lose the most."""
    names = list(attempt.sizes)
    yield _grown(attempt, tuple(reversed(names)))
    alone = replace(attempt, made_of=f"{attempt.made_of}, none below 0", make=lambda sizes: _above(attempt.make(sizes)))
    for name in dict.fromkeys((*names[-1:], *names[:1])):
        yield _grown(alone if attempt.made_of == NORMAL.label else attempt, (name,))


def _grown(attempt: Attempt, names: Sequence[str]) -> Iterator[Attempt]:
    sizes = dict(attempt.sizes)
    for name in islice(cycle(names), MOST):
        sizes[name] = 4 * sizes[name] + 1
        yield replace(attempt, sizes=dict(sizes))


def _above(arrays: tuple[Array, ...] | None) -> tuple[Array, ...] | None:
    """The arrays with the absolute values of floats."""
    return None if arrays is None else tuple(np.abs(each) if is_float(each.dtype) else each for each in arrays)


def _instances(
    op: Op[..., Any], signature: Signature, sizes: Sizes, accepts: Accepts, left_out: Container[Instance]
) -> Iterator[tuple[Instance, Sizes]]:
    """The dtypes, ranks and integers to try, the most usual first, if the kernel accepts them."""
    constants = op.known_sizes(op.description.reference.constants)
    has_rest = any(term.rest for term in signature.inputs)
    usual = {each.element: _DTYPES[each.element][0] for each in signature.inputs if isinstance(each.element, Family)}
    order = dict[tuple[Instance, int], int]()
    for dtypes in [usual, *({**usual, f: dtype} for f in usual for dtype in _DTYPES[f][1:])]:
        for integer in INTEGERS if instances.sizing_integers(signature) else (1,):
            axes_of_instances = [axes for (instance, _), axes in order.items() if instance not in left_out]
            axes_of_rest = AXES if dtypes is usual or not axes_of_instances else axes_of_instances[:1]
            for axes in axes_of_rest if has_rest else (1,):
                integers = {name: sizes.get(name, integer) for name in instances.sizing_integers(signature)}
                with suppress(SignatureError):
                    variant = instances.usual_instance(signature, {**constants, **integers}, dtypes, axes)
                    if (variant, integer) not in order and accepts(variant):
                        order[variant, integer] = axes
                        yield variant, integers


def edges_of(usual: Sizes, points: Collection[int], work: Callable[[Sizes], int]) -> Iterator[Sizes]:
    """Sizes at which kernels tend to fail: just past each of the points; then just below, at, and at and past twice
    each, by work; then edges of common blocks. Each size in turn, then all at once; the other sizes are usual."""

    def at(number: int) -> Iterator[Sizes]:
        yield from ({**usual, name: number} for name in usual)
        if len(usual) > 1 and (number <= TOGETHER or number in past):
            yield dict.fromkeys(usual, number)

    def ordered(numbers: Iterable[int]) -> list[Sizes]:
        return sorted((sizes for number in numbers for sizes in at(number)), key=work)

    few = sorted(points)[:POINTS]
    past = {point + 1 for point in few}
    yield from ordered(past)
    yield from ordered({n for point in few for n in (point - 1, point, 2 * point, 2 * point + 1)} - past)
    yield from (sizes for number in EDGES for sizes in at(number))


def volume(sizes: Sizes) -> int:
    """The product of all sizes, an empty one counted as 1: a guess of the work."""
    return math.prod(max(size, 1) for size in sizes.values())


def _plan(first: Sizes, edges: Iterator[Sizes], patterns: Plans) -> Plans:
    """The first sizes, some edges, then other sizes and patterns in turn; each once, for a repetition adds nothing."""
    normal, seen = ((sizes, NORMAL) for sizes in chain([first], edges)), set[Any]()
    turns = (each for pair in zip_longest(normal, patterns) for each in pair if each is not None)
    for sizes, pattern in chain(islice(normal, 1 + PAST), turns):
        kind = tuple(sizes.items()), pattern.label if all(sizes.values()) else ""
        if kind not in seen:
            seen.add(kind)
            yield sizes, pattern


def _by_signature(
    op: Op[..., Any], instance: Instance, integers: Sizes, usual_at: Sizes, seed: int, edges_at: Edges
) -> Iterator[Attempt]:
    """Adversarial inputs: sizes and patterns in turn."""
    reference = op.description.reference
    graph = graph_of(reference, instance, reference.constants)
    traced_reference = lazy_graph(reference, Specialization(instance, reference.constants, integers))
    has_floats = any(value.dtype.is_float or value.dtype.is_float8 for value in instance.inputs)
    usual, traced = instances.usual_sizes(instance, {}), traced_reference()
    demanding = None if traced is None or fits(traced, usual) else traced
    first = {**usual, **{name: size for name, size in usual_at.items() if name in usual}}
    edges: Iterator[Sizes] = chain([usual] if first != usual else [], edges_at(usual))
    if demanding is not None:  # the first sizes stay unfitted: a demand may show that the signature is wrong
        edges = fitting(demanding, edges)
    spent, plan = 0, _plan(first, edges, schedule(demanding or graph, usual_at, False, has_floats))
    for number, (sizes, pattern) in enumerate(plan):

        def make(other: Sizes, number: int = number, pattern: Pattern = pattern) -> tuple[Array, ...] | None:
            with np.errstate(all="ignore"):
                arrays = CaseMaker(graph, np.random.default_rng([seed, number])).inputs(other, pattern)
            if arrays is None:
                return None
            fixed = {**integers, **{v.name: other[v.name] for v in instance.inputs if v.scalar and v.name in other}}
            ends = instance.inputs
            return tuple(np.array(fixed[e.name], e.dtype.numpy) if e.name in fixed else arrays[e.name] for e in ends)

        size = cells(graph, sizes)
        if number and size > TOTAL // 4:
            continue
        spent += size if number else 0
        is_named = not number and first != usual
        yield Attempt(instance, graph, traced_reference, pattern.label, sizes, make, is_named=is_named)
        if spent > TOTAL:
            return


def _by_maker(
    op: Op[..., Any], signature: Signature, usual_at: Sizes, seed: int, accepts: Accepts, points: Collection[int]
) -> Iterator[Attempt]:
    """Attempts by the maker: at its usual sizes with several seeds, then with each size just past the points and at
    awkward ones, then, if the op takes a family of floats, the usual sizes in its other dtypes."""
    assert op.inputs is not None
    parameters = list(inspect.signature(op.inputs).parameters.values())[1:]
    usual = {parameter.name: int(usual_at.get(parameter.name, parameter.default)) for parameter in parameters}
    has_family = any(term.element is Family.FLOAT for term in signature.inputs)
    plans: list[tuple[Sizes, int, DType | None]] = [(usual, seed + k, None) for k in range(SEEDS)]
    past = [size for point in sorted(points)[:POINTS] for size in (point + 1, point, 2 * point)]
    awkward = dict.fromkeys((*past, *AWKWARD))
    plans += [({**usual, name: size}, seed, None) for size in awkward for name in usual if size != usual[name]]
    plans += [(usual, seed, dtype) for dtype in _DTYPES[Family.FLOAT] if has_family]
    first = None
    for sizes, chosen, dtype in plans:

        def make(other: Sizes, chosen: int = chosen, dtype: DType | None = dtype) -> tuple[Array, ...] | None:
            return _bound(op, signature, other, chosen, dtype, strict=other == usual)[1]

        instance, arrays = _bound(op, signature, sizes, chosen, dtype, strict=sizes == usual)
        first = first or instance
        if instance is None or arrays is None or not accepts(instance) or (dtype and instance == first):
            continue
        reference = op.description.reference
        graph = graph_of(reference, instance, reference.constants)
        traced_reference = lazy_graph(reference, Specialization(instance, reference.constants))
        yield Attempt(instance, graph, traced_reference, "inputs(rng)", sizes, make, is_named=bool(usual_at))


def _bound(
    op: Op[..., Any], signature: Signature, sizes: Sizes, seed: int, dtype: DType | None, *, strict: bool
) -> tuple[Instance | None, tuple[Array, ...] | None]:
    """The instance and arrays of the maker's inputs, in `dtype` if it is one of a family. None for both if it fails at
    these sizes; at its usual sizes an InputError."""
    reference = op.description.reference
    assert op.inputs is not None
    try:
        arguments = instances.draw_inputs(op.inputs, np.random.default_rng(seed), sizes, reference.parameters, op.name)
        if dtype is not None:
            arguments = instances.in_dtypes(arguments, signature, [dtype] * len(arguments))
        bound = instances.bind(signature, arguments, op.known_sizes(reference.constants), f"inputs= of {op.name}")
    except Exception as fault:
        if not strict:
            return None, None
        if isinstance(fault, SignatureError):
            raise
        raise InputError(f"inputs= of {op.name} fails with {type(fault).__name__}: {fault}") from fault
    return bound.instance, bound.arrays


@dataclass(slots=True)
class Costs:
    """An estimate of the time of further runs, linear in the work, from the shortest run and the one with the most
    work: the first runs compile. `is_steep`: Python runs each thread or program; beyond the most work, without an
    offset."""

    is_steep: bool = False
    least_s: float = math.inf
    time_s: float = 0.0  # of the last run with the most work
    work: int = 0

    def note(self, work: int, time_s: float) -> None:
        self.least_s = min(self.least_s, time_s)
        if work >= self.work:
            self.time_s, self.work = time_s, work

    def expect_s(self, work: int) -> float:
        """The expected seconds of a run; 0 before the first."""
        if not self.time_s:
            return 0.0
        least_s = 0.0 if self.is_steep and work > self.work else self.least_s
        return least_s + (self.time_s - least_s) * work / max(1, self.work)


@dataclass(slots=True)
class Budget:
    """Seconds of the processor for a kernel's runs, here and in workers, or PATIENCE times as many on the clock."""

    seconds: float
    costs: Costs = field(default_factory=Costs)
    began_s: float = 0.0
    end_s: float = 0.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self.began_s, self.end_s = spent_s(), time.monotonic() + PATIENCE * self.seconds

    @property
    def is_spent(self) -> bool:
        return spent_s() > self.began_s + self.seconds or time.monotonic() > self.end_s

    def affords(self, work: int, share: float = 1.0) -> bool:
        """Whether a run with this work is expected to take at most a share of the whole budget."""
        return self.costs.expect_s(work) <= share * self.seconds


def work_of(kernel: UserKernel, instance: Instance, sizes: Mapping[str, int]) -> int:
    """The work of a run at sizes of the signature: the cells, or its threads if these are more."""
    language = LANGUAGES[kernel.language]
    numbers = [1] * len(instance.inputs)  # for scalars that are not sizes
    launch = situation_or_none(kernel, instance, sizes, numbers) if language.on_gpu else None
    threads = 1 if launch is None else math.prod(launch.grid) * math.prod(launch.block)
    return max(volume(sizes), threads * (PROGRAM if language.grid is Grid.PROGRAMS else 1))
