"""Records and names as text: printed, and as plain data for JSON."""

import math
import os
from collections.abc import Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from itertools import chain, count
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from noyau.errors import InputError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
UNWRITTEN: Mapping[str, Any] = {"unwritten": True}  # metadata of fields that stay out of a record's plain data


class TextRecord:
    """A record whose repr is its text, `str(record)`. A dataclass that derives from it needs `repr=False`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def headline(self) -> str:
        """The verdict in one line, or one line for each part; here the first line of the text."""
        return str(self).strip().partition("\n")[0]


def printable(name: str) -> str:
    """A name fit for printing: escaped if it has control characters."""
    return name if name.isprintable() else ascii(name)


def several(number: int, noun: str) -> str:
    """A count with its noun: `1 case`, `12 shapes`, `2 launches`."""
    ending = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number} {noun}{ending * (number != 1)}"


def few(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first of some names, and the number of those beyond `most`: `a, b and 3 more`."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def free_name(name: str, taken: Container[str]) -> str:
    """The name if it is free, else the name with the first number from 2 on that makes it free."""
    return next(each for each in chain([name], (f"{name}_{number}" for number in count(2))) if each not in taken)


def collect(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group the second items of pairs by the first ones, in order."""
    values: dict[Key, list[Value]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def sizes_text(sizes: Mapping[str, Any]) -> str:
    """`rows = 5, cols = 3`."""
    return ", ".join(f"{printable(name)} = {value}" for name, value in sizes.items())


def differing(every: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the sizes that differ between bindings."""
    return [name for name in every[0] if len({sizes.get(name) for sizes in every}) > 1]


def count_text(number: float) -> str:
    """A count or a rate as it is read: 812, 43 k, 2.1 M."""
    if number < 10_000:
        return f"{number:.3g}" if number < 1000 else f"{number:.0f}"
    return f"{number / 1e3:.0f} k" if number < 1e6 else f"{number / 1e6:.1f} M"


def path_of(argument: object, caller: str) -> Path:
    """The argument of a public function as a path. InputError where it is none; `caller`: as "noyau.load takes"."""
    if isinstance(argument, str | os.PathLike):
        return Path(argument)
    kind = type(argument).__name__
    raise InputError(f"{caller} the path of a file, and this is of the type {kind}: give a text or a Path")


def package_text(path: str) -> str:
    """The text of a file of the package, by its path below the package's folder."""
    return files("noyau").joinpath(*path.split("/")).read_text("utf-8")


def as_json(value: Any) -> Any:
    """Return a value as plain data for JSON: a record by its own `to_json`, or as its fields in order; an enum as its
    value; a number that is not finite as None."""
    match value:
        case Enum():
            return as_json(value.value)
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {str(key): as_json(part) for key, part in value.items()}
        case list() | tuple():
            return [as_json(part) for part in value]
        case _:
            return value.to_json() if hasattr(value, "to_json") else fields_json(value)


def plain_names(kind: Any) -> dict[str, str]:
    """The attributes of a record (or its class) by their names in plain data, in order: `PLAIN` of its class, whose
    words are `name` or `name=attribute`, else its fields, except those marked UNWRITTEN."""
    own = (each.name for each in fields(kind) if "unwritten" not in each.metadata)
    words = (word.partition("=") for word in getattr(kind, "PLAIN", "").split() or own)
    return {name: attribute or name for name, _, attribute in words}


def fields_json(record: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return a record as plain data, by its plain names, except those in `without`."""
    names = plain_names(record).items()
    return {name: as_json(getattr(record, attribute)) for name, attribute in names if name not in without}


_types = cache(get_type_hints)  # of the fields of a record


def from_json(kind: Any, value: Any) -> Any:
    """Rebuild a value of a type from the plain data of `as_json` or `dataclasses.asdict`. KeyError, TypeError or
    ValueError where the data does not fit the type."""
    origin, parts = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        names = plain_names(kind)
        pairs = ((names.get(name, name), each) for name, each in {**value}.items())
        return kind(**{attribute: from_json(_types(kind)[attribute], each) for attribute, each in pairs})
    if origin is tuple:
        return tuple(map(from_json, parts[:1] * len(value) if parts[1:] == (...,) else parts, value))
    if origin is Mapping:
        return {parts[0](key): from_json(parts[1], each) for key, each in {**value}.items()}
    if NoneType in parts:
        return None if value is None else from_json(parts[0], value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum | float) else value
