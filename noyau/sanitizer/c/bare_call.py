"""A function of a text in C, C++ or CUDA C++ that is on no op, called on one's own arguments, every access watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noyau.codegen.c.tables import TYPES
from noyau.codegen.language import LANGUAGES
from noyau.dtypes import from_numpy
from noyau.errors import SignatureError
from noyau.kernels.c.functions import TextFunction
from noyau.kernels.c.prototypes import Parameter, Prototype
from noyau.sanitizer.c.build import Source, built
from noyau.sanitizer.c.calls import Call, call_line, entry_text, is_global, launch_of, with_calls
from noyau.sanitizer.c.findings import Told, findings
from noyau.sanitizer.c.kernel import launches_noted, plans_for
from noyau.sanitizer.c.rewrite import rewritten
from noyau.sanitizer.c.run import Given, Launch, run
from noyau.sanitizer.records import Watched

_RESULT = "what it returns"  # as no parameter is called


def call(function: TextFunction, args: Sequence[Any], launch: Any, size: str, called: str) -> tuple[Watched, Any]:
    """As sanitizer/routes.py has it: pointers take packed arrays of their type, the others numbers. SignatureError
    where
    they do not, or for a kernel of a grid without a launch; BuildError where the text does not compile."""
    made = _call_of(function, args, launch)
    text = with_calls(rewritten(function.text, function.language, called), [made], function.language)
    program = built(Source(text, function.language, (), function.path.resolve().parent, function.path.name))
    runs = [run(program, made.given, plan, made.launch) for plan in plans_for(function.text)]
    shapes = {each.name: each.shape for each in made.given if isinstance(each, Given)}
    told = Told(
        called, function.name, function.entry, function.language, str(function.path), function.text, shapes, size
    )
    found, allowed = findings(runs, program.lines, told)
    returned = None
    if runs[0].arrays is not None:
        for each, end in zip(_arrays_of(made.given), runs[0].arrays, strict=True):
            if each.name == _RESULT:
                returned = end
            elif each.holds is not None and each.holds.flags.writeable:
                each.holds[...] = end
    watched = Watched(found, sum(each.accesses for each in runs), allowed, launches_noted(runs))
    return watched, None if returned is None else returned[()]


def _call_of(function: TextFunction, args: Sequence[Any], launch: Any) -> Call:
    known = function.prototype()
    names = ", ".join(each.name for each in known.parameters)
    if len(args) != len(known.parameters):
        raise SignatureError(f"{function.name} takes {names or 'nothing'}; it was given {len(args)} arguments")
    is_launched = LANGUAGES[function.language].on_gpu and is_global(function.text, function.entry)
    if is_launched and launch is None:
        call = f"noyau.check({function.path.name + '::' + function.entry!r}, args, launch=(grid, block))"
        raise SignatureError(f"{function.name} needs a launch: {call}")
    if launch is not None and not is_launched:
        raise SignatureError(f"{function.name} is called, not launched: it takes no launch=")
    given: list[Given | int | float] = []
    texts = [_argument(each, value, function, given) for each, value in zip(known.parameters, args, strict=True)]
    statement = call_line(function.entry, texts, is_launched=is_launched)
    statement = _kept(statement, known, function.language, given)
    configuration = launch_of(launch, f"launch= of {function.name}") if is_launched else Launch()
    return Call(entry_text(0, statement), tuple(given), configuration, (), ())


def _argument(each: Parameter, value: Any, function: TextFunction, given: list[Given | int | float]) -> str:
    """How an argument is spelt in the call."""
    where = f"{function.name} takes {each}"
    if not each.is_pointer:
        number = _number(each, value, where)
        given.append(number)
        return f"*(const {'double' if isinstance(number, float) else 'long long'} *)a[{len(given) - 1}]"
    if not isinstance(value, np.ndarray):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no array of NumPy")
    if each.is_known and from_numpy(value.dtype) not in each.dtypes:
        raise SignatureError(f"{where}; it was given an array of {value.dtype}")
    if not value.flags.c_contiguous:
        raise SignatureError(f"{where}, which is packed; give numpy.ascontiguousarray({each.name})")
    place = _place(each.name, value, given, where)
    return f"noyau_any{{a[{place}]}}" if LANGUAGES[function.language].is_cpp else f"a[{place}]"


def _number(each: Parameter, value: Any, where: str) -> int | float:
    """What is given for a parameter that is no pointer; the bits of one without a sign as one with a sign."""
    number = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, bool | int | float):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no number")
    kinds = [dtype.numpy for dtype in each.dtypes[:1]]
    whole = next((np.iinfo(dtype) for dtype in kinds if dtype.kind in "iu"), None)
    if kinds and whole is None and kinds[0].kind != "b":
        return float(number)
    if isinstance(number, float) and (whole is None or not number.is_integer()):
        if whole is None:
            return number
        raise SignatureError(f"{where}; it was given {number}, which is no integer")
    number = int(number)
    least, most = (whole.min, whole.max) if whole else (-(1 << 63), (1 << 63) - 1)
    if not least <= number <= most:
        raise SignatureError(f"{where}; it was given {number}, which is not within {least} to {most}")
    return number - (1 << 64) if number >= 1 << 63 else number


def _place(name: str, value: np.ndarray, given: list[Given | int | float], where: str) -> int:
    """Where an array is among what is given: an array that is passed twice is one memory."""
    for place, other in enumerate(given):
        if not isinstance(other, Given) or other.holds is None or not np.may_share_memory(other.holds, value):
            continue
        if (other.holds.ctypes.data, other.bytes) != (value.ctypes.data, value.nbytes):
            told = f"which shares a part of its memory with {other.name}"
            raise SignatureError(f"{where}, {told}; give both the same array, or arrays of their own")
        return place
    given.append(Given(name, value.shape, value.dtype, value))
    return len(given) - 1


def _arrays_of(given: Sequence[Given | int | float]) -> list[Given]:
    return [each for each in given if isinstance(each, Given)]


def _kept(statement: str, known: Prototype, language: str, given: list[Given | int | float]) -> str:
    """The call with what it returns kept in an array, where that is a number."""
    if not known.result:
        return statement
    dtype = known.result[0]
    given.append(Given(_RESULT, (), dtype.numpy, np.zeros((), dtype.numpy)))
    kept = f"__builtin_memcpy(a[{len(given) - 1}], &value, sizeof value);"
    spelt = TYPES.get(dtype, "bool" if LANGUAGES[language].is_cpp else "_Bool")
    return f"{{ {spelt} value = {statement} {kept} }}"
