"""Functions of a user that say by the names of their parameters what they want to know."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from noyau.errors import SignatureError

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def asked_for(function: Callable[..., Any], offered: Iterable[str], called: str) -> tuple[str, ...]:
    """The names that a function asks for. SignatureError for one that is not offered and has no default."""
    known, found = list(offered), []
    for name, parameter in parameters_of(function, called).items():
        if parameter.kind not in _NAMED:
            raise SignatureError(f"{called} takes {parameter}; it gets what it asks for by the name of each parameter")
        if name in known:
            found.append(name)
        elif parameter.default is inspect.Parameter.empty:
            raise SignatureError(f"{called} asks for {name}; there are {', '.join(known)}")
    return tuple(found)


def ask(function: Callable[..., Any], offered: Mapping[str, Any], called: str) -> Any:
    """What a function says, given what it asks for by name."""
    return function(**{name: offered[name] for name in asked_for(function, offered, called)})


def parameters_of(function: Callable[..., Any], called: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function. SignatureError where Python cannot tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise SignatureError(
            f"{called} is {function!r}, of which the parameters cannot be told; wrap it in a def"
        ) from None
