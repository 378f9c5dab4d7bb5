"""Doors of what was chosen for a key: in C where one kernel is the whole program, else in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, assert_never

import numpy as np

from noyau.dispatching.choosing import Choice, Chosen
from noyau.dispatching.generating import Wanted
from noyau.dispatching.layouts import PACKED, Layout
from noyau.dispatching.runners import Runner
from noyau.dispatching.running import Built
from noyau.dtypes import DType
from noyau.errors import InputError, UnsupportedError
from noyau.handwritten.calling import FunctionKernel, built, call_kernel
from noyau.handwritten.kernels import HandKernel
from noyau.runtimes.numpy import plain
from noyau.runtimes.numpy.doors import MISS, Argument, Door, write
from noyau.runtimes.numpy.memory import empty
from noyau.runtimes.numpy.threads import threads
from noyau.signatures.binding import TAKES
from noyau.signatures.types import Family, Signature, Term, Value

Array = np.ndarray
Run: TypeAlias = Callable[..., list[Array]]
Into: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], bool]
Entry: TypeAlias = Callable[[tuple[Any, ...], Any], Any]  # arguments, out -> results, or MISS
_ALONE = {Family.FLOAT: DType.F64, Family.INT: DType.I64}  # of a Python number that no array stands beside


def entry(called: str, signature: Signature, chosen: Chosen) -> Entry | None:
    """What takes the arguments of a call as they are, and misses where they are of another key. None where the
    reference runs."""
    doors = [(_door(called, signature, choice, chosen.wanted), most) for choice, most in chosen.choices]
    if any(door is None for door, _ in doors):
        return None
    only = doors[0][0] if chosen.only else None
    return only or partial(_by_size, [(door, most) for door, most in doors if door is not None])


def run(choice: Choice, wanted: Wanted, arrays: Sequence[Array]) -> list[Array]:
    """What a kernel gives for arrays of its key. UnsupportedError for the reference, which is none."""
    match choice.made:
        case Built():
            return choice.made(*arrays, threads=threads())
        case HandKernel():
            return call_kernel(choice.made, wanted.instance, arrays, wanted.constants)
        case None:
            raise UnsupportedError("the reference is no kernel")


def arguments_of(signature: Signature, wanted: Wanted, *, packed: bool = False) -> list[Argument]:
    """What a door takes in each place; with `packed`, arrays in C order alone."""
    return [
        _argument(signature, term, value, wanted, PACKED if packed else wanted.layout(at))
        for at, (term, value) in enumerate(zip(signature.inputs, wanted.instance.inputs, strict=True))
    ]


def _argument(signature: Signature, term: Term, value: Value, wanted: Wanted, layout: Layout) -> Argument:
    numbers = TAKES[value.dtype.kind] if _takes_numbers(signature, term, value) else ()
    return Argument(value.dtype, len(value.shape), layout, numbers=numbers, equals=wanted.integers.get(value.name))


def _takes_numbers(signature: Signature, term: Term, value: Value) -> bool:
    """Whether a Python number would be of this dtype here: it is signed, or an array settles the family, or a number
    alone would."""
    if term.dims is not None or not isinstance(term.element, Family):
        return term.dims is None
    settled = any(other.element is term.element and other.dims is not None for other in signature.inputs)
    return settled or (term.element is not Family.ANY and value.dtype is _ALONE.get(term.element))


def _door(called: str, signature: Signature, choice: Choice, wanted: Wanted) -> Entry | None:
    scalars = [value.scalar for value in wanted.instance.outputs]
    match choice.made:
        case None:
            return None
        case Built(library=path) if path is not None and choice.made.generated.program.single is not None:
            symbol = f"{choice.made.generated.program.kernels[0].name}_kernel"
            found: Entry = Door(path, symbol, arguments_of(signature, wanted), scalars, called).call
            return found
        case HandKernel(language="c"):
            made = built(choice.made, wanted.instance, wanted.constants)
            by_hand: Entry = Door(*made, arguments_of(signature, wanted, packed=True), scalars, called).call
            return by_hand
        case Built():
            ends, program = arguments_of(signature, wanted), choice.made
            return partial(_plainly, called, ends, scalars, in_memory(program), into=into(program))
        case HandKernel():
            by_python = FunctionKernel(choice.made, wanted.instance, wanted.constants)
            return partial(_plainly, called, arguments_of(signature, wanted), scalars, as_called(by_python, wanted))
        case _:
            assert_never(choice.made)


def in_memory(made: Built) -> Run:
    """A program on arrays whose axes are in the order of memory, as doors read them."""
    if made.generated.program.single is None:
        return Runner(made)
    return lambda *arrays: made.kernels[0](*arrays, threads=threads(), empty=empty)


def into(made: Built) -> Into | None:
    """What writes the results of a program of one kernel to the arrays of `out`, where that takes them as they are."""
    if made.generated.program.single is None:
        return None

    def write_into(arrays: Sequence[Array], out: Sequence[Array]) -> bool:
        if not all(isinstance(target, np.ndarray) for target in out):
            return False
        try:
            made.kernels[0](*arrays, out=out, threads=threads())
        except InputError:
            return False
        return True

    return write_into


def as_called(run: Run, wanted: Wanted) -> Run:
    """A kernel that takes arrays as the caller sees them, on such as doors read them."""
    if not any(layout.axes for layout in wanted.layouts):
        return run
    return lambda *arrays: run(*(wanted.layout(at).as_called(array) for at, array in enumerate(arrays)))


def _plainly(
    called: str,
    ends: Sequence[Argument],
    scalars: Sequence[bool],
    run: Run,
    arguments: tuple[Any, ...],
    out: Any = None,
    *,
    into: Into | None = None,
) -> Any:
    """A door in Python, to what is not one kernel in C. What it refuses, it misses: the whole way tells why."""
    if len(arguments) != len(ends):
        return MISS
    arrays = [plain.read(end, each) for end, each in zip(ends, arguments, strict=True)]
    if any(array is None for array in arrays):
        return MISS
    given = [array for array in arrays if array is not None]
    if into is not None and out is not None and into(given, out if isinstance(out, tuple) else (out,)):
        return out
    try:
        results = run(*given)
    except InputError:
        return MISS
    whole = plain.packed(results, scalars)
    return whole if out is None else write(called, whole, out, arguments)


def _by_size(doors: Sequence[tuple[Entry, float]], arguments: tuple[Any, ...], out: Any = None) -> Any:
    """The door for the size of the largest array."""
    cells = max((each.size for each in arguments if isinstance(each, np.ndarray)), default=0)
    return next(door for door, most in doors if cells <= most)(arguments, out)
