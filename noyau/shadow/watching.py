"""A hand-written kernel on some arrays with every access watched, in whatever language it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from noyau.errors import UnsupportedError
from noyau.handwritten.kernels import HandKernel
from noyau.shadow.mapping import Map
from noyau.shadow.records import Watched
from noyau.signatures.types import Instance

Watch = Callable[[HandKernel, Instance, Sequence[np.ndarray], Mapping[str, Any], str, list[Map] | None], Watched]

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


def watch(
    kernel: HandKernel,
    instance: Instance,
    arrays: Sequence[np.ndarray],
    constants: Mapping[str, Any],
    size: str,
    maps: list[Map] | None = None,
) -> Watched:
    """The kernel on these arrays; `size` says of which sizes they are. A map of who writes what is put into `maps`.

    UnsupportedError where the language, or something in the kernel, cannot be watched; CheckError where it raises;
    BuildError without a C compiler."""
    if not is_watched(kernel.language):
        raise UnsupportedError(f"kernels in {kernel.language} are not watched")
    route = cast(Watch, import_module(_ROUTES[kernel.language]).watch)
    return route(kernel, instance, arrays, constants, size, maps)
