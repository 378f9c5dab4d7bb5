"""Attach a function, a file or a text to an op as a UserKernel."""

import ast
import inspect
import linecache
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noyau.codegen.language import BY_SUFFIX, LANGUAGES, Grid
from noyau.errors import InputError, SignatureError
from noyau.kernels import user_kernel
from noyau.kernels.c.parameters import roles_of
from noyau.kernels.c.syntax import functions_of, prototype_of
from noyau.kernels.triton.parameters import bind_parameters, meta_names
from noyau.kernels.user_kernel import Target, Usage, UserKernel
from noyau.text import several

_LARGEST_TEXT = 1 << 24


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel's source text; `place`: its file; `entry`: the function, if the user names it; `line`: the first."""

    text: str
    language: str
    place: str
    entry: str | None = None
    line: int = 1


_PARSING = threading.Lock()


def line_of(text: str, source: str) -> int | None:
    """The line of a Python source on which a text begins, if it occurs there exactly once: verbatim, or as a literal
    with escapes that has as many lines as the text. None otherwise."""
    before, match, after = source.partition(text)
    if match:
        return before.count("\n") + 1 if text not in after else None
    with suppress(SyntaxError, ValueError, SystemError), _PARSING:  # CPython 3.11 fails where two threads parse at once
        constants = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant)]
        literals = [each for each in constants if each.value == text]
        if len(literals) == 1 and literals[0].end_lineno == literals[0].lineno + text.count("\n"):
            return literals[0].lineno
    return None


def read_text(what: str | Path, language: str | None, entry: str | None, file: Path | None, label: str) -> KernelText:
    """Read a kernel from a file, whose path is relative to the op's own file; with `language`, `what` may be the text
    itself, whose place is `file` if it stands there. InputError if the file cannot be read."""
    if language is not None:
        if not user_kernel.language_named(language, label).is_text:
            texts = ", ".join(name for name, each in LANGUAGES.items() if each.is_text)
            raise SignatureError(f"{label}: a text is in {texts}; a {language} kernel is attached as a function")
        if isinstance(what, str) and ("{" in what or "\n" in what or not what.strip()):
            line = line_of(what, "".join(linecache.getlines(str(file)))) if file and what else None
            return KernelText(what, language, str(file) if line else "a text", entry, line or 1)
    elif isinstance(what, str) and ("{" in what or "\n" in what):
        raise SignatureError(f'{label}: this is a text; say in which language: kernel(text, language="c", entry=...)')
    path = (file.parent if file else Path()) / what
    if language is None and path.suffix not in BY_SUFFIX:
        raise SignatureError(f"{label}: {path.name!r} is no .c, .cpp or .cu; say language=")
    language_name = language or BY_SUFFIX[path.suffix].name
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = f"{error.strerror}; paths are from the op's own file"
        raise InputError(f"{label}: {path} cannot be read: {reason}") from error
    if len(data) > _LARGEST_TEXT:
        raise InputError(f"{label}: {path} has {len(data)} bytes; a kernel has at most {_LARGEST_TEXT}")
    try:
        return KernelText(data.decode("utf-8"), language_name, str(path), entry)
    except UnicodeDecodeError as error:
        raise InputError(f"{label}: {path} is not UTF-8 (byte {error.start}); save it so") from error


def attach_text(text: KernelText, usage: Usage, target: Target, name: str | None, names: Iterable[str]) -> UserKernel:
    """Make a kernel of a text. SignatureError where its function or its usage does not fit the op."""
    _require_signature(target)
    entry = text.entry or _only_function(text, target)
    kernel_name = name or entry
    label = _free_label(kernel_name, names, target)
    user_kernel.validate(usage, target, label)
    prototype = None
    _check_options(usage, label, text.language)
    if LANGUAGES[text.language].is_native:
        prototype = prototype_of(text.text, entry, label)
        roles_of(prototype, usage, target, label)
    facts = text.language, text.text, entry, text.place
    return UserKernel(kernel_name, *facts, target, usage, prototype=prototype, line=text.line)


def attach_function(
    function: Callable[..., Any], usage: Usage, target: Target, name: str | None, names: Iterable[str]
) -> UserKernel:
    """Make a kernel of a function that Python calls. SignatureError where its usage does not fit the op."""
    plain, language = user_kernel.python_function(function), user_kernel.language_of(function)
    entry = getattr(plain, "__name__", type(plain).__name__)
    kernel_name = name or entry
    label = _free_label(kernel_name, names, target)
    if inspect.isclass(function):
        raise SignatureError(f"{label} is a class; a kernel is a function: give one that makes what it needs of it")
    has_programs = LANGUAGES[language].grid is Grid.PROGRAMS
    user_kernel.validate(usage, target, label, meta_names(function) if has_programs else ())
    if has_programs:
        _require_signature(target)
        bind_parameters(function, usage, target, label)
        usage = replace(usage, returns=False)
    else:
        _require_of_use(usage, language, label)
    if usage.returns is None:
        usage = replace(usage, returns=_returns(plain, usage, target, label))
    if not usage.returns or usage.updates:
        _require_signature(target)
    code = getattr(plain, "__code__", None)
    place = f"{code.co_filename}:{code.co_firstlineno}" if code else type(plain).__module__
    kernel = UserKernel(kernel_name, language, _source_of(plain), entry, place, target, usage, function)
    return kernel if has_programs else _with_parameters(kernel, plain)


def _with_parameters(kernel: UserKernel, plain: Callable[..., Any]) -> UserKernel:
    """The kernel with its parameter names set. SignatureError for a keyword-only parameter that nothing provides."""
    try:
        parameters = user_kernel.parameters_of(plain, kernel.title).values()
    except SignatureError:
        return kernel
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return kernel
    named = kernel.numbers() if kernel.usage.args is None else kernel.usage.constants  # args= gives the op's own
    lacking = [p for p in parameters if p.default is inspect.Parameter.empty and p.kind is not p.VAR_POSITIONAL]
    unknown = next((p.name for p in lacking if p.kind is p.KEYWORD_ONLY and p.name not in named), None)
    if unknown is not None:
        message = f"takes {unknown} by name, and nothing gives it"
        raise SignatureError(f"{kernel.title} {message}; say constants={{{unknown!r}: ...}}, or give it a default")
    required = tuple(p.name for p in lacking if p.name in named and p.kind is not p.POSITIONAL_ONLY)
    bound = replace(kernel, taken=frozenset(p.name for p in parameters), required=required)
    _require_taken(bound)
    return bound


def _require_taken(kernel: UserKernel) -> None:
    """Require that each of the kernel's own constants is a parameter of the kernel or of a function of the author."""
    usage, label = kernel.usage, kernel.title
    functions = [each for each in (usage.launch, usage.args, usage.init) if callable(each)]
    parameters = {name for function in functions for name in user_kernel.parameters_of(function, label)}
    idle = next((name for name in usage.constants if not kernel.takes(name) and name not in parameters), None)
    if idle is not None:
        raise SignatureError(f"constants= of {label} names {idle}, and it takes no {idle}; let a parameter be named so")


def _only_function(written: KernelText, target: Target) -> str:
    """The function named like the op, or the only one that is not static."""
    functions = functions_of(written.text, written.language)
    if target.op in functions:
        return target.op
    if len(functions) != 1:
        message = f"{written.place} defines {', '.join(functions) or 'no function'}"
        raise SignatureError(f"{target.op}: {message}; say which is the kernel with entry=")
    return functions[0]


def _require_signature(target: Target) -> None:
    if target.signature is None:
        message = "its outputs cannot be allocated without a signature"
        raise SignatureError(f"{target.op}: {message}; give it one: @noyau.op('f32[n] -> f32[n]')")


def _free_label(name: str, names: Iterable[str], target: Target) -> str:
    """The label of a new kernel. SignatureError where the name is invalid or already used."""
    user_kernel.require_name(name, f"a kernel of {target.op}")
    if name in names:
        raise SignatureError(f"{target.op} has a kernel {name} already; give another one with name=")
    return f"{target.op}[{name}]"


def _check_options(usage: Usage, label: str, language: str) -> None:
    """Require that the options of a text are flags for the compiler, and of a launch in CUDA C++ two numbers."""
    least = {"shared_bytes": 0, "cluster": 1} if LANGUAGES[language].on_gpu else {}
    unknown = next((name for name in usage.options if name not in ("flags", *least)), None)
    if unknown is not None:
        known = f"in CUDA C++ there are flags, {', '.join(least)}" if least else "a kernel in C has flags: ['-O1']"
        raise SignatureError(f"options= of {label} has {unknown!r}; {known}")
    for name, value in ((name, value) for name, value in usage.options.items() if name in least):
        if not isinstance(value, int | np.integer) or value < least[name]:
            raise SignatureError(f"options= of {label}: {name} is {value!r}; give an integer from {least[name]} on")
    flags = usage.options.get("flags", ())
    if not isinstance(flags, list | tuple) or not all(isinstance(f, str) and f.startswith("-") for f in flags):
        raise SignatureError(f"options= of {label}: flags is {flags!r}; give a list of words that begin with -")


def _require_of_use(usage: Usage, language: str, label: str) -> None:
    """SignatureError for a launch or options that have no effect on a Python function."""
    if usage.launch is not None and not LANGUAGES[language].on_gpu:
        reason = "it is called as any function of Python is, without a grid"
        raise SignatureError(f"launch= of {label}: {reason}; leave it out")
    if usage.options:
        raise SignatureError(
            f"options= of {label}: only texts and kernels in Triton have some; give them to its decorator"
        )


def _returns(plain: Callable[..., Any], usage: Usage, target: Target, label: str) -> bool:
    """Whether the function returns its results, inferred from the number of its parameters."""
    if target.signature is None:
        return True
    if usage.args is not None or usage.updates:
        return False
    try:
        parameters = user_kernel.parameters_of(plain, label).values()
    except SignatureError:
        return False
    required = [p for p in parameters if p.kind in user_kernel.POSITIONAL and p.default is inspect.Parameter.empty]
    counts = {len(target.inputs): True, len(target.inputs) + len(target.outputs): False}
    count = len([p for p in required if p.name not in {*target.constants, *usage.constants}])
    if count not in counts:
        takes = f"takes {several(count, 'array')} ({', '.join(p.name for p in required)})"
        has = f"the op has {len(target.inputs)} inputs, {len(target.inputs) + len(target.outputs)} with its outputs"
        raise SignatureError(f"{label} {takes}, and {has}; say with args= what it is called with")
    return counts[count]


def _source_of(plain: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(plain)
    except (OSError, TypeError):
        return f"{getattr(plain, '__qualname__', type(plain).__qualname__)}: its source is not at hand"
