"""Stand-ins while a script runs: how one is put into its place, and whether the script put something else there."""

from __future__ import annotations

import sys
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


def watching_functions() -> dict[tuple[Any, str], Any]:
    """The functions and methods of noyau and of NumPy that are loaded, by their module or class and their name: what is
    seen through others that a script puts there does not count."""
    modules = [each for name, each in list(sys.modules.items()) if name.partition(".")[0] in _WATCHING]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    holders = [*modules, *(each for each in classes if str(each.__module__).partition(".")[0] in _WATCHING)]
    return {(each, name): value for each in holders for name, value in list(vars(each).items()) if callable(value)}
