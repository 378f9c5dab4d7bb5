"""The fingerprint of a function: its text, and what it reads around itself."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from noyau.codegen.language import LANGUAGES
from noyau.kernels.user_kernel import language_of, python_function

# Where functions lie that change with a version alone: of Python, of what is installed, of noyau itself.
_INSTALLED = tuple(str(Path(sysconfig.get_path(name))) for name in ("stdlib", "purelib", "platlib"))
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, type(Ellipsis), slice, range)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A function as a key, of kinds too that have no hash."""

    function: Callable[..., Any]

    def __hash__(self) -> int:
        return id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.function is other.function


def fingerprint(value: Any) -> str:
    """The fingerprint of a value, as text, equal in each process: of a function its source, and the same of what it
    calls, its closure, its defaults and the globals that it names; of what has no source, its name and its library.

    Of a function as it is when it is asked first: what counts its calls would make another one of it with each."""
    return _told_of(_Same(value)) if callable(value) else "\n".join(_Fingerprint().of(value))


@functools.lru_cache(maxsize=1024)
def _told_of(same: _Same) -> str:
    return "\n".join(_Fingerprint().of(same.function))


def source_of(function: Callable[..., Any]) -> str:
    """The text of a function; where it has none, or shares its line with others, what it was compiled to."""
    code = getattr(function, "__code__", None)
    compiled = "\n".join(_compiled(code)) if code else ""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return compiled
    return text if getattr(function, "__name__", "") != "<lambda>" else f"{text}\n{compiled}"


def _compiled(code: CodeType) -> Iterator[str]:
    """The lines of what was compiled."""
    yield f"{code.co_code!r} {code.co_names!r} {code.co_varnames!r}"
    for constant in code.co_consts:
        yield from _compiled(constant) if isinstance(constant, CodeType) else (repr(constant),)


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """One text. `seen`: what was told already, by its place in memory, with its number; kept, so that each place stays
    its own."""

    seen: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def of(self, value: Any) -> Iterator[str]:
        """The lines of a value."""
        if isinstance(value, _PLAIN):
            yield repr(value)
        elif id(value) in self.seen:
            yield f"number {self.seen[id(value)][0]} again"
        else:
            self.seen[id(value)] = len(self.seen), value
            yield from self.anew(value)

    def anew(self, value: Any) -> Iterator[str]:
        """The lines of what is no plain value, told for the first time."""
        inner = value
        if LANGUAGES[language_of(value)].packages:
            inner = python_function(value)
            yield from self.decorated(value)
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

    def decorated(self, function: Any) -> Iterator[str]:
        """The settings of Numba and Triton beside the function: options, configurations of a tuner, heuristics."""
        yield from self.of(getattr(function, "targetoptions", None))
        while function is not None:
            yield from map(str, getattr(function, "configs", ()))
            yield from self.of(getattr(function, "values", None))
            function = getattr(function, "fn", None)

    def all(self, values: Iterable[Any]) -> Iterator[str]:
        for value in values:
            yield from self.of(value)

    def function(self, function: FunctionType) -> Iterator[str]:
        """A function in Python: of a user's its text and what that names; of what it calls that is installed the
        name."""
        yield f"{function.__module__}.{function.__qualname__}"
        is_installed = _is_installed(function.__code__.co_filename)
        if not is_installed or len(self.seen) == 1:
            yield source_of(function)
        if is_installed:
            return
        names = list(dict.fromkeys(_names(function.__code__)))
        scope = function.__globals__
        for name in names:
            if name in scope:
                yield name
                yield from self.member(scope[name], names)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield name
            yield from self.of(_content(cell))
        yield from self.all((function.__defaults__, function.__kwdefaults__))

    def member(self, value: Any, names: Iterable[str]) -> Iterator[str]:
        """A global; of a user's own module, what is named of it."""
        yield from self.of(value)
        if isinstance(value, ModuleType) and not _is_installed(value.__dict__.get("__file__") or ""):
            for name in names:
                if name in vars(value):
                    yield from self.of(vars(value)[name])

    def kind(self, kind: type) -> Iterator[str]:
        """A class: of a user's its functions and what else it holds."""
        yield f"{kind.__module__}.{kind.__qualname__}"
        if not _is_installed(_file_of(kind)):
            yield from self.all(kind.__bases__)
            yield from self.all(part for name, each in vars(kind).items() if _is_own(name) for part in (name, each))

    def thing(self, value: Any) -> Iterator[str]:
        """An object: of an op its reference and signature, of a user's its class and what it holds; of what C made, its
        name and the library that it is in; of what else is installed, its cells."""
        if type(value).__module__.startswith("noyau.") and callable(getattr(value, "reference", None)):
            yield from self.all((str(value.signature), value.reference))
            return
        yield from self.kind(type(value))
        yield str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        yield from _libraries(value)
        if not _is_installed(_file_of(type(value))):
            yield from self.of(getattr(value, "__dict__", None))
        elif hasattr(value, "__array__"):
            yield from self.of(_cells(value))


def _libraries(value: Any) -> list[str]:
    """Digest the files of a function that is no Python: the module that it is from, or ctypes' library."""
    held = getattr(value, "_objects", None)  # of ctypes: what keeps the library open
    paths = [str(getattr(each, "_name", "")) for each in held.values()] if isinstance(held, dict) else []
    paths.append(_file_of(value))
    own = [Path(path) for path in paths if not _is_installed(path)]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in own if path.is_file()]


def _cells(value: Any) -> Any:
    """An array of another library as one of NumPy, where it lies in this machine's memory."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _is_own(name: str) -> bool:
    """Whether a name of a class is the user's; Python adds others, some with places in memory."""
    return name in ("__init__", "__call__") or not name.startswith("__")


def _file_of(value: Any) -> str:
    """The file of the module that a class or a function names as its own; of a session, none that is installed."""
    module = getattr(value, "__module__", None) or ""
    return getattr(sys.modules.get(module), "__file__", None) or ("<session>" if module == "__main__" else "")


def _is_installed(file: str) -> bool:
    """Whether a file changes with a version alone: so does what has none, a module within Python."""
    return not file or file.startswith((*_INSTALLED, str(Path(__file__).parents[1])))


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function asks for, and those within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not set yet
        return None
