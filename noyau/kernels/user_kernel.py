"""A user kernel as data, validated against the op that it is attached to; the arguments of its author's functions.

Functions of a user say by the names of their parameters what they want to know: of arrays for `launch=`, `args=` and
`init=` a view, the same for every runtime, also without a GPU."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from noyau.codegen.language import LANGUAGES, Language
from noyau.errors import DeviceError, SignatureError, UnsupportedError
from noyau.kernels.c.syntax import Prototype
from noyau.signatures.types import Signature, Term

Number: TypeAlias = bool | int | float
Launch: TypeAlias = Callable[..., Any] | tuple[Any, ...] | str
Arguments: TypeAlias = Callable[..., tuple[Any, ...]]
Init: TypeAlias = Mapping[str, Number | str] | Callable[..., Mapping[str, Number | str]]
EMPTY: Mapping[str, Any] = MappingProxyType({})

# What an author says of a kernel, in words, and whether a value is such a thing.
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "args": ("a function that gives a tuple of all arguments", lambda value: value is None or callable(value)),
    "init": ("{'out': 0}, or a function that does", lambda value: callable(value) or isinstance(value, Mapping)),
    "constants": ("{'BLOCK': 128}, or lists of values", lambda value: isinstance(value, Mapping)),
    "options": ("a dict, such as {'num_warps': 8}", lambda value: isinstance(value, Mapping)),
    "returns": ("True or False", lambda value: value is None or isinstance(value, bool)),
    "trust": ("True or False", lambda value: isinstance(value, bool)),
    "updates": ("names of inputs: ('p', 'm')", lambda value: all(isinstance(name, str) for name in value)),
}

# Where a decorator keeps the function that it was given: njit and jit, Triton's, vectorize, guvectorize, stencil.
_WITHIN = ("py_func", "fn", "_dispatcher.py_func", "gufunc_builder.py_func", "kernel_ir.func_id.func")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage that the author states beside a kernel's text.

    `launch`: the grid and the block, as a tuple or a function; of a function in C that takes `begin` and `end`, how far
    they go, as the name of a size or a function (None: over the first dim of the first output); `args`: a function that
    gives the arguments; `init`: what an output holds before, a number or the name of an input to copy; `constants`: a
    value for each name, or a list of values to choose from; `returns`: it returns its outputs (None: found from its
    parameters); `updates`: inputs that it writes its results over, in the order of the outputs; `options`: of its
    language; `trust`: it runs without a check."""

    launch: Launch | None = None
    args: Arguments | None = None
    init: Init = field(default_factory=lambda: EMPTY)
    constants: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    returns: bool | None = None
    updates: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    trust: bool = False


def usage_of(keywords: Mapping[str, Any], label: str) -> Usage:
    """The usage of a kernel's author. SignatureError for one that there is not."""
    unknown = next((name for name in keywords if name not in Usage.__dataclass_fields__), None)
    if unknown is not None:
        choices = ("name", "language", "entry", *Usage.__dataclass_fields__)
        raise SignatureError(f"{label}: a kernel has no {unknown}=; there are {', '.join(choices)}")
    updates = keywords.get("updates", ())
    names = updates if isinstance(updates, list | tuple) else (updates,)
    return Usage(**{**keywords, "updates": tuple(names)})


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a kernel: the op's name, its signature if it has one, its constants, and what makes its inputs."""

    op: str
    signature: Signature | None
    constants: Mapping[str, Any]
    input_maker: Callable[..., Any] | None = None

    @property
    def inputs(self) -> tuple[Term, ...]:
        return self.signature.inputs if self.signature else ()

    @property
    def outputs(self) -> tuple[Term, ...]:
        return self.signature.outputs if self.signature else ()

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(self.signature.sizes) if self.signature else ()

    @property
    def names(self) -> tuple[str, ...]:
        """Inputs, outputs, sizes, constants."""
        ends = (term.name for term in (*self.inputs, *self.outputs))
        return tuple(dict.fromkeys((*ends, *self.sizes, *self.constants)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UserKernel:
    """One hand-written kernel. `text` is its source, `entry` its function there, `function` what is called where it is
    Python; `place`: the file and the line, as far as they are known. `prototype`: of a text in C. `taken`: the names of
    the function's parameters, None if unknown; `required`: constants without a default; `line`: the first."""

    name: str
    language: str
    text: str
    entry: str
    place: str
    target: Target
    usage: Usage
    function: Callable[..., Any] | None = None
    prototype: Prototype | None = None
    taken: frozenset[str] | None = None
    required: tuple[str, ...] = ()
    line: int = 1

    def __repr__(self) -> str:
        return f"<kernel {self.title} in {self.language}, {self.place}>"

    @property
    def title(self) -> str:
        """Its name in messages: `softmax[softmax_by_rows]`."""
        return f"{self.target.op}[{self.name}]"

    @property
    def padded(self) -> str:
        """The text, on the lines that it has in its file."""
        return "\n" * (self.line - 1) + self.text

    def takes(self, name: str) -> bool:
        """Whether one of its parameters bears a name, as far as is known."""
        if self.prototype is not None:
            return any(parameter.name == name for parameter in self.prototype.parameters)
        return self.taken is None or name in self.taken

    @property
    def asks_strides(self) -> bool:
        """Whether what its author says of it asks for strides: else it takes packed arrays."""
        functions = [each for each in (self.usage.args, self.usage.launch) if inspect.isfunction(each)]
        return any({"stride", "strides"} & set(function.__code__.co_names) for function in functions)

    def numbers(self, constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The op's constants, as a call has them or by default, and the kernel's own, of a list the first."""
        own = {name: value[0] if isinstance(value, list) else value for name, value in self.usage.constants.items()}
        return {**self.target.constants, **(constants or {}), **own}


def require_name(name: object, label: str) -> None:
    """SignatureError for what is no name: it stands in messages, in comments of texts and on a line of a record."""
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise SignatureError(f"{label} is named {name!r}; a name is a text of letters that print, on one line")


def choose_constants(kernel: UserKernel, constants: Sequence[tuple[str, Any]]) -> UserKernel:
    """The kernel with these of its constants chosen."""
    chosen = {**kernel.usage.constants, **dict(constants)}
    return replace(kernel, usage=replace(kernel.usage, constants=chosen)) if constants else kernel


def validate(usage: Usage, target: Target, label: str, extra: Iterable[str] = ()) -> None:
    """SignatureError where what an author says names what the op does not have; `extra` are further names."""
    for what, (wanted, is_such) in _KINDS.items():
        if not is_such(value := getattr(usage, what)):
            raise SignatureError(f"{what}= of {label} is {value!r}; give {wanted}")
    offered = tuple(dict.fromkeys((*target.names, *usage.constants, *extra, "device")))
    for what in ("launch", "args", "init"):
        if callable(function := getattr(usage, what)):
            requested_names(function, offered, f"{what}= of {label}")
    _check_constants(usage, target, label)
    if isinstance(usage.init, Mapping):
        check_init(usage.init, target, label)
    _check_updates(usage, target, label)
    launch = usage.launch
    if not (launch is None or callable(launch) or isinstance(launch, tuple) or launch in target.sizes):
        message = f"for begin and end in C a size ({_list(target.sizes)}) or a function"
        remedy = f"give (grid, block), or a function that does; {message}"
        raise SignatureError(f"launch= of {label} is {usage.launch!r}; {remedy}")


def check_init(init: Mapping[str, Any], target: Target, label: str) -> None:
    """SignatureError where `init` names no output, or gives it what it cannot hold."""
    outputs = {term.name: term for term in target.outputs}
    inputs = {term.name: term for term in target.inputs}
    for name, value in init.items():
        if name not in outputs:
            raise SignatureError(f"init= of {label} names {name!r}; the outputs are {_list(outputs)}")
        if isinstance(value, str):
            if value not in inputs:
                raise SignatureError(f"init= of {label} copies {value!r} to {name}; the inputs are {_list(inputs)}")
            _require_alike(inputs[value], outputs[name], f"init= of {label}")
        elif not isinstance(value, Number | np.number):
            raise SignatureError(f"init= of {label} gives {name} {value!r}; give a number, or the name of an input")


def _check_constants(usage: Usage, target: Target, label: str) -> None:
    for name, value in usage.constants.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise SignatureError(f"constants= of {label} names {name!r}, which is no identifier")
        if name in target.names and name not in target.constants:
            raise SignatureError(f"constants= of {label} names {name}, which is an input, an output or a size")
        values = value if isinstance(value, list) else [value]
        if not values:
            raise SignatureError(f"constants= of {label} has an empty list for {name}; give at least one value")


def _check_updates(usage: Usage, target: Target, label: str) -> None:
    if not usage.updates:
        return
    inputs = {term.name: term for term in target.inputs}
    unknown = next((name for name in usage.updates if name not in inputs), None)
    if unknown is not None:
        raise SignatureError(f"updates= of {label} names {unknown!r}; the inputs are {_list(inputs)}")
    if len(usage.updates) != len(target.outputs):
        count = f"{len(usage.updates)} inputs for {len(target.outputs)} outputs"
        raise SignatureError(f"updates= of {label} names {count}; each output is written over one input")
    for name, output in zip(usage.updates, target.outputs, strict=True):
        _require_alike(inputs[name], output, f"updates= of {label}")
    if usage.init:
        raise SignatureError(f"{label} has updates= and init=; what it updates holds the input already")


def _require_alike(source: Term, output: Term, label: str) -> None:
    if (source.element, source.dims or ()) != (output.element, output.dims or ()):
        raise SignatureError(f"{label}: {source.name} is {source}, and {output.name} is {output}; they must be alike")


def language_of(function: Callable[..., Any]) -> str:
    """The language of a callable, told by the package that its type comes from; nothing is imported for it."""
    kind = type(function)
    origin = f"{kind.__module__}.{kind.__qualname__}"
    made_by = (each.name for each in LANGUAGES.values() if each.decorators and re.match(each.decorators, origin))
    return next(made_by, "python")


def python_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function in what a decorator of numba or triton made, else the callable itself."""
    for name in _WITHIN:
        inner: Any = function
        for part in name.split("."):
            inner = getattr(inner, part, None)
        if callable(inner) or hasattr(inner, "fn"):  # a tuner around heuristics is called by its grid alone
            return python_function(inner)
    return function


def language_named(language: str, label: str) -> Language:
    """The language of a name. UnsupportedError where there is none of it."""
    if language not in LANGUAGES:
        raise UnsupportedError(f"{label}: there is no language {language!r}; there are {', '.join(LANGUAGES)}")
    return LANGUAGES[language]


def number_text(value: Number) -> str:
    """A number as C has it, at its full width."""
    if isinstance(value, bool | int):
        return str(int(value))
    if math.isnan(value):
        return "(0.0 / 0.0)"
    return repr(float(value)) if math.isfinite(value) else f"({'-' if value < 0 else ''}1.0 / 0.0)"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def requested_names(function: Callable[..., Any], offered: Iterable[str], label: str) -> tuple[str, ...]:
    """The names that a function asks for. SignatureError for one that is not offered and has no default."""
    choices, requested = list(offered), []
    for name, parameter in parameters_of(function, label).items():
        if parameter.kind not in _NAMED:
            raise SignatureError(f"{label} takes {parameter}; it gets what it asks for by the name of each parameter")
        if name in choices:
            requested.append(name)
        elif parameter.default is inspect.Parameter.empty:
            raise SignatureError(f"{label} asks for {name}; there are {', '.join(choices)}")
    return tuple(requested)


def ask(function: Callable[..., Any], offered: Mapping[str, Any], label: str) -> Any:
    """Call a function with what it asks for by name."""
    return function(**{name: offered[name] for name in requested_names(function, offered, label)})


def initial_values(kernel: UserKernel, offers: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The initial values of outputs, by name. SignatureError where a function of `init=` gives anything else."""
    init = kernel.usage.init
    if not callable(init):
        return init
    values: Mapping[str, Any] = ask(init, offers(), f"init= of {kernel.title}")
    check_init(values, kernel.target, kernel.title)
    return values


def arguments_by_author(kernel: UserKernel, offers: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments that `args=` of a kernel gives. SignatureError where that is no tuple."""
    assert kernel.usage.args is not None
    where = f"args= of {kernel.title}"
    arguments = ask(kernel.usage.args, offers, where)
    if not isinstance(arguments, tuple):
        raise SignatureError(f"{where} gives a {type(arguments).__name__}; it gives a tuple of all arguments")
    return arguments


def parameters_of(function: Callable[..., Any], label: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. SignatureError where Python cannot tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        message = f"{label} is {function!r}, of which the parameters cannot be told"
        raise SignatureError(f"{message}; wrap it in a def") from None


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The device that a kernel runs on: `cpu`, or `cuda:0`; `sm_count` multiprocessors, which are the cores of a CPU.
    Of a GPU also its `model`, and the bytes of its L2, of the memory that a block may share, and of its own memory."""

    name: str
    sm_count: int
    model: str = ""
    l2_bytes: int = 0
    shared_bytes: int = 0
    memory_bytes: int = 0
    capability: tuple[int, int] = (0, 0)
    warp_size: int = 32
    max_threads: int = 1024

    def __str__(self) -> str:
        return self.name


CPU = DeviceProperties("cpu", os.cpu_count() or 1)

# What `device` is to a kernel for a GPU where there is none: by NVIDIA's data sheet of the H100 (SXM5).
GPU = DeviceProperties("cuda:0", 132, "NVIDIA H100 (assumed: no GPU is here)", 50 << 20, 227 << 10, 80 << 30, (9, 0))


@dataclass(frozen=True, slots=True)
class Buffer:
    """An input or an output as `launch=`, `args=` and `init=` get it: what is known of the array, not its cells.

    `strides` are in elements. In `args=` a Buffer stands for the array itself."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    device: DeviceProperties = CPU

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements, as torch calls it."""
        return self.size

    def stride(self, axis: int) -> int:
        """Elements between neighbours along an axis."""
        return self.strides[axis]


def buffer_of(name: str, array: np.ndarray) -> Buffer:
    strides = tuple(stride // max(1, array.itemsize) for stride in array.strides)
    return Buffer(name, array.shape, strides, array.dtype)


Three: TypeAlias = tuple[int, int, int]
EXTENTS_MOST = {"block": (1024, 1024, 64), "grid": (2**31 - 1, 65535, 65535)}  # along each axis
CLUSTER_MOST = 8  # blocks of a cluster, that every device of compute capability 9.0 takes
STATIC_BYTES = 48 << 10  # of shared memory, that a kernel has without being asked


def three(extents: Any) -> Three:
    """One to three extents as three."""
    x, y, z = (*map(int, extents if isinstance(extents, tuple | list) else (extents,)), 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """A grid of CUDA: blocks, threads of a block, bytes of shared memory that a block asks for, blocks of a cluster."""

    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)
    shared_bytes: int = 0
    cluster: int = 1

    def __str__(self) -> str:
        grid, block = (str(part[0] if part[1:] == (1, 1) else part) for part in (self.grid, self.block))
        return f"<<<{grid}, {block}{f', {self.shared_bytes}' if self.shared_bytes else ''}>>>"


def short(extents: Three) -> str:
    """Extents as one writes them: `4`, `(4, 2)`."""
    axes = max((axis for axis, extent in enumerate(extents, 1) if extent != 1), default=1)
    return str(extents[0] if axes == 1 else extents[:axes])


def config_of(config: Any, where: str, shared_bytes: int = 0) -> LaunchConfig:
    """(grid, block) or (grid, block, bytes of shared memory) as a launch. SignatureError for anything else."""
    if not isinstance(config, tuple) or len(config) not in (2, 3):
        raise SignatureError(f"{where} gives {config!r}; give (grid, block), or (grid, block, bytes of shared memory)")
    for part in config[:2]:
        parts = tuple(part) if isinstance(part, tuple | list) else (part,)
        if not 1 <= len(parts) <= 3 or not all(isinstance(each, int | np.integer) for each in parts):
            raise SignatureError(f"{where} gives {part!r}; a grid or a block is one to three integers")
    return LaunchConfig(three(config[0]), three(config[1]), int(config[2]) if len(config) == 3 else shared_bytes)


def require_limits(config: LaunchConfig, device: DeviceProperties, label: str, threads_most: int = 0) -> None:
    """DeviceError, with the limit and the value, for a launch that the device does not take; `threads_most`: of a
    block, for the registers that the kernel has, where that is known."""
    demands = [
        (f"a {name} of {extent} along {axis}", extent, most)
        for name in ("grid", "block")
        for axis, extent, most in zip("xyz", getattr(config, name), EXTENTS_MOST[name], strict=True)
    ]
    threads, shared_most = math.prod(config.block), device.shared_bytes or STATIC_BYTES
    clusters_most = CLUSTER_MOST if device.capability >= (9, 0) else 1
    demands += [
        (f"{threads} threads a block", threads, min(device.max_threads, threads_most or threads)),
        (f"{config.shared_bytes} bytes of shared memory a block", config.shared_bytes, shared_most),
        (f"{config.cluster} blocks a cluster", config.cluster, clusters_most),
    ]
    for demand, value, most in demands:
        if value > most:
            raise DeviceError(f"{label}: a launch asks for {demand}, and {device} takes {most}; ask for less")
    if min(config.block) < 1 or min(config.grid) < 0 or config.grid[0] % config.cluster:
        raise DeviceError(f"{label}: {config} is no launch: blocks have a thread at least, and fill whole clusters")
