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
from noyau.sanitizer.c.build import Source, build_program
from noyau.sanitizer.c.calls import EntryCall, call_line, entry_text, is_global, launch_of, with_calls
from noyau.sanitizer.c.findings import ReportContext, findings_of_runs
from noyau.sanitizer.c.kernel import concurrency_notes, plans_for
from noyau.sanitizer.c.rewrite import rewrite
from noyau.sanitizer.c.run import ArrayArgument, LaunchConfig, run
from noyau.sanitizer.records import WatchedRun

_RESULT = "what it returns"  # as no parameter is called


def call(function: TextFunction, args: Sequence[Any], launch: Any, size: str, name: str) -> tuple[WatchedRun, Any]:
    """Call it as sanitizer/routes.py has it: pointers take packed arrays of their type, other parameters numbers.

    SignatureError where they do not, or for a kernel of a grid without a launch; BuildError where the text does not
    compile."""
    entry_call = _call_of(function, args, launch)
    text = with_calls(rewrite(function.text, function.language, name), [entry_call], function.language)
    program = build_program(Source(text, function.language, (), function.path.resolve().parent, function.path.name))
    runs = [run(program, entry_call.arguments, plan, entry_call.launch) for plan in plans_for(function.text)]
    shapes = {each.name: each.shape for each in entry_call.arguments if isinstance(each, ArrayArgument)}
    context = ReportContext(
        name, function.name, function.entry, function.language, str(function.path), function.text, shapes, size
    )
    findings, allowed = findings_of_runs(runs, program.lines, context)
    returned = None
    if runs[0].arrays is not None:
        for each, end in zip(_arrays_of(entry_call.arguments), runs[0].arrays, strict=True):
            if each.name == _RESULT:
                returned = end
            elif each.contents is not None and each.contents.flags.writeable:
                each.contents[...] = end
    watched = WatchedRun(findings, sum(each.accesses for each in runs), allowed, concurrency_notes(runs))
    return watched, None if returned is None else returned[()]


def _call_of(function: TextFunction, args: Sequence[Any], launch: Any) -> EntryCall:
    signature = function.prototype()
    names = ", ".join(each.name for each in signature.parameters)
    if len(args) != len(signature.parameters):
        raise SignatureError(f"{function.name} takes {names or 'nothing'}; it was given {len(args)} arguments")
    is_launched = LANGUAGES[function.language].on_gpu and is_global(function.text, function.entry)
    if is_launched and launch is None:
        call = f"noyau.check({function.path.name + '::' + function.entry!r}, args, launch=(grid, block))"
        raise SignatureError(f"{function.name} needs a launch: {call}")
    if launch is not None and not is_launched:
        raise SignatureError(f"{function.name} is called, not launched: it takes no launch=")
    arguments: list[ArrayArgument | int | float] = []
    texts = [
        _argument(each, value, function, arguments) for each, value in zip(signature.parameters, args, strict=True)
    ]
    statement = call_line(function.entry, texts, is_launched=is_launched)
    statement = _with_result(statement, signature, function.language, arguments)
    configuration = launch_of(launch, f"launch= of {function.name}") if is_launched else LaunchConfig()
    return EntryCall(entry_text(0, statement), tuple(arguments), configuration, (), ())


def _argument(each: Parameter, value: Any, function: TextFunction, arguments: list[ArrayArgument | int | float]) -> str:
    """The text of an argument in the call."""
    where = f"{function.name} takes {each}"
    if not each.is_pointer:
        number = _number(each, value, where)
        arguments.append(number)
        return f"*(const {'double' if isinstance(number, float) else 'long long'} *)a[{len(arguments) - 1}]"
    if not isinstance(value, np.ndarray):
        raise SignatureError(f"{where}; it was given {type(value).__name__}, which is no array of NumPy")
    if each.is_known and from_numpy(value.dtype) not in each.dtypes:
        raise SignatureError(f"{where}; it was given an array of {value.dtype}")
    if not value.flags.c_contiguous:
        raise SignatureError(f"{where}, which is packed; give numpy.ascontiguousarray({each.name})")
    place = _place(each.name, value, arguments, where)
    return f"noyau_any{{a[{place}]}}" if LANGUAGES[function.language].is_cpp else f"a[{place}]"


def _number(each: Parameter, value: Any, where: str) -> int | float:
    """The number for a parameter that is no pointer; an unsigned one as the signed one of its bits."""
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


def _place(name: str, value: np.ndarray, arguments: list[ArrayArgument | int | float], where: str) -> int:
    """The position of an array among the arguments: an array that is passed twice is one memory."""
    for place, other in enumerate(arguments):
        if (
            not isinstance(other, ArrayArgument)
            or other.contents is None
            or not np.may_share_memory(other.contents, value)
        ):
            continue
        if (other.contents.ctypes.data, other.bytes) != (value.ctypes.data, value.nbytes):
            overlap = f"which shares a part of its memory with {other.name}"
            raise SignatureError(f"{where}, {overlap}; give both the same array, or arrays of their own")
        return place
    arguments.append(ArrayArgument(name, value.shape, value.dtype, value))
    return len(arguments) - 1


def _arrays_of(arguments: Sequence[ArrayArgument | int | float]) -> list[ArrayArgument]:
    return [each for each in arguments if isinstance(each, ArrayArgument)]


def _with_result(
    statement: str, signature: Prototype, language: str, arguments: list[ArrayArgument | int | float]
) -> str:
    """The call with what it returns kept in an array, where that is a number."""
    if not signature.result:
        return statement
    dtype = signature.result[0]
    arguments.append(ArrayArgument(_RESULT, (), dtype.numpy, np.zeros((), dtype.numpy)))
    copy = f"__builtin_memcpy(a[{len(arguments) - 1}], &value, sizeof value);"
    kind = TYPES.get(dtype, "bool" if LANGUAGES[language].is_cpp else "_Bool")
    return f"{{ {kind} value = {statement} {copy} }}"
