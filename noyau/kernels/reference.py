"""An op's description and its reference, which is evaluated at its own dtypes, in float64, and as an opaque graph."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from noyau.dtypes import DType, from_numpy
from noyau.errors import InputError, NoyauError, SignatureError
from noyau.functions import widen_floats
from noyau.ir.graph import Graph, Input, Node, Opaque, Part
from noyau.ir.sizes import bind
from noyau.kernels.user_kernel import POSITIONAL, Target, UserKernel, parameters_of, require_name
from noyau.signatures.instances import shapes_of
from noyau.signatures.types import Instance, Signature, Value, brief
from noyau.toolchain.guard_zones import poison_of

Array = np.ndarray
_AS_WRITTEN: ContextVar[bool] = ContextVar("noyau_as_written", default=False)
_UNWARNED: ContextVar[bool] = ContextVar("noyau_unwarned", default=False)


@contextmanager
def reference() -> Iterator[None]:
    """Run every op by its reference within the block, to bisect a fault. Applies to this thread only."""
    token = _AS_WRITTEN.set(True)
    try:
        yield
    finally:
        _AS_WRITTEN.reset(token)


class _AnyPattern:
    """Pattern of a warning filter that matches every text within `without_warnings` of the current thread, and none
    outside. Warning filters are global to the process, so one filter stays installed and asks at each warning."""

    def match(self, text: str) -> bool:
        return _UNWARNED.get()


_FILTER: Any = ("ignore", _AnyPattern(), RuntimeWarning, None, 0)


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress NumPy's numerical warnings within the block: cases contain sizes of 0, infinities and NaN on purpose.
    Applies to this thread only."""
    if getattr(sys.flags, "context_aware_warnings", False):  # each thread then has its own filters
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning), np.errstate(all="ignore"):
            yield
        return
    filters: Any = warnings.filters
    if filters[:1] != [_FILTER]:  # put it before filters that were added since
        with suppress(ValueError):
            filters.remove(_FILTER)
        filters.insert(0, _FILTER)
    token = _UNWARNED.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _UNWARNED.reset(token)


def empty_outputs(instance: Instance, arrays: Sequence[Array]) -> list[Array]:
    """Uninitialised memory for the outputs of a call on these inputs."""
    shapes = shapes_of(instance.outputs, bind_sizes(instance, arrays))
    return [np.empty(shape, value.dtype.numpy) for shape, value in zip(shapes, instance.outputs, strict=True)]


def runs_as_written() -> bool:
    """Whether a `with noyau.reference()` is active in this thread."""
    return _AS_WRITTEN.get()


@dataclass(frozen=True, slots=True)
class Reference:
    """A function written in NumPy. `parameters`: its inputs; `constants`: its keyword-only parameters and their
    defaults; `outputs`: parameters that it fills, empty if it returns its results; `defaults`: of optional inputs."""

    function: Callable[..., Any]
    parameters: tuple[str, ...]
    constants: Mapping[str, Any]
    outputs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def run(self, instance: Instance, arrays: Sequence[Array], constants: Mapping[str, Any]) -> list[Array]:
        """Evaluate it on copies of the inputs; returns an array for each output.

        SignatureError where the results do not match the signature; a float of any width matches any other."""
        copies = [np.array(array) for array in arrays]
        arguments = [array[()] if value.scalar else array for array, value in zip(copies, instance.inputs, strict=True)]
        shapes = shapes_of(instance.outputs, bind_sizes(instance, arrays))
        wide = _are_wide(instance, arguments)
        pairs = list(zip(instance.outputs, shapes, strict=True)) if self.outputs else []
        outputs = [_poison(value, shape, wide) for value, shape in pairs]
        before = [array.tobytes() for array in outputs]
        with widen_floats(wide):
            returned = self.function(*arguments, *outputs, **constants)
        for (value, _), array, bits in zip(pairs, outputs, before, strict=True):
            if array.size and array.tobytes() == bits:
                message = "returns None and " if returned is None else ""
                raise SignatureError(f"the reference {self.name} {message}fills nothing of {value.name}")
        if self.outputs:
            return outputs
        parts = list(returned) if isinstance(returned, tuple | list) and len(instance.outputs) > 1 else [returned]
        if len(parts) != len(instance.outputs):
            count = "one result" if len(parts) == 1 else f"{len(parts)} results"
            raise SignatureError(f"the reference {self.name} returns {count}, and {len(instance.outputs)} are declared")
        return [_result(*each, self.name) for each in zip(parts, instance.outputs, shapes, strict=True)]

    @property
    def name(self) -> str:
        return self.function.__name__


def reference_of(function: Callable[..., Any], signature: Callable[[Sequence[str]], Signature] | None) -> Reference:
    """Make a Reference of a function; `signature` maps names of inputs to the op's signature.

    Trailing parameters with the names of the results are outputs that it fills. SignatureError if it is no plain
    function, or has parameters that cannot be inputs."""
    if not isinstance(function, FunctionType):
        raise SignatureError(f"the reference of an op is a function, def or lambda, not {function!r}")
    positional, constants, defaults = [], {}, {}
    for name, parameter in parameters_of(function, f"the reference {function.__name__}").items():
        if parameter.kind in POSITIONAL:
            positional.append(name)
            if parameter.default is not inspect.Parameter.empty:
                defaults[name] = parameter.default
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.default is inspect.Parameter.empty:
                message = f"the keyword-only parameter {name} is a constant and needs a default"
                raise SignatureError(f"the reference {function.__name__} cannot be an op: {message}")
            constants[name] = parameter.default
        else:
            message = f"{parameter} takes what no signature can name"
            raise SignatureError(f"the reference {function.__name__} cannot be an op: {message}")
    if signature is None:
        return Reference(function, tuple(positional), constants, (), defaults)
    outputs = _filled_names(positional, signature)
    return Reference(function, tuple(positional[: len(positional) - len(outputs)]), constants, outputs, defaults)


def _filled_names(positional: Sequence[str], signature: Callable[[Sequence[str]], Signature]) -> tuple[str, ...]:
    """The last parameters, if they have the names of the results and the others alone fit the signature; else none."""
    for count in range(1, len(positional) + 1):
        try:
            attempt = signature(positional[:-count])
        except SignatureError:
            continue
        outputs = tuple(term.name for term in attempt.outputs)
        if tuple(positional[-count:]) == outputs:
            return outputs
    return ()


def bind_sizes(instance: Instance, arrays: Sequence[Array]) -> dict[str, int]:
    """The sizes of an instance, bound by its inputs. InputError where the shapes do not fit."""
    names = [value.name for value in instance.inputs]
    return bind([value.shape for value in instance.inputs], [np.shape(array) for array in arrays], names)


def graph_of(written: Reference, instance: Instance, constants: Mapping[str, Any]) -> Graph:
    """The reference as a graph of one Opaque node, evaluated at the dtypes of its inputs. Ops that the reference calls
    run by their references too, so no kernel is part of the truth.

    Its evaluation raises InputError for inputs on which the reference fails, or that leave a result without a shape."""

    def evaluate(*arrays: Array) -> tuple[Array, ...]:
        try:
            shapes_of(instance.outputs, bind_sizes(instance, arrays))
        except SignatureError as fault:
            raise InputError(str(fault)) from fault
        try:
            with without_warnings(), reference():
                return tuple(written.run(instance, arrays, constants))
        except NoyauError:
            raise
        except Exception as fault:
            raise InputError(f"the reference {written.name} fails with {type(fault).__name__}: {fault}") from fault

    inputs = [Node(value.name, Input(), (), value.dtype, value.shape) for value in instance.inputs]
    return opaque_graph(inputs, instance.outputs, written.name, evaluate)


def opaque_graph(
    inputs: Sequence[Node], outputs: Sequence[Value], name: str, evaluate: Callable[..., tuple[Array, ...]]
) -> Graph:
    """A graph of one Opaque node that a function evaluates, and with several outputs a Part node for each."""
    names = tuple(node.output for node in inputs)
    kind, (first, *others) = Opaque(name, evaluate), outputs
    if not others:
        return Graph((*inputs, Node(first.name, kind, names, first.dtype, first.shape)), (first.name,))
    whole = f"{name}: all results"
    parts = [Node(v.name, Part(k), (whole,), v.dtype, v.shape) for k, v in enumerate(outputs)]
    return Graph((*inputs, Node(whole, kind, names, DType.OTHER, ()), *parts), tuple(v.name for v in outputs))


def as_signed(result: Array, value: Value, name: str) -> Array:
    """The result of a run of the reference. SignatureError where its dtype is not the declared one."""
    if result.dtype != value.dtype.numpy:
        dtype = from_numpy(result.dtype)
        actual = dtype.value if dtype else str(result.dtype)
        message = f"gives {value.name} as {actual}, and it is declared {value.dtype.value}"
        raise SignatureError(f"the reference {name} {message}; cast it there, or declare it so")
    return result


def _result(returned: Any, value: Value, shape: tuple[int, ...], name: str) -> Array:
    """A result as an array. SignatureError where its dtype (floats of any width are alike) or shape is another one."""
    array = np.asarray(returned)
    dtype = None if returned is None else from_numpy(array.dtype)
    if dtype is None or dtype is DType.OTHER:
        message = "None" if returned is None else f"a {type(returned).__name__} ({array.dtype})"
        raise SignatureError(f"the reference {name} returns {message} as {value.name}, declared as {brief(value)}")
    alike = dtype.is_float and value.dtype.is_float
    if array.shape != shape or not (alike or dtype is value.dtype):
        actual = f"{dtype.value}{list(array.shape)}"
        expected = f"{brief(value)}, here {value.dtype.value}{list(shape)}; declare it {actual} if it always is that"
        raise SignatureError(f"the reference {name} returns {actual} as {value.name}, declared as {expected}")
    return array


def _are_wide(instance: Instance, arguments: Sequence[Any]) -> bool:
    """Whether a float input has another dtype than declared, as in a run in float64."""
    pairs = zip(instance.inputs, arguments, strict=True)
    return any(value.dtype.is_float and np.asarray(array).dtype != value.dtype.numpy for value, array in pairs)


def _poison(value: Value, shape: tuple[int, ...], wide: bool) -> Array:
    dtype = DType.F64 if wide and value.dtype.is_float else value.dtype
    memory = np.empty(shape, dtype.numpy)
    if memory.size:
        memory.reshape(-1).view(np.uint8).reshape(-1, dtype.bytes)[:] = np.frombuffer(poison_of(dtype, 0), np.uint8)
    return memory


@dataclass(frozen=True, slots=True)
class Description:
    """The description of an op. `sizes`: dims that no input binds; `inputs`: a function that makes inputs; `file` and
    `line`: of its reference; `is_deterministic`: its kernels give the same bits in every run, on a GPU too."""

    name: str
    reference: Reference
    signature: Signature | None
    sizes: Mapping[str, int]
    inputs: Callable[..., Any] | None
    file: Path | None
    line: int
    kernels: tuple[UserKernel, ...] = field(default=())
    gradient: Callable[..., Any] | None = None
    is_deterministic: bool = False

    def __post_init__(self) -> None:
        """Check the name; SignatureError for an invalid one."""
        require_name(self.name, f"the op of {self.reference.name}")

    @property
    def target(self) -> Target:
        """The target that kernels are attached to."""
        return Target(self.name, self.signature, self.reference.constants, self.inputs)

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else f"line {self.line}"
