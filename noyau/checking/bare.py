"""`noyau.check(kernel, args, launch=..., reference=f)`: a kernel that is on no op, on one's own arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noyau.checking.bare_references import Judged, judged_by
from noyau.checking.certificate import Certificate
from noyau.checking.findings import Checked, Finding, KernelCheck, kind_of
from noyau.checking.tolerances import require_tolerance, trial
from noyau.checking.values import Case
from noyau.checking.watched import Seen, explained
from noyau.errors import CheckError, NoyauError, SignatureError
from noyau.handwritten.kernels import python_function
from noyau.shadow.c.functions import TextFunction, is_named, parameters, text_function
from noyau.shadow.calling import bare_language, call
from noyau.shadow.records import Watched

Array = np.ndarray
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
            raise CheckError(f"{self.name} raised {type(fault).__name__}: {fault}") from fault
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
        kind, told = kind_of(failure), str(failure)
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
        from noyau.runtimes.torch.arrays import array_of

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
