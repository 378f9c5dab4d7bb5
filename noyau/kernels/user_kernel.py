"""A user kernel as data, validated against the op that it is attached to; the arguments of its author's functions.

Functions of a user request values by the names of their parameters; `launch=`, `args=` and `init=` get arrays as
Buffers, which are the same for every runtime, also without a GPU."""

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

# The form of each option of a kernel in words, and the predicate that checks a value.
_KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "args": ("a function that gives a tuple of all arguments", lambda value: value is None or callable(value)),
    "init": ("{'out': 0}, or a function that does", lambda value: callable(value) or isinstance(value, Mapping)),
    "constants": ("{'BLOCK': 128}, or lists of values", lambda value: isinstance(value, Mapping)),
    "options": ("a dict, such as {'num_warps': 8}", lambda value: isinstance(value, Mapping)),
    "returns": ("True or False", lambda value: value is None or isinstance(value, bool)),
    "trust": ("True or False", lambda value: isinstance(value, bool)),
    "updates": ("names of inputs: ('p', 'm')", lambda value: all(isinstance(name, str) for name in value)),
}

# Attributes in which decorators keep the original function: njit and jit, Triton's, vectorize, guvectorize, stencil.
_WITHIN = ("py_func", "fn", "_dispatcher.py_func", "gufunc_builder.py_func", "kernel_ir.func_id.func")
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Usage:
    """The options that the author states beside a kernel's text.

    `launch`: the grid and the block, as a tuple or a function; for a function in C with `begin` and `end`, the extent
    of their range, as the name of a size or a function (None: the first dim of the first output); `args`: a function
    that returns the arguments; `init`: initial values of outputs, a number or the name of an input to copy;
    `constants`: a value for each name, or a list of values to choose from; `returns`: it returns its outputs (None:
    inferred from its parameters); `updates`: inputs that its results overwrite, in the order of the outputs; `options`:
    of its language; `trust`: it runs without a check."""

    launch: Launch | None = None
    args: Arguments | None = None
    init: Init = field(default_factory=lambda: EMPTY)
    constants: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    returns: bool | None = None
    updates: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    trust: bool = False


def usage_of(keywords: Mapping[str, Any], label: str) -> Usage:
    """Make a Usage of keyword arguments. SignatureError for an unknown one."""
    unknown = next((name for name in keywords if name not in Usage.__dataclass_fields__), None)
    if unknown is not None:
        choices = ("name", "language", "entry", *Usage.__dataclass_fields__)
        raise SignatureError(f"{label}: a kernel has no {unknown}=; there are {', '.join(choices)}")
    updates = keywords.get("updates", ())
    names = updates if isinstance(updates, list | tuple) else (updates,)
    return Usage(**{**keywords, "updates": tuple(names)})


@dataclass(frozen=True, slots=True)
class Target:
    """The op that a kernel is attached to: its name, its signature if any, its constants and its maker of inputs."""

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
        """The names of inputs, outputs, sizes and constants."""
        ends = (term.name for term in (*self.inputs, *self.outputs))
        return tuple(dict.fromkeys((*ends, *self.sizes, *self.constants)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UserKernel:
    """A hand-written kernel. `text`: its source; `entry`: the function in it; `function`: the callable of a kernel in
    Python; `place`: the file and line, if known; `prototype`: of a text in C; `taken`: the names of the function's
    parameters, None if unknown; `required`: constants without a default; `line`: the first line of the text."""

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
        """The text after as many empty lines as precede it in its file, so that line numbers agree."""
        return "\n" * (self.line - 1) + self.text

    def takes(self, name: str) -> bool:
        """Whether one of its parameters has this name; true if its parameters are unknown."""
        if self.prototype is not None:
            return any(parameter.name == name for parameter in self.prototype.parameters)
        return self.taken is None or name in self.taken

    @property
    def asks_strides(self) -> bool:
        """Whether `args=` or `launch=` uses strides; otherwise the kernel takes packed arrays."""
        functions = [each for each in (self.usage.args, self.usage.launch) if inspect.isfunction(each)]
        return any({"stride", "strides"} & set(function.__code__.co_names) for function in functions)

    def numbers(self, constants: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The op's constants, of a call or by default, and the kernel's own; of a list of values the first."""
        own = {name: value[0] if isinstance(value, list) else value for name, value in self.usage.constants.items()}
        return {**self.target.constants, **(constants or {}), **own}


def require_name(name: object, label: str) -> None:
    """SignatureError for an invalid name; a name is printed in messages, comments of texts and lines of records."""
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise SignatureError(f"{label} is named {name!r}; a name is a text of letters that print, on one line")


def choose_constants(kernel: UserKernel, constants: Sequence[tuple[str, Any]]) -> UserKernel:
    """The kernel with these values chosen for constants."""
    chosen = {**kernel.usage.constants, **dict(constants)}
    return replace(kernel, usage=replace(kernel.usage, constants=chosen)) if constants else kernel


def validate(usage: Usage, target: Target, label: str, extra: Iterable[str] = ()) -> None:
    """SignatureError where an option is malformed or uses a name that the op does not have; `extra`: further names."""
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
    """SignatureError where `init` names no output, or its value is neither a number nor an input like the output."""
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
    """The language of a callable, by the package that defines its type; nothing is imported."""
    kind = type(function)
    origin = f"{kind.__module__}.{kind.__qualname__}"
    made_by = (each.name for each in LANGUAGES.values() if each.decorators and re.match(each.decorators, origin))
    return next(made_by, "python")


def python_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function within a wrapper of Numba or Triton; else the callable itself."""
    for name in _WITHIN:
        inner: Any = function
        for part in name.split("."):
            inner = getattr(inner, part, None)
        if callable(inner) or hasattr(inner, "fn"):  # a tuner around heuristics is called by its grid alone
            return python_function(inner)
    return function


def language_named(language: str, label: str) -> Language:
    """The language with this name. UnsupportedError where there is none."""
    if language not in LANGUAGES:
        raise UnsupportedError(f"{label}: there is no language {language!r}; there are {', '.join(LANGUAGES)}")
    return LANGUAGES[language]


def number_text(value: Number) -> str:
    """A number as a C literal, exact."""
    if isinstance(value, bool | int):
        return str(int(value))
    if math.isnan(value):
        return "(0.0 / 0.0)"
    return repr(float(value)) if math.isfinite(value) else f"({'-' if value < 0 else ''}1.0 / 0.0)"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def requested_names(function: Callable[..., Any], offered: Iterable[str], label: str) -> tuple[str, ...]:
    """The offered names among a function's parameters. SignatureError for any other parameter without a default."""
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
    """Call a function with the offered values that its parameters name."""
    return function(**{name: offered[name] for name in requested_names(function, offered, label)})


def initial_values(kernel: UserKernel, offers: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The initial values of outputs, by name. SignatureError where a function `init=` returns invalid ones."""
    init = kernel.usage.init
    if not callable(init):
        return init
    values: Mapping[str, Any] = ask(init, offers(), f"init= of {kernel.title}")
    check_init(values, kernel.target, kernel.title)
    return values


def arguments_by_author(kernel: UserKernel, offers: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments that `args=` of a kernel returns. SignatureError where it returns no tuple."""
    assert kernel.usage.args is not None
    where = f"args= of {kernel.title}"
    arguments = ask(kernel.usage.args, offers, where)
    if not isinstance(arguments, tuple):
        raise SignatureError(f"{where} gives a {type(arguments).__name__}; it gives a tuple of all arguments")
    return arguments


def parameters_of(function: Callable[..., Any], label: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. SignatureError where Python cannot determine them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        message = f"{label} is {function!r}, of which the parameters cannot be told"
        raise SignatureError(f"{message}; wrap it in a def") from None


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The device that a kernel runs on: `cpu` or `cuda:0`. `sm_count`: multiprocessors of a GPU or cores of a CPU; of a
    GPU also the `model`, and the bytes of its L2, of the shared memory of a block, and of its memory."""

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

# The `device` of kernels for a GPU where there is none. Source: NVIDIA's data sheet of the H100 (SXM5).
GPU = DeviceProperties("cuda:0", 132, "NVIDIA H100 (assumed: no GPU is here)", 50 << 20, 227 << 10, 80 << 30, (9, 0))


@dataclass(frozen=True, slots=True)
class Buffer:
    """The metadata of an input or output for `launch=`, `args=` and `init=`, without its cells.

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
        """The stride along an axis, in elements."""
        return self.strides[axis]


def buffer_of(name: str, array: np.ndarray) -> Buffer:
    strides = tuple(stride // max(1, array.itemsize) for stride in array.strides)
    return Buffer(name, array.shape, strides, array.dtype)


Three: TypeAlias = tuple[int, int, int]
EXTENTS_MOST = {"block": (1024, 1024, 64), "grid": (2**31 - 1, 65535, 65535)}  # along each axis
CLUSTER_MOST = 8  # blocks of a cluster that every device of compute capability 9.0 supports
STATIC_BYTES = 48 << 10  # of shared memory that a kernel may use without opting in to more


def three(extents: Any) -> Three:
    """One to three extents padded to three."""
    x, y, z = (*map(int, extents if isinstance(extents, tuple | list) else (extents,)), 1, 1)[:3]
    return x, y, z


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """A launch configuration of CUDA: blocks, threads of a block, dynamic shared bytes of a block, blocks a cluster."""

    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)
    shared_bytes: int = 0
    cluster: int = 1

    def __str__(self) -> str:
        grid, block = (str(part[0] if part[1:] == (1, 1) else part) for part in (self.grid, self.block))
        return f"<<<{grid}, {block}{f', {self.shared_bytes}' if self.shared_bytes else ''}>>>"


def short(extents: Three) -> str:
    """Extents without trailing ones: `4`, `(4, 2)`."""
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
    if len(config) == 3 and not isinstance(shared_bytes := config[2], int | np.integer):
        raise SignatureError(f"{where} gives {shared_bytes!r} bytes of shared memory; give an integer")
    return LaunchConfig(three(config[0]), three(config[1]), int(shared_bytes))


def require_limits(config: LaunchConfig, device: DeviceProperties, label: str, threads_most: int = 0) -> None:
    """DeviceError, with the limit and the value, for a launch that exceeds the device; `threads_most`: the limit of
    threads a block by the kernel's registers, 0 if unknown."""
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
    is_short = min(*config.block, config.cluster) < 1 or min(*config.grid, config.shared_bytes) < 0
    if is_short or config.grid[0] % config.cluster:
        launch = f"{config} in clusters of {config.cluster}"
        raise DeviceError(f"{label}: {launch} is no launch: blocks have a thread at least, and fill whole clusters")
