"""A call of a kernel that is on no op, on arguments as one has them, with every access watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.handwritten.kernels import language_of
from noyau.shadow.c.functions import TextFunction
from noyau.shadow.records import Watched

# Of a kernel, its arguments, its launch, words for the sizes and for what it is called: what was seen, what it gave.
Call = Callable[[Any, Sequence[Any], Any, str, str], tuple[Watched, Any]]

# The module of each language that has a function `call`, and the packages that it needs.
_ROUTES = {
    "numba": ("noyau.shadow.numba.calling", ("numba",)),
    "numba_cuda": ("noyau.shadow.numba_cuda.calling", ("numba",)),
    "triton": ("noyau.shadow.triton.calling", ("triton", "torch")),
    **dict.fromkeys(("c", "cpp", "cuda"), ("noyau.shadow.c.calling", ())),
}


def bare_language(function: Any) -> str | None:
    """The language of a kernel that can be called so, else None; a stand-in of one says which it is."""
    if isinstance(function, TextFunction):
        return function.language
    language = getattr(type(function), "noyau_language", None) or language_of(function)
    return language if language in _ROUTES else None


def call(function: Any, args: Sequence[Any], launch: Any, size: str, called: str) -> tuple[Watched, Any]:
    """Call it, watched: its arguments are changed as it changes them; and what it returns.

    `launch`: (grid, block) of Numba-CUDA and CUDA C++, the grid of Triton, else None. UnsupportedError where it cannot
    be watched; SignatureError where the arguments or the launch do not fit; whatever it raises."""
    language = bare_language(function)
    if language is None:
        raise UnsupportedError(f"{function!r} is no kernel of {', '.join(_ROUTES)}, so its accesses are not seen")
    module, packages = _ROUTES[language]
    missing = next((name for name in packages if find_spec(name) is None), None)
    if missing is not None:
        raise MissingExtraError(f"{missing} is not installed; run: pip install 'noyau[{language.partition('_')[0]}]'")
    return cast(Call, import_module(module).call)(function, args, launch, size, called)
