"""A function of Numba that is on no op, called on one's own arguments with every access watched."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from noyau.errors import SignatureError
from noyau.handwritten.kernels import python_function
from noyau.shadow.numba.watching import watch_call
from noyau.shadow.records import Watched


def call(function: Any, args: Sequence[Any], launch: Any, size: str, called: str) -> tuple[Watched, Any]:
    """As shadow/calling.py has it. SignatureError for a launch, or arguments that it does not take."""
    name = python_function(function).__name__
    if launch is not None:
        raise SignatureError(f"{name} is called, not launched: leave out launch=")
    try:
        given = inspect.signature(python_function(function)).bind(*args)
    except TypeError as fault:
        raise SignatureError(f"{name}: {fault}") from None
    given.apply_defaults()
    return watch_call(function, given.args, size, called)
