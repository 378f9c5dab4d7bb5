"""Watched kernels in any language: a kernel of an op, on arrays, or a kernel called on any arguments."""

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from noyau.errors import MissingExtraError, UnsupportedError
from noyau.kernels.c.parameters import TextFunction
from noyau.kernels.reference import empty_outputs
from noyau.kernels.user_kernel import UserKernel, language_of
from noyau.sanitizer.access_map import AccessMap
from noyau.sanitizer.records import WatchedRun
from noyau.signatures.types import Instance

# From a kernel, its arguments, its launch, texts for its sizes and its name: the watched run, and the result.
Call = Callable[[Any, Sequence[Any], Any, str, str], tuple[WatchedRun, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Sanitizer:
    """The sanitizer of a language: the module with `watch`, for a kernel of an op, and `call`, for a function; the
    extra that installs its packages, and the packages: their import names, and their names for users."""

    module: str
    extra: str
    packages: Mapping[str, str]


_C_PACKAGES = {"elftools": "pyelftools", "tree_sitter": "tree-sitter", "tree_sitter_cpp": "tree-sitter-cpp"}
SANITIZERS: Mapping[str, Sanitizer] = {
    "numba": Sanitizer("noyau.sanitizer.numba.kernel", "numba", {"numba": "numba"}),
    "numba_cuda": Sanitizer("noyau.sanitizer.numba_cuda.launch", "numba", {"numba": "numba"}),
    "triton": Sanitizer("noyau.sanitizer.triton.kernel", "triton", {"triton": "triton", "torch": "torch"}),
    **dict.fromkeys(("c", "cpp", "cuda"), Sanitizer("noyau.sanitizer.c.kernel", "check-c", _C_PACKAGES)),
}


def bare_language(function: Any) -> str | None:
    """Return the language of a kernel that can be called directly, else None; a stand-in names its language."""
    if isinstance(function, TextFunction):
        return function.language
    language = getattr(type(function), "noyau_language", None) or language_of(function)
    return language if is_watched(language) else None


def call(function: Any, args: Sequence[Any], launch: Any, size: str, name: str) -> tuple[WatchedRun, Any]:
    """Call a kernel, watched: it changes its arguments. Also return its result.

    `launch`: (grid, block) for Numba-CUDA and CUDA C++, the grid for Triton, else None. UnsupportedError if it cannot
    be watched; SignatureError if the arguments or the launch do not fit; its own exceptions propagate."""
    language = bare_language(function)
    if language is None:
        raise UnsupportedError(f"{function!r} is no kernel of {', '.join(SANITIZERS)}, so its accesses are not seen")
    if lacks := missing_extra(language):
        raise MissingExtraError(lacks)
    return cast(Call, import_module(SANITIZERS[language].module).call)(function, args, launch, size, name)


@dataclass(frozen=True, slots=True, eq=False)
class KernelCase:
    """A kernel and its arguments; `size`: their sizes in the words of a report."""

    kernel: UserKernel
    instance: Instance
    arrays: Sequence[np.ndarray]
    constants: Mapping[str, Any]
    size: str = ""

    def zero_outputs(self) -> list[np.ndarray]:
        """Return outputs of zeros, so that a watched run gives the same numbers each time."""
        return [np.zeros_like(each) for each in empty_outputs(self.instance, self.arrays)]


Watch = Callable[[KernelCase, list[AccessMap] | None], WatchedRun]


def missing_extra(language: str) -> str:
    """Return which package kernels of a language lack, and how to install it; "" if none is missing."""
    if not is_watched(language):
        return ""
    extra, packages = SANITIZERS[language].extra, SANITIZERS[language].packages.items()
    missing = next((name for module, name in packages if find_spec(module) is None), None)
    return f"{missing} is not installed; run: pip install 'noyau-kernels[{extra}]'" if missing else ""


def is_watched(language: str) -> bool:
    """Whether kernels of this language can be watched here."""
    return language in SANITIZERS


def watch(case: KernelCase, maps: list[AccessMap] | None = None) -> WatchedRun:
    """Watch a kernel on some arrays; `maps` receives its access map.

    UnsupportedError if the language, or a part of the kernel, cannot be watched; CheckError if it raises; BuildError
    without a C compiler."""
    language = case.kernel.language
    if not is_watched(language):
        raise UnsupportedError(f"kernels in {language} are not watched")
    return cast(Watch, import_module(SANITIZERS[language].module).watch)(case, maps)


def array_behind(value: Any) -> np.ndarray | None:
    """Return the NumPy array on the memory of an argument; None for other values."""
    if isinstance(value, np.ndarray):
        return value
    inner = getattr(value, "_ary", None)  # of the simulator of Numba-CUDA
    if isinstance(inner, np.ndarray):
        return inner
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr"):
        from noyau.hosts.torch.tensors import array_of

        return array_of(value)
    return None


def copy_argument(value: Any) -> Any:
    """Copy an argument: arrays become NumPy copies, also within tuples and lists."""
    if isinstance(value, tuple | MutableSequence):
        parts = [copy_argument(each) for each in value]
        return tuple_like(value, parts) if isinstance(value, tuple) else parts
    array = array_behind(value)
    return value if array is None else np.array(array)


def restore(value: Any, old: Any) -> None:
    """Restore the arrays in a value from `old`, a copy of it."""
    if isinstance(value, tuple | MutableSequence):
        for each, before in zip(value, old, strict=True):
            restore(each, before)
    elif (array := array_behind(value)) is not None and array.flags.writeable:
        array[...] = old


def tuple_like(value: tuple[Any, ...], parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return a tuple of these parts, with the names of `value` if it has any."""
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
