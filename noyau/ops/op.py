"""Ops: a reference, a signature, and any number of kernels beside it."""

from __future__ import annotations

import functools
import hashlib
import operator
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

import numpy as np

from noyau.codegen.language import GENERATIONS, LANGUAGES, Grid
from noyau.dtypes import DType
from noyau.errors import SignatureError
from noyau.hosts.numpy.dlpack import are_tensors, as_targets, is_traced, lies_on_gpu
from noyau.hosts.numpy.fast_calls import MISS
from noyau.kernels.attach import attach_function, attach_text, read_text
from noyau.kernels.programs.generate import GeneratedProgram, generate_usual
from noyau.kernels.reference import Description, reference_of, runs_as_written
from noyau.kernels.user_kernel import EMPTY, Arguments, Init, Launch, UserKernel, language_of, parameters_of, usage_of
from noyau.ops import portable
from noyau.ops.dispatch.calls import ReferenceWarning, calls_of
from noyau.ops.dispatch.choice import Explanation, as_written
from noyau.ops.dispatch.fast_entries import Entry
from noyau.ops.foreign_arrays import is_labelled, lazy_call, on_labelled
from noyau.ops.methods import MethodOp, is_method
from noyau.ops.torch_entry import OnTensors, call_operator, tensor_calls
from noyau.signatures import instances
from noyau.signatures.types import Instance, Signature, brief, parse

if TYPE_CHECKING:
    from noyau.ops.onnx_models import OnnxOp

P = ParamSpec("P")
R = TypeVar("R")
__all__ = ["Op", "ReferenceWarning", "op"]
F = TypeVar("F", bound=Callable[..., Any])
Inputs = Callable[..., Any]


class KernelKeywords(TypedDict, total=False):
    """The keyword arguments of Op.kernel: the fields of Usage, and the kernel's name."""

    name: str
    launch: Launch
    args: Arguments
    init: Init
    constants: Mapping[str, Any]
    returns: bool
    updates: Sequence[str]
    options: Mapping[str, Any]
    trust: bool


class TextKeywords(KernelKeywords, total=False):
    """The keyword arguments for a text: also its function (`entry`), and its language if no suffix determines it."""

    entry: str
    language: str


class OnnxKeywords(TypedDict, total=False):
    """The keyword arguments of `noyau.ops.onnx_models.to_onnx`."""

    dtypes: Mapping[str, str]
    dims: Mapping[str, int]
    axes: Mapping[str, int]
    constants: Mapping[str, Any]
    opset: int
    kernel: str | None
    target: str


class Op(OnTensors, Generic[P, R]):
    """A named computation: one reference, any number of kernels. It is called as its reference is."""

    def __init__(self, description: Description) -> None:
        self.calls = calls_of(description)
        self.describing = threading.Lock()  # held while a kernel is attached, so that none is lost
        self._payload: tuple[Description | None, tuple[bytes, str]] = None, (b"", "")
        functools.update_wrapper(cast(Any, self), description.reference.function)

    @property
    def description(self) -> Description:
        """The current description. Attaching a kernel replaces it."""
        return self.calls.description

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def signature(self) -> Signature | None:
        return self.description.signature

    @property
    def reference(self) -> Callable[P, R]:
        """The function as it was written."""
        return self.description.reference.function

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes that no input binds, as passed to the op."""
        return self.description.sizes

    @property
    def inputs(self) -> Inputs | None:
        """The function that makes inputs: `(rng, n=500) -> arrays`."""
        return self.description.inputs

    @property
    def file(self) -> Path | None:
        return self.description.file

    @property
    def line(self) -> int:
        return self.description.line

    @property
    def kernels(self) -> Mapping[str, UserKernel]:
        """The attached kernels by name, in the order of attachment."""
        return MappingProxyType({kernel.name: kernel for kernel in self.description.kernels})

    @property
    def forms(self) -> tuple[Op[..., Any], ...]:
        """The ops that `noyau.check` tries: the op, or, if it has many signatures, an op for each."""
        return (self,)

    def source(self, name: str = "c") -> str:
        """The text of a kernel: of an attached one by its name, else of the generated ones in a language, for the
        default dtypes and packed arrays; printing needs nothing installed.

        SignatureError where there is no such kernel, UnsupportedError where the reference cannot be traced."""
        if name in self.kernels:
            return self.kernels[name].text
        if name not in LANGUAGES:
            names = ", ".join((*self.kernels, *GENERATIONS))
            raise SignatureError(f"{self.name} has no kernel {name!r}; there are: {names}")
        return self.generate(name).text

    def generate(
        self, language: str = "c", dtypes: Sequence[DType] = (), ranks: Sequence[int] = ()
    ) -> GeneratedProgram:
        """The generated kernels in a language, for inputs of these dtypes and ranks (by default the usual ones).

        UnsupportedError names the line that cannot be traced; SignatureError where no signature fits."""
        return generate_usual(self.description, self.usual(dtypes, ranks), language)

    @property
    def payload(self) -> tuple[bytes, str]:
        """The op as bytes, including the text of its reference and the values that this reads, and their digest.
        UnsupportedError where the reference has no text, or reads a value that cannot be pickled."""
        description = self.description
        if self._payload[0] is not description:
            content = portable.dumps(_parts(self), self.name, self.reference.__module__ or "")
            self._payload = description, (content, hashlib.sha256(content).hexdigest())
            _TRAVELLED.setdefault(self._payload[1][1], self)
        return self._payload[1]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the op as a text, from which each process makes one op and compiles it once."""
        return _from_payload, (self.payload[0],)

    def __deepcopy__(self, memo: object = None) -> Self:
        return self

    __copy__ = __deepcopy__

    def __dask_tokenize__(self) -> str:
        return self.payload[1]

    def __repr__(self) -> str:
        kernels = ", ".join(f"{kernel.name}[{kernel.language}]" for kernel in self.kernels.values())
        return f'<op {self.name} "{self.signature or ""}", kernels: {kernels or "none"}>'

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, out: Any, **kwargs: Any) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results for these inputs, by the kernel that was chosen for calls of this kind: see `explain`. With `out`
        they are written to it, an array or a tuple of them, of any package whose DLPack permits writing.

        SignatureError where an argument does not fit; the message shows what the others bind. InputError where `out`
        does not fit or an index is out of bounds. A ReferenceWarning, once, if no kernel may run.

        Tensors of torch give tensors, on the CPU or on CUDA, with gradients where they are required: see
        `noyau.ops.torch.calls`. Arrays of CuPy and Numba on a GPU give arrays of their kind, by way of torch. Columns
        of pandas and arrays of xarray give the same, and arrays of Dask lazy arrays: see `noyau.ops.foreign_arrays`."""
        if is_traced() and are_tensors((*args, *kwargs.values())):
            return call_operator(self, args, kwargs)
        if not runs_as_written():
            for fast_call in self.fast_calls(kwargs) if kwargs else self.calls.plain:
                results = fast_call(args, kwargs.get("out"))
                if results is not MISS:
                    return results
        if any(map(is_labelled, (*args, *kwargs.values()))):
            return on_labelled(self, args, kwargs)
        if are_tensors(args) or are_tensors(kwargs.values()):
            return self.on_tensors(args, kwargs)
        if any(map(lies_on_gpu, args)) or any(map(lies_on_gpu, kwargs.values())):
            return self.on_gpu_arrays(args, kwargs)
        if (call := lazy_call((*args, *kwargs.values()))) is not None:
            return call(self, args, kwargs)
        reference = self.description.reference
        out = None if "out" in reference.parameters else kwargs.pop("out", None)
        if out is not None and (targets := as_targets(out)) is not out:
            self(*args, out=targets, **kwargs)
            return out
        if len(args) == len(reference.parameters) and kwargs.keys() <= reference.constants.keys():
            results = self.calls.again(args, kwargs, out)
            if results is not MISS:
                return results
        arguments, constants = self.arguments(args, kwargs)
        return self.calls.whole(arguments, constants, self.known_sizes(constants), out)

    def fast_calls(self, kwargs: Mapping[str, Any]) -> tuple[Entry, ...]:
        """The fast calls of earlier calls with these keyword arguments: constants, or `out` as a NumPy array alone."""
        reference = self.description.reference
        if "out" not in kwargs and kwargs.keys() <= reference.constants.keys():
            return self.calls.fast_calls(kwargs)
        own = "out" not in reference.parameters
        return self.calls.plain if own and len(kwargs) == 1 and type(kwargs.get("out")) is np.ndarray else ()

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Explain which kernel runs for these inputs, why, since when, what else may run, and what was rejected.

        SignatureError as in a call."""
        arguments, constants = self.arguments(args, kwargs)
        if are_tensors(arguments):
            explanation: Explanation = tensor_calls(self.calls).explain(arguments, constants)
        else:
            explanation = self.calls.explain(arguments, constants, self.known_sizes(constants))
        return as_written(explanation) if runs_as_written() else explanation

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The inputs in order, and the constants of a call. SignatureError where their number or names do not fit."""
        reference = self.description.reference
        names, constants = reference.parameters, dict[str, Any]()
        inputs_by_name = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name in reference.constants:
                constants[name] = value
            elif name in names and name not in inputs_by_name:
                inputs_by_name[name] = value
            else:
                raise SignatureError(f"{self.name}: it has no parameter {name}; it takes {', '.join(names)}")
        every = {**reference.defaults, **inputs_by_name}
        if len(args) > len(names) or any(name not in every for name in names):
            count, inputs = len(args) + len(kwargs), "input" if len(names) == 1 else "inputs"
            message = f"{count} {'is' if count == 1 else 'are'} given"
            raise SignatureError(f"{self.name} takes {len(names)} {inputs} ({', '.join(names)}), and {message}")
        return [every[name] for name in names], constants

    def known_sizes(self, constants: Mapping[str, Any]) -> dict[str, int]:
        """The sizes that no shape binds: those of the op, and integer constants with their names."""
        names = () if self.signature is None else self.signature.sizes
        every = {**self.description.reference.constants, **constants}
        own = {name: _whole(value, f"{self.name}: {name}") for name, value in every.items() if name in names}
        return {**self.sizes, **own}

    def instance(self, dtypes: Sequence[DType], ranks: Sequence[int]) -> Instance:
        """The signature for inputs of these dtypes and ranks. SignatureError where they do not fit."""
        signature = self.require_signature()
        for called, each in (("dtypes", dtypes), ("ranks", ranks)):
            if len(each) != len(signature.inputs):
                lacks = f"{called}= has {len(each)}; give both, each with one for each input"
                raise SignatureError(f"{self.name} takes {len(signature.inputs)} inputs, and {lacks}")
        return instances.instance_of(
            signature, tuple(dtypes), tuple(ranks), tuple(sorted(self.known_sizes({}).items()))
        )

    def require_signature(self) -> Signature:
        """The signature. SignatureError where there is none."""
        if self.signature is None:
            raise SignatureError(f"{self.name} has no signature; give it one: @noyau.op('f32[n] -> f32[n]')")
        return self.signature

    def usual(self, dtypes: Sequence[DType] = (), ranks: Sequence[int] = ()) -> Instance:
        """The settled signature: as by `instance`, or with default dtypes and ranks if none are given."""
        if dtypes or ranks:
            return self.instance(dtypes, ranks)
        signature = self.require_signature()
        return instances.usual_instance(signature, {**self.known_sizes({}), **instances.integers_of(signature, {})})

    def to_onnx(self, path: str | Path | None = None, **options: Unpack[OnnxKeywords]) -> OnnxOp:
        """The op as an ONNX model, with its kernels for onnxruntime: see `noyau.ops.onnx_models.to_onnx`."""
        from noyau.ops.onnx_models import to_onnx

        return to_onnx(self, path, **options)

    def make(self, seed: int = 0, **sizes: int) -> tuple[Any, ...]:
        """Inputs for the op: from its function for this seed and these sizes, else random ones of its signature.

        A size without a number is a small prime, families are f32 and i64. SignatureError where the function's result
        does not fit the op, or a size is unknown."""
        rng = np.random.default_rng(seed)
        sizes = {name: _whole(size, f"{self.name}: {name}") for name, size in sizes.items()}
        if self.inputs is not None:
            return instances.draw_inputs(self.inputs, rng, sizes, self.description.reference.parameters, self.name)
        if self.signature is None:
            raise SignatureError(f"{self.name} has no signature to make inputs from; give it one, or inputs=")
        known = {**self.known_sizes({}), **instances.integers_of(self.signature, sizes)}
        instance = instances.usual_instance(self.signature, known)
        numbers = instances.usual_sizes(instance, sizes)
        unknown = next((name for name in sizes if name not in {**numbers, **known}), None)
        if unknown is not None:
            message = ", ".join({**numbers, **dict.fromkeys(self.signature.integers)}) or "none"
            raise SignatureError(f"{self.name} has no size {unknown}; its sizes are: {message}")
        return tuple(a[()] if not a.shape else a for a in instances.make(instance, numbers, {**known, **numbers}, rng))

    @overload
    def kernel(self, what: str | Path, **keywords: Unpack[TextKeywords]) -> UserKernel: ...
    @overload
    def kernel(self, what: F, **keywords: Unpack[KernelKeywords]) -> F: ...
    @overload
    def kernel(self, what: None = None, **keywords: Unpack[KernelKeywords]) -> Callable[[F], F]: ...
    def kernel(self, what: Any = None, **keywords: Any) -> Any:
        """Attach a hand-written kernel: `@op.kernel`, `@op.kernel(launch=...)`, `op.kernel(callable)`,
        `op.kernel("file.c", entry="name")` with a path from the op's own file, `op.kernel(text, language="c")`.

        A callable is returned unchanged, so that it stays usable and decorators stack; a text gives its UserKernel.
        SignatureError where it does not fit the op, InputError where the file cannot be read."""
        own = dict(keywords)
        entry, language, name = (own.pop(each, None) for each in ("entry", "language", "name"))
        usage, target = usage_of(own, self.name), self.description.target
        if what is None and not (entry or language):
            return lambda function: self.kernel(function, **keywords)
        if isinstance(what, str | Path):
            written = read_text(what, language, entry, self.file, self.name)
            return self.attach(attach_text(written, usage, target, name, self.kernels))
        # an autotuner of Triton is not callable itself
        if not callable(what) and LANGUAGES[language_of(what)].grid is not Grid.PROGRAMS:
            remedy = "give a function, a path, or a text with language="
            raise SignatureError(f"{self.name}: {what!r} is no kernel; {remedy}")
        if entry or language:
            raise SignatureError(f"{self.name}: entry= and language= are of texts, and {what!r} is none")
        self.attach(attach_function(what, usage, target, name, self.kernels))
        return what

    def gradient(self, function: F) -> F:
        """Supply the gradient, if none can be derived or a better one is known: `@op.gradient`. The function is
        returned unchanged. SignatureError if there is one already, or if it is no function."""
        if not callable(function):
            raise SignatureError(f"{self.name}: the gradient is a function, not {function!r}")
        if self.description.gradient is not None:
            raise SignatureError(f"{self.name} has a gradient already: {self.description.gradient.__name__}")
        with self.describing:
            self.describe(replace(self.description, gradient=function))
        return function

    def describe(self, description: Description) -> None:
        """Replace the description, also in compiled graphs of torch."""
        tensors, self.calls = self.calls.tensors, calls_of(description)
        self.calls.tensors = tensors
        if tensors is not None:
            tensors.follow(self.calls)

    def attach(self, kernel: UserKernel) -> UserKernel:
        """Add a kernel that is bound already."""
        with self.describing:
            self.describe(replace(self.description, kernels=(*self.description.kernels, kernel)))
        return kernel


_TRAVELLED: dict[str, Op[..., Any]] = {}  # ops by the digests of their payloads
_ARRIVING = threading.RLock()  # reentrant, for an op may read others


def _parts(op: Op[..., Any]) -> tuple[Any, ...]:
    """The parts of an op from which `_from_payload` makes it."""
    kernels = []
    for each in op.kernels.values():
        keywords = {field.name: getattr(each.usage, field.name) for field in fields(each.usage)} | {"name": each.name}
        text = {} if each.function else {"entry": each.entry, "language": each.language}
        kernels.append((each.function or each.text, {**keywords, **text}))
    own = op.description
    words = {"sizes": dict(op.sizes), "inputs": op.inputs, "name": op.name, "deterministic": own.is_deterministic}
    return op.reference, op.signature and str(op.signature), words, kernels, own.gradient


def _from_payload(content: bytes) -> Op[..., Any]:
    """The op of these bytes in this process, created at first use."""
    digest = hashlib.sha256(content).hexdigest()
    with _ARRIVING:
        if digest not in _TRAVELLED:
            function, signature, words, kernels, gradient = pickle.loads(content)  # noqa: S301  as any pickled function
            arrival: Op[..., Any] = op(signature, **words)(function)
            for kernel, keywords in kernels:
                arrival.kernel(kernel, **keywords)
            if gradient is not None:
                arrival.gradient(gradient)
            arrival._payload, _TRAVELLED[digest] = (arrival.description, (content, digest)), arrival
        return _TRAVELLED[digest]


@overload
def op(signature: Callable[P, R]) -> Op[P, R]: ...
@overload
def op(
    signature: str | None = None,
    *,
    sizes: Mapping[str, int] = EMPTY,
    inputs: Inputs | None = None,
    name: str | None = None,
    deterministic: bool = False,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
def op(
    signature: Any = None,
    *,
    sizes: Mapping[str, int] = EMPTY,
    inputs: Inputs | None = None,
    name: str | None = None,
    deterministic: bool = False,
) -> Any:
    """Make an op of a function written in NumPy, its reference: `@noyau.op`, or `@noyau.op("f32[n], f32 -> f32[n]")`.

    `sizes`: dims that no input binds; `inputs`: makes inputs if their values are constrained, `(rng, n=500) -> arrays`;
    `name`: by default the function's; `deterministic`: merges of its kernels give the same bits in every run, on a GPU
    too, as torch.use_deterministic_algorithms requires of all ops. SignatureError where text and function differ."""
    if signature is None or isinstance(signature, str):
        return lambda function: _op_of(function, signature, sizes, inputs, name, deterministic)
    return _op_of(signature, None, sizes, inputs, name)


def _op_of(
    function: Callable[..., Any],
    text: str | None,
    sizes: Mapping[str, int],
    inputs: Inputs | None,
    name: str | None,
    deterministic: bool = False,
) -> Op[Any, Any] | MethodOp:
    method = is_method(function)
    reference = reference_of(function, None if text is None else lambda names: parse(text, names[method:]))
    reference = replace(reference, parameters=reference.parameters[method:])
    signature = None if text is None else parse(text, reference.parameters)
    code, title = function.__code__, name or function.__name__
    file = Path(code.co_filename)
    if not isinstance(sizes, Mapping):
        raise SignatureError(f"sizes= of {title} is {sizes!r}; give each dim a number: sizes={{'bins': 10}}")
    numbers = MappingProxyType({each: _whole(size, f"{title}: sizes={each}") for each, size in sizes.items()})
    place = (file if file.exists() else None, code.co_firstlineno)
    description = Description(title, reference, signature, numbers, inputs, *place, is_deterministic=deterministic)
    if signature is not None:
        _require_bound(signature, description)
    if inputs is not None:
        _require_maker(inputs, title)
    return MethodOp(description, Op) if method else Op(description)


def _require_bound(signature: Signature, description: Description) -> None:
    """SignatureError where a dim has no number, or a size no dim."""
    unbound = instances.unbound_names(signature, {*description.sizes, *description.reference.constants})
    if unbound:
        message = f"nothing gives the size {unbound[0]}"
        remedy = f"say sizes={{{unbound[0]!r}: ...}}, or let an integer parameter be named so"
        raise SignatureError(f'{description.name}: {message} of "{brief(signature)}"; {remedy}')
    unused = next((name for name in description.sizes if name not in signature.sizes), None)
    if unused is not None:
        raise SignatureError(f'{description.name}: sizes= names {unused}, and "{brief(signature)}" has no such dim')


def _require_maker(inputs: Inputs, title: str) -> None:
    """SignatureError where `inputs=` is no function of `rng` and sizes with default values."""
    parameters = list(parameters_of(inputs, f"inputs= of {title}").values()) if callable(inputs) else []
    if not parameters or not all(type(parameter.default) is int for parameter in parameters[1:]):
        raise SignatureError(f"inputs= of {title} is a function of rng, then of sizes with usual values: rng, n=500")


def _whole(value: Any, label: str) -> int:
    try:
        size = operator.index(value)
    except TypeError:
        raise SignatureError(f"{label} is {value!r}, and a size is an integer") from None
    if isinstance(value, bool) or size < 0:
        raise SignatureError(f"{label} is {value!r}, and a size is never negative or a bool")
    return size
