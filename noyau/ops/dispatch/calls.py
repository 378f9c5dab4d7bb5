"""Calls of an op: by a fast call of an earlier similar call, else by full dispatch.

Without a signature each kind of call gets one, derived from the reference on such arrays."""

from __future__ import annotations

import operator
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, zip_longest
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from noyau import errors
from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.frontends.numpy.trace import Trace, trace_shapes
from noyau.hosts.numpy.c_library import library
from noyau.hosts.numpy.dlpack import as_array, leading, return_like, speaks
from noyau.hosts.numpy.fast_calls import MISS, in_caller_form, write
from noyau.ir.sizes import Demand
from noyau.kernels.programs.generate import Once, constants_key, fit_layouts, specialization_of
from noyau.kernels.reference import Description, as_signed, runs_as_written
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.choice import Explanation, Selection, Selector, explain_choice, explain_unsigned
from noyau.ops.dispatch.fast_entries import Entry, Ones, entry, run
from noyau.signatures.instances import Bound, bind, kind_of
from noyau.signatures.types import Signature, Term
from noyau.text import collect

Array = np.ndarray
FastCall = TypeVar("FastCall")
Entries: TypeAlias = dict[int, tuple[Selection, Entry | None]]  # a fast call for each choice, by its id
CONSTANTS = (str, bool, type(None))  # the types of arguments that are constants without a signature
FAST_CALLS = 8  # kept for the same constants, the newest first
MOST_CONSTANTS = 512  # sets of constants with fast calls
MOST_TEXTS = 64  # arguments of an op that become constants; with further ones its reference runs


class ReferenceWarning(UserWarning):
    """An op runs as its reference, since none of its kernels may run."""


class KeptCalls(Generic[FastCall]):
    """The fast calls of earlier calls, the newest first. `plain`: without constants; `others`: by their constants."""

    def __init__(self) -> None:
        self.plain: tuple[FastCall, ...] = ()
        self.others: dict[Any, tuple[FastCall, ...]] = {}

    def fast_calls(self, constants: Mapping[str, Any]) -> tuple[FastCall, ...]:
        """The fast calls of earlier calls with these constants."""
        return self.others.get(constants_key(constants), ()) if constants else self.plain

    def keep(self, fast_call: FastCall, constants: Mapping[str, Any]) -> None:
        """Put a fast call first among those with these constants."""
        rest = tuple(each for each in self.fast_calls(constants) if each != fast_call)
        if constants:
            if len(self.others) >= MOST_CONSTANTS:  # they differ from call to call
                self.others = {}
            self.others[constants_key(constants)] = (fast_call, *rest)[:FAST_CALLS]
        else:
            self.plain = (fast_call, *rest)[:FAST_CALLS]

    def drop(self) -> None:
        """Keep none of them."""
        self.others, self.plain = {}, ()


class Calls(KeptCalls[Entry]):
    """The calls of an op with a signature. `ones`: which axes of the arguments have one cell, if the signature holds
    only for these; `tensors`: the calls on tensors of torch, once there was one."""

    tensors: Any = None

    def __init__(self, description: Description, signature: Signature, ones: Ones = None) -> None:
        super().__init__()
        self.description, self.signature, self.ones = description, signature, ones
        self.choosing, self.token = Selector(description), new_token(description.name)
        self.entries: Entries = {}
        self.unwarned = threading.Lock()  # whoever takes it warns

    def forget(self) -> None:
        """Discard all choices, so that the next call decides again: winners were recorded, or a kernel was checked."""
        self.choosing.forget()
        self.entries = {}
        self.drop()
        if self.tensors is not None:
            self.tensors.forget()

    def again(self, args: tuple[Any, ...], constants: Mapping[str, Any], out: Any) -> Any:
        """The results by the fast call of an earlier call with these constants, or MISS."""
        if not runs_as_written():
            for fast_call in self.fast_calls(constants):
                results = fast_call(args, out)
                if results is not MISS:
                    return results
        return MISS

    def whole(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results for arguments in order, of any kind; as arrays of the package of the first foreign one.
        `constants`: those of the call. SignatureError for an argument that does not fit, InputError for `out`."""
        like, names = leading(args), self.description.reference.parameters
        arguments = tuple(as_given(each, name) for each, name in zip(args, names, strict=True))
        results = self.again(arguments, constants, out)
        if results is MISS:
            results = self.anew(arguments, constants, sizes, out)
        if like is None or out is not None:
            return results
        if isinstance(results, tuple):
            return tuple(return_like(each, like) for each in results)
        return return_like(results, like)

    def explain(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int]) -> Explanation:
        """Explain what a call with these arguments would run."""
        names = self.description.reference.parameters
        arguments = [as_given(each, name) for each, name in zip(args, names, strict=True)]
        bound = bind(self.signature, arguments, sizes, self.description.name)
        chosen = self.choosing.choose(specialization_of(self.signature, bound, self.all(constants)))
        return explain_choice(self.choosing, chosen, bound.largest)

    def anew(self, arguments: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results for NumPy's arrays and numbers by full dispatch."""
        bound, known = bind(self.signature, arguments, sizes, self.description.name), self.all(constants)
        if runs_as_written():
            return self.finish(self.run_as_written(bound, known), bound, out)
        wanted, kept = specialization_of(self.signature, bound, known), self.entries
        chosen = self.choosing.choose(wanted)
        results = self.through_fast_call(chosen, kept, constants, tuple(arguments), out)
        if results is not MISS:
            return results
        choice = chosen.at(bound.largest)
        if choice.runner is None:
            results = self.finish(self.run_as_written(bound, known), bound, out)
            self.warn(chosen)
            return results
        return self.finish(run(choice, wanted, fit_layouts(bound.arrays, wanted.layouts)), bound, out)

    def all(self, constants: Mapping[str, Any]) -> Mapping[str, Any]:
        """Every constant, with defaults for those not in the call."""
        return {**self.description.reference.constants, **constants}

    def through_fast_call(
        self, chosen: Selection, kept: Entries, constants: Mapping[str, Any], arguments: tuple[Any, ...], out: Any
    ) -> Any:
        """The results by a fast call, which is kept for later calls, or MISS. `kept`: the entries at the time of the
        choice; if they were forgotten meanwhile, the fast call is not kept."""
        fast_call = self.fast_call(chosen, kept)
        results = MISS if fast_call is None else fast_call(arguments, out)
        if fast_call is None or results is MISS:
            return MISS
        if chosen.until == inf and id(chosen) in kept and kept is self.entries:
            self.keep(fast_call, constants)
            if kept is not self.entries:  # forgotten since the test above
                self.drop()
        return results

    def fast_call(self, chosen: Selection, kept: Entries) -> Entry | None:
        """The fast call of a choice, the same one for all threads; kept unless there was no room for its C library."""
        pair = kept.get(id(chosen))
        if pair is None:
            pair = chosen, entry(self.description.name, self.signature, chosen, self.ones)
            if not library.awaits_room():
                pair = kept.setdefault(id(chosen), pair)
        return pair[1]

    def run_as_written(self, bound: Bound, constants: Mapping[str, Any]) -> list[Array]:
        """The results of the reference, run as it is written."""
        results = self.description.reference.run(bound.instance, bound.arrays, constants)
        pairs = zip(results, bound.instance.outputs, strict=True)
        return [as_signed(result, value, self.description.name) for result, value in pairs]

    def finish(self, results: Sequence[Array], bound: Bound, out: Any) -> Any:
        """Results as the reference returns them: one, or a tuple; scalars as NumPy's; written to `out` if given."""
        whole = in_caller_form(results, [value.scalar for value in bound.instance.outputs])
        return whole if out is None else write(self.description.name, whole, out, bound.arrays)

    def warn(self, chosen: Selection) -> None:
        """Warn once that the reference runs, and why; unless it is the fastest."""
        if chosen.rejected and self.unwarned.acquire(blocking=False):
            kernels = collect((reason, kernel) for kernel, reason in chosen.rejected)
            warn(self.description, [f"{', '.join(names)}: {reason}" for reason, names in kernels.items()])


@dataclass(frozen=True, slots=True)
class CallWithConstants:
    """A fast call of arrays, and the constants that stand behind them; those from `least` on may be left out."""

    fast_call: Entry
    arrays: int
    constants: tuple[Any, ...]
    least: int

    def __call__(self, args: tuple[Any, ...], out: Any) -> Any:
        end, count = self.arrays, len(args)
        known = self.least <= count <= end + len(self.constants) and all(map(operator.is_, args[end:], self.constants))
        return self.fast_call(args[:end], out) if known else MISS


def warn(description: Description, reasons: Sequence[str]) -> None:
    """Say that the reference runs, and why, at the line of the call."""
    title = f"{description.name} ({description.place})"
    errors.warn(f"{title} runs as its reference: {'; '.join(reasons)}", ReferenceWarning)


def as_given(value: Any, name: str) -> Any:
    """An argument as NumPy has it; a value without a protocol of arrays is left for the signature to refuse."""
    if isinstance(value, np.ndarray | np.generic | bool | int | float) or not speaks(value):
        return value
    return as_array(value, name)


_NUMBERS = count()


def new_token(name: str) -> str:
    """A token that identifies a description of an op within this process."""
    return f"{name} {next(_NUMBERS)}"


def calls_of(description: Description) -> Calls | UnsignedCalls:
    return UnsignedCalls(description) if description.signature is None else Calls(description, description.signature)


@dataclass(frozen=True, slots=True)
class SignatureCalls:
    """The calls of a traced signature, and the demands on sizes that the trace assumes."""

    calls: Calls
    assumed: tuple[Demand, ...]

    def takes(self, arrays: Sequence[Array]) -> bool:
        """Whether arrays fit the signature, and its trace holds for them."""
        try:
            sizes = bind(self.calls.signature, arrays, {}, self.calls.description.name).sizes
        except (SignatureError, InputError):
            return False
        return all(demand.holds(sizes) for demand in self.assumed)


class UnsignedCalls(KeptCalls[Entry]):
    """The calls of an op without a signature. `kinds`: by dtypes, ranks, axes of one cell and constants."""

    tensors: Any = None

    def __init__(self, description: Description) -> None:
        super().__init__()
        self.description, self.token = description, new_token(description.name)
        self.unwarned = threading.Lock()  # whoever takes it warns
        self.kinds: dict[Any, list[SignatureCalls]] = {}
        self.texts = set[str]()
        self.once = Once()

    def forget(self) -> None:
        """Discard all choices, so that the next call decides again."""
        for each in chain.from_iterable(self.kinds.values()):
            each.calls.forget()
        self.drop()

    def again(self, args: tuple[Any, ...], constants: Mapping[str, Any], out: Any) -> Any:
        """MISS: the fast call depends on the arrays' kinds."""
        return MISS

    def whole(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results by a kernel of the arrays' signature, by a trusted one, or by the reference with a warning."""
        if not runs_as_written():
            try:
                return self.through(args, constants, sizes, out)
            except UnsupportedError as error:
                kernel = self.returning()
                if kernel is not None and kernel.function is not None:
                    return kernel.function(*args)
                self.warn(str(error))
                known = all(type(each) in (*CONSTANTS, int, float) for each in constants.values())  # immutable
                if known and out is None and all(type(each) is np.ndarray or not speaks(each) for each in args):
                    self.keep(partial(self.run_as_written, self.kinds_of(args), constants), constants)
        results = self.description.reference.function(*args, **constants)
        return results if out is None else write(self.description.name, results, out, args)

    def explain(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int]) -> Explanation:
        """Explain what a call with these arguments would run."""
        try:
            args, constants = self.split(args, constants)
            return self.of_signature(args, constants).explain(args, constants, sizes)
        except UnsupportedError as error:
            return explain_unsigned(self.description, self.returning(), str(error))

    def split(self, args: Sequence[Any], constants: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Split off the last arguments that are no arrays and are True, False, None, a text, or their parameters'
        defaults: they become constants."""
        reference, end = self.description.reference, len(args)
        names, least = reference.parameters, max(1, reference.function.__code__.co_posonlyargcount)
        while end > least and not isinstance(args[end - 1], np.ndarray | np.generic):
            if not self.is_word(args[end - 1]) and args[end - 1] is not reference.defaults.get(names[end - 1], self):
                break
            end -= 1
        return args[:end], {**constants, **dict(zip(names[end:], args[end:], strict=False))}

    def is_word(self, value: Any) -> bool:
        """Whether a value is True, False, None, or one of the few texts that an op gets."""
        if type(value) is str and len(self.texts) < MOST_TEXTS:
            self.texts.add(value)
        return value in self.texts if type(value) is str else type(value) in CONSTANTS

    def through(self, every: Sequence[Any], keywords: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """The results by a fast call of an earlier similar call, else by full dispatch."""
        args, constants = self.split(every, keywords)
        arrays = all(type(each) is np.ndarray for each in args)
        key = (tuple(map(_kind, args)), constants_key(constants)) if arrays else None
        for calls in (signed.calls for signed in self.kinds.get(key, ())):
            entries, results = calls.entries, calls.again(tuple(args), constants, out)
            if results is not MISS:
                break
        else:
            calls = self.of_signature(args, constants)
            entries, results = calls.entries, calls.whole(args, constants, sizes, out)
        is_fixed = all(isinstance(each, Hashable) for each in every[len(args) :])  # no list that may change
        if is_fixed and (fast_calls := calls.fast_calls(constants)):
            end, fast_call, defaults = len(args), fast_calls[0], self.defaults()
            least = max((at + 1 for at in range(end, len(every)) if every[at] is not defaults[at]), default=end)
            if least > end or (len(every) > end and fast_call in self.fast_calls(keywords)):  # a default was there
                fast_call = CallWithConstants(fast_call, end, tuple(every[end:]), least)
            self.keep(fast_call, keywords)
            if entries is not calls.entries:  # they were forgotten meanwhile
                self.drop()
        return results

    def of_signature(self, args: Sequence[Any], constants: Mapping[str, Any]) -> Calls:
        """The calls of the signature of these arguments. UnsupportedError where there is none."""
        arrays = self.arrays(args)
        key = (tuple(map(_kind, arrays.values())), constants_key(constants))
        return self.once.value(key, lambda: self.recall(key, arrays), lambda: self.anew(key, arrays, constants)).calls

    def anew(self, key: Any, arrays: Mapping[str, Array], constants: Mapping[str, Any]) -> SignatureCalls:
        """Trace the reference for these arrays, and record the calls of its signature; UnsupportedError if it fails."""
        reference = self.description.reference
        reference = replace(reference, parameters=tuple(arrays), constants={**reference.constants, **constants})
        shapes = {name: (dtype_of(name, array), array.shape) for name, array in arrays.items()}
        trace = trace_shapes(reference.function, shapes, reference.constants)
        signature = signature_of(trace)
        description = replace(self.description, reference=reference, signature=signature)
        calls = Calls(description, signature, tuple(map(_ones, arrays.values())))
        signed = SignatureCalls(calls, trace.graph.demands)
        self.kinds.setdefault(key, []).append(signed)
        return signed

    def recall(self, key: Any, arrays: Mapping[str, Array]) -> SignatureCalls | None:
        """The calls of an earlier signature that takes these arrays, or None."""
        values = list(arrays.values())
        return next((each for each in self.kinds.get(key, ()) if each.takes(values)), None)

    def arrays(self, args: Sequence[Any]) -> dict[str, Array]:
        """The arguments by name. UnsupportedError for one that is no array: a number has no dtype of its own."""
        result = {}
        for name, each in zip(self.description.reference.parameters, args, strict=False):
            array = as_given(each, name)
            if not isinstance(array, np.ndarray | np.generic) or isinstance(array, np.ma.MaskedArray):
                message = f"{name} is {kind_of(each)}, and without a signature it has no dtype"
                remedy = "give it a signature: @noyau.op('f32[n], f32 -> f32[n]'), or let it be a constant"
                raise UnsupportedError(f"{message}; {remedy}: a keyword-only parameter with a default")
            result[name] = np.asarray(array)
        return result

    def defaults(self) -> list[Any]:
        """The default of each parameter; the object itself for one without."""
        return [self.description.reference.defaults.get(each, self) for each in self.description.reference.parameters]

    def kinds_of(self, args: Sequence[Any]) -> list[Any]:
        """The properties of arguments that say if a kernel can be made: dtypes and shapes of arrays, texts, types of
        others, and whether they are defaults."""
        defaults = self.defaults()
        pairs = zip_longest((*args, *defaults[len(args) :]), defaults)  # one too many is another kind
        own = (((a.dtype, a.shape) if type(a) is np.ndarray else (type(a), a is b), a) for a, b in pairs)
        return [value if type(value) in CONSTANTS else facts for facts, value in own]

    def run_as_written(self, kinds: list[Any], constants: Mapping[str, Any], args: tuple[Any, ...], out: Any) -> Any:
        """The results of the reference for arguments of kinds without a signature, or MISS."""
        if out is not None or self.kinds_of(args) != kinds:
            return MISS
        return self.description.reference.function(*args, **constants)

    def returning(self) -> UserKernel | None:
        """The first trusted kernel that is a Python function, or None."""
        return next((kernel for kernel in self.description.kernels if kernel.usage.trust and kernel.function), None)

    def warn(self, reason: str) -> None:
        """Warn once that the reference runs."""
        if self.unwarned.acquire(blocking=False):
            message = "without a signature it cannot be checked: give it one, or attach it with trust=True"
            warn(self.description, [reason, *(f"{kernel.name}: {message}" for kernel in self.description.kernels)])


def signature_of(trace: Trace) -> Signature:
    """The signature of a traced function: results of rank 0 are scalars, as NumPy returns them."""
    inputs = tuple(Term(node.output, node.dtype, node.shape) for node in trace.inputs)
    return Signature(inputs, tuple(Term(node.output, node.dtype, node.shape or None) for node in trace.results))


def _kind(array: Array) -> tuple[Any, ...]:
    return array.dtype, _ones(array)


def _ones(array: Array) -> tuple[bool, ...]:
    """Find the axes of one cell."""
    return tuple(extent == 1 for extent in array.shape)


def dtype_of(name: str, array: Array) -> DType:
    """The DType of an array. UnsupportedError where noyau has none."""
    dtype = from_numpy(array.dtype)
    if dtype is None or dtype is DType.OTHER:
        raise UnsupportedError(f"{name} is of the dtype {array.dtype}, which noyau has not")
    return dtype
