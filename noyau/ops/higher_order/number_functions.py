"""Functions of numbers as functions of arrays, with so many inputs; what they take beyond these is a constant."""

from __future__ import annotations

import builtins
import inspect
from types import FunctionType
from typing import Any

from noyau.errors import SignatureError
from noyau.ops.higher_order.closures import ClosureValues, Scalar


def over_arrays(function: Any, inputs: int, label: str) -> FunctionType:
    """A function of `inputs` numbers as one of arrays, cell by cell: a def, a lambda, one of math or operator, a ufunc,
    an op. Its further parameters are constants of the kernel, and need defaults.

    SignatureError for what is no function, or takes another number of arguments."""
    reference = getattr(function, "reference", None)
    if callable(reference) and hasattr(function, "description"):
        function = reference
    function = getattr(function, "py_func", function)
    if not callable(function):
        raise SignatureError(f"{label} takes a function of numbers, not {function!r}")
    surroundings = ClosureValues()
    if not isinstance(function, FunctionType) or (function.__module__ or "").startswith("numpy"):
        return _wrapped(surroundings.replaced(function), function, inputs, label)
    return _counted(surroundings.rebuilt(function), inputs, label)


def name_of(function: Any) -> str:
    """The name of a function within that of an op: `lambda` where it has no name."""
    name = str(getattr(function, "name", None) or getattr(function, "__name__", "function"))
    return name.strip("<>")


def _wrapped(inner: Scalar, function: Any, inputs: int, label: str) -> FunctionType:
    """A plain function around what is none. SignatureError where it surely takes another number of arguments."""
    if inputs > 3 or not _takes(function, inputs):
        raise SignatureError(f"{label} takes a function of {_count(inputs)}; {name_of(function)} is none")

    wrapper = (lambda x: inner(x), lambda x, y: inner(x, y), lambda x, y, z: inner(x, y, z))[inputs - 1]  # noqa: PLW0108
    wrapper.__name__ = name_of(function)
    assert isinstance(wrapper, FunctionType)
    return wrapper


def _takes(function: Any, inputs: int) -> bool:
    """Whether it may be called so, as far as it says what it takes; some of C's functions do not."""
    if hasattr(function, "nin"):
        return bool(function.nin == inputs)
    try:
        inspect.signature(function).bind(*[0] * inputs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def inputs_of(function: Any) -> int:
    """The number of inputs of a function: its parameters without a default, or 2 where it does not say."""
    function = getattr(function, "reference", function)
    function = getattr(function, "py_func", function)
    if isinstance(function, FunctionType):
        return function.__code__.co_argcount - len(function.__defaults__ or ())
    return int(getattr(function, "nin", 2))


def _counted(function: FunctionType, inputs: int, label: str) -> FunctionType:
    """The function with so many inputs: parameters with defaults beyond them become keyword-only, as constants are."""
    code, defaults = function.__code__, function.__defaults__ or ()
    beyond = code.co_argcount - inputs
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if starred or beyond < 0 or beyond > len(defaults):
        message = "* or **" if starred else ", ".join(code.co_varnames[: code.co_argcount]) or "none"
        raise SignatureError(f"{label} takes a function of {_count(inputs)}; {function.__name__} takes {message}")
    if not beyond:
        function.__defaults__ = None
        return function
    names = code.co_varnames[inputs : code.co_argcount]
    kept = dict(builtins.zip(names, defaults[-beyond:], strict=True))
    kind = code.replace(
        co_argcount=inputs,
        co_posonlyargcount=min(code.co_posonlyargcount, inputs),
        co_kwonlyargcount=code.co_kwonlyargcount + beyond,
    )
    result = FunctionType(kind, function.__globals__, function.__name__, None, function.__closure__)
    result.__kwdefaults__ = {**kept, **(function.__kwdefaults__ or {})}
    result.__doc__, result.__module__ = function.__doc__, function.__module__
    return result


def _count(inputs: int) -> str:
    return {1: "one number", 2: "two numbers"}.get(inputs, f"{inputs} numbers")
