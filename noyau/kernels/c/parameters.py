"""The parameters of a C function and their roles, by name or position; functions without an op, `FILE.c::FUNCTION`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.language import BY_SUFFIX
from noyau.dtypes import DType
from noyau.errors import InputError, SignatureError
from noyau.kernels.c.syntax import Parameter, Prototype, plain_name, prototype_of, syntax
from noyau.kernels.user_kernel import Target, Usage, UserKernel
from noyau.signatures.types import Element, Family, Instance

STATUS = ("int", "int32_t")
RANGE = ("begin", "end")  # parameters of a function that does one piece of its work per call


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a C function's parameters. `names`: what each stands for, or None where `args=` decides; `returned`:
    the output that is its result; `status`: its result is a status code; `in_pieces`: it takes `begin` and `end` and is
    called for disjoint pieces of a range, in any order and on any thread."""

    names: tuple[str, ...] | None
    returned: str | None = None
    status: bool = False
    in_pieces: bool = False


def roles_of(prototype: Prototype, usage: Usage, target: Target, label: str) -> Roles:
    """The roles of a C function's parameters. SignatureError names the one that does not fit.

    If each parameter has the name of an input, an output, a size or a constant, it stands for that, in any order, and
    sizes and constants may be missing. Otherwise they are, by position, the inputs, the outputs, the sizes in the order
    of the signature, and the constants. `int64_t begin` and `int64_t end`, at any position, are the range of a call,
    unless the op uses these names; `args=` does not give them."""
    in_pieces = _in_pieces(prototype, usage, target, label)
    whole = prototype
    if in_pieces:
        prototype = replace(whole, parameters=tuple(each for each in whole.parameters if each.name not in RANGE))
    returned = _returned_output(prototype, usage, target, label)
    if returned is not None and in_pieces:
        raise SignatureError(f"{label} is called for pieces of its work, and returns {returned}: write it by a pointer")
    if usage.args is not None:
        return Roles(None, returned, _is_status(prototype, returned, label), in_pieces)
    written = [] if usage.updates else [term.name for term in target.outputs if term.name != returned]
    ends = [*(term.name for term in target.inputs), *written]
    constants = dict.fromkeys((*target.constants, *usage.constants))
    expected = [*ends, *(name for name in target.sizes if name not in ends), *target.constants]
    parameters = [parameter.name for parameter in prototype.parameters]
    is_by_name = set(parameters) <= {*expected, *constants}
    names = _by_name(parameters, ends, label) if is_by_name else _by_position(parameters, expected, label)
    for parameter, name in zip(prototype.parameters, names, strict=True):
        _check(parameter, name, target, usage, label)
    if in_pieces:
        left = iter(names)
        names = [each.name if each.name in RANGE else next(left) for each in whole.parameters]
    return Roles(tuple(names), returned, _is_status(prototype, returned, label), in_pieces)


def misfit(prototype: Prototype, names: Sequence[str], instance: Instance, label: str) -> str:
    """The reason why a function does not take arrays of the instance's dtypes; empty if it does."""
    values = {value.name: value for value in instance.ends}
    for parameter, name in zip(prototype.parameters, names, strict=True):
        value = values.get(name)
        if value is not None and parameter.is_known and not _takes(parameter, value.dtype):
            return f"{label}: the parameter {str(parameter)!r} cannot hold {name}: {value}"
    return ""


def _in_pieces(prototype: Prototype, usage: Usage, target: Target, label: str) -> bool:
    """Whether the function takes a range. SignatureError for only one of its ends, or an end that is no int64_t."""
    known = {*target.names, *usage.constants}
    ends = [each for each in prototype.parameters if each.name in RANGE and each.name not in known]
    if known & {*RANGE} or not ends:
        if usage.launch is not None:
            message = f"launch= of {label} says how far pieces go, and {prototype.entry} takes no int64_t begin and end"
            raise SignatureError(f"{message}, and is called once: take both, or leave it out")
        return False
    if sorted(each.name for each in ends) != sorted(RANGE):
        message = f"{label} takes {' and '.join(each.name for each in ends)} alone"
        raise SignatureError(f"{message}; one that is called for pieces takes begin and end, once each")
    for each in ends:
        if each.is_pointer or each.dtypes != (DType.I64,):
            raise SignatureError(f"{label}: the parameter {str(each)!r} is a place in a range: int64_t {each.name}")
    return True


def _by_name(names: Sequence[str], ends: Sequence[str], label: str) -> list[str]:
    missing = next((name for name in ends if name not in names), None)
    if missing is not None:
        raise SignatureError(f"{label}: no parameter is named {missing}; say with args= what it is called with")
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None:
        raise SignatureError(f"{label}: two parameters are named {twice}")
    return list(names)


def _by_position(names: Sequence[str], expected: Sequence[str], label: str) -> list[str]:
    if len(names) != len(expected):
        message = f"{label} has {len(names)} parameters ({', '.join(names)})"
        strange = next(name for name in names if name not in expected)
        wanted = f"{len(expected)} are expected by position ({', '.join(expected)})"
        raise SignatureError(f"{message}; {strange} is no name of the op, and {wanted}; rename them, or say args=")
    for name, stands_for in zip(names, expected, strict=True):
        if name != stands_for and name in expected:
            message = f"the parameter {name} stands where {stands_for} is expected by position"
            remedy = f"name all of them as the op does ({', '.join(expected)}), or say args="
            raise SignatureError(f"{label}: {message}; {remedy}")
    return list(expected)


def _returned_output(prototype: Prototype, usage: Usage, target: Target, label: str) -> str | None:
    """The output that the function returns, if it does."""
    scalar = len(target.outputs) == 1 and not target.outputs[0].dims and not usage.updates
    if usage.returns is None:
        by_pointer = target.outputs[0].name in [p.name for p in prototype.parameters] if target.outputs else True
        writes = any(each.is_pointer and not each.is_const for each in prototype.parameters)
        by_count = len(prototype.parameters) > len(target.inputs) and writes
        wanted = scalar and prototype.returns != "void" and not by_pointer and not by_count
    else:
        wanted = usage.returns
    if not wanted:
        return None
    if not scalar:
        raise SignatureError(f"{label}: a C function returns a scalar result alone; write the others through pointers")
    output = target.outputs[0]
    if prototype.returns == "void" or (prototype.result and set(prototype.result).isdisjoint(members(output.element))):
        raise SignatureError(f"{label} returns {prototype.returns}, and the result {output.name} is {output}")
    return output.name


def _is_status(prototype: Prototype, returned: str | None, label: str) -> bool:
    if returned is not None or prototype.returns == "void":
        return False
    if prototype.returns not in STATUS:
        what = "void, or int32_t for a status, 0 where all went well"
        raise SignatureError(f"{label} returns {prototype.returns}; a kernel that fills its outputs returns {what}")
    return True


def members(element: Element) -> tuple[DType, ...]:
    """The dtypes that an element stands for."""
    return element.members if isinstance(element, Family) else (element,)


def _check(parameter: Parameter, name: str, target: Target, usage: Usage, label: str) -> None:
    """SignatureError where a parameter's type does not fit its role."""
    terms = {term.name: term for term in (*target.inputs, *target.outputs)}
    term, is_output = terms.get(name), any(term.name == name for term in target.outputs)
    where = f"{label}: the parameter {str(parameter)!r}"
    if term is None:
        if parameter.is_pointer:
            raise SignatureError(f"{where} is a pointer, and {name} is a number")
        is_whole = any(dtype.kind in ("int", "uint") for dtype in parameter.dtypes)
        if name in target.sizes and parameter.is_known and not is_whole:
            raise SignatureError(f"{where} stands for a size, which is an integer such as int64_t")
        return
    by_value = term.dims is None and not is_output
    if by_value == parameter.is_pointer:
        expected = "comes by value" if by_value else "comes as a pointer to its first cell"
        raise SignatureError(f"{where} does not fit: {name}: {term} {expected}")
    if parameter.is_const and (is_output or name in usage.updates):
        raise SignatureError(f"{where} is const, and {name} is written")
    if parameter.is_known and not any(_takes(parameter, dtype) for dtype in members(term.element)):
        raise SignatureError(f"{where} cannot hold {name}: {term}")


def _takes(parameter: Parameter, dtype: DType) -> bool:
    """Whether a parameter holds a dtype: exactly that one behind a pointer; by value narrower integers too."""
    if parameter.is_pointer or dtype.kind not in ("int", "uint"):
        return dtype in parameter.dtypes
    fits = (d for d in parameter.dtypes if d.kind in ("int", "uint"))
    return any(_range(d)[0] <= _range(dtype)[0] and _range(dtype)[1] <= _range(d)[1] for d in fits)


def _range(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


def narrow_limit(parameter: Parameter) -> int | None:
    """The largest size that an integer parameter narrower than 64 bits holds; None for any other parameter."""
    whole = [_range(dtype)[1] for dtype in parameter.dtypes if dtype.kind in ("int", "uint") and dtype.bytes < 8]
    return min(whole, default=None)


@dataclass(frozen=True, slots=True)
class TextFunction:
    """A function of a text; `entry`: its name, with template arguments where it has any."""

    path: Path
    entry: str
    text: str

    @property
    def language(self) -> str:
        return BY_SUFFIX[self.path.suffix].name

    @property
    def name(self) -> str:
        return plain_name(self.entry)

    def prototype(self) -> Prototype:
        """The parameters and the result of the function. SignatureError where its text does not define it."""
        return prototype_of(self.text, self.name, str(self.path), self.language)

    @property
    def line(self) -> int:
        """The line of its definition; 1 if the text has none."""
        return next((each.line for each in syntax(self.text, self.language).functions if each.name == self.name), 1)


def is_named(target: Any) -> bool:
    """Whether `target` has the form `FILE.c::FUNCTION`."""
    return isinstance(target, str) and "::" in target and Path(target.partition("::")[0]).suffix in BY_SUFFIX


def text_function(target: str) -> TextFunction:
    """The function named `FILE.c::FUNCTION`. InputError where the file cannot be read."""
    file, _, entry = target.partition("::")
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}; give FILE.c::FUNCTION") from None
    return TextFunction(Path(file), entry, text)


def prototype(kernel: UserKernel) -> Prototype:
    """The parameters of a kernel in C, C++ or CUDA C++."""
    return kernel.prototype or prototype_of(kernel.text, plain_name(kernel.entry), kernel.title, kernel.language)
