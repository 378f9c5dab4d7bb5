"""What a session or a notebook shows of a record: what `print` shows."""

from __future__ import annotations

import os
from pathlib import Path

from noyau.errors import InputError


class Printed:
    """What has one text, `str`. A dataclass of it says `repr=False`, or it would be shown field by field."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def printable(name: str) -> str:
    """A name as it may be printed: one with control characters in it is escaped."""
    return name if name.isprintable() else ascii(name)


def several(number: int, noun: str) -> str:
    """So many of something, in words: `1 case`, `12 shapes`, `2 launches`."""
    ending = "es" if noun.endswith(("s", "ch")) else "s"
    return f"{number} {noun}{ending * (number != 1)}"


def counted(number: int) -> str:
    """A count as it is read: 812, 43 k, 2.1 M."""
    if number < 10_000:
        return str(number)
    return f"{number / 1e3:.0f} k" if number < 1e6 else f"{number / 1e6:.1f} M"


def path_of(given: object, called: str) -> Path:
    """What a public function was given as a path. InputError where it is none; `called`: the function, and what it
    takes beside paths: "noyau.load takes"."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    told = f"and this is of the type {type(given).__name__}"
    raise InputError(f"{called} the path of a file, {told}: give a text or a Path")
