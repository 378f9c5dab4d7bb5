"""Calls of an op without a signature: each kind of call gets one, from what its reference does with such arrays."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError, SignatureError, UnsupportedError
from noyau.frontends.numpy.trace import Trace, trace_shapes
from noyau.hosts.numpy.fast_calls import MISS, write
from noyau.ir.sizes import Demand
from noyau.kernels.programs.generate import Once, constants_key
from noyau.kernels.reference import Description, runs_as_written
from noyau.kernels.user_kernel import UserKernel
from noyau.ops.dispatch.calls import Calls, as_given, new_token, warn
from noyau.ops.dispatch.explanation import Explanation, explained_without_signature
from noyau.ops.dispatch.fast_entries import Entry
from noyau.signatures.binding import bind, kind_of
from noyau.signatures.types import Signature, Term

Array = np.ndarray


def calls_of(description: Description) -> Calls | UnsignedCalls:
    """The calls of an op."""
    return UnsignedCalls(description) if description.signature is None else Calls(description, description.signature)


@dataclass(frozen=True, slots=True)
class SignatureCalls:
    """The calls of a signature that was found, and what its trace takes for granted of the sizes: results may have
    other shapes and dtypes elsewhere."""

    calls: Calls
    assumed: tuple[Demand, ...]

    def takes(self, arrays: Sequence[Array]) -> bool:
        """Whether arrays fit the signature, and its trace holds for them."""
        try:
            sizes = bind(self.calls.signature, arrays, {}, self.calls.description.name).sizes
        except (SignatureError, InputError):
            return False
        return all(demand.holds(sizes) for demand in self.assumed)


class UnsignedCalls:
    """The calls of an op without a signature. `kinds`: by dtypes, ranks, axes of one cell and constants, those of each
    signature that was found."""

    plain: tuple[Entry, ...] = ()
    tensors: Any = None

    def __init__(self, description: Description) -> None:
        self.description, self.token = description, new_token(description.name)
        self.unwarned = threading.Lock()  # whoever takes it warns
        self.kinds: dict[Any, list[SignatureCalls]] = {}
        self.once = Once()

    def forget(self) -> None:
        """Decide anew at the next call."""
        for found in (each for kind in self.kinds.values() for each in kind):
            found.calls.forget()

    def again(self, args: tuple[Any, ...], constants: Mapping[str, Any], out: Any) -> Any:
        """Nothing is known before the arrays are looked at."""
        return MISS

    def whole(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """By a kernel of the signature that arrays like these have; else by a trusted kernel that returns its results,
        else by the reference, with one warning."""
        if not runs_as_written():
            try:
                return self.through(args, constants, sizes, out)
            except UnsupportedError as error:
                made = self.trusted(args)
                if made is not MISS:
                    return made
                self.warn(str(error))
        made = self.description.reference.function(*args, **constants)
        return made if out is None else write(self.description.name, made, out, args)

    def explain(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int]) -> Explanation:
        """Explain what a call with these would run."""
        try:
            return self.signed(args, constants).explain(args, constants, sizes)
        except UnsupportedError as error:
            return explained_without_signature(self.description, self.returning(), str(error))

    def through(self, args: Sequence[Any], constants: Mapping[str, Any], sizes: Mapping[str, int], out: Any) -> Any:
        """By the way of an earlier call like it, else the whole way."""
        if all(type(each) is np.ndarray for each in args):
            for found in self.kinds.get((tuple(map(_kind, args)), constants_key(constants)), ()):
                made = found.calls.again(tuple(args), constants, out)
                if made is not MISS:
                    return made
        return self.signed(args, constants).whole(args, constants, sizes, out)

    def signed(self, args: Sequence[Any], constants: Mapping[str, Any]) -> Calls:
        """The calls of the signature that these arguments have. UnsupportedError where there is none."""
        arrays = self.arrays(args)
        key = (tuple(map(_kind, arrays.values())), constants_key(constants))
        return self.once.value(key, lambda: self.known(key, arrays), lambda: self.anew(key, arrays, constants)).calls

    def anew(self, key: Any, arrays: Mapping[str, Array], constants: Mapping[str, Any]) -> SignatureCalls:
        """Those of a signature that is found now, which is known from now on. UnsupportedError where there is none."""
        found = self.found(arrays, constants)
        self.kinds.setdefault(key, []).append(found)
        return found

    def known(self, key: Any, arrays: Mapping[str, Array]) -> SignatureCalls | None:
        """Those of a signature that was found before and takes these arrays."""
        given = list(arrays.values())
        return next((found for found in self.kinds.get(key, ()) if found.takes(given)), None)

    def found(self, arrays: Mapping[str, Array], constants: Mapping[str, Any]) -> SignatureCalls:
        """Those of the signature that the reference has for these."""
        description = self.description
        known = {**description.reference.constants, **constants}
        given = {name: (_dtype(name, array), array.shape) for name, array in arrays.items()}
        trace = trace_shapes(description.reference.function, given, known)
        signature = signature_of(trace)
        return SignatureCalls(Calls(replace(description, signature=signature), signature), trace.assumed)

    def arrays(self, args: Sequence[Any]) -> dict[str, Array]:
        """The arguments by name. UnsupportedError for one that is no array: a number has no dtype of its own."""
        found = {}
        for name, each in zip(self.description.reference.parameters, args, strict=True):
            array = as_given(each, name)
            if not isinstance(array, np.ndarray | np.generic) or isinstance(array, np.ma.MaskedArray):
                message = f"{name} is {kind_of(each)}, and without a signature it has no dtype"
                raise UnsupportedError(f"{message}; sign it: @noyau.op('f32[n], f32 -> f32[n]')")
            found[name] = np.asarray(array)
        return found

    def trusted(self, args: Sequence[Any]) -> Any:
        """The results of a trusted kernel, or MISS."""
        found = self.returning()
        return MISS if found is None or found.function is None else found.function(*args)

    def returning(self) -> UserKernel | None:
        """The first kernel that is trusted and that Python calls."""
        kernels = self.description.kernels
        return next((kernel for kernel in kernels if kernel.usage.trust and kernel.function), None)

    def warn(self, reason: str) -> None:
        """Once: that the reference runs."""
        if self.unwarned.acquire(blocking=False):
            message = "without a signature it cannot be checked: give it one, or attach it with trust=True"
            warn(self.description, [reason, *(f"{kernel.name}: {message}" for kernel in self.description.kernels)], 5)


def signature_of(trace: Trace) -> Signature:
    """The signature that a traced function has: results of rank 0 are scalars, as NumPy returns them."""
    inputs = tuple(Term(node.output, node.dtype, node.shape) for node in trace.inputs)
    outputs = tuple(Term(node.output, node.dtype, node.shape or None) for node in trace.results)
    return Signature(inputs, outputs)


def _kind(array: Array) -> tuple[Any, ...]:
    return array.dtype, tuple(extent == 1 for extent in array.shape)


def _dtype(name: str, array: Array) -> DType:
    found = from_numpy(array.dtype)
    if found is None or found is DType.OTHER:
        raise UnsupportedError(f"{name} is of the dtype {array.dtype}, which noyau has not")
    return found
