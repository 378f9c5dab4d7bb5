"""A call of a kernel that is on no op, on arguments as one has them, with every access watched.

A kernel on an op, and one call of it that is to be watched.

A hand-written kernel on some arrays with every access watched, in whatever language it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.kernels.c.functions import TextFunction
from noyau.kernels.reference import empty_outputs
from noyau.kernels.user_kernel import HandKernel, language_of
from noyau.sanitizer.access_map import Map
from noyau.sanitizer.records import Watched
from noyau.signatures.types import Instance

# Of a kernel, its arguments, its launch, words for the sizes and for what it is called: what was seen, what it gave.
Call = Callable[[Any, Sequence[Any], Any, str, str], tuple[Watched, Any]]

# The module of each language that has a function `call`, and the packages that it needs.
_CALL_ROUTES = {
    "numba": "noyau.sanitizer.numba.kernel",
    "numba_cuda": "noyau.sanitizer.numba_cuda.kernel",
    "triton": "noyau.sanitizer.triton.bare_call",
    **dict.fromkeys(("c", "cpp", "cuda"), "noyau.sanitizer.c.bare_call"),
}

# The extra of each language that has one, and its packages: by what they are imported as, and by what they are called.
_EXTRAS = {
    **dict.fromkeys(("numba", "numba_cuda"), ("numba", {"numba": "numba"})),
    "triton": ("triton", {"triton": "triton", "torch": "torch"}),
    **dict.fromkeys(("c", "cpp", "cuda"), ("check-c", {"elftools": "pyelftools"})),
}


def bare_language(function: Any) -> str | None:
    """The language of a kernel that can be called so, else None; a stand-in of one says which it is."""
    if isinstance(function, TextFunction):
        return function.language
    language = getattr(type(function), "noyau_language", None) or language_of(function)
    return language if language in _CALL_ROUTES else None


def call(function: Any, args: Sequence[Any], launch: Any, size: str, called: str) -> tuple[Watched, Any]:
    """Call it, watched: its arguments are changed as it changes them; and what it returns.

    `launch`: (grid, block) of Numba-CUDA and CUDA C++, the grid of Triton, else None. UnsupportedError where it cannot
    be watched; SignatureError where the arguments or the launch do not fit; whatever it raises."""
    language = bare_language(function)
    if language is None:
        raise UnsupportedError(f"{function!r} is no kernel of {', '.join(_CALL_ROUTES)}, so its accesses are not seen")
    if lacks := missing_extra(language):
        raise MissingExtraError(lacks)
    return cast(Call, import_module(_CALL_ROUTES[language]).call)(function, args, launch, size, called)


Array = np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A kernel and what it is to be run on; `size` is what a report says of that."""

    kernel: HandKernel
    instance: Instance
    arrays: Sequence[Array]
    constants: Mapping[str, Any]
    size: str = ""

    def zeroed_outputs(self) -> list[Array]:
        """Memory for its outputs, of zeros, so that a watched run gives the same numbers each time."""
        return [np.zeros_like(each) for each in empty_outputs(self.instance, self.arrays)]


Watch = Callable[[Case, list[Map] | None], Watched]

# The module of each language that has a function `watch`.
_ROUTES = {
    "numba": "noyau.sanitizer.numba.kernel",
    "numba_cuda": "noyau.sanitizer.numba_cuda.kernel",
    "triton": "noyau.sanitizer.triton.kernel",
    "c": "noyau.sanitizer.c.kernel",
    "cpp": "noyau.sanitizer.c.kernel",
    "cuda": "noyau.sanitizer.c.kernel",
}


def missing_extra(language: str) -> str:
    """Say which package kernels of a language want, and how to install it; nothing where all are there."""
    extra, packages = _EXTRAS.get(language, ("", {}))
    missing = next((name for module, name in packages.items() if find_spec(module) is None), None)
    return f"{missing} is not installed; run: pip install 'noyau[{extra}]'" if missing else ""


def is_watched(language: str) -> bool:
    """Whether kernels of this language can be watched here."""
    route = _ROUTES.get(language)
    return route is not None and find_spec(route.rpartition(".")[0]) is not None and find_spec(route) is not None


def watch(case: Case, maps: list[Map] | None = None) -> Watched:
    """A kernel on some arrays, watched. A map of who writes what is put into `maps`.

    UnsupportedError where the language, or something in the kernel, cannot be watched; CheckError where it raises;
    BuildError without a C compiler."""
    language = case.kernel.language
    if not is_watched(language):
        raise UnsupportedError(f"kernels in {language} are not watched")
    return cast(Watch, import_module(_ROUTES[language]).watch)(case, maps)
