"""The candidates of a bench as the clock calls them: plain functions; of an op its reference and kernels."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError, SignatureError
from noyau.hosts.numpy.dlpack import as_array, is_foreign
from noyau.hosts.torch import as_tensors
from noyau.jobs.bench.inputs import Array, Arrays, Views
from noyau.kernels.call import FunctionKernel, caller_of
from noyau.kernels.programs.generate import Specialization, key_of, specialization_of
from noyau.kernels.reference import empty_outputs
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import REFERENCE, Choice, Selection, Selector
from noyau.ops.dispatch.fast_entries import entry
from noyau.ops.op import Op
from noyau.signatures.binding import Bound
from noyau.signatures.types import Instance
from noyau.timing.sides import Contender

Function = Callable[..., object]
BenchTarget = Op[..., Any] | Mapping[str, Function]  # what is timed: an op, or functions by name


def one_or_all(arrays: Arrays) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


@dataclass(frozen=True, slots=True)
class Entry:
    """A participant of a race. `returning`: called as users call it; `filling`: called with `out=`, where it takes
    that; `other`: called on tensors instead, where it does not take arrays; `skipped`: why it cannot run here; `fault`:
    why it cannot be built; `is_peer`: it is timed where its values are wrong, too, and not ranked; `is_judge`: its
    values are what the others are judged by; `note`: why it is tried."""

    name: str
    language: str = ""
    returning: Contender | None = None
    filling: Contender | None = None
    other: Entry | None = None
    skipped: str = ""
    fault: str = ""
    is_peer: bool = False
    is_judge: bool = False
    note: str = ""


def build_entry(name: str, language: str, make: Callable[[], Entry]) -> Entry:
    """The participant that a kernel is; without a clock where it does not take the inputs, or cannot be built."""
    try:
        return make()
    except SignatureError as error:
        return Entry(name, language, skipped=f"it does not take these inputs: {error}")
    except NoyauError as error:
        return Entry(name, language, fault=str(error))


@dataclass(frozen=True, slots=True)
class CandidateCall:
    """The way from arrays to arguments. `views`: from memory to arguments; `scalars`: which are given as numbers;
    `dtypes`: of the results, for Python's own numbers."""

    views: Views
    scalars: tuple[bool, ...]
    dtypes: tuple[np.dtype[Any], ...] = ()

    def plain(self, arrays: Arrays) -> tuple[Any, ...]:
        """The arguments as users give them."""
        arguments = self.views.arguments(arrays)
        return tuple(g[()] if s and isinstance(g, Array) else g for g, s in zip(arguments, self.scalars, strict=True))

    def gives(self, result: object) -> object:
        """Results as arrays: numbers and arrays of other packages become such; all else stays what it is."""
        parts = result if isinstance(result, tuple | list) else (result,)
        dtypes = self.dtypes if len(self.dtypes) == len(parts) else (None,) * len(parts)
        return tuple(_as_array(*each) for each in zip(parts, dtypes, strict=True))


def of_functions(functions: Mapping[str, Function], calling: CandidateCall) -> Iterator[Entry]:
    """Plain functions: on tensors where a name begins with `torch`, or it takes no arrays while torch is loaded."""
    for name, function in functions.items():
        usual, tensors = (_entry(name, function, calling, tensors=each) for each in (False, True))
        yield tensors if name.startswith("torch") else replace(usual, other=tensors if "torch" in sys.modules else None)


def _entry(name: str, function: Function, calling: CandidateCall, *, tensors: bool) -> Entry:
    def takes(arrays: Arrays) -> tuple[Any, ...]:
        return as_tensors(calling.plain(arrays)) if tensors else calling.plain(arrays)

    def takes_out(arrays: Arrays) -> Any:
        return one_or_all(as_tensors(arrays) if tensors else arrays)

    filling = Contender(name, function, True, takes, takes_out, calling.gives) if takes_an_out(function) else None
    return Entry(name, "", Contender(name, function, takes=takes, gives=calling.gives), filling)


def takes_an_out(function: Function) -> bool:
    """Whether a function has a parameter `out`, as far as it can be told."""
    if isinstance(function, np.ufunc | Op):
        return True
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _as_array(part: object, dtype: np.dtype[Any] | None) -> object:
    if type(part) in (bool, int, float):
        return np.asarray(part, dtype)
    if isinstance(part, np.generic):
        return np.asarray(part)
    return as_array(part) if is_foreign(part) else part


def of_op(op: Op[..., Any], bound: Bound, constants: Mapping[str, Any], calling: CandidateCall) -> Iterator[Entry]:
    """An op's reference as it is written, then each attached kernel, then each generated one."""
    yield _reference(op, bound.instance, constants, calling)
    request = specialization_of(op.require_signature(), bound, constants)
    for kernel in op.kernels.values():
        yield build_entry(kernel.name, kernel.language, partial(_attached_entry, op, kernel, request, bound, calling))
    choosing = Selector(op.description)
    for language in request.languages:
        name, program = f"generated {language}", choosing.program(request, key_of(request), language)
        if isinstance(program, str):
            yield Entry(name, language, skipped=program)
        else:
            yield _fast_entry(op, name, Choice(language, language, "", program), request, calling)


def _reference(op: Op[..., Any], instance: Instance, constants: Mapping[str, Any], calling: CandidateCall) -> Entry:
    reference = op.description.reference
    function, fills = reference.function, bool(reference.outputs)

    def returning(*arguments: Any) -> object:
        if not fills:
            return _own(function(*arguments, **constants), arguments)
        targets = empty_outputs(instance, [np.asarray(each) for each in arguments])
        function(*arguments, *targets, **constants)
        return targets

    def filling(*arguments: Any, out: Arrays) -> object:
        return function(*arguments, *out, **constants)

    call_once = Contender(REFERENCE, returning, takes=calling.plain, gives=calling.gives)
    into = Contender(REFERENCE, filling, True, calling.plain) if fills else None
    return Entry(REFERENCE, "", call_once, into, is_judge=True)


def _own(result: Any, arguments: Sequence[Any]) -> Any:
    """The results of a reference, views of its arguments copied: an op gives memory of its own."""
    if isinstance(result, tuple | list):
        return tuple(_own(part, arguments) for part in result)
    arrays = [each for each in arguments if isinstance(each, Array)]
    is_view = isinstance(result, Array) and any(np.may_share_memory(result, each) for each in arrays)
    return result.copy() if is_view else result


def _fast_entry(op: Op[..., Any], name: str, choice: Choice, request: Specialization, calling: CandidateCall) -> Entry:
    """A kernel as a call of the op runs it."""
    fast_call = entry(op.name, op.require_signature(), Selection(request, ((choice, math.inf),), ()))
    assert fast_call is not None

    def filling(*arguments: Any, out: Any) -> object:
        return fast_call(arguments, out)

    usual = Contender(name, lambda *arguments: fast_call(arguments, None), takes=calling.plain, gives=calling.gives)
    return Entry(name, choice.language, usual, Contender(name, filling, True, calling.plain, one_or_all))


def _attached_entry(
    op: Op[..., Any], kernel: UserKernel, request: Specialization, bound: Bound, calling: CandidateCall
) -> Entry:
    """An attached kernel: in C as a call of the op runs it, in Python as it is. BuildError, SignatureError as built."""
    if caller_of(kernel) is None:
        return Entry(kernel.name, kernel.language, skipped=f"it is in {kernel.language}, which needs a GPU")
    if LANGUAGES[kernel.language].is_native:
        return _fast_entry(op, kernel.name, Choice(kernel.name, kernel.language, "", kernel), request, calling)
    call_once = FunctionKernel(kernel, request.instance, request.constants)
    takes = calling.views.memory_as_given
    if kernel.usage.returns or kernel.usage.updates:
        return Entry(kernel.name, kernel.language, Contender(kernel.name, call_once, takes=takes))
    likes = [(shape, value.dtype.numpy) for shape, value in zip(bound.shapes, bound.instance.outputs, strict=True)]
    filling = _direct(call_once) or (lambda *inputs, out: call_once.run(inputs, out))

    def returning(*inputs: Array) -> object:
        targets = [np.empty(*like) for like in likes]
        filling(*inputs, out=targets)
        return targets

    usual = Contender(kernel.name, returning, takes=takes)
    return Entry(kernel.name, kernel.language, usual, Contender(kernel.name, filling, True, takes))


def _direct(call_once: FunctionKernel) -> Function | None:
    """The kernel's own function on inputs, then outputs, where nothing else is said of it: as quick as it is."""
    usage, function = call_once.kernel.usage, call_once.kernel.function
    scalars = any(value.scalar for value in call_once.instance.inputs)
    if function is None or usage.args is not None or usage.init or scalars or call_once.constants_by_name():
        return None
    plain = function
    return lambda *inputs, out: plain(*inputs, *out)
