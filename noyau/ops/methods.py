"""Ops that are methods: `@noyau.op` in a class. Each is an op of the inputs and of the object's arrays.

The values that the method reads from its object are compared at each call: arrays are inputs, and another number means
another op, so that no call uses an object's earlier state."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from noyau.errors import UnsupportedError
from noyau.frontends.numpy.objects import Object, Path, Reads, bound, record_reads
from noyau.ir.dims import Dim
from noyau.kernels.reference import Description, runs_as_written
from noyau.ops.dispatch.calls import as_given, dtype_of, warn
from noyau.ops.dispatch.choice import Explanation
from noyau.signatures.types import Term

_MOST = 64  # ops of a method that are kept, one for each set of numbers


def is_method(function: Any) -> bool:
    """Whether a function stands in a class, and its first parameter is `self`."""
    place = getattr(function, "__qualname__", "").rpartition(".")[0]
    first = function.__code__.co_varnames[:1] if isinstance(function, FunctionType) else ()
    return bool(place) and not place.endswith("<locals>") and first == ("self",)


class MethodOp:
    """An op that is a method of a class. `description`: of its function without `self`; `make`: makes an op of one."""

    def __init__(self, description: Description, make: Callable[[Description], Any]) -> None:
        self.description, self.make = description, make
        self.function: Any = description.reference.function
        self.ops: tuple[tuple[Reads, Any], ...] = ()  # the newest first
        self.refused: set[str] = set()
        functools.update_wrapper(self, self.function)

    def __get__(self, thing: Any, kind: type | None = None) -> Any:
        """The op of an object, as a method of it."""
        if thing is None:
            return self
        return MethodType(self.function, thing) if type(thing) is Object else BoundOp(self, thing)

    def __call__(self, thing: Any, *args: Any, **kwargs: Any) -> Any:
        """The results for an object and inputs, as of an op."""
        return BoundOp(self, thing)(*args, **kwargs)

    def op_of(self, thing: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The op for the values that the method reads, and the arrays. UnsupportedError if one may change unnoticed."""
        for reads, op in self.ops:
            if (values := reads.of(thing)) is not None:
                return op, [values[path] for path in reads.arrays]
        constants = {name: kwargs[name] for name in kwargs if name != "out"}
        reads = record_reads(self.function, thing, args, constants, _as_plain)
        values = reads.of(thing) or {}
        op = self.make(self.describe(reads, values))
        self.ops = ((reads, op), *self.ops)[:_MOST]
        return op, [values[path] for path in reads.arrays]

    def describe(self, reads: Reads, values: Mapping[Path, Any]) -> Description:
        """The op as one of a function, which takes the object's arrays after the inputs."""
        description, reference = self.description, self.description.reference
        names = dict[str, Path]()
        for path in reads.arrays:
            name = "_".join(("self", *(str(key) for key in path)))
            names[name if name.isidentifier() and name not in names else f"self_{len(names)}"] = path
        function = bound(self.function, reads, len(reference.parameters))
        reference = replace(reference, function=function, parameters=(*reference.parameters, *names))
        signature = description.signature
        if signature is not None:
            terms = [_term(name, np.asarray(_as_plain(values[path]))) for name, path in names.items()]
            signature = replace(signature, inputs=(*signature.inputs, *terms))
        return replace(description, reference=reference, signature=signature)


def _as_plain(value: Any) -> Any:
    return as_given(value.detach().cpu() if hasattr(value, "detach") else value, "self")


def _term(name: str, array: np.ndarray) -> Term:
    dims = tuple(Dim.of(1 if n == 1 else f"{name}_{k}") for k, n in enumerate(array.shape))
    return Term(name, dtype_of(name, array), dims)


class BoundOp:
    """A method op bound to an object. It is called as the method is."""

    def __init__(self, method: MethodOp, thing: Any) -> None:
        self.method, self.thing = method, thing

    def __repr__(self) -> str:
        return f"<op {self.method.function.__qualname__} of {self.thing!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results, by a kernel; else by the method as it is written, with one ReferenceWarning."""
        method = self.method
        try:
            op, arrays = method.op_of(self.thing, args, kwargs)
        except UnsupportedError as error:
            results = method.function(self.thing, *args, **kwargs)
            if str(error) not in method.refused and not runs_as_written():
                method.refused.add(str(error))
                warn(method.description, [str(error)])
            return results
        return self._with_arrays(op, args, kwargs, arrays)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explain which kernel runs, as `noyau.Op.explain`. UnsupportedError where the method runs as it is written."""
        op, arrays = self.method.op_of(self.thing, args, kwargs)
        explanation: Explanation = self._with_arrays(op.explain, args, kwargs, arrays)
        return explanation

    def _with_arrays(self, call: Any, args: Any, kwargs: Mapping[str, Any], arrays: Sequence[Any]) -> Any:
        names = self.method.description.reference.parameters
        if len(args) == len(names):
            return call(*args, *arrays, **kwargs)
        own: Any = call.__self__ if isinstance(call, MethodType) else call
        rest = own.description.reference.parameters[len(names) :]
        return call(*args, **kwargs, **dict(zip(rest, arrays, strict=True)))
