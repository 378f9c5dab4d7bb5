"""`noyau.check(kernel, args, launch=..., reference=f)`: a kernel that is on no op, on one's own arguments.

What a kernel that is on no op is judged by: a function of NumPy, which takes some of the kernel's arguments and
gives, or fills, others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import CheckError, FindingKind, InputError, NoyauError, SignatureError
from noyau.ir.dims import shape_of
from noyau.ir.graph import Graph
from noyau.jobs.check.sanitized_runs import Seen, explained
from noyau.kernels.c.functions import TextFunction, is_named, parameters, text_function
from noyau.kernels.programs.generate import Specialization, lazy_graph
from noyau.kernels.reference import Reference, graph_of
from noyau.kernels.user_kernel import python_function
from noyau.sanitizer.records import Watched
from noyau.sanitizer.routes import bare_language, call
from noyau.signatures.types import Instance, Value
from noyau.verify.certificate import Certificate
from noyau.verify.findings import Checked, Finding, KernelCheck
from noyau.verify.tolerances import require_tolerance, trial
from noyau.verify.values import Case, Spelt

Array = np.ndarray
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Judged:
    """A reference as a graph of the arrays that it takes, what the kernel gave for its outputs, and the inputs."""

    graph: Graph
    spelt: Spelt
    inputs: tuple[Array, ...]
    results: tuple[Array, ...]


def judged_by(
    reference: Callable[..., Any],
    names: Sequence[str],
    before: Sequence[Any],
    after: Sequence[Any],
    returned: Any,
    called: str,
) -> Judged:
    """How a reference judges a call. `before`, `after`: the arguments, arrays as NumPy's; `returned`: by the kernel.

    SignatureError where the reference takes what there is not, or gives more or fewer results, or others, than there
    are arrays to compare; InputError where it fails on the arguments."""
    taken = _taken(reference, names, called)
    given = [before[place] for place in taken]
    places = [at for at, each in enumerate(given) if isinstance(each, np.ndarray) and _dtype(each) is not None]
    inputs = [Value(names[taken[at]], _known(given[at]), shape_of(given[at].shape)) for at in places]

    def bound(*arrays: Any) -> Any:
        passed = list(given)
        for at, each in zip(places, arrays, strict=True):
            passed[at] = each
        made = reference(*passed)
        return made if made is not None else _one(tuple(passed[at] for at in places))

    bound.__name__ = getattr(reference, "__name__", "reference")
    fills, made = _tried(reference, given, called)
    chosen = _compared(names, after, taken, [taken[at] for at in places] if fills else None, made, returned, called)
    held = {value.name for value in inputs}
    ends = [(f"{name} afterwards" if name in held else name, each) for name, each in chosen]
    outputs = tuple(Value(name, _known(each), shape_of(each.shape)) for name, each in ends)
    instance = Instance(tuple(inputs), outputs, ())
    own = Reference(bound, tuple(value.name for value in inputs), {})
    graph = graph_of(own, instance, {})
    spelt: Spelt = (lambda: None) if fills else lazy_graph(own, Specialization(instance, {}))
    arrays = tuple(given[at] for at in places)
    return Judged(graph, spelt, arrays, tuple(each for _, each in chosen))


def _taken(reference: Callable[..., Any], names: Sequence[str], called: str) -> list[int]:
    """Which arguments of the kernel a reference takes: by name, else the first ones."""
    if isinstance(reference, np.ufunc):
        return list(range(min(reference.nin, len(names))))
    try:
        parameters = list(inspect.signature(reference).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return list(range(len(names)))
    known = [each for each in parameters if each.kind in _POSITIONAL]
    own = [each.name for each in known if each.default is inspect.Parameter.empty]
    if all(name in names for name in own):
        wanted = [each.name for each in known if each.name in names]
        if wanted == [each.name for each in known[: len(wanted)]]:
            return [list(names).index(name) for name in wanted]
    if len(own) > len(names):
        told = f"its reference takes {', '.join(own)}, and the kernel {', '.join(names)}"
        raise SignatureError(f"{called}: {told}")
    return list(range(len(own)))


def _tried(reference: Callable[..., Any], given: Sequence[Any], called: str) -> tuple[bool, list[Any]]:
    """Whether it fills what it takes, and its results."""
    copies = [np.array(each) if isinstance(each, np.ndarray) else each for each in given]
    try:
        with np.errstate(all="ignore"):
            made = reference(*copies)
    except Exception as fault:
        told = f"fails with {type(fault).__name__}: {fault}"
        raise InputError(f"{called}: its reference does not take these arguments: it {told}") from fault
    return made is None, list(made) if isinstance(made, tuple | list) else [made]


def _compared(
    names: Sequence[str],
    after: Sequence[Any],
    taken: Sequence[int],
    filled: Sequence[int] | None,
    made: Sequence[Any],
    returned: Any,
    called: str,
) -> list[tuple[str, Array]]:
    """The arrays that the reference speaks of, with their names: what the kernel returned; those that the reference
    fills; those that it does not take; else the last ones."""
    arrays = [at for at, each in enumerate(after) if isinstance(each, np.ndarray)]
    if filled is not None:
        return _require([(names[at], after[at]) for at in filled], called)
    if returned is not None:
        parts = list(returned) if isinstance(returned, tuple | list) else [returned]
        found = [
            (f"result {at}" if len(parts) > 1 else "the result", np.asarray(each)) for at, each in enumerate(parts)
        ]
    else:
        others = [at for at in arrays if at not in taken]
        places = others if len(others) >= len(made) else arrays[-len(made) :]
        found = [(names[at], after[at]) for at in places[: len(made)]]
    if len(found) != len(made):
        raise SignatureError(
            f"{called}: its reference gives {len(made)} results, and there are {len(found)} to compare"
        )
    for (name, array), want in zip(found, made, strict=True):
        if np.shape(want) != array.shape:
            shapes = f"{list(np.shape(want))}, and {name} is {list(array.shape)}"
            raise SignatureError(f"{called}: its reference gives a result of shape {shapes}")
    return _require(found, called)


def _require(found: list[tuple[str, Array]], called: str) -> list[tuple[str, Array]]:
    """SignatureError for a dtype that is not judged, or where there is nothing."""
    if not found:
        raise SignatureError(f"{called}: its reference returns nothing and fills nothing; let it return what is right")
    for name, array in found:
        if _dtype(array) is None:
            raise SignatureError(f"{called}: {name} is {array.dtype}, of which no values are judged")
    return found


def _one(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def _dtype(array: Array) -> DType | None:
    found = from_numpy(array.dtype)
    return None if found is DType.OTHER else found


def _known(array: Array) -> DType:
    found = _dtype(array)
    assert found is not None, array.dtype
    return found


Observer = Callable[[KernelCheck, str], None]  # of a check, and the place of its kernel

OBSERVERS: list[Observer] = []  # who is told of each check: a script that is watched


def is_bare(function: Any) -> bool:
    """Whether something is a kernel that is checked so, or `FILE.c::FUNCTION`, the name of one."""
    return is_named(function) or bare_language(function) is not None


def check_bare(
    function: Any,
    args: Sequence[Any] | None,
    *,
    launch: Any = None,
    reference: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Checked:
    """A kernel of Numba, Numba-CUDA or Triton, or a function of a text in C, C++ or CUDA C++ (`FILE.c::FUNCTION`, also
    .cpp and .cu), on these arguments, every access watched; they are left as they were.

    `launch`: (grid, block) of Numba-CUDA and CUDA C++, the grid of Triton. `reference`: a function of NumPy that says
    what the arrays should hold, or what the kernel should return: it takes parameters of the kernel by their names,
    else the first ones, and returns the others, or fills what it takes. It is evaluated in float64, and judges by the
    certificate, or by `tolerance`. SignatureError where arguments, launch or reference do not fit; UnsupportedError
    where the accesses cannot be seen; CheckError where the kernel raises."""
    require_tolerance(tolerance)
    if is_named(function):
        function = text_function(function)
    name = function.name if isinstance(function, TextFunction) else python_function(function).__name__
    if args is None or not isinstance(args, Sequence):
        raise SignatureError(f"noyau.check({name}, args) needs the arguments of a call: a tuple")
    one = _Bare(function, name, tuple(args), launch)
    watched, arrays, returned = one.called()
    seen = Seen({each.id: each for each in watched.findings}, watched.accesses, [one.size])
    seen.allowed, seen.notes = dict.fromkeys(watched.allowed), {note: note for note in watched.notes}
    wrong: list[Finding] = []
    certificate = None
    if reference is not None:
        judge = judged_by(reference, one.names, one.before, arrays, returned, name)
        certificate, wrong = one.compared(judge, tolerance)
    told = tuple(explained(wrong, seen)), (one.size,)
    found = KernelCheck(name, one.language, certificate, *told, accesses=seen.accesses, seen=seen.lines)
    for tell in OBSERVERS:
        tell(found, one.place)
    return Checked(name, one.place, (found,), tolerance)


@dataclass(slots=True)
class _Bare:
    """A kernel, and what it is called with. `before`: the arguments as they are, arrays as NumPy's, copied."""

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
            return list(parameters(self.function))
        return list(inspect.signature(python_function(self.function)).parameters)

    @property
    def place(self) -> str:
        if isinstance(self.function, TextFunction):
            return f"{self.function.path}:{self.function.line}"
        plain = python_function(self.function)
        return f"{inspect.getsourcefile(plain)}:{plain.__code__.co_firstlineno}"

    @property
    def before(self) -> list[Any]:
        return [_copied(each) for each in self.args]

    @property
    def size(self) -> str:
        """The arguments in words."""
        return ", ".join(_told(name, each) for name, each in zip(self.names, self.args, strict=False))

    def called(self) -> tuple[Watched, list[Any], Any]:
        """What was seen, what the arguments held afterwards, and what it returned; they are put back."""
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
                _put_back(each, old)
        return watched, after, returned

    def compared(self, judged: Judged, tolerance: float | None) -> tuple[Certificate, list[Finding]]:
        """The certificate of what it gave, and what is wrong with it."""
        case = Case("the arguments", judged.inputs)
        judge = trial(judged.graph, lambda _: judged.results, tolerance, judged.spelt)
        with np.errstate(all="ignore"):
            outcome = judge.outcome(case, 0)
        certificate = Certificate(self.name, (outcome,))
        if not outcome.broken:
            return certificate, []
        failure = outcome.failures[0]
        kind, told = failure.kind, str(failure)
        return certificate, [
            Finding(self.name, self.name, self.language, kind, self.place, failure.given, told, failure.cell)
        ]


def _held(each: Any) -> Array | None:
    """The array of NumPy on the memory of an argument, None for what is no array."""
    if isinstance(each, np.ndarray):
        return each
    inner = getattr(each, "_ary", None)  # of the simulator of Numba-CUDA
    if isinstance(inner, np.ndarray):
        return inner
    if type(each).__module__.partition(".")[0] == "torch" and hasattr(each, "data_ptr"):
        from noyau.hosts.torch.tensors import array_of

        return array_of(each)
    return None


def _copied(each: Any) -> Any:
    """An argument as it is now: arrays as NumPy's, copied, also those within tuples."""
    if isinstance(each, tuple):
        inner = [_copied(part) for part in each]
        return type(each)(*inner) if hasattr(each, "_fields") else tuple(inner)
    held = _held(each)
    return each if held is None else np.array(held)


def _put_back(each: Any, old: Any) -> None:
    if isinstance(each, tuple):
        for part, before in zip(each, old, strict=True):
            _put_back(part, before)
        return
    held = _held(each)
    if held is not None and held.flags.writeable:
        held[...] = old


def _told(name: str, each: Any) -> str:
    held = _held(each)
    if held is None:
        return f"{name} = {each!r}" if isinstance(each, bool | int | float) else name
    return f"{name}: {held.dtype}[{', '.join(map(str, held.shape))}]"
