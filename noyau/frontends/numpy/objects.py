"""Proxies of a method's object: reads are recorded by path; arrays become inputs of the trace, numbers constants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from noyau.errors import UnsupportedError

Path: TypeAlias = tuple[Any, ...]  # from the object: names of attributes, keys, positions
Kind: TypeAlias = tuple[Any, ...]
Function: TypeAlias = Callable[[Any], Any]
_PLAIN = frozenset({bool, int, float, str, type(None)})
_NUMBERS: tuple[Any, ...] = (*_PLAIN, complex, bytes, np.generic, np.dtype, slice, type(Ellipsis))
_BY_IDENTITY = (type, Enum, FunctionType, BuiltinFunctionType, ModuleType, np.ufunc, functools.partial)


def kind_of(value: Any, path: Path) -> Kind:
    """The kind that a value must have again for a trace to be valid. UnsupportedError where changes would go unseen."""
    kind = type(value)
    if kind in _PLAIN:  # first, since every call checks it
        return "number", kind, repr(value)
    if kind is np.ndarray or hasattr(kind, "__dlpack__"):
        return "array", value.dtype, tuple([extent == 1 for extent in value.shape])
    match value:
        case _ if isinstance(value, _NUMBERS):
            return "number", kind, repr(value)
        case _ if isinstance(value, _BY_IDENTITY) or hasattr(value, "description"):  # an op
            return "function", value
        case tuple() | list():
            return "sequence", kind, len(value)
        case dict():
            return "mapping", tuple(value)
        case _ if hasattr(value, "__dict__") or hasattr(kind, "__slots__"):
            return "object", kind
        case _:
            raise UnsupportedError(f"{spell(path)} is a {kind.__name__}, of which an op sees no changes")


def spell(path: Path) -> str:
    """A path in Python's notation: self.layers[0].weight."""
    return "self" + "".join(f".{key}" if type(key) is str else f"[{key!r}]" for key in path)


class Reads:
    """A function's reads of an object. `values` and `kinds`: by path, parents first. `plain`: converts an array to
    NumPy's; with it, more paths are read from the object itself. `replaced`: the stand-in of a function in a trace."""

    def __init__(self, values: Mapping[Path, Any], kinds: Mapping[Path, Kind], plain: Any = None) -> None:
        self.values, self.kinds, self.plain = dict(values), dict(kinds), plain
        self.replaced: Function = lambda value: value
        self.arrays = [path for path, kind in kinds.items() if kind[0] == "array"]
        self.steps = [(path, path[:-1], _getter(kinds, path), kind) for path, kind in kinds.items() if path]

    def within(self, replaced: Function) -> Reads:
        """These reads in a trace, with `replaced` for functions."""
        reads = Reads(self.values, self.kinds)
        reads.replaced = replaced
        return reads

    def with_arrays(self, arrays: Mapping[Path, Any]) -> Reads:
        """These reads with arrays at their paths."""
        reads = self.within(self.replaced)
        reads.values |= arrays
        return reads

    def of(self, thing: Any) -> dict[Path, Any] | None:
        """An object's values by path, if all kinds are as recorded; else None."""
        values = {(): thing}
        if type(thing) is not self.kinds[()][-1]:
            return None
        try:
            for path, before, getter, kind in self.steps:
                value = values[path] = getter(values[before])
                if kind_of(value, path) != kind:
                    return None
        except (AttributeError, LookupError, UnsupportedError):
            return None
        return values

    def read(self, path: Path) -> Any:
        """The value at a path, as the function sees it."""
        if path not in self.kinds:
            if self.plain is None:
                raise UnsupportedError(f"it reads {spell(path)} in some calls and not in others; read it in each")
            value = _getter(self.kinds, path)(self.values[path[:-1]])
            self.kinds[path] = kind_of(value, path)
            self.values[path] = self.plain(value) if self.kinds[path][0] == "array" else value
        match self.kinds[path]:
            case ("sequence", _, int(length)):
                return Sequence(self.read((*path, place)) for place in range(length))
            case ("mapping", keys):
                return MappingProxyType({key: self.read((*path, key)) for key in keys})
            case ("object", kind):
                return Object(self, path, kind)
            case ("function", value):
                return self.replaced(value)
            case _:
                return self.values[path]


def _getter(kinds: Mapping[Path, Kind], path: Path) -> Function:
    """The function from the value at the parent of a path to the value at the path: an attribute or an item."""
    return attrgetter(path[-1]) if (kinds[path[:-1]][0] == "object") else itemgetter(path[-1])


class Sequence(tuple[Any, ...]):
    """A read-only tuple or list of an object."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f".{name} of a list of the object is not traced; it may only be read")


class Object:
    """Proxy of an object: attributes are read by path; methods and properties come from its class."""

    def __init__(self, reads: Reads, path: Path, kind: type) -> None:
        for name, value in (("_reads", reads), ("_path", path), ("_kind", kind)):
            object.__setattr__(self, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind

    def __getattr__(self, name: str) -> Any:
        of_class = inspect.getattr_static(self._kind, name, None)
        function = of_class.fget if isinstance(of_class, property) else getattr(of_class, "function", of_class)
        if not isinstance(function, FunctionType):
            return self._reads.read((*self._path, name))
        method = MethodType(self._reads.replaced(function), self)
        return method() if isinstance(of_class, property) else method

    def __setattr__(self, name: str, value: Any) -> None:
        raise UnsupportedError(f"it sets {spell((*self._path, name))}, which an op does not; return the new value")

    def __eq__(self, other: object) -> bool:
        raise UnsupportedError(f"it compares {spell(self._path)}; compare what that holds")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        if hasattr(self._kind, "__bool__") or hasattr(self._kind, "__len__"):
            raise UnsupportedError(f"it asks whether {spell(self._path)} is true; ask what that holds")
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("__call__")(*args, **kwargs)


def unwritable(value: Any) -> Any:
    """A read-only view of an array; any other value unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    array = value.view()
    array.flags.writeable = False
    return array


def record_reads(function: FunctionType, thing: Any, args: Any, constants: Mapping[str, Any], plain: Function) -> Reads:
    """Record a function's reads of an object, by a call with a proxy whose results must be those with the object.

    `plain`: converts an array to NumPy's. UnsupportedError where changes would go unseen, or where results differ."""
    watched = Reads({(): thing}, {(): ("object", type(thing))}, plain=lambda value: unwritable(plain(value)))
    inputs = [unwritable(plain(each)) for each in args]
    try:
        results = _cells(function(watched.read(()), *inputs, **constants))
        numbers = {path: value for path, value in watched.values.items() if watched.kinds[path][0] == "number"}
        reads = Reads(numbers, watched.kinds)
        values = reads.of(thing) or {}
        is_plain = all(isinstance(values.get(path), np.ndarray) for path in reads.arrays)
        is_same = not is_plain or _cells(function(thing, *inputs, **constants)) == results
    except UnsupportedError:
        raise
    except Exception as fault:
        raise UnsupportedError(f"it fails with {type(fault).__name__}: {fault}") from fault
    if not values or not is_same:
        raise UnsupportedError("its result from what it reads of the object is not that from the object itself")
    return reads


def _cells(results: Any) -> list[Any]:
    arrays = map(np.asarray, results if isinstance(results, tuple | list) else [results])
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def bound(function: FunctionType, reads: Reads, count: int) -> FunctionType:
    """A method as a function of its `count` inputs, then of the arrays it reads; its fingerprint covers the kinds."""
    paths = reads.arrays

    def call(*args: Any, _kinds: Mapping[Path, Kind] = reads.kinds, **constants: Any) -> Any:
        before, arrays, outputs = args[:count], args[count : count + len(paths)], args[count + len(paths) :]
        thing = reads.with_arrays(dict(zip(paths, arrays, strict=True))).read(())
        return function(thing, *before, *outputs, **constants)

    call.__code__ = call.__code__.replace(co_filename=function.__code__.co_filename)
    return functools.wraps(function)(call)  # type: ignore[return-value]
