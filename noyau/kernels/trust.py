"""Trust in user kernels: a kernel may run if a check passed for its present text on this machine, or with trust=True.

A function is identified by its fingerprint: its text and everything that it refers to."""

import functools
import hashlib
import inspect
import json
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.errors import NoyauError, OutputError
from noyau.frontends.numpy.scopes import global_names
from noyau.kernels.c.text import c_flags
from noyau.kernels.call import CALLERS, caller_of
from noyau.kernels.reference import Reference
from noyau.kernels.user_kernel import UserKernel, language_of, python_function
from noyau.signatures.instances import axes_of, spell_axes
from noyau.signatures.types import Instance
from noyau.toolchain import cache
from noyau.toolchain.c import compiler as c_compiler

_SUFFIX = ".json"
_WRONG = "wrong"  # the fact that a check found an error
_SEEN: set[str] = set()  # keys of passed checks, from the disk or this process; they stay valid while it lasts
_FAULTS: dict[str, str] = {}  # by key, the faults that could not be written to the disk

# Folders whose functions change only with a version: of Python, of an installed package, of noyau itself.
_INSTALLED = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "purelib", "platlib"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, type(Ellipsis), slice, range)


def ineligible(
    kernel: UserKernel, reference: Reference, instance: Instance, constants: Mapping[str, Any], device: str = "cpu"
) -> str:
    """The reason why a kernel may not run for an instance whose arrays lie on `device`; empty if it may."""
    caller = caller_of(kernel, gpu=device != "cpu")
    if caller is None:
        lies = "which NumPy arrays cannot be given to" if device == "cpu" else f"and the tensors lie on {device}"
        return f"it is in {kernel.language}, {lies}"
    untaken = [name for name, value in reference.constants.items() if constants.get(name, value) != value]
    missed = [name for name in untaken if not kernel.takes(name) and kernel.usage.args is None]
    if missed:
        return f"it does not take the constant {missed[0]}, which is not at its default"
    if not kernel.usage.trust and not is_checked(kernel, reference, instance):
        # Say why the check does not cover this instance.
        if fault := _fault(kernel, reference):
            return f"noyau.check finds it wrong: {fault}"
        missing = [fact for fact in _facts(kernel, instance) if not _is_known(kernel, reference, fact)]
        if not missing or not missing[0]:
            return "it has not been checked yet as it is: noyau.check(op) does that, or attach it with trust=True"
        message = " and ".join(missing)
        return f"noyau.check has not found it right with {message}: it says why, or needs more time (budget_s=)"
    try:
        caller.prepare(kernel, instance, constants)
    except NoyauError as error:
        return str(error)
    return ""


def is_checked(kernel: UserKernel, reference: Reference, instance: Instance) -> bool:
    """Whether a check of this text on this machine passed for these dtypes and ranks, and no later one failed."""
    facts = _facts(kernel, instance)
    return not _fault(kernel, reference) and all(_is_known(kernel, reference, fact) for fact in facts)


def note(kernel: UserKernel, reference: Reference) -> None:
    """Memoise the fingerprints before a check runs the functions: one that counts its calls would change its own."""
    _key(kernel, reference, "")


def remember(
    kernel: UserKernel, reference: Reference, instances: Iterable[Instance], certificate: Mapping[str, Any]
) -> None:
    """Record that a check with these dtypes and ranks passed; in this process only if the cache cannot be written."""
    text = json.dumps(certificate)
    for fact in dict.fromkeys(fact for instance in instances for fact in _facts(kernel, instance)):
        key = _key(kernel, reference, fact)
        _SEEN.add(key)
        cache.store(key, _SUFFIX, lambda path: path.write_text(text, "utf-8"))
    if _fault(kernel, reference):
        revoke(kernel, reference, "")


def revoke(kernel: UserKernel, reference: Reference, fault: str) -> None:
    """Record a fault, which overrides all passed checks; in this process only if the cache cannot be written."""
    key = _key(kernel, reference, _WRONG)
    try:
        cache.keep(key, {"fault": fault})
    except OutputError:
        _FAULTS[key] = fault
    else:
        _FAULTS.pop(key, None)  # forked copies of this process check too, and share results by the disk only


def _fault(kernel: UserKernel, reference: Reference) -> str:
    """The fault that the last check found, or an empty text."""
    key = _key(kernel, reference, _WRONG)
    if key not in _FAULTS:
        record = cache.recall(key)
        return str(record.get("fault", "")) if isinstance(record, dict) else ""
    return _FAULTS[key]


def _facts(kernel: UserKernel, instance: Instance) -> list[str]:
    """The facts that a check on such inputs establishes, as texts: "" (it was checked at all), the dtypes, and the
    number of axes of each `*batch`, since a loop over two axes fails on three. Dtypes and axes count independently:
    dtypes checked with some ranks, and ranks checked with other dtypes, hold together."""
    axes = axes_of(kernel.target.signature, instance.ranks) if kernel.target.signature else {}
    return ["", ", ".join(dtype.value for dtype in instance.dtypes), *([spell_axes(axes)] if axes else [])]


def _is_known(kernel: UserKernel, reference: Reference, fact: str) -> bool:
    key = _key(kernel, reference, fact)
    if key not in _SEEN and cache.lookup(key, _SUFFIX) is not None:
        _SEEN.add(key)
    return key in _SEEN


def _key(kernel: UserKernel, reference: Reference, fact: str) -> str:
    """The cache key of a fact: a digest of all that the check depends on, with memoised fingerprints of functions."""
    usage = kernel.usage
    facts: list[Any] = [usage.launch, usage.args, usage.init, usage.constants, usage.returns, usage.updates]
    facts += [usage.options, reference.constants, kernel.function, reference.function, kernel.target.input_maker]
    if LANGUAGES[kernel.language].is_native:
        facts.append(c_flags(kernel))
    parts = [kernel.language, kernel.entry, kernel.text, str(kernel.target.signature), *map(fingerprint, facts), fact]
    caller = CALLERS.get(kernel.language)
    return cache.digest("checked", *parts, c_compiler.level(), caller.compiler() if caller else "")


_MOST = 1024
_FINGERPRINTS: dict[int, tuple[Any, str]] = {}  # with the functions, whose ids stay valid while they are kept


def fingerprint(value: Any) -> str:
    """The fingerprint of a value, a text that is equal in each process. A function's contains its source and the
    fingerprints of its closure, its defaults and the globals that it names; without a source, its name and its library.

    A function's is memoised at the first request: a function that counts its calls would change it with each."""
    if (known := _FINGERPRINTS.get(id(value))) is not None:
        return known[1]
    text = "\n".join(_Fingerprint().of(value))
    if callable(value):
        if len(_FINGERPRINTS) >= _MOST:
            _FINGERPRINTS.clear()
        _FINGERPRINTS[id(value)] = value, text
    return text


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function, its bytecode if it has none, and both for a lambda, whose line may hold others."""
    code = getattr(function, "__code__", None)
    compiled = "\n".join(_code_lines(code)) if code else ""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return compiled
    return text if getattr(function, "__name__", "") != "<lambda>" else f"{text}\n{compiled}"


def _code_lines(code: CodeType) -> Iterator[str]:
    """A code object as text, with the code objects within it."""
    yield f"{code.co_code!r} {code.co_names!r} {code.co_varnames!r}"
    for constant in code.co_consts:
        yield from _code_lines(constant) if isinstance(constant, CodeType) else (repr(constant),)


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """Visitor of one fingerprint. `seen`: by `id`, the number of a value and the value, which keeps its `id` in use."""

    seen: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def of(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif id(value) in self.seen:
            yield f"number {self.seen[id(value)][0]} again"
        else:
            self.seen[id(value)] = len(self.seen), value
            yield from self.anew(value)

    def anew(self, value: Any) -> Iterator[str]:
        """The lines of a value that is not plain and is met for the first time."""
        inner = value
        if LANGUAGES[language_of(value)].packages:
            inner = python_function(value)
            yield from self.settings(value)
        match inner:
            case FunctionType():
                yield from self.function(inner)
            case ModuleType():
                yield f"module {inner.__name__}"
            case type():
                yield from self.kind(inner)
            case MethodType():
                yield from self.all((inner.__func__, inner.__self__))
            case functools.partial():
                yield from self.all((inner.func, inner.args, inner.keywords))
            case np.ndarray():
                cells = repr(inner.tolist()).encode() if inner.dtype.hasobject else np.ascontiguousarray(inner).data
                yield f"{inner.dtype!r}{inner.shape} {hashlib.sha256(cells).hexdigest()}"
            case tuple() | list():
                yield from self.all((type(inner).__name__, *inner))
            case Set():
                yield from self.all(sorted(map(repr, inner)))
            case Mapping():
                yield from self.all(part for pair in inner.items() for part in pair)
            case _:
                yield from self.thing(inner)

    def settings(self, function: Any) -> Iterator[str]:
        """The settings of decorators of Numba and Triton: options, configurations of a tuner, heuristics."""
        yield from self.of(getattr(function, "targetoptions", None))
        while function is not None:
            yield from map(str, getattr(function, "configs", ()))
            yield from self.of(getattr(function, "values", None))
            function = getattr(function, "fn", None)

    def all(self, values: Iterable[Any]) -> Iterator[str]:
        for value in values:
            yield from self.of(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        """The lines of a function: its name; a user's source and all that it refers to; an installed root's source."""
        yield f"{function.__module__}.{function.__qualname__}"
        is_installed = _is_installed(function.__code__.co_filename)
        if not is_installed or len(self.seen) == 1:
            yield source_of(function)
        if is_installed:
            return
        names = list(dict.fromkeys(global_names(function.__code__)))
        scope = function.__globals__
        for name in names:
            if name in scope:
                yield name
                yield from self.member(scope[name], names)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield name
            yield from self.of(cell_content(cell))
        yield from self.all((function.__defaults__, function.__kwdefaults__))

    def member(self, value: Any, names: Iterable[str]) -> Iterator[str]:
        """The lines of a global; for a user's own module also of its attributes among `names`."""
        yield from self.of(value)
        if isinstance(value, ModuleType) and not _is_installed(value.__dict__.get("__file__") or ""):
            for name in names:
                if name in vars(value):
                    yield from self.of(vars(value)[name])

    def kind(self, kind: type) -> Iterator[str]:
        """The lines of a class: its name and, for a user's, its bases and attributes."""
        yield f"{kind.__module__}.{kind.__qualname__}"
        if not _is_installed(_file_of(kind)):
            yield from self.all(kind.__bases__)
            # Python adds other names, some with addresses.
            own = [name for name in vars(kind) if name in ("__init__", "__call__") or not name.startswith("__")]
            yield from self.all(part for name in own for part in (name, vars(kind)[name]))

    def thing(self, value: Any) -> Iterator[str]:
        """The lines of any other object. An op: its signature and reference. Others: class and name, the digest of the
        library of a C function, the attributes of a user's object, and the cells of an installed library's array."""
        if type(value).__module__.startswith("noyau.") and callable(getattr(value, "reference", None)):
            yield from self.all((str(value.signature), value.reference))
            return
        yield from self.kind(type(value))
        yield str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        # Digest the file of a function that is not in Python: its extension module, or the library of ctypes.
        held = getattr(value, "_objects", None)  # of ctypes: the objects that keep the library open
        paths = [str(getattr(each, "_name", "")) for each in held.values()] if isinstance(held, dict) else []
        paths.append(_file_of(value))
        own = [Path(path) for path in paths if not _is_installed(path)]
        yield from [hashlib.sha256(path.read_bytes()).hexdigest() for path in own if path.is_file()]
        if not _is_installed(_file_of(type(value))):
            yield from self.of(getattr(value, "__dict__", None))
        elif hasattr(value, "__array__"):
            yield from self.of(_cells(value))


def _cells(value: Any) -> Any:
    """An array of another library as a NumPy array; None if its memory is not the host's."""
    with suppress(TypeError, ValueError, RuntimeError):
        return np.asarray(value)


def _file_of(value: Any) -> str:
    """The file of the module of a class or a function; "<session>", which is not installed, for an interactive one."""
    module = getattr(value, "__module__", None) or ""
    return getattr(sys.modules.get(module), "__file__", None) or ("<session>" if module == "__main__" else "")


def _is_installed(file: str) -> bool:
    """Whether a file changes only with a version; true for no file, since such modules are built into Python."""
    return not file or file.startswith((*_INSTALLED, str(Path(__file__).parents[1])))


def cell_content(cell: Any) -> Any:
    """The value in a closure cell; None while the cell is empty."""
    with suppress(ValueError):
        return cell.cell_contents
