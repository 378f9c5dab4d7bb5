"""Stand-ins while a script runs: how one is put into its place, and whether the script put something else there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

_MISSING = object()
_WATCHING = ("noyau", "numpy")


def patch(undone: ExitStack, holder: Any, name: str, value: Any) -> None:
    """`holder.name` is `value`, until `undone` ends."""
    before = vars(holder).get(name, _MISSING)
    if before is _MISSING:
        undone.callback(delattr, holder, name)
    else:
        undone.callback(setattr, holder, name, before)
    setattr(holder, name, value)


def watching_functions() -> dict[tuple[str, str], Any]:
    """The functions and methods of noyau and of NumPy that are loaded, by the name of their holder and their own."""
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] in _WATCHING]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    own = [each for each in classes if str(each.__module__).partition(".")[0] in _WATCHING]
    members = [(holder.__name__, *pair) for holder in (*modules, *own) for pair in list(vars(holder).items())]
    return {(holder, name): value for holder, name, value in members if callable(value) or isinstance(value, property)}


def replaced_functions(before: Mapping[tuple[str, str], Any], now: Callable[[], Any] = watching_functions) -> list[str]:
    """The names of those that are others now: what is seen through them does not count."""
    after = now()
    return [".".join(place) for place, value in before.items() if after.get(place) is not value]
