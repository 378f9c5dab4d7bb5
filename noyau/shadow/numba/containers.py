"""Lists, sets and dicts that a watched function makes: as Python's, but that they ask before they are changed.

They are handed to other functions, and have other names, so who changes one shows only when it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_OF_LISTS = "__setitem__ __delitem__ __iadd__ __imul__ append extend insert pop remove reverse sort clear"
_OF_DICTS = "__setitem__ __delitem__ __ior__ pop popitem setdefault update clear"
_OF_SETS = (
    "__ior__ __iand__ __isub__ __ixor__ add discard remove pop clear update "
    "intersection_update difference_update symmetric_difference_update"
)
_MADE_OF_SETS = "__or__ __and__ __sub__ __xor__ copy union intersection difference symmetric_difference"


def held(value: Any, hold: Callable[[Any], Any], require_own: Callable[[], None]) -> Any:
    """A list, set or dict of Python's as one that calls `require_own` before each change, and of which `hold` is told
    what it makes; other values as they are."""
    kind = _KINDS.get(type(value))
    if kind is None:
        return value
    made = kind(value)
    made.hold, made.require_own = hold, require_own
    return made


def _held_kind(kind: type, changing: str, making: str) -> Any:
    methods = {name: _changed(getattr(kind, name)) for name in changing.split()}
    methods |= {name: _made(getattr(kind, name)) for name in making.split()}
    return type(f"Held{kind.__name__}", (kind,), methods)


def _changed(plain: Callable[..., Any]) -> Callable[..., Any]:
    def change(self: Any, *args: Any, **named: Any) -> Any:
        self.require_own()
        return plain(self, *args, **named)

    return change


def _made(plain: Callable[..., Any]) -> Callable[..., Any]:
    def make(self: Any, *args: Any) -> Any:
        result = plain(self, *args)
        is_element = plain is list.__getitem__ and not isinstance(args[0], slice)
        return result if is_element else self.hold(result)

    return make


_KINDS: dict[type, Any] = {
    list: _held_kind(list, _OF_LISTS, "__getitem__ __add__ __mul__ __rmul__ copy"),
    dict: _held_kind(dict, _OF_DICTS, "__or__ copy"),
    set: _held_kind(set, _OF_SETS, _MADE_OF_SETS),
}
