"""A kernel in C made fit for noyau's one ABI: the author's text, a launch that calls it, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from noyau.dtypes import DType
from noyau.errors import NoyauError, SignatureError, UnsupportedError
from noyau.handwritten.asking import ask
from noyau.handwritten.buffers import Buffer, Device
from noyau.handwritten.c_parameters import Roles, misfit, narrow_limit, roles_of
from noyau.handwritten.kernels import HandKernel, Number, check_init, number_text
from noyau.handwritten.prototypes import Parameter, Prototype
from noyau.ir import loops
from noyau.ir.binding import plan
from noyau.ir.dims import Dim, product, strides_of
from noyau.ir.loops import Guard, Kernel, Launch, Role
from noyau.ir.symbols import Size, size_of
from noyau.languages.c_expressions import Expressions
from noyau.languages.c_interface import interface
from noyau.languages.c_names import Scopes
from noyau.languages.c_tables import TYPES, const_text, integer_function
from noyau.signatures.types import Instance, Value

_PREFIX = "own_"  # of sizes and buffers, so that no macro of the author is meant
_DEVICE = Device("cpu", 1)

# Names of the ABI and of the text below that may be macros of the author.
_WORDS = (
    "name inputs outputs scratch launches sizes dtypes ranks buffers launch call begin end shapes dims index output"
)
_UNDEFINED = "".join(f"#undef {word}\n" for word in _WORDS.split())

# A call whose pointers do not fit the function's parameters is an error with every compiler.
_STRICT = "\n".join(
    f'#pragma GCC diagnostic error "-W{name}"' for name in ("incompatible-pointer-types", "int-conversion")
)


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel in C that is to be called for an instance; `numbers` are the constants."""

    kernel: HandKernel
    prototype: Prototype
    roles: Roles
    instance: Instance
    numbers: Mapping[str, Any]

    @property
    def passed_values(self) -> dict[str, Value]:
        """Inputs and outputs by name; an output stands for the input that it is written over."""
        values = {value.name: value for value in (*self.instance.inputs, *self.instance.outputs)}
        return {**values, **dict(zip(self.kernel.usage.updates, self.instance.outputs, strict=False))}

    @property
    def init(self) -> Mapping[str, Any]:
        """What outputs hold before."""
        wished = self.kernel.usage.init
        if not callable(wished):
            return wished
        made = ask(wished, self.offers(), f"init= of {self.kernel.called}")
        check_init(made, self.kernel.target, self.kernel.called)
        return dict(made)

    def offers(self) -> dict[str, Any]:
        """What the functions of the kernel may ask for, where sizes are names."""
        values = (*self.instance.inputs, *self.instance.outputs)
        sizes = {name: size_of(dim) for name, dim in self.instance.sizes}
        return {**sizes, **{v.name: _symbolic(v) for v in values}, **self.numbers, "device": _DEVICE}


@dataclass(frozen=True, slots=True)
class Argument:
    """What a parameter is called with: an array (`value`), or a number: a Dim over the sizes, or a literal."""

    value: Value | None = None
    number: Dim | Number | None = None


def c_source(kernel: HandKernel, instance: Instance, name: str, constants: Mapping[str, Any] | None = None) -> str:
    """The whole C text of a hand-written kernel for one instance: it builds alone, and its table is `{name}_kernel`.

    `constants`: the op's, where they are not the default ones. The author's lines keep their numbers. SignatureError
    where the function does not take what the instance has, UnsupportedError where it is in another language."""
    if kernel.language != "c" or kernel.prototype is None:
        raise UnsupportedError(f"{kernel.called} is in {kernel.language}; only a kernel in c can be called from C")
    roles = roles_of(kernel.prototype, kernel.usage, kernel.target, kernel.called)
    call = Call(kernel, kernel.prototype, roles, instance, kernel.numbers(constants))
    printed = _Printed(call, name)
    macros = "".join(f"#define {macro} {_literal(value)}\n" for macro, value in printed.macros.items())
    header = files("noyau.languages").joinpath("noyau.h").read_text("ascii")
    author = f"{macros}#line 1\n{kernel.text}" if macros else kernel.text
    return "\n".join([author.rstrip("\n"), "", _UNDEFINED, header, _STRICT, "", printed.text(), ""])


def _symbolic(value: Value) -> Buffer:
    """A Buffer of which the extents and the strides may be Sizes."""
    shape: Any = tuple(map(size_of, value.shape))
    strides: Any = tuple(map(size_of, strides_of(value.shape)))
    return Buffer(value.name, shape, strides, value.dtype.numpy, _DEVICE)


def c_kernel(instance: Instance, name: str, guards: Sequence[Guard] = ()) -> Kernel:
    """What runtimes see of a hand-written kernel: its buffers and sizes, and one launch of one item."""
    inputs = [_buffer(value, Role.INPUT) for value in instance.inputs]
    outputs = [_buffer(value, Role.OUTPUT) for value in instance.outputs]
    binding = plan([buffer.shape for buffer in inputs])
    return Kernel(name, (*inputs, *outputs), binding, (Launch(()),), tuple(guards))


def _buffer(value: Value, role: Role) -> loops.Buffer:
    shape = tuple(map(_renamed, value.shape))
    return loops.Buffer(f"{_PREFIX}{value.name}", value.dtype, shape, role, f"{_PREFIX}{value.name}")


def _renamed(dim: Dim) -> Dim:
    return dim.replace({name: f"{_PREFIX}{name}" for name in dim.names})


def _arguments(call: Call) -> list[Argument]:
    """What each parameter is called with."""
    if call.roles.names is None:
        return _asked(call)
    fault = misfit(call.prototype, call.roles.names, call.instance, call.kernel.called)
    if fault:
        raise SignatureError(fault)
    values, numbers = call.passed_values, {**dict(call.instance.sizes), **call.numbers}
    return [Argument(value=values[n]) if n in values else Argument(number=numbers[n]) for n in call.roles.names]


def _asked(call: Call) -> list[Argument]:
    """What `args=` gives when sizes are names: Buffers, and arithmetic on extents and strides."""
    assert call.kernel.usage.args is not None
    entry, parameters, where = call.prototype.entry, call.prototype.parameters, f"args= of {call.kernel.called}"
    try:
        given = ask(call.kernel.usage.args, call.offers(), where)
    except (TypeError, ValueError, AttributeError) as fault:
        if isinstance(fault, NoyauError):
            raise
        told = f"{where} cannot be followed where sizes are names: {fault}"
        raise SignatureError(f"{told}; it may use + - * // % over sizes, shape, stride(i) and numel()") from None
    if not isinstance(given, tuple) or len(given) != len(parameters):
        count = f"{len(given)} arguments" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise SignatureError(f"{where} gives {count}, and {entry} takes {len(parameters)}")
    return [_argument(each, call, parameter, where) for each, parameter in zip(given, parameters, strict=True)]


def _argument(given: Any, call: Call, parameter: Parameter, where: str) -> Argument:
    match given:
        case Buffer():
            made = Argument(value=call.passed_values[given.name])
        case Size():
            made = Argument(number=given.dim)
        case bool() | int() | float():
            made = Argument(number=given)
        case _:
            raise SignatureError(
                f"{where} gives a {type(given).__name__} for {parameter!s}; it may give arrays and numbers"
            )
    is_array = made.value is not None and (not made.value.scalar or made.value in call.instance.outputs)
    if is_array != parameter.is_pointer:
        what = "no array, and it is a pointer" if parameter.is_pointer else "an array, and it is no pointer"
        raise SignatureError(f"{where} gives {parameter!s} {what}")
    one = Prototype(call.prototype.entry, "void", (parameter,))
    fault = misfit(one, [made.value.name], call.instance, where) if made.value else ""
    if fault:
        raise SignatureError(fault)
    return made


class _Printed:
    """The launch and the table of one kernel, being printed."""

    def __init__(self, call: Call, name: str) -> None:
        self.call, self.instance, self.usage = call, call.instance, call.kernel.usage
        self.pairs = list(zip(call.prototype.parameters, _arguments(call), strict=True))
        self.kernel = c_kernel(call.instance, name, self.guards())
        self.scopes = Scopes(self.kernel)
        self.expressions = Expressions(self.kernel, self.scopes)
        self.ends = [value.name for value in (*self.instance.inputs, *self.instance.outputs)]

    @property
    def macros(self) -> dict[str, Any]:
        """Constants of the kernel that are no parameters."""
        named = set(self.call.roles.names or ())
        return {name: self.call.numbers[name] for name in self.usage.constants if name not in named}

    def guards(self) -> list[Guard]:
        """Sizes stay within the integers that the function takes them in."""
        limits = []
        for parameter, argument in self.pairs:
            limit = narrow_limit(parameter)
            if isinstance(argument.number, Dim) and limit is not None:
                limits.append(Guard(Dim.of(1), _renamed(argument.number), Dim.of(limit)))
        return limits

    def text(self) -> str:
        launch = self.launch()
        made = interface(self.kernel, self.scopes, self.expressions)
        functions = [integer_function(*key) for key in sorted(self.expressions.integers)]
        return "\n\n".join([*functions, launch, made])

    def launch(self) -> str:
        self.scopes.used.clear()
        before = [line for position, _ in enumerate(self.instance.outputs) for line in self.initial(position)]
        called = self.called()
        sizes = [
            f"const int64_t {self.scopes.atom(binding.size)} = call->sizes[{at}];"
            for at, binding in enumerate(self.kernel.binding)
            if ("size", binding.size) in self.scopes.used
        ]
        lines = ["(void)call;", "if (begin >= end) return NOYAU_OK;", *sizes, *before, *called]
        head = f"static int32_t {self.kernel.name}_0(const noyau_call *call, int64_t begin, int64_t end)"
        return "\n".join([head, "{", *(f"    {line}" for line in lines), "}"])

    def pointer(self, name: str, *, constant: bool) -> str:
        """A buffer of the call, as a pointer to the dtype of its cells."""
        at = self.ends.index(name)
        dtype = (*self.instance.inputs, *self.instance.outputs)[at].dtype
        kind = "_Bool" if dtype is DType.BOOL else TYPES[dtype]  # the author may have a bool of their own
        return f"({'const ' if constant else ''}{kind} *)call->buffers[{at}]"

    def called(self) -> list[str]:
        """The call of the author's function, and what becomes of its result."""
        text = f"{self.call.prototype.entry}({', '.join(self.passed(*pair) for pair in self.pairs)})"
        if self.call.roles.returned is not None:
            return [f"*({self.pointer(self.call.roles.returned, constant=False)}) = {text};", "return NOYAU_OK;"]
        return [f"return {text};"] if self.call.roles.status else [f"{text};", "return NOYAU_OK;"]

    def passed(self, parameter: Parameter, argument: Argument) -> str:
        """The text of one argument."""
        if argument.value is None:
            number = argument.number
            return self.expressions.dim(_renamed(number)) if isinstance(number, Dim) else _literal(number)
        is_input = argument.value in self.instance.inputs
        typed = self.pointer(argument.value.name, constant=is_input)
        if argument.value.scalar and is_input:
            return f"*({typed})"
        # A type that the reader does not know is compared with ours by the compiler.
        known = parameter.is_known or parameter.type in ("void", "char")
        return typed.partition(")")[2] if known else typed

    def initial(self, position: int) -> list[str]:
        """What an output holds before the call."""
        output = self.instance.outputs[position]
        value = self.usage.updates[position] if self.usage.updates else self.call.init.get(output.name)
        if value is None:
            return []
        cells = self.expressions.dim(_renamed(product(output.shape)))
        target = self.pointer(output.name, constant=False)
        if isinstance(value, str):
            source = self.pointer(value, constant=True)
            return [f"__builtin_memcpy({target}, {source}, (__SIZE_TYPE__)({cells}) * {output.dtype.bytes});"]
        literal = _cell(value, output.dtype)
        return [f"for (int64_t noyau_i = 0; noyau_i < {cells}; ++noyau_i) ({target})[noyau_i] = {literal};"]


def _literal(value: Any) -> str:
    """A number as C has it."""
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        raise SignatureError(f"a kernel in C takes numbers as constants, and {value!r} is none")
    return number_text(value.item() if isinstance(value, np.generic) else value)


def _cell(value: Number, dtype: DType) -> str:
    """A number as a cell of a dtype; 16-bit floats are their bits."""
    if dtype in (DType.F16, DType.BF16):
        return str(int(np.array(value).astype(dtype.numpy).view(np.uint16)))
    if dtype.is_float:
        return number_text(float(value))
    return number_text(bool(value)) if dtype is DType.BOOL else const_text(value, dtype)
