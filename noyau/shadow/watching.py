"""A hand-written kernel on some arrays with every access watched, in whatever language it is."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from noyau.errors import UnsupportedError
from noyau.shadow.cases import Case
from noyau.shadow.mapping import Map
from noyau.shadow.records import Watched

Watch = Callable[[Case, list[Map] | None], Watched]

# The module of each language that has a function `watch`.
_ROUTES = {
    "numba": "noyau.shadow.numba.watching",
    "numba_cuda": "noyau.shadow.numba_cuda.watching",
    "triton": "noyau.shadow.triton.watching",
    "c": "noyau.shadow.c.watching",
    "cpp": "noyau.shadow.c.watching",
    "cuda": "noyau.shadow.c.watching",
}


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
