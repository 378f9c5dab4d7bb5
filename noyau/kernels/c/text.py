"""Wrapper of a user kernel in C for noyau's one ABI: the author's text, a launch that calls it, and the table.

A function that takes `begin` and `end` is called for pieces of a range, by as many threads as its runtime has; initial
values of its outputs are then written by separate launches. Any other function is one launch of one item."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.c.expressions import CExpressions
from noyau.codegen.c.interface import interface
from noyau.codegen.c.spellings import TYPES, const_text, integer_function
from noyau.codegen.identifiers import Scopes
from noyau.codegen.language import LANGUAGES
from noyau.dtypes import DType
from noyau.errors import InputError, NoyauError, SignatureError, UnsupportedError
from noyau.ir import loops
from noyau.ir.dims import Dim, maximum, product, strides_of
from noyau.ir.loops import Axis, Guard, Kernel, Launch, Let, Load, Loop, Role
from noyau.ir.sizes import Size, plan, size_of
from noyau.kernels.c.parameters import RANGE, Roles, misfit, narrow_limit, roles_of
from noyau.kernels.c.parameters import prototype as find_prototype
from noyau.kernels.c.syntax import Parameter, Prototype
from noyau.kernels.user_kernel import Buffer, DeviceProperties, Number, UserKernel, ask, initial_values, number_text
from noyau.signatures.types import Instance, Value
from noyau.text import package_text
from noyau.toolchain.c.compiler import header_flags

_PREFIX = "own_"  # of sizes and buffers, so that no macro of the author replaces them
_DEVICE = DeviceProperties("cpu", 1)

# Names of the ABI and of the generated text, undefined in case the author has macros of these names.
_WORDS = (
    "name inputs outputs scratch launches sizes dtypes ranks buffers launch call begin end shapes dims index output"
)
_UNDEFINED = "".join(f"#undef {word}\n" for word in _WORDS.split())

# Make a call whose pointers do not fit the function's parameters an error with every compiler.
_ERRORS = ("incompatible-pointer-types", "int-conversion")
_STRICT = "\n".join(f'#pragma GCC diagnostic error "-W{name}"' for name in _ERRORS)


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A kernel in C with the instance and the constants (`numbers`) of a call."""

    kernel: UserKernel
    prototype: Prototype
    roles: Roles
    instance: Instance
    numbers: Mapping[str, Any]

    @property
    def passed_values(self) -> dict[str, Value]:
        """Inputs and outputs by name; the name of an updated input maps to the output that is written over it."""
        values = {value.name: value for value in self.instance.ends}
        return {**values, **dict(zip(self.kernel.usage.updates, self.instance.outputs, strict=False))}

    @property
    def init(self) -> Mapping[str, Any]:
        """The initial values of outputs."""
        return initial_values(self.kernel, self.offers)

    def offers(self) -> dict[str, Any]:
        """The values by name for functions of the kernel's author; sizes are symbolic."""
        sizes = {name: size_of(dim) for name, dim in self.instance.sizes}
        return {**sizes, **{v.name: _symbolic(v) for v in self.instance.ends}, **self.numbers, "device": _DEVICE}


@dataclass(frozen=True, slots=True)
class CallArgument:
    """An argument of the call: an array (`value`), a number or a Dim over the sizes, or a `place`: begin or end."""

    value: Value | None = None
    number: Dim | Number | None = None
    place: str = ""


def c_source(kernel: UserKernel, instance: Instance, name: str, constants: Mapping[str, Any] | None = None) -> str:
    """The complete C text of a hand-written kernel for one instance; its table is `{name}_kernel`.

    `constants`: the op's, if they differ from the defaults. The author's lines keep their numbers. SignatureError where
    the function does not take the instance, UnsupportedError for a kernel in another language."""
    if not LANGUAGES[kernel.language].is_native or kernel.prototype is None:
        raise UnsupportedError(f"{kernel.title} is in {kernel.language}; only a kernel in c can be called from C")
    roles = roles_of(kernel.prototype, kernel.usage, kernel.target, kernel.title)
    call = NativeCall(kernel, kernel.prototype, roles, instance, kernel.numbers(constants))
    printed, macros = _Wrapper(call, name), constant_macros(kernel, constants)
    header = package_text("codegen/c/noyau.h")
    author = f"{macros}#line 1\n{kernel.text}" if macros else kernel.text
    return "\n".join([author.rstrip("\n"), "", _UNDEFINED, header, _STRICT, "", printed.text(), ""])


def c_flags(kernel: UserKernel) -> tuple[str, ...]:
    """The compiler flags of a kernel: its own, and those for its headers."""
    flags, place = tuple(kernel.usage.options.get("flags", ())), kernel.place
    return *flags, *header_flags(kernel.text, flags, None if place == "a text" else Path(place).parent)


def require_plain_build(kernel: UserKernel) -> None:
    """InputError where a kernel has flags or headers: all kernels of a model are built as one text, without flags."""
    if kernel.usage.options.get("flags"):
        raise InputError(f"{kernel.title} asks for flags, and kernels of a model are built alike: leave them out")
    if c_flags(kernel):
        raise InputError(f"{kernel.title} includes files of its own, and a model has one text: put them in there")


def _symbolic(value: Value) -> Buffer:
    """A Buffer whose extents and strides may be symbolic Sizes."""
    shape: Any = tuple(map(size_of, value.shape))
    strides: Any = tuple(map(size_of, strides_of(value.shape)))
    return Buffer(value.name, shape, strides, value.dtype.numpy, _DEVICE)


def c_kernel(
    instance: Instance, name: str, guards: Sequence[Guard] = (), launches: Sequence[Launch] = (Launch(()),)
) -> Kernel:
    """The loop IR of a user kernel for runtimes: buffers, sizes, guards and launches, by default one of one item."""
    inputs = [_buffer(value, Role.INPUT) for value in instance.inputs]
    outputs = [_buffer(value, Role.OUTPUT) for value in instance.outputs]
    return Kernel(name, (*inputs, *outputs), plan([buffer.shape for buffer in inputs]), tuple(launches), tuple(guards))


def _over(extent: Dim, values: Sequence[Value]) -> Launch:
    """A launch of `extent` items, which for a runtime together load each cell of these values once, and do no more."""
    loads = [Load(f"{_PREFIX}{v.name}", (Dim.of(0),) * len(v.shape), v.dtype) for v in values]
    body = tuple(Let(f"{_PREFIX}{k}", load) for k, load in enumerate(loads))
    return Launch((Loop("#item", _rename(extent), Axis.THREADS, body),))


def _buffer(value: Value, role: Role) -> loops.Buffer:
    shape = tuple(map(_rename, value.shape))
    return loops.Buffer(f"{_PREFIX}{value.name}", value.dtype, shape, role, f"{_PREFIX}{value.name}")


def _rename(dim: Dim) -> Dim:
    return dim.replace({name: f"{_PREFIX}{name}" for name in dim.names})


def _arguments(call: NativeCall) -> list[CallArgument]:
    if call.roles.names is None:
        return _arguments_by_author(call)
    fault = misfit(call.prototype, call.roles.names, call.instance, call.kernel.title)
    if fault:
        raise SignatureError(fault)
    values, numbers = call.passed_values, {**dict(call.instance.sizes), **call.numbers}
    places = RANGE if call.roles.in_pieces else ()

    def argument(name: str) -> CallArgument:
        if name in places:
            return CallArgument(place=name)
        return CallArgument(value=values[name]) if name in values else CallArgument(number=numbers[name])

    return list(map(argument, call.roles.names))


def _arguments_by_author(call: NativeCall) -> list[CallArgument]:
    """Call `args=` with symbolic sizes; it returns Buffers, and arithmetic on extents and strides."""
    entry, where = call.prototype.entry, f"args= of {call.kernel.title}"
    places = RANGE if call.roles.in_pieces else ()
    parameters = [each for each in call.prototype.parameters if each.name not in places]
    values = _call_author(call.kernel.usage.args, call, where)
    if not isinstance(values, tuple) or len(values) != len(parameters):
        count = f"{len(values)} arguments" if isinstance(values, tuple) else f"a {type(values).__name__}"
        beside = " beside begin and end" if places else ""
        raise SignatureError(f"{where} gives {count}, and {entry} takes {len(parameters)}{beside}")
    rest = iter([_argument(each, call, parameter, where) for each, parameter in zip(values, parameters, strict=True)])
    return [CallArgument(place=each.name) if each.name in places else next(rest) for each in call.prototype.parameters]


def _call_author(function: Callable[..., Any] | None, call: NativeCall, where: str) -> Any:
    """Call a function of the author with symbolic sizes. SignatureError where it needs their numbers."""
    assert function is not None
    try:
        return ask(function, call.offers(), where)
    except (TypeError, ValueError, AttributeError) as fault:
        if isinstance(fault, NoyauError):
            raise
        message = f"{where} cannot be followed where sizes are names: {fault}"
        raise SignatureError(f"{message}; it may use + - * // % over sizes, shape, stride(i) and numel()") from None


def _extent(call: NativeCall) -> Dim:
    """The extent of the range of `begin` and `end`: of `launch=`, or the first dim of the first output."""
    launch, first, where = call.kernel.usage.launch, call.instance.outputs[0], f"launch= of {call.kernel.title}"
    if launch is None:
        if not first.shape:
            message = f"begin and end go over the first dim of the first output, and {first.name} has none"
            raise SignatureError(f"{call.kernel.title}: {message}; say with launch= how far they go")
        return first.shape[0]
    if isinstance(launch, str):
        return dict(call.instance.sizes)[launch]
    extent = _call_author(launch, call, where) if callable(launch) else launch
    match extent:
        case Size():
            return maximum(extent.dim, 0)
        case int() if not isinstance(extent, bool) and extent >= 0:
            return Dim.of(extent)
        case _:
            message = "give the name of a size, or a function that gives a number or arithmetic over sizes"
            raise SignatureError(f"{where} gives {extent!r} for how far begin and end go; {message}")


def _argument(value: Any, call: NativeCall, parameter: Parameter, where: str) -> CallArgument:
    match value:
        case Buffer():
            argument = CallArgument(value=call.passed_values[value.name])
        case Size():
            argument = CallArgument(number=value.dim)
        case bool() | int() | float():
            argument = CallArgument(number=value)
        case _:
            message = f"{where} gives a {type(value).__name__} for {parameter!s}"
            raise SignatureError(f"{message}; it may give arrays and numbers")
    is_array = argument.value is not None and (not argument.value.scalar or argument.value in call.instance.outputs)
    if is_array != parameter.is_pointer:
        what = "no array, and it is a pointer" if parameter.is_pointer else "an array, and it is no pointer"
        raise SignatureError(f"{where} gives {parameter!s} {what}")
    one = Prototype(call.prototype.entry, "void", (parameter,))
    fault = misfit(one, [argument.value.name], call.instance, where) if argument.value else ""
    if fault:
        raise SignatureError(fault)
    return argument


class _Wrapper:
    """Printer of the launches and the table of one kernel."""

    def __init__(self, call: NativeCall, name: str) -> None:
        self.call, self.instance, self.usage = call, call.instance, call.kernel.usage
        self.pairs = list(zip(call.prototype.parameters, _arguments(call), strict=True))
        self.kernel = c_kernel(call.instance, name, self.guards(), self.launches())
        self.scopes = Scopes(self.kernel)
        self.expressions = CExpressions(self.kernel, self.scopes)
        self.ends = [value.name for value in self.instance.ends]

    def guards(self) -> list[Guard]:
        """Guards that keep each size within the integer parameter that takes it."""
        sizes = ((each.number, narrow_limit(parameter)) for parameter, each in self.pairs)
        limits = ((number, limit) for number, limit in sizes if isinstance(number, Dim) and limit is not None)
        return [Guard(Dim.of(1), _rename(number), Dim.of(limit)) for number, limit in limits]

    def launches(self) -> list[Launch]:
        """One launch of one item; or one over the cells of each output with an initial value, and one of the range."""
        if not self.call.roles.in_pieces:
            return [Launch(())]
        before = [self.instance.outputs[position] for position in self.filled]
        return [*(_over(product(each.shape), [each]) for each in before), _over(_extent(self.call), self.instance.ends)]

    @property
    def filled(self) -> list[int]:
        """The positions of the outputs with initial values."""
        if self.usage.updates:
            return list(range(len(self.instance.outputs)))
        return [position for position, output in enumerate(self.instance.outputs) if output.name in self.call.init]

    def text(self) -> str:
        each = [lambda position=position: self.initial(position) for position in self.filled]
        parts = [*each, self.call_lines]
        if not self.call.roles.in_pieces:
            parts = [lambda: [line for part in (*each, self.call_lines) for line in part()]]
        launches = [self.launch(number, part) for number, part in enumerate(parts)]
        table = interface(self.kernel, self.scopes, self.expressions)
        functions = [integer_function(*key) for key in sorted(self.expressions.integers)]
        new = [each for each in functions if each not in self.call.kernel.text]  # a text by noyau may define some
        return "\n\n".join([*new, *launches, table])

    def launch(self, number: int, part: Callable[[], list[str]]) -> str:
        self.scopes.used.clear()
        inner = part()
        sizes = [
            f"const int64_t {self.scopes.atom(binding.size)} = call->sizes[{at}];"
            for at, binding in enumerate(self.kernel.binding)
            if ("size", binding.size) in self.scopes.used
        ]
        lines = ["(void)call;", "if (begin >= end) return NOYAU_OK;", *sizes, *inner]
        head = f"static int32_t {self.kernel.name}_{number}(const noyau_call *call, int64_t begin, int64_t end)"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])

    def pointer(self, name: str, *, constant: bool) -> str:
        """The C expression of a buffer of the call, a pointer to the type of its cells."""
        at = self.ends.index(name)
        dtype = self.instance.ends[at].dtype
        kind = "_Bool" if dtype is DType.BOOL else TYPES[dtype]  # the author may have a bool of their own
        return f"({'const ' if constant else ''}{kind} *)call->buffers[{at}]"

    def call_lines(self) -> list[str]:
        """The call of the author's function, and the use of its result: an output, a status, or nothing."""
        text = f"{self.call.prototype.entry}({', '.join(self.argument_text(*pair) for pair in self.pairs)})"
        if self.call.roles.returned is not None:
            return [f"*({self.pointer(self.call.roles.returned, constant=False)}) = {text};", "return NOYAU_OK;"]
        return [f"return {text};"] if self.call.roles.status else [f"{text};", "return NOYAU_OK;"]

    def argument_text(self, parameter: Parameter, argument: CallArgument) -> str:
        if argument.place:
            return argument.place
        if argument.value is None:
            number = argument.number
            return self.expressions.dim(_rename(number)) if isinstance(number, Dim) else _literal(number)
        is_input = argument.value in self.instance.inputs
        typed = self.pointer(argument.value.name, constant=is_input)
        if argument.value.scalar and is_input:
            return f"*({typed})"
        # Cast the pointer if the reader does not know the parameter's type, so that the compiler compares the two.
        known = parameter.is_known or parameter.type in ("void", "char")
        return typed.partition(")")[2] if known else typed

    def initial(self, position: int) -> list[str]:
        """The lines that write the initial value of an output; in pieces, over the range of their own launch."""
        output, pieces = self.instance.outputs[position], self.call.roles.in_pieces
        value = self.usage.updates[position] if self.usage.updates else self.call.init[output.name]
        cells = self.expressions.dim(_rename(product(output.shape)))
        low, high, count = ("begin", "end", "end - begin") if pieces else ("0", cells, cells)
        target = f"({self.pointer(output.name, constant=False)})"
        if isinstance(value, str):
            source = f"({self.pointer(value, constant=True)})"
            size = f"(__SIZE_TYPE__)({count}) * {output.dtype.bytes}"
            line = f"__builtin_memcpy({target} + {low}, {source} + {low}, {size});"
        else:
            literal = _cell(value, output.dtype)
            line = f"for (int64_t noyau_i = {low}; noyau_i < {high}; ++noyau_i) {target}[noyau_i] = {literal};"
        return [line, "return NOYAU_OK;"] if pieces else [line]


def constant_macros(kernel: UserKernel, constants: Mapping[str, Any] | None = None) -> str:
    """The kernel's constants that are not parameters, as macros above its text."""
    numbers = kernel.numbers(constants)
    parameters = {each.name for each in find_prototype(kernel).parameters}
    names = [name for name in kernel.usage.constants if name not in parameters]
    return "".join(f"#define {name} {_literal(numbers[name])}\n" for name in names)


def _literal(value: Any) -> str:
    """A number as a C literal. SignatureError for anything else."""
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        raise SignatureError(f"a kernel in C takes numbers as constants, and {value!r} is none")
    return number_text(value.item() if isinstance(value, np.generic) else value)


def _cell(value: Number, dtype: DType) -> str:
    """A number as the C literal of a cell of `dtype`; 16-bit floats by their bits."""
    if dtype.is_half:
        return str(int(np.array(value).astype(dtype.numpy).view(np.uint16)))
    if dtype.is_float:
        return number_text(float(value))
    return number_text(bool(value)) if dtype is DType.BOOL else const_text(value, dtype)
