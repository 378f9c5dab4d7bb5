"""The diagnosis of a failure: its kind, the smallest sizes at which it shows, a property common to all wrong sizes, and
the cause of differences between two runs on the same inputs in other conditions; and lint of a kernel at its declared
sizes, where nothing is run."""

from __future__ import annotations

import ast
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from noyau.codegen.language import LANGUAGES, Grid
from noyau.dtypes import DType, from_numpy
from noyau.errors import BuildError, CheckError, FindingKind, MissingExtraError, NoyauError
from noyau.jobs.check.attempts import Array, Attempt, Sizes
from noyau.jobs.check.candidates import ByHand, KernelCandidate, place_of
from noyau.kernels.c.text import constant_macros
from noyau.kernels.reference import bind_sizes
from noyau.kernels.user_kernel import EXTENTS_MOST, GPU, UserKernel, python_function
from noyau.sanitizer.lint import launches
from noyau.sanitizer.lint.arithmetic import Situation, diagnose_arithmetic, situation_or_none, text_of
from noyau.sanitizer.lint.diagnostics import Diagnostic
from noyau.sanitizer.lint.false_sharing import diagnose_false_sharing
from noyau.sanitizer.lint.values import INT32_END
from noyau.sanitizer.scripts.lint import uncalled_methods
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance
from noyau.text import collect, sizes_text
from noyau.toolchain.cuda.compiler import cubin_of, resources_in, symbol_of
from noyau.toolchain.guard_zones import OTHER, PLAIN, How
from noyau.verify.checks import KernelCheck
from noyau.verify.failures import Failure
from noyau.verify.findings import Finding
from noyau.verify.floats import FORMATS, ulp, widen
from noyau.verify.trial import PIECES

FailureAt = Callable[[Sizes], Failure | None]
Plan = tuple[FindingKind, str, How]  # a run, and the kind and description of a finding if it differs from another

SHRINK_S, SHRINK_TRIALS, TAIL_S = 3.0, 60, 1.5
BLOCKS = (2, 4, 8, 16, 32, 64, 128, 256)
_SMALL = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
_GROWN = (4, 16)  # divisors of a size at which lost precision is looked at too
RERUNS = 3
_DIFFER = "two runs on the same inputs differ"


@dataclass(frozen=True, slots=True)
class Smallest:
    """A failure, and the sizes at which it shows."""

    failure: Failure
    sizes: Sizes


def shrink(first: Smallest, failure_at: FailureAt) -> Smallest:
    """The failure at the smallest sizes that were found to show one of its kind; each size is bisected in turn."""
    smallest, end_s, trials = first, time.monotonic() + SHRINK_S, 0
    kind = _kind(first.failure)
    for name in list(first.sizes) * 2:
        low, high = -1, smallest.sizes[name]  # right at `low`, wrong at `high`
        while high - low > 1 and trials < SHRINK_TRIALS and time.monotonic() < end_s:
            size = next((small for small in _SMALL if low < small < high), (low + high) // 2)
            sizes = {**smallest.sizes, name: size}
            failure = failure_at(sizes)
            trials += 1
            if failure is None or _kind(failure) != kind:
                low = size
            else:
                high, smallest = size, Smallest(failure, sizes)
    return smallest


def _kind(failure: Failure) -> FindingKind | None:
    """Its kind; None for a wrong cell: at other sizes a loss of precision may be a wrong value, or conversely."""
    return None if failure.cell is not None else failure.kind


def tail_of(smallest: Smallest, failure_at: FailureAt) -> str:
    """`only where n is no multiple of 8`, if that holds at the sizes tried for it; otherwise an empty text."""
    end_s = time.monotonic() + TAIL_S
    for name, size in smallest.sizes.items():
        for block in BLOCKS:
            if not size % block or size > 2 * block:
                continue
            began_s = time.monotonic()
            plan = {2 * block: False, 2 * block + 1: True, 3 * block: False, 3 * block + (block + 1) // 2: True}
            as_planned = ((failure_at({**smallest.sizes, name: n}) is not None) is wrong for n, wrong in plan.items())
            if all(time.monotonic() < end_s and each for each in as_planned):
                return f"only where {name} is no multiple of {block}"
            now_s = time.monotonic()
            if now_s + 3 * (now_s - began_s) > end_s:  # the next block is twice as long
                break
    return ""


def past_point(smallest: Smallest, points: Mapping[int, str], failure_at: FailureAt) -> str:
    """`it is right up to k = 32 (BK = 32)`, if a number of the kernel is the largest right size; or an empty text."""
    for name, size in smallest.sizes.items():
        if size - 1 in points and failure_at({**smallest.sizes, name: size - 1}) is None:
            text = points[size - 1]
            where = f"{name} = {size - 1}{'' if text == str(size - 1) else f' ({text})'}"
            return f"it is right up to {where} and wrong past that"
    return ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The kind of a finding, and notes that its message adds to the failure."""

    kind: FindingKind
    notes: tuple[str, ...] = ()

    def message(self, failure: Failure) -> str:
        return "; ".join([str(failure), *self.notes])


def diagnose(
    smallest: Smallest, instance: Instance, layout: str, unlike: Unlike | None, failure_at: FailureAt
) -> Diagnosis:
    """Diagnose the smallest failure. `unlike`: the difference of two runs on its inputs."""
    failure, kind = smallest.failure, smallest.failure.kind
    if unlike is not None and unlike.kind is FindingKind.ORDER_DEPENDENT and kind is not FindingKind.PRECISION:
        return Diagnosis(FindingKind.RACE, (str(unlike),))
    if layout != "contiguous":
        blind = f"stride-blind: it is right on packed arrays, and not on {layout} ones"
        return Diagnosis(kind, (f"{blind}; use their strides, or copy them first",))
    if kind is FindingKind.CRASH:
        return Diagnosis(kind)
    if kind is FindingKind.PRECISION:
        return Diagnosis(kind, (*_growth(smallest, failure_at), *_explain_saturation(failure, instance)))
    tail = tail_of(smallest, failure_at)
    notes = (f"wrong tail: {tail}",) if tail else ()
    if unlike is not None and unlike.kind is not FindingKind.ORDER_DEPENDENT:
        return Diagnosis(unlike.kind, (str(unlike), *notes))
    stuck = _explain_saturation(failure, instance)
    return Diagnosis(FindingKind.PRECISION, stuck) if stuck else Diagnosis(kind, notes)


def is_slight(failure: Failure, instance: Instance) -> bool:
    """Whether a cell still has more than half of the digits that its dtype holds."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not math.isfinite(failure.got):
        return False
    return abs(failure.got - failure.want) < math.ldexp(abs(failure.want), -FORMATS[dtype].stored // 2)


def _growth(smallest: Smallest, failure_at: FailureAt) -> tuple[str, ...]:
    """A note that an error grows with a size, if it is right at much smaller ones."""
    for name, size in smallest.sizes.items():
        smaller = [size // times for times in _GROWN]
        if size > max(_GROWN) and all(failure_at({**smallest.sizes, name: each}) is None for each in smaller):
            return (f"the error grows with {name}: at {smaller[0]} it is within what is allowed",)
    return ()


def _explain_saturation(failure: Failure, instance: Instance) -> tuple[str, ...]:
    """A note that a sum is saturated: adding 1 changes nothing, as at 2^24 in float32."""
    dtype = _dtype_of(failure, instance)
    if dtype not in FORMATS or not abs(failure.got) < abs(failure.want) < math.inf:
        return ()
    bits = FORMATS[dtype].stored + 1
    stays = abs(failure.got) == 2.0**bits
    return (f"it stays at 2^{bits}, where {dtype.numpy.name} has no number for one more",) if stays else ()


def _dtype_of(failure: Failure, instance: Instance) -> DType:
    """The dtype of the output that a failure is in."""
    return next((value.dtype for value in instance.outputs if value.name == failure.output), DType.OTHER)


@dataclass(slots=True)
class TwoRuns:
    """A kernel as a function that runs it twice: with one thread, NaN in its outputs and around its inputs; then with
    many threads or in pieces, and numbers instead of NaN; only once if every run is replayed. `first` and `second` are
    the results of the last call, the same if there was one run; `fault`: the error of a run."""

    candidate: KernelCandidate
    instance: Instance
    layout: str = "contiguous"
    first: list[Array] = field(default_factory=list)
    second: list[Array] = field(default_factory=list)
    fault: CheckError | None = None

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        self.first, self.second, self.fault = [], [], None
        try:
            self.first = self.run(inputs, self.usual)
            self.second = self.first if self.candidate.is_replayed else self.run(inputs, self.other)
        except CheckError as fault:
            self.fault = fault
            raise
        return self.first

    def run(self, inputs: Sequence[Array], how: How) -> list[Array]:
        return self.candidate.run(self.instance, inputs, how)

    @property
    def usual(self) -> How:
        return How(self.layout, threads=min(self.candidate.threads, default=0), around=OTHER)

    @property
    def other(self) -> How:
        if self.candidate.in_pieces and self.layout == "contiguous":
            return How(self.layout, 1, PLAIN, PLAIN, pieces=PIECES)
        return How(self.layout, max(self.candidate.threads, default=0), PLAIN, PLAIN)

    @property
    def alike(self) -> bool:
        return [*map(np.ndarray.tobytes, self.first)] == [*map(np.ndarray.tobytes, self.second)]


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of cells in which two runs differ, of how many, the first such output and cell, and the largest
    distance in ulp: units for integers, infinity if a value is not finite."""

    differing: int
    cells: int
    output: int
    cell: tuple[int, ...]
    worst: float
    is_float: bool

    def __str__(self) -> str:
        where = f"in {self.differing} of {self.cells} cells"
        if not np.isfinite(self.worst):
            return f"{where}, one of them NaN or infinite"
        return f"{where}, by at most {self.worst:g} {'ulp' if self.is_float else 'units'}"


def spread(one: Sequence[Array], other: Sequence[Array]) -> Spread | None:
    """The distance between two runs, or None if every bit is equal."""
    spreads = [_apart(number, *pair) for number, pair in enumerate(zip(one, other, strict=True))]
    unlike = [each for each in spreads if each.differing]
    if not unlike:
        return None
    first, worst = unlike[0], max(unlike, key=lambda each: each.worst)
    total, cells = sum(each.differing for each in unlike), sum(each.cells for each in spreads)
    return Spread(total, cells, first.output, first.cell, worst.worst, worst.is_float)


def _apart(number: int, one: Array, other: Array) -> Spread:
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    size = one.dtype.itemsize
    flat = one.reshape(-1).view(np.uint8).reshape(-1, size) != other.reshape(-1).view(np.uint8).reshape(-1, size)
    unlike = flat.any(1).reshape(one.shape)
    dtype = from_numpy(one.dtype) or DType.OTHER
    if not unlike.any():
        return Spread(0, one.size, number, (), 0.0, dtype.is_float)
    cell = tuple(int(index) for index in np.argwhere(unlike)[0])
    return Spread(int(unlike.sum()), one.size, number, cell, _worst(one[unlike], other[unlike], dtype), dtype.is_float)


def _worst(one: Array, other: Array, dtype: DType) -> float:
    left, right = widen(one), widen(other)
    if not dtype.is_float:
        return float(np.abs(left - right).max())
    if not (np.isfinite(left) & np.isfinite(right)).all():
        return float("inf")
    return float((np.abs(left - right) / ulp(dtype, np.fmax(np.abs(left), np.abs(right)))).max())


@dataclass(frozen=True, slots=True)
class Unlike:
    """Two runs that should be alike, and are not; `results`: of the run under unusual conditions."""

    kind: FindingKind
    description: str
    spread: Spread
    results: list[Array]

    def __str__(self) -> str:
        return f"{self.description}, {self.spread}"


def why_unlike(runs: TwoRuns, inputs: Sequence[Array]) -> Unlike | None:
    """The first changed condition that makes the two runs differ; None if they are alike this time."""
    usual = runs.usual
    depends = "its results depend on what"
    plans = (
        *[(FindingKind.ORDER_DEPENDENT, _DIFFER, usual)] * RERUNS,
        (FindingKind.OUT_OF_BOUNDS, f"{depends} lies outside its inputs", replace(usual, around=PLAIN)),
        (FindingKind.UNINITIALISED, f"{depends} its outputs held before", replace(usual, outputs=PLAIN)),
        *_by_threads(runs.candidate, usual),
    )
    if unlike := _first_unlike(runs, inputs, plans):
        return unlike
    apart, other, description = spread(runs.first, runs.second), runs.other, _DIFFER
    if other.pieces > 1:
        description = f"runs whole and in {other.pieces} pieces, the last first, differ"
    elif other.threads != usual.threads:
        description = f"runs with {usual.threads} and {other.threads} threads differ"
    return Unlike(FindingKind.ORDER_DEPENDENT, description, apart, runs.second) if apart else None


def thorough(runs: TwoRuns, inputs: Sequence[Array]) -> Unlike | None:
    """The first difference from the usual run of repeated runs, and runs with other numbers of threads."""
    if runs.candidate.is_replayed:
        return None
    plans = [(FindingKind.ORDER_DEPENDENT, _DIFFER, runs.usual)]
    return _first_unlike(runs, inputs, plans + [*_by_threads(runs.candidate, runs.usual)] * RERUNS)


def _by_threads(candidate: KernelCandidate, usual: How) -> Iterator[Plan]:
    for threads in candidate.threads:
        if threads != usual.threads:
            description = f"runs with {usual.threads} and {threads} threads differ"
            yield FindingKind.ORDER_DEPENDENT, description, replace(usual, threads=threads)


def _first_unlike(runs: TwoRuns, inputs: Sequence[Array], plans: Iterable[Plan]) -> Unlike | None:
    """The first of some runs that differs from the usual one, and the difference."""
    for kind, description, how in plans:
        with suppress(NoyauError):  # a failing run is reported elsewhere
            results = runs.run(inputs, how)
            if (apart := spread(runs.first, results)) is not None:
                return Unlike(kind, description, apart, results)
    return None


Arrays = Sequence[Array]
ARCHITECTURE = f"sm_{GPU.capability[0]}{GPU.capability[1]}"
LARGE = 1 << 20  # the cells of the largest array of a launch without declared sizes
COMMON = 1024  # the extent of an axis while another grows


def with_lint(
    check: KernelCheck, candidate: KernelCandidate, first: Attempt | None, declared: Sizes, *, is_usual: bool
) -> KernelCheck:
    """Add diagnostics to the check of a kernel; `first`: usual inputs."""
    arrays = None if first is None else first.make(first.sizes)
    if not isinstance(candidate, ByHand) or first is None or arrays is None:
        return check
    remarks = lint_op(candidate.kernel, first.instance, arrays, declared, is_usual=is_usual)
    places = {(each.kind, each.place) for each in check.findings}
    others = (each for each in remarks if (each.kind, each.place) not in places)
    return replace(check, findings=(*check.findings, *others))


def lint_op(
    kernel: UserKernel, instance: Instance, arrays: Arrays, declared: Sizes, *, is_usual: bool
) -> list[Finding]:
    """Warnings on a kernel of an op: its launch and its arithmetic at `declared` sizes, which replace those of the
    arrays (`is_usual`: the op is meant for the arrays' sizes too), and methods that it does not call."""
    sizes = bind_sizes(instance, arrays)
    names = {*sizes, *(value.name for value in instance.inputs if value.scalar)}
    meant_sizes = {**sizes, **{name: size for name, size in declared.items() if name in names}}
    fixed = not any(dim.names for value in instance.inputs for dim in value.shape)
    remarks = _at(kernel, instance, meant_sizes, arrays, is_meant=True) if is_usual or declared or fixed else []
    if not (declared or fixed):
        rank = max((len({name for dim in value.shape for name in dim.names}) for value in instance.inputs), default=1)
        grown = dict.fromkeys(sizes, 1 << (LARGE.bit_length() - 1) // max(rank, 1))  # the largest array has about LARGE
        remarks += _at(kernel, instance, grown, arrays, is_meant=False)
        remarks += offsets_beyond(kernel, instance, sizes, arrays)
    text = text_of(kernel) if kernel.function is not None else None
    methods = [] if text is None else uncalled_methods(ast.Module([*text.body], []), text.file)
    by_line = collect(((each.line, each.mend), each) for each in [*methods, *remarks, *diagnose_false_sharing(kernel)])
    diagnostics = [each for each, *_ in by_line.values() if not each.is_allowed]
    return [each.finding(kernel.target.op, kernel.name, kernel.language) for each in diagnostics]


def _at(kernel: UserKernel, instance: Instance, sizes: Sizes, arrays: Arrays, *, is_meant: bool) -> list[Diagnostic]:
    again = partial(situation_or_none, kernel, instance, inputs=arrays)
    if (situation := again(sizes)) is None:
        return []
    is_launched = LANGUAGES[kernel.language].on_gpu and kernel.usage.launch is not None
    diagnostics = _launch(situation, is_meant=is_meant) if is_launched else []
    return diagnostics + (diagnose_arithmetic(situation, again) if is_meant else [])


def _launch(situation: Situation, *, is_meant: bool) -> list[Diagnostic]:
    """Diagnostics of the launch; those that depend on the machine only at sizes that the op is meant for."""
    kernel, grid, block = situation.kernel, situation.grid, situation.block
    if not math.prod(grid) or not 0 < math.prod(block) <= GPU.max_threads:
        return []
    arrays = [each for each in situation.arguments.values() if isinstance(each, np.ndarray)]
    shape = max((each.shape for each in arrays), key=lambda each: int(np.prod(each, dtype=object)), default=())
    held = _resources(kernel) if is_meant and kernel.function is None else (0, 0)
    is_of_programs, sm_count = LANGUAGES[kernel.language].grid is Grid.PROGRAMS, GPU.sm_count * is_meant
    launch = launches.LaunchFacts(grid, block, shape, _source(kernel), None, sm_count, is_of_programs, *held)
    place, size, advice = place_of(kernel), sizes_text(situation.sizes), launches.advise(launch)
    return [Diagnostic(FindingKind.LAUNCH, *place, f"{text}, for {size}", mend) for text, mend in advice]


def _resources(kernel: UserKernel) -> tuple[int, int]:
    """Registers and bytes of shared memory of a kernel in CUDA C++; 0 if it cannot be compiled here."""
    text, flags = constant_macros(kernel) + kernel.text, tuple(kernel.usage.options.get("flags", ()))
    try:
        cubin = cubin_of(text, ARCHITECTURE, flags)
        return resources_in(cubin)[symbol_of(cubin, kernel.entry)]
    except (BuildError, MissingExtraError):  # reported when it is compiled for a call
        return 0, 0


def _source(kernel: UserKernel) -> str:
    with suppress(OSError, TypeError):
        return kernel.text if kernel.function is None else inspect.getsource(python_function(kernel.function))
    return ""


def offsets_beyond(kernel: UserKernel, instance: Instance, sizes: Sizes, arrays: Arrays) -> list[Diagnostic]:
    """Offsets that overflow int32 in an array of more cells than it counts, though no extent overflows: each size in
    turn grows, the others stay common; then all grow. Sizes that a launch cannot have are left out."""
    again = partial(situation_or_none, kernel, instance, inputs=arrays)
    for grows in (*({name} for name in sizes), set(sizes)):
        own = dict.fromkeys(sizes, COMMON)
        while max(own.values()) < INT32_END // 4:
            own |= {name: 2 * own[name] for name in grows}
            if _most_cells(instance, own) > INT32_END:
                break
        situation = again(own) if _most_cells(instance, own) > INT32_END else None
        takes = situation is not None and all(a <= b for a, b in zip(situation.grid, EXTENTS_MOST["grid"], strict=True))
        if situation is not None and takes and (overflows := diagnose_arithmetic(situation, again, sums=False)):
            return list({each.message: each for each in reversed(overflows)}.values())
    return []


def _most_cells(instance: Instance, sizes: Mapping[str, int]) -> int:
    """The cells of the largest array."""
    return max(math.prod(shape) for shape in shapes_of((*instance.inputs, *instance.outputs), sizes))
