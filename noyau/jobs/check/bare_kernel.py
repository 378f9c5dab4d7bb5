"""`noyau.check(kernel, args, launch=..., reference=f)`: a kernel without an op, on the user's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, FindingKind, InputError, NoyauError, SignatureError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph
from noyau.jobs.check.sanitized_runs import SanitizedRuns, explain_findings
from noyau.kernels.c.parameters import TextFunction, is_named, text_function
from noyau.kernels.programs.generate import Specialization, lazy_graph
from noyau.kernels.reference import Reference, graph_of
from noyau.kernels.user_kernel import POSITIONAL, python_function
from noyau.sanitizer.records import WatchedRun
from noyau.sanitizer.routes import array_behind, bare_language, call, copy_argument, restore
from noyau.sanitizer.scripts.record import OBSERVERS, place_of
from noyau.signatures.types import Instance, Value
from noyau.verify.certificate import Certificate
from noyau.verify.checks import KernelCheck, OpCheck, require_tolerance
from noyau.verify.failures import Case
from noyau.verify.findings import Finding
from noyau.verify.trial import KernelTrial, LazyGraph

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class ReferenceResults:
    """A reference as a graph of its input arrays, the kernel's results for its outputs, and the inputs."""

    graph: Graph
    traced: LazyGraph
    inputs: tuple[Array, ...]
    results: tuple[Array, ...]


def evaluate_reference(one: _Bare, reference: Callable[..., Any], after: list[Any], returned: Any) -> ReferenceResults:
    """Evaluate a reference for a call. `after`: the arguments, arrays as NumPy's; `returned`: by the kernel.
    SignatureError if the reference has more parameters than the kernel, or its results do not match the arrays to
    compare in number or shape, or one has a dtype that is not judged; InputError if it fails on the arguments."""
    names, before = one.names, one.before
    of_kernel = _taken_arguments(reference, names, one.name)
    values = [before[place] for place in of_kernel]
    places = [at for at, each in enumerate(values) if isinstance(each, np.ndarray) and _dtype(each) is not None]
    inputs = _values((names[of_kernel[at]], values[at]) for at in places)

    def bound(*arrays: Any) -> Any:
        passed = list(values)
        for at, each in zip(places, arrays, strict=True):
            passed[at] = each
        if (results := reference(*passed)) is not None:
            return results
        return passed[places[0]] if len(places) == 1 else tuple(passed[at] for at in places)

    bound.__name__ = getattr(reference, "__name__", "reference")
    fills, results = _try_reference(reference, values, one.name)
    filled = [of_kernel[at] for at in places] if fills else None
    chosen = _compared_arrays(one, after, of_kernel, filled, results, returned)
    input_names = {value.name for value in inputs}
    ends = [(f"{name} afterwards" if name in input_names else name, each) for name, each in chosen]
    instance = Instance(inputs, _values(ends), ())
    own = Reference(bound, tuple(value.name for value in inputs), {})
    traced: LazyGraph = (lambda: None) if fills else lazy_graph(own, Specialization(instance, {}))
    arrays = tuple(values[at] for at in places)
    return ReferenceResults(graph_of(own, instance, {}), traced, arrays, tuple(each for _, each in chosen))


def _taken_arguments(reference: Callable[..., Any], names: Sequence[str], kernel_name: str) -> list[int]:
    """The indices of the kernel's arguments that a reference takes: by name, or else the first ones."""
    if isinstance(reference, np.ufunc):
        return list(range(min(reference.nin, len(names))))
    try:
        parameters = list(inspect.signature(reference).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return list(range(len(names)))
    positional = [each for each in parameters if each.kind in POSITIONAL]
    own = [each.name for each in positional if each.default is inspect.Parameter.empty]
    if all(name in names for name in own):
        shared_names = [each.name for each in positional if each.name in names]
        if shared_names == [each.name for each in positional[: len(shared_names)]]:
            return [list(names).index(name) for name in shared_names]
    if len(own) > len(names):
        takes = f"its reference takes {', '.join(own)}, and the kernel {', '.join(names)}"
        raise SignatureError(f"{kernel_name}: {takes}")
    return list(range(len(own)))


def _try_reference(reference: Callable[..., Any], values: Sequence[Any], name: str) -> tuple[bool, list[Any]]:
    """Whether the reference fills its arguments, and its results."""
    try:
        with np.errstate(all="ignore"):
            results = reference(*[np.array(each) if isinstance(each, np.ndarray) else each for each in values])
    except Exception as fault:
        problem = f"fails with {type(fault).__name__}: {fault}"
        raise InputError(f"{name}: its reference does not take these arguments: it {problem}") from fault
    return results is None, list(results) if isinstance(results, tuple | list) else [results]


def _compared_arrays(
    one: _Bare, after: list[Any], taken: Sequence[int], filled: Sequence[int] | None, results: list[Any], returned: Any
) -> list[tuple[str, Array]]:
    """The arrays that the reference's results are compared with, by name: the kernel's return value; the arguments that
    the reference fills; arguments that it does not take; or else the last ones."""
    names, arrays = one.names, [at for at, each in enumerate(after) if isinstance(each, np.ndarray)]
    lists = [name for name, each in zip(names, one.before, strict=False) if isinstance(each, list)]
    unjudged = f": no arrays within {' and '.join(lists)} are; check a kernel that takes each of them" if lists else ""
    if filled is not None:
        return _require([(names[at], after[at]) for at in filled], one.name, unjudged)
    if returned is not None:
        parts = [*map(np.asarray, returned if isinstance(returned, tuple | list) else [returned])]
        pairs = [(f"result {at}" if len(parts) > 1 else "the result", each) for at, each in enumerate(parts)]
    else:
        others = [at for at in arrays if at not in taken]
        places = others if len(others) >= len(results) else arrays[-len(results) :]
        pairs = [(names[at], after[at]) for at in places[: len(results)]]
    if len(pairs) != len(results):
        counts = f"{len(results)} results, and there are {len(pairs)} to compare{unjudged}"
        raise SignatureError(f"{one.name}: its reference gives {counts}")
    for (name, array), want in zip(pairs, results, strict=True):
        if np.shape(want) != array.shape:
            shapes = f"{list(np.shape(want))}, and {name} is {list(array.shape)}"
            raise SignatureError(f"{one.name}: its reference gives a result of shape {shapes}")
    return _require(pairs, one.name)


def _require(pairs: list[tuple[str, Array]], kernel_name: str, unjudged: str = "") -> list[tuple[str, Array]]:
    """SignatureError for a dtype that is not judged, or if there is nothing to compare."""
    if not pairs:
        nothing = f"its reference returns nothing and fills no array{unjudged or '; let it return what is right'}"
        raise SignatureError(f"{kernel_name}: {nothing}")
    for name, array in pairs:
        if _dtype(array) is None:
            raise SignatureError(f"{kernel_name}: {name} is {array.dtype}, of which no values are judged")
    return pairs


def _dtype(array: Array) -> DType | None:
    dtype = from_numpy(array.dtype)
    return None if dtype is DType.OTHER else dtype


def _values(arrays: Iterable[tuple[str, Array]]) -> tuple[Value, ...]:
    """The values of a graph for arrays of dtypes that are judged."""
    known = ((name, _dtype(each), each.shape) for name, each in arrays)
    return tuple(Value(name, dtype, shape_of(shape)) for name, dtype, shape in known if dtype is not None)


def is_bare(function: Any) -> bool:
    """Whether something is a kernel for `check_bare`, or the name of one, `FILE.c::FUNCTION`."""
    return is_named(function) or bare_language(function) is not None


def check_bare(
    function: Any,
    args: Sequence[Any] | None,
    *,
    launch: Any = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> OpCheck:
    """Check a kernel of Numba, Numba-CUDA or Triton, or a function of a text in C, C++ or CUDA C++ (`FILE.c::FUNCTION`,
    also .cpp and .cu), on these arguments, with every access watched; the arguments are restored afterwards.

    `launch`: (grid, block) of Numba-CUDA and CUDA C++, the grid of Triton. `reference`: a NumPy function that computes
    the right contents of the arrays, or the right return value: it takes parameters of the kernel by their names, or
    else the first ones, and returns the others, or fills its own. It is evaluated in float64, and judges by the
    certificate, or by `tolerance`. SignatureError if arguments, launch or reference do not fit; UnsupportedError if the
    accesses cannot be watched; CheckError if the kernel raises."""
    require_tolerance(tolerance)
    if is_named(function):
        function = text_function(function)
    name = function.name if isinstance(function, TextFunction) else python_function(function).__name__
    if args is None or not isinstance(args, Sequence):
        raise SignatureError(f"noyau.check({name}, args) needs the arguments of a call: a tuple")
    one = _Bare(function, name, tuple(args), launch)
    watched, arrays, returned = one.call()
    runs = SanitizedRuns({each.id: each for each in watched.findings}, watched.accesses, [one.size])
    runs.allowed, runs.notes = dict.fromkeys(watched.allowed), {note: note for note in watched.notes}
    wrong, certificate = list[Finding](), None
    if reference is not None:
        certificate, wrong = one.compare(evaluate_reference(one, reference, arrays, returned), tolerance)
    unverified = "it makes more accesses than are watched; check smaller arrays" * watched.is_cut
    parts = name, one.language, certificate, tuple(explain_findings(wrong, runs)), (one.size,)
    kernel_check = KernelCheck(*parts, accesses=runs.accesses, seen=runs.lines, unverified=unverified)
    for tell in OBSERVERS:
        tell(kernel_check, one.place)
    return OpCheck(name, one.place, (kernel_check,), tolerance)


@dataclass(slots=True)
class _Bare:
    """A kernel and its arguments. `before`: copies of the arguments, arrays as NumPy's."""

    function: Any
    name: str
    args: tuple[Any, ...]
    launch: Any

    @property
    def language(self) -> str:
        return bare_language(self.function) or ""

    @property
    def names(self) -> list[str]:
        if isinstance(self.function, TextFunction):
            return [each.name for each in self.function.prototype().parameters]
        return list(inspect.signature(python_function(self.function)).parameters)

    @property
    def place(self) -> str:
        if isinstance(self.function, TextFunction):
            return f"{self.function.path}:{self.function.line}"
        return place_of(self.function)

    @property
    def before(self) -> list[Any]:
        return [copy_argument(each) for each in self.args]

    @property
    def size(self) -> str:
        """The arguments as text."""
        return ", ".join(_describe(name, each) for name, each in zip(self.names, self.args, strict=False))

    def call(self) -> tuple[WatchedRun, list[Any], Any]:
        """Call the kernel, watched: the accesses, the arguments afterwards, which are then restored, and its result."""
        before = self.before
        try:
            watched, returned = call(self.function, self.args, self.launch, self.size, self.name)
        except (NoyauError, KeyboardInterrupt):
            raise
        except Exception as fault:
            raise CheckError(f"{self.name} raised {type(fault).__name__}: {fault}", FindingKind.CRASH) from fault
        finally:
            after = self.before
            for each, old in zip(self.args, before, strict=True):
                restore(each, old)
        return watched, after, returned

    def compare(self, expected: ReferenceResults, tolerance: float | None) -> tuple[Certificate, list[Finding]]:
        """The certificate of its results, and the findings."""
        graph, traced = expected.graph, expected.traced
        judge = KernelTrial(graph, lambda _: expected.results, traced, is_check=True, tolerance=tolerance)
        with np.errstate(all="ignore"):
            outcome = judge.outcome(Case("the arguments", expected.inputs), 0)
        certificate = Certificate(self.name, (outcome,))
        if not outcome.broken:
            return certificate, []
        failure = outcome.failures[0]
        parts = failure.kind, self.place, failure.inputs, str(failure), failure.cell
        return certificate, [Finding(self.name, self.name, self.language, *parts)]


def _describe(name: str, each: Any) -> str:
    array = array_behind(each)
    if array is None:
        return f"{name} = {each!r}" if isinstance(each, bool | int | float) else name
    return f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]"
