"""Stand-ins while a script runs: how one is put into its place, and whether the script put something else there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

_MISSING = object()
_STAND_INS: dict[tuple[Any, str], Any] = {}
WATCHING = ("noyau", "numpy")


def patch(undone: ExitStack, holder: Any, name: str, value: Any) -> None:
    """`holder.name` is `value`, until `undone` ends."""
    _STAND_INS[holder, name] = value
    undone.callback(_STAND_INS.pop, (holder, name), None)
    before = vars(holder).get(name, _MISSING)
    if before is _MISSING:
        undone.callback(delattr, holder, name)
    else:
        undone.callback(setattr, holder, name, before)
    setattr(holder, name, value)


class FunctionGuard:
    """The functions and methods of noyau and of NumPy, as each was when it was first seen, and the stand-ins: what is
    seen through others that a script puts there does not count, though it puts the first ones back."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, str], Any] = {}
        self._changed: dict[str, None] = {}

    def look(self, packages: Sequence[str] = ("noyau.sanitizer",)) -> str:
        """The names of those that were others now or at an earlier look. `packages`: whose functions are looked at."""
        modules = [each for name, each in list(sys.modules.items()) if _is_of(name, packages)]
        classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
        holders = [*modules, *(each for each in classes if _is_of(str(each.__module__), packages))]
        now = {(each, name): value for each in holders for name, value in list(vars(each).items()) if callable(value)}
        changed = [key for key, value in now.items() if self._first.setdefault(key, value) is not value]
        changed += [key for key, value in _STAND_INS.items() if vars(key[0]).get(key[1]) is not value]
        self._changed |= dict.fromkeys(f"{getattr(each, '__name__', each)}.{name}" for each, name in changed)
        return ", ".join(self._changed)


def _is_of(name: str, packages: Sequence[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in packages)
